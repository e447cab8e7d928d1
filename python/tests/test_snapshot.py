"""weightmap.snapshot_here(), without criu and with it."""

import json
import os
import subprocess
import time

import pytest
from conftest import fresh_python

import weightmap


def test_a_program_that_runs_by_itself_goes_on(monkeypatch):
    monkeypatch.delenv("WEIGHTMAP_SNAPSHOT", raising=False)
    assert weightmap.snapshot_here() is False


def test_a_folder_that_is_gone(monkeypatch, tmp_path):
    monkeypatch.setenv("WEIGHTMAP_SNAPSHOT", str(tmp_path / "gone"))
    assert weightmap.snapshot_here() is False


# --- the answer, without criu ---


@pytest.fixture
def here(tmp_path):
    """The folder in which a program and its supervisor meet."""
    folder = tmp_path / "here"
    folder.mkdir()
    return folder


@pytest.fixture
def start(tmp_path, start_python):
    """Starts a program below a process 1 that has these variables."""

    def start(program, folder, *arguments, first=None, **environment):
        started_with = tmp_path / "environ"
        started_with.write_bytes(entries(first or {}))
        program = f"""
import weightmap._snapshot
weightmap._snapshot._STARTED_WITH = {str(started_with)!r}
{program}"""
        return start_python(program, *arguments, WEIGHTMAP_SNAPSHOT=str(folder), **environment)

    return start


@pytest.fixture
def ask(here, start):
    """Starts a program that calls snapshot_here(), and returns it once it waits for the answer."""

    def ask(program, **options):
        process = start(program, here, **options)
        while not (here / "called").exists():
            assert process.poll() is None
            time.sleep(0.002)
        return process

    return ask


def entries(variables):
    return b"".join(name + b"=" + text + b"\0" for name, text in variables.items())


def answer(here, kind, variables=None):
    """As the supervisor does: the file is there as a whole."""
    (here / "new").write_bytes(kind + b"\0" + entries(variables or {}))
    (here / "new").rename(here / "answer")


def said(process):
    output, _ = process.communicate()
    assert process.returncode == 0
    return json.loads(output)


ANSWER = """
import json
print(json.dumps([weightmap.snapshot_here(), weightmap.snapshot_here()]))
"""


@pytest.mark.parametrize("kind, is_restored", [(b"original", False), (b"restored", True),
                                               (b"restored-or-not", False), (b"", False)])
def test_the_answer_says_which_process_it_is(here, ask, kind, is_restored):
    process = ask(ANSWER)
    answer(here, kind)
    assert said(process) == [is_restored, is_restored]


def test_the_call_is_there_before_its_answer_is_waited_for(here, ask):
    process = ask(ANSWER)  # which returns since "called" is there
    assert (here / "called").read_bytes() == b""
    assert process.poll() is None
    answer(here, b"original")
    assert said(process) == [False, False]


def test_an_answer_that_never_comes(here, monkeypatch):
    monkeypatch.setattr("weightmap._snapshot._STARTED_WITH", os.devnull)
    monkeypatch.setenv("WEIGHTMAP_SNAPSHOT", str(here))
    monkeypatch.setattr("weightmap._snapshot._LONGEST_DUMP", 0.01)
    assert weightmap.snapshot_here() is False


# --- the environment of a restored process ---

VARIABLES = """
import json, os
os.environ["SET_SINCE"] = "by the program"
os.environ["CHANGED_SINCE"] = "by the program"
del os.environ["REMOVED_SINCE"]
weightmap.snapshot_here()
print(json.dumps({os.fsdecode(name): text.hex() for name, text in os.environb.items()}))
"""
FIRST = {b"SAME": b"same", b"TOKEN": b"old", b"EMPTY": b"old", b"GONE": b"old",
         b"CHANGED_SINCE": b"old", b"REMOVED_SINCE": b"old", b"SET_BETWEEN": b"old"}


@pytest.fixture
def variables(here, ask, tmp_path):
    """Those of a process that began with FIRST, as bytes, after an answer with these."""

    def variables(now, kind=b"restored", **more):
        first = {**FIRST, **{os.fsencode(name): text for name, text in more.items()}}
        texts = {os.fsdecode(name): os.fsdecode(text) for name, text in first.items()}
        process = ask(VARIABLES, first=first, **{**texts, "SET_BETWEEN": "by a script"})
        (tmp_path / "environ").write_bytes(entries(now))  # of another process 1
        answer(here, kind, now)
        return {os.fsencode(name): bytes.fromhex(text) for name, text in said(process).items()}

    return variables


