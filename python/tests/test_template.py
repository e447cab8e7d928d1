"""`weightmap run --template`: later starts are forks of what snapshot_here() has left behind."""

import json
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

import weightmap

TOOL = Path(weightmap.__file__).with_name("bin") / "weightmap"
# Says what it is, as JSON, once it has called.
PROGRAM = """
import json, os, random, signal, sys
import module, weightmap
text = open(sys.argv[0], "rb", buffering=0)
text.read(5)
random.seed(1)
is_fork = weightmap.snapshot_here(new=["PORT"])
said = {
    "fork": is_fork, "process": os.getpid(), "arguments": sys.argv[1:], "folder": os.getcwd(),
    "port": os.environ.get("PORT"), "text": text.read(5).decode(), "input": sys.stdin.readline(),
    "number": random.random(), "title": open("/proc/self/cmdline").read().split(chr(0)),
    "variable": os.environ.get("WEIGHTMAP_TEMPLATE"),
}
print(json.dumps(said), flush=True)
if "wait" in sys.argv:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
    print("waits", flush=True)
    signal.pause()
if "kill" in sys.argv:
    os.kill(os.getpid(), signal.SIGTERM)
sys.exit(3)
"""


@pytest.fixture(scope="module")
def python(environment, start_file):
    """An interpreter that runs the start file."""
    interpreter, packages = environment
    shutil.copy(start_file, packages)
    yield interpreter
    (packages / start_file.name).unlink()


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "module.py").write_text("")
    return tmp_path


@pytest.fixture
def tool(folder):
    """Runs the tool; templates end with the test."""
    if not TOOL.exists():
        pytest.skip("the package has no tool")
    started = []

    def start(*words, input=subprocess.DEVNULL, keeps=(), **variables):
        settings = {name: text for name, text in os.environ.items()
                    if name not in ("PYTHONPATH", "PYTHONUNBUFFERED", "PORT")}
        settings.update(WEIGHTMAP_RUNTIME_DIR=str(folder / "runtime"), XDG_CACHE_HOME=str(folder),
                        PYTHONDONTWRITEBYTECODE="1", **variables)
        started.append(subprocess.Popen([TOOL, *map(str, words)], env=settings, cwd=folder,
                                        stdin=input, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        text=True, pass_fds=keeps))
        return started[-1]

    (folder / "runtime").mkdir(mode=0o700)
    yield start
    for each in started:
        each.kill()
        each.communicate()
    start("run", "--end-templates").communicate()


@pytest.fixture
def start(tool, python):
    """Starts the program, or another command, from its template."""

    def start(*arguments, command=None, option="--template=30", **variables):
        words = command or [python, "program.py", *arguments]
        return tool("run", option, "--", *words, **variables)

    return start


@pytest.fixture
def answer(start):
    """What a start said, what `run` said, and how it ended."""

    def answer(*arguments, **options):
        process = start(*arguments, input=subprocess.PIPE, **options)
        output, complaint = process.communicate("one\ntwo\n")
        return json.loads(output or "null"), complaint, process.returncode

    return answer


@pytest.fixture
def templates(tool):
    def templates():
        return json.loads(tool("run", "--list-templates", "--json").communicate()[0])["templates"]

    return templates


@pytest.fixture
def template(answer, templates):
    """Makes one, and returns it once it listens."""

    def template(*arguments, **options):
        said, complaint, _ = answer(*arguments, **options)
        assert (said["fork"], complaint) == (False, "")
        while not templates():
            time.sleep(0.005)
        return templates()[0]

    return template


def lines_of(process, count):
    return [process.stdout.readline() for _ in range(count)]


def wait_until_gone(process):
    """Also one that nobody has waited for, as some init processes do."""
    wait_for_state(process, "ZX")


def wait_for_state(process, states):
    while state_of(process) not in states:
        time.sleep(0.005)


