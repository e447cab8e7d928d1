"""release="hold" of the loaders of engines, with the real `weightmap hold`."""

import concurrent.futures
import contextlib
import json
import os
import select
import shutil
import signal
import socket
import tempfile
import time
from pathlib import Path

import pytest
from engine_files import load, names, write

import weightmap
from weightmap._engines import release as _hold_daemon
from weightmap._engines.release import hold

TOOL = Path(weightmap.__file__).with_name("bin") / "weightmap"


@pytest.fixture
def runtime(monkeypatch):
    """The folder of the daemon, which is ended in the end."""
    # A socket's path is short.
    with tempfile.TemporaryDirectory(prefix="weightmap-") as folder:
        monkeypatch.setenv("WEIGHTMAP_RUNTIME_DIR", folder)
        yield Path(folder)
        end_daemon(folder)


@pytest.fixture
def tool():
    if not TOOL.exists():
        pytest.skip("the package was built without the command line tool")


def ask(folder, operation):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(os.path.join(folder, "hold.sock"))
        connection.sendall(json.dumps({"op": operation}).encode() + b"\n")
        return json.loads(connection.makefile("rb").readline())


def end_daemon(folder):
    """Returns when it has ended."""
    try:
        process = ask(folder, "status")["pid"]
    except OSError:
        return
    ended = os.pidfd_open(process)
    os.kill(process, signal.SIGTERM)
    with open(ended):
        select.select([ended], [], [])


def test_a_daemon_whose_queue_is_full_is_waited_for(tmp_path, runtime, monkeypatch):
    with contextlib.ExitStack() as opened, socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(runtime / "hold.sock"))
        listening.listen(0)
        with pytest.raises(BlockingIOError):
            while True:
                waiting = opened.enter_context(socket.socket(socket.AF_UNIX))
                waiting.setblocking(False)
                waiting.connect(str(runtime / "hold.sock"))
        monkeypatch.setattr(_hold_daemon.time, "sleep", lambda _: listening.accept()[0].close())
        _hold_daemon._connected(time.monotonic() + 600).close()
        listening.close()
        (runtime / "hold.sock").unlink()


def held(folder):
    return sorted(os.path.basename(each["file"]) for each in ask(folder, "status")["files"])


def daemons(folder):
    """The processes that have this runtime directory and are daemons."""
    found = []
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
            environment = Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        here = f"WEIGHTMAP_RUNTIME_DIR={folder}".encode() in environment
        if here and words[1:2] == [b"hold"]:
            found.append(int(process))
    return found


def test_a_load_leaves_the_daemon_behind(torch, tool, runtime, tmp_path):
    write(tmp_path, "model-1.safetensors", {"a": torch.ones(4)})
    write(tmp_path, "model-2.safetensors", {"b": torch.ones(4)})
    files = [tmp_path / "model-1.safetensors", tmp_path / "model-2.safetensors"]
    for _ in range(2):
        weights, lines = load(files, {"release": "hold"})
        assert names(list(weights)) == ["a", "b"]
        assert "not held" not in lines[-1]
        assert held(runtime) == ["model-1.safetensors", "model-2.safetensors"]
    (daemon,) = daemons(runtime)
    assert os.getsid(daemon) != os.getsid(0)
    parent = Path(f"/proc/{daemon}/stat").read_text().rpartition(")")[2].split()[1]
    assert parent != str(os.getpid())


def test_many_that_end_at_once_start_one(data, tool, runtime, start_python):
    program = "import sys; from weightmap._engines.release import hold; hold(sys.argv[1:])"
    ranks = [start_python(program, data / name) for name in ("module.pt", "dtypes.pt") * 3]
    assert [rank.wait() for rank in ranks] == [0] * 6
    assert held(runtime) == ["dtypes.pt", "module.pt"]
    assert len(daemons(runtime)) == 1


def test_threads_start_one(data, tool, runtime):
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(hold, [[str(data / "module.pt")]] * 4))
    assert len(daemons(runtime)) == 1


def test_one_that_runs_is_asked(data, tool, runtime, monkeypatch):
    hold([str(data / "module.pt")])
    monkeypatch.setattr(_hold_daemon, "_start", lambda: pytest.fail("started again"))
    monkeypatch.chdir(data)
    hold(["dtypes.pt"])
    assert held(runtime) == ["dtypes.pt", "module.pt"]


def test_one_that_came_meanwhile_is_asked(data, tool, runtime, monkeypatch):
    hold([str(data / "module.pt")])
    connected = _hold_daemon._connected
    answers = [None]
    monkeypatch.setattr(
        _hold_daemon, "_connected", lambda until: answers.pop() if answers else connected(until)
    )
    monkeypatch.setattr(_hold_daemon, "_start", lambda: pytest.fail("started again"))
    hold([str(data / "dtypes.pt")])
    assert held(runtime) == ["dtypes.pt", "module.pt"]


def test_what_was_killed_is_started_again(data, tool, runtime):
    hold([str(data / "module.pt")])
    (daemon,) = daemons(runtime)
    ended = os.pidfd_open(daemon)
    os.kill(daemon, signal.SIGKILL)
    with open(ended):
        select.select([ended], [], [])
    assert (runtime / "hold.sock").exists()
    hold([str(data / "module.pt")])
    assert held(runtime) == ["module.pt"]


def test_what_the_daemon_refuses_is_told(tool, runtime, tmp_path):
    (tmp_path / "model.pt").write_bytes(b"no checkpoint")
    with pytest.raises(weightmap.FileError) as refused:
        hold([str(tmp_path / "model.pt")])
    assert refused.value.file == str(tmp_path / "model.pt")
    assert "is not a torch checkpoint" in refused.value.message


def test_without_the_tool_it_is_a_remark(torch, runtime, tmp_path, monkeypatch):
    monkeypatch.setattr(_hold_daemon, "__file__", str(tmp_path / "_engines" / "hold_daemon.py"))
    write(tmp_path, "model.safetensors", {"a": torch.ones(4)})
    weights, lines = load([tmp_path / "model.safetensors"], {"release": "hold"})
    assert names(list(weights)) == ["a"]
    assert lines[-1].endswith("not held: this package was built without the command line tool")


def test_a_daemon_that_does_not_come_is_not_waited_for(runtime, tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    shutil.copy("/bin/true", tmp_path / "bin" / "weightmap")
    monkeypatch.setattr(_hold_daemon, "__file__", str(tmp_path / "_engines" / "hold_daemon.py"))
    monkeypatch.setattr(_hold_daemon, "_LONGEST_START", 0.0)
    with pytest.raises(weightmap.FileError) as refused:
        hold([str(tmp_path / "model.pt")])
    assert refused.value.message == "weightmap hold did not answer within 0 s"