def test_the_variables_of_the_new_start_are_taken_over(variables):
    found = variables({b"SAME": b"same", b"TOKEN": b"new", b"EMPTY": b"", b"MORE": b"a=b"})
    assert found[b"SAME"] == b"same"
    assert found[b"TOKEN"] == b"new"
    assert found[b"EMPTY"] == b""
    assert found[b"MORE"] == b"a=b"
    assert b"GONE" not in found


def test_variables_that_the_program_changed_stay(variables):
    found = variables({b"SET_SINCE": b"new", b"CHANGED_SINCE": b"new", b"REMOVED_SINCE": b"new"})
    assert found[b"SET_SINCE"] == found[b"CHANGED_SINCE"] == b"by the program"
    assert b"REMOVED_SINCE" not in found


def test_variables_that_a_script_before_the_program_changed_stay(variables):
    assert variables({b"SET_BETWEEN": b"new"})[b"SET_BETWEEN"] == b"by a script"


def test_variables_of_the_original_process_stay(variables):
    assert variables({b"TOKEN": b"new"}, b"original")[b"TOKEN"] == b"old"


def test_bytes_that_are_not_utf_8_are_taken_over(variables):
    found = variables({b"TOKEN": b"\xff\xfe\n", b"\xe9T\xc3\xa9": b"\xe9"}, EMPTY=b"\xff")
    assert found[b"TOKEN"] == b"\xff\xfe\n"
    assert found[b"\xe9T\xc3\xa9"] == b"\xe9"
    assert b"EMPTY" not in found


def test_what_is_no_variable_is_left_out(variables):
    found = variables({b"": b"text", b"TOKEN": b"new"})
    assert b"" not in found
    assert found[b"TOKEN"] == b"new"


def test_the_folder_stays_that_of_this_process(variables, here):
    assert variables({b"WEIGHTMAP_SNAPSHOT": b"other"})[b"WEIGHTMAP_SNAPSHOT"] == bytes(here)


# --- generators of random numbers ---

DRAW = """
import json, sys
for name in sys.argv[1:]:
    __import__(name)
generators = {
    "random": (lambda m: m.seed(1), lambda m: m.random()),
    "numpy.random": (lambda m: m.seed(1), lambda m: m.rand()),
    "torch": (lambda m: m.manual_seed(1), lambda m: m.rand(1).item()),
}
chosen = {name: sys.modules[name] for name in sys.argv[1:] if name in generators}
for name, module in chosen.items():
    generators[name][0](module)
call = weightmap.snapshot_here
before = set(sys.modules)
is_restored = call()
new = sorted(set(sys.modules) - before)
print(json.dumps([{name: generators[name][1](module) for name, module in chosen.items()},
                  new, is_restored]))
"""


@pytest.fixture
def draws(tmp_path, start):
    """The first numbers of two processes whose generators began alike, behind the call."""

    def draws(kind, *modules):
        answers = []
        for name in "ab":
            folder = tmp_path / name
            folder.mkdir()
            answer(folder, kind)
            answers.append(said(start(DRAW, folder, *modules)))
        numbers, new_modules, is_restored = zip(*answers)
        assert is_restored == (kind == b"restored",) * 2
        assert new_modules == ([], [])
        return numbers

    return draws


@pytest.mark.parametrize("modules", [["random"], ["ssl", "random", "numpy.random", "torch"]],
                         ids=["random", "all"])
def test_restored_processes_draw_other_numbers(draws, modules):
    for module in modules:
        pytest.importorskip(module, reason="seeds its generator")
    one, other = draws(b"restored", *modules)
    assert one.keys() == other.keys() == {*modules} - {"ssl"}
    assert [name for name in one if one[name] == other[name]] == []


def test_the_original_process_draws_what_it_would_have_drawn(draws):
    one, other = draws(b"original", "random")
    assert one == other == {"random": 0.13436424411240122}


def test_nothing_is_imported_for_its_generator(draws, numpy):
    assert draws(b"restored", "numpy") == ({}, {})


def test_a_module_that_cannot_be_imported_is_left_alone(here, ask):
    process = ask("import sys; sys.modules['torch'] = sys.modules['numpy'] = None\n" + ANSWER)
    answer(here, b"restored")
    assert said(process) == [True, True]