def state_of(process):
    """A letter of proc(5)."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"


# --- a fork stands for a start ---


def test_a_fork_has_what_a_start_would_have(template, answer, folder, python):
    template("a", "b c", PORT="1")
    said, complaint, status = answer("a", "b c", PORT="2")
    number = said.pop("number")
    assert said.pop("process") > 0
    assert said == {"fork": True, "arguments": ["a", "b c"], "folder": str(folder), "port": "2",
                    "text": PROGRAM[5:10], "input": "one\n", "variable": None,
                    "title": [str(python), "program.py", "a", "b c", ""]}
    assert (complaint, status) == ("", 3)
    again, _, _ = answer("a", "b c")
    assert again["port"] is None
    assert again["text"] == said["text"]  # each has an offset of its own
    assert again["number"] != number


def test_the_first_start_is_the_process_of_run_itself(start):
    process = start()
    said = json.loads(process.stdout.readline())
    assert (said["fork"], said["process"], said["variable"]) == (False, process.pid, None)


def test_signals_reach_a_fork(start):
    first = start("wait")
    lines_of(first, 2)
    first.terminate()
    assert first.wait() == 7
    later = start("wait")
    assert json.loads(lines_of(later, 2)[0])["fork"] is True
    later.terminate()
    assert later.wait() == 7


def test_run_ends_by_the_signal_that_ended_a_fork(template, answer):
    template("kill")
    said, _, status = answer("kill")
    assert (said["fork"], status) == (True, -signal.SIGTERM)


def test_a_fork_is_killed_with_run(start):
    first = start("wait")
    lines_of(first, 2)
    later = start("wait")
    said = json.loads(lines_of(later, 2)[0])
    assert said["fork"] is True
    later.kill()
    wait_until_gone(said["process"])


def test_a_fork_stands_still_with_run(start):
    lines_of(first := start("wait"), 2)
    later = start("wait")
    fork = json.loads(lines_of(later, 2)[0])["process"]
    later.send_signal(signal.SIGTSTP)
    wait_for_state(fork, "T")
    wait_for_state(later.pid, "T")
    later.send_signal(signal.SIGCONT)
    wait_for_state(fork, "S")
    later.terminate()
    assert (first.poll(), later.wait()) == (None, 7)


def test_a_template_that_is_killed_leaves_its_forks(start, templates):
    lines_of(start("wait"), 2)
    later = start("wait")
    assert json.loads(lines_of(later, 2)[0])["fork"] is True
    os.kill(templates()[0]["process"], signal.SIGKILL)
    while templates():
        time.sleep(0.005)
    later.terminate()
    assert later.communicate()[1] == (
        "weightmap run: the template was killed, so that nobody knows how the command ended\n")
    assert later.returncode == 1


def test_forks_run_beside_each_other_and_outlive_their_template(start, tool):
    first = start("wait")
    lines_of(first, 2)
    later = [start("wait") for _ in range(2)]
    for each in later:
        if not json.loads(lines_of(each, 2)[0])["fork"]:
            each.kill()
            pytest.fail(f"is no fork: {each.communicate()[1]}")
    assert tool("run", "--end-templates").communicate()[0] == "ended 1 template\n"
    for each in later:
        each.terminate()
    assert [each.wait() for each in later] == [7, 7]


def test_two_first_starts_at_once(start, templates, folder):
    both = [start() for _ in range(2)]
    assert [json.loads(each.stdout.readline())["fork"] for each in both] == [False, False]
    for each in both:
        assert each.communicate()[1] == ""
    while len(templates()) != 1 or running_templates(folder) != 1:
        time.sleep(0.005)


def running_templates(folder):
    """How many processes are templates in this folder."""
    return sum(comm.read_text() == "weightmap templ\n" and is_in(folder, comm.parent)
               for comm in Path("/proc").glob("[0-9]*/comm") if comm.exists())


def is_in(folder, process):
    try:
        return (process / "cwd").readlink() == folder
    except OSError:  # it has ended
        return False


def test_output_that_c_code_has_only_begun_comes_once(folder, start):
    (folder / "module.py").write_text("import ctypes; ctypes.CDLL(None).printf(b'begun ')")
    assert start().communicate()[0].count("begun") == 1
    assert json.loads(start().communicate()[0])["fork"] is True


# --- a template ---


def test_a_template_is_told_of(template, tool, python):
    made = template(option="--template")
    assert made["command"] == [str(python), "program.py"]
    assert made["memory_bytes"] > 0
    shown = Path(f"/proc/{made['process']}/cmdline").read_bytes()
    assert shown.startswith(b"weightmap template: ")
    assert Path(f"/proc/{made['process']}/comm").read_text() == "weightmap templ\n"
    assert str(made["process"]) in tool("run", "--list-templates").communicate()[0]


def test_an_unused_template_ends(template):
    wait_until_gone(template(option="--template=1")["process"])


def test_a_template_that_is_asked_to_end(template, tool, answer):
    made = template()
    assert tool("run", "--end-templates", "--json").communicate()[0] == (
        f'{{"ended":[{made["process"]}]}}\n')
    wait_until_gone(made["process"])
    assert tool("run", "--list-templates").communicate()[0] == "there are no templates\n"
    assert answer()[0]["fork"] is False


def test_other_words_are_another_command(template, answer, templates):
    template("a")
    assert answer("b")[0]["fork"] is False
    while len(templates()) != 2:
        time.sleep(0.005)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root listens as another user")
def test_what_another_user_listens_with_is_not_believed(template, tool, answer, folder):
    wait_until = template()["process"]
    tool("run", "--end-templates").communicate()
    wait_until_gone(wait_until)
    [place] = folder.glob("runtime/template-*")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"/proc/self/fd/{os.open(place, os.O_RDONLY)}/socket")
        os.seteuid(65534)
        listener.listen()
        os.seteuid(0)
        said, complaint, _ = answer()
    assert said["fork"] is False
    assert complaint == ("weightmap run: the template is not used: what listens in its place is of "
                         "user 65534, and is not believed\n")


# --- what differs is named, and the start is an ordinary one ---


def change(folder):
    (folder / "module.py").write_text("# changed")


@pytest.mark.parametrize("variables, meanwhile, reason", [
    ({"MODEL": "b"}, None, "the environment has MODEL, and had none"),
    ({"LD_PRELOAD": ""}, None, "the environment has LD_PRELOAD, and had none"),
    ({}, change, "FOLDER/module.py has 9 bytes, and had 0"),
    ({}, lambda folder: (folder / "module.py").unlink() or (folder / "module").mkdir(),
     "FOLDER/module.py is gone"),
    ({}, lambda folder: os.umask(0o077), "the start has another Umask: 0077, and had 0022"),
], ids=["variable", "variable of the loader", "module", "module gone", "umask"])
def test_what_differs(template, answer, folder, variables, meanwhile, reason):
    before = os.umask(0o022)
    made = template()
    if meanwhile:
        meanwhile(folder)
    said, complaint, _ = answer(**variables)
    os.umask(before)
    expected = reason.replace("FOLDER", str(folder))
    assert complaint == f"weightmap run: the template is not used: {expected}\n"
    assert said["fork"] is False
    wait_until_gone(made["process"])


def test_an_open_file_that_would_not_reach_the_command(template, answer, folder):
    template()
    with open(folder / "program.py") as file:
        said, complaint, _ = answer(keeps=[file.fileno()])
        assert complaint == (
            f"weightmap run: the template is not used: descriptor {file.fileno()} "
            f"({folder}/program.py) would not reach the command\n")
    assert said["fork"] is False


# --- what cannot be forked is named ---

OBSTACLES = {
    "import threading as t; t.Thread(target=t.Event().wait, name='t', daemon=True).start()":
        "it has threads, which no fork has: t",
    "import _thread, time; _thread.start_new_thread(time.sleep, (60,))":
        "it has 2 threads, which no fork has (python",
    "import subprocess; p = subprocess.Popen('cat', stdin=-1, stdout=-3, stderr=-3)":
        "it has child processes, which are no children of a fork",
    "import signal; signal.setitimer(signal.ITIMER_REAL, 600)":
        "a timer of it is running, which no fork has",
    "import os; ends = os.pipe()": "is pipe:[",
    "import socket; s = socket.create_server(('127.0.0.1', 0))": "is socket:[",
    "import select; s = select.epoll()": "is anon_inode:[eventpoll], which all forks would share",
    "import os; os.dup2(2, 1)": "descriptor 1 is not what the command was started with",
    "log = open('log', 'a')":
        "is open for writing, which all forks would do at one offset: FOLDER/log",
    "import fcntl; f = open('module.py'); fcntl.flock(f, fcntl.LOCK_SH)":
        "holds a lock of FOLDER/module.py, which a fork would keep",
    "import mmap; m = mmap.mmap(-1, 4096)":
        "it shares memory that it can write to, so that forks would share it: /dev/zero (deleted)",
    "import mmap; m = mmap.mmap(-1, 4096, flags=34); m.madvise(mmap.MADV_DONTFORK)":
        "it has memory that no fork has (MADV_DONTFORK)",
    "import ctypes, mmap; m = mmap.mmap(-1, 4096, flags=34);"
    "ctypes.CDLL(None).mlock(ctypes.byref(ctypes.c_char.from_buffer(m)), 4096)":
        "it has locked memory, which would not be locked in a fork",
    "open('new.py', 'w').close(); import new":
        "FOLDER/new.py was changed while the command started",
}


@pytest.mark.parametrize("preparation, reason", OBSTACLES.items())
def test_what_cannot_be_forked(start, folder, templates, preparation, reason):
    (folder / "module.py").write_text(preparation)
    process = start()
    _, complaint = process.communicate()
    assert process.returncode == 3
    assert complaint.startswith("weightmap run: no template is made: ")
    assert reason.replace("FOLDER", str(folder)) in complaint
    assert templates() == []


def test_a_running_event_loop(start, folder, templates):
    (folder / "program.py").write_text(
        "import asyncio, weightmap\n"
        "async def main():\n    print(weightmap.snapshot_here())\nasyncio.run(main())")
    output, complaint = start().communicate()
    assert output == "False\n"
    assert complaint == ("weightmap run: no template is made: an event loop is running, which all "
                         "forks would share\n")


def test_a_call_of_another_process(start, folder):
    (folder / "program.py").write_text(
        "import os, weightmap\n"
        "child = os.fork()\n"
        "print(weightmap.snapshot_here(), flush=True) if not child else os.wait()")
    process = start()
    output, complaint = process.communicate()
    assert output == "False\n"
    assert f"has called, and the command is process {process.pid}\n" in complaint


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_a_program_that_has_become_another_user(start, folder):
    (folder / "program.py").write_text(
        "import os, weightmap\ncall = weightmap.snapshot_here\n"
        "import weightmap._template\nos.setuid(65534)\nprint(call())")
    assert start().communicate() == ("False\n", "")


def test_a_python_without_the_start_file(start, folder, python):
    output, complaint = start(command=[
        python, "-S", "-c", f"import sys; sys.path[:0] = {[str(TOOL.parents[2])]!r}\n"
        "import weightmap; print(weightmap.snapshot_here())"]).communicate()
    assert output == "False\n"
    assert complaint == (
        "weightmap run: no template is made: this Python has not run weightmap_patch.pth, which "
        "belongs in a folder of site-packages, so that nothing tells which files were read\n")


def test_a_template_is_for_one_call(folder, template, answer):
    (folder / "module.py").write_text("")
    program = PROGRAM.replace("said = {", "assert not weightmap.snapshot_here()\nsaid = {")
    (folder / "program.py").write_text(program)
    template()
    assert answer()[0]["fork"] is True
