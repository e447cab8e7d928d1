"""weightmap.prefetch(), and what is read ahead from the start of Python without a call."""

import os
import shutil
import sys
import threading
from pathlib import Path

import pytest

import weightmap
from weightmap import _read_ahead
from weightmap._engines.at_start import asks_for_weightmap


@pytest.fixture
def spawned(monkeypatch):
    """The command lines of the processes that are started."""
    commands = []
    real = os.posix_spawn

    def spawn(path, arguments, *others, **options):
        commands.append([os.fsdecode(word) for word in arguments])
        return real(path, arguments, *others, **options)

    monkeypatch.setattr(os, "posix_spawn", spawn)
    return commands


def children():
    """Of this process, those that have ended and nobody has waited for, too."""
    return {child for listed in Path("/proc/self/task").glob("*/children")
            for child in listed.read_text().split()}


def test_a_process_of_its_own_reads(data, spawned):
    threads, descriptors = threading.active_count(), os.listdir("/proc/self/fd")
    before = children()
    assert weightmap.prefetch(data / "views.pt") is None
    [command] = spawned
    assert command[1:5] == ["read-ahead", "--json", f"--for={os.getpid()}",
                            f"--model={data / 'views.pt'}"]
    assert command[5:] == ["--", sys.executable, *sys.orig_argv[1:]]
    assert threading.active_count() == threads
    assert os.listdir("/proc/self/fd") == descriptors
    assert children() == before


def test_a_model_of_the_hub_is_found_by_its_name(tmp_path, monkeypatch, data, spawned):
    snapshot = tmp_path / "models--org--name" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot.parents[1] / "refs").mkdir()
    (snapshot.parents[1] / "refs" / "main").write_text("abc")
    shutil.copy(data / "views.pt", snapshot / "model.pt")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    weightmap.prefetch("org/name")
    assert "--model=org/name" in spawned[0]


@pytest.mark.parametrize("name", ["none.pt", "org/none", ""])
def test_a_model_that_is_not_there(tmp_path, monkeypatch, name):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(weightmap.MissingFileError, match="no such file, folder, or model") as caught:
        weightmap.prefetch(name)
    assert caught.value.file == name


def test_a_path_with_a_nul():
    with pytest.raises(weightmap.InvalidArgumentError, match="a path has no NUL"):
        weightmap.prefetch("model\0.pt")


def test_a_package_without_the_tool(tmp_path, monkeypatch, data):
    monkeypatch.setattr(_read_ahead, "__file__", str(tmp_path / "_read_ahead.py"))
    with pytest.raises(weightmap.UnsupportedError, match="built without `weightmap run`"):
        weightmap.prefetch(data / "views.pt")
    monkeypatch.setattr(sys, "orig_argv", ["python", "serve.py", "--model=org/name"])
    _read_ahead.read_named_models()  # which fails nothing


def test_a_package_whose_tool_knows_no_run(tmp_path, monkeypatch, data):
    tool = tmp_path / "bin" / "weightmap"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\nexit 2\n")
    tool.chmod(0o755)
    monkeypatch.setattr(_read_ahead, "__file__", str(tmp_path / "_read_ahead.py"))
    with pytest.raises(weightmap.UnsupportedError, match="built without `weightmap run`"):
        weightmap.prefetch(data / "views.pt")


@pytest.mark.parametrize("words, is_read", [
    (["serve.py", "--model", "org/name"], True),
    (["serve.py", "model=model.pt"], True),
    (["serve.py", "8000"], False),
    (["serve.py"], False),
    (["-c", "from multiprocessing.spawn import main", "--multiprocessing-fork"], False),
])
def test_the_tool_is_asked_where_a_word_may_name_a_model(monkeypatch, spawned, words, is_read):
    monkeypatch.setattr(sys, "orig_argv", ["python", *words])
    _read_ahead.read_named_models()
    assert len(spawned) == is_read


@pytest.mark.parametrize("words, asks", [
    (["vllm", "serve", "org/name", "--load-format", "weightmap"], True),
    (["sglang", "serve", "--load-format=weightmap"], True),
    (["vllm", "serve", "weightmap", "--load-format", "auto"], False),
    (["vllm", "serve", "org/name", "--load-format"], False),
    (["vllm", "serve", "org/name", "--load-format=weightmap",
      """--model-loader-extra-config={"access": {"*ngram*": "random"}}"""], False),
])
def test_an_engine_asks_for_weightmap(words, asks):
    assert asks_for_weightmap(words) is asks


# --- at the start of Python ---

LOOK = """
import sys
print([name for name in ("weightmap._read_ahead", "weightmap._patch_at_start", "torch")
       if name in sys.modules])
"""


def start(run, tmp_path, *words, value):
    program = tmp_path / "program.py"
    program.write_text(LOOK)
    ended = run(program, *words, value=value)
    assert ended.stderr == ""
    return ended.stdout.strip()


def test_an_engine_reads_from_the_start(run, tmp_path):
    words = ("--load-format", "weightmap")
    assert start(run, tmp_path, *words, value="") == "['weightmap._read_ahead']"
    assert start(run, tmp_path, "--load-format", "auto", value="") == "['weightmap._read_ahead']"
    assert start(run, tmp_path, "weightmap", value="") == "[]"


def test_what_is_patched_reads_from_the_start(run, tmp_path):
    assert (start(run, tmp_path, "--model", "org/name", value="1")
            == "['weightmap._read_ahead', 'weightmap._patch_at_start']")
