"""weightmap.snapshot_here(), without criu and with it."""

import hashlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import fresh_python
from stopped_reader import Attempts, make_cold, stop_reader

import weightmap


@pytest.mark.parametrize("folder", ["", "/nowhere/gone"], ids=["no folder", "one that is gone"])
def test_a_program_that_nobody_watches_goes_on(monkeypatch, folder):
    monkeypatch.setenv("WEIGHTMAP_SNAPSHOT", folder)
    if not folder:
        monkeypatch.delenv("WEIGHTMAP_SNAPSHOT")
    assert weightmap.snapshot_here() is False


# --- the answer, without criu ---


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_a_program_that_has_become_another_user(tmp_path, start_python):
    here = tmp_path / "here"
    here.mkdir(mode=0o700)
    program = "import os, weightmap; call = weightmap.snapshot_here; os.setuid(65534); print(call())"
    process = start_python(program, WEIGHTMAP_SNAPSHOT=str(here))
    assert process.communicate()[0] == "False\n"
    assert list(here.iterdir()) == []


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
        return start_python(program, *arguments,
                            **{"WEIGHTMAP_SNAPSHOT": str(folder), **environment})

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
    process = ask(ANSWER)  # which returns since "called" is there
    assert (here / "called").read_bytes() == b""
    assert process.poll() is None
    answer(here, kind)
    assert said(process) == [is_restored, is_restored]


def test_the_call_names_the_variables_that_are_read_afterwards(here, ask):
    process = ask("weightmap.snapshot_here(new=('PORT', 'T\\u00e9'))\nprint('{}')")
    assert (here / "called").read_bytes() == b"PORT\0T\xc3\xa9\0"
    assert [path.name for path in here.iterdir()] == ["called"]
    answer(here, b"original")
    assert said(process) == {}


@pytest.mark.parametrize("new, message", [
    ("PORT", "new='PORT' is one text; expected a list of names, ['PORT']"),
    (b"PORT", "new=b'PORT' is one text; expected a list of names, [b'PORT']"),
    (["A", ""], "new has '', which is no name of a variable"),
    (["A=b"], "new has 'A=b', which is no name of a variable"),
    (["A\0"], "new has 'A\\x00', which is no name of a variable"),
    ([b"A"], "new has b'A', which is no name of a variable"),
])
def test_what_names_no_variable_is_refused_in_any_start(new, message):
    with pytest.raises(weightmap.InvalidArgumentError) as raised:
        weightmap.snapshot_here(new=new)
    assert raised.value.message == message


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


@pytest.mark.parametrize("now, kind, more, expected", [
    pytest.param({b"SAME": b"same", b"TOKEN": b"new", b"EMPTY": b"", b"MORE": b"a=b"},
                 b"restored", {}, {b"SAME": b"same", b"TOKEN": b"new", b"EMPTY": b"",
                                   b"MORE": b"a=b", b"GONE": None},
                 id="those of the new start are taken over"),
    pytest.param(dict.fromkeys([b"SET_SINCE", b"CHANGED_SINCE", b"REMOVED_SINCE"], b"new"),
                 b"restored", {},
                 {b"SET_SINCE": b"by the program", b"CHANGED_SINCE": b"by the program",
                  b"REMOVED_SINCE": None}, id="what the program changed stays"),
    pytest.param({b"SET_BETWEEN": b"new"}, b"restored", {}, {b"SET_BETWEEN": b"by a script"},
                 id="what a script before the program changed stays"),
    pytest.param({b"TOKEN": b"new"}, b"original", {}, {b"TOKEN": b"old"},
                 id="those of the original process stay"),
    pytest.param({b"TOKEN": b"\xff\xfe\n", b"\xe9T\xc3\xa9": b"\xe9"}, b"restored",
                 {"EMPTY": b"\xff"},
                 {b"TOKEN": b"\xff\xfe\n", b"\xe9T\xc3\xa9": b"\xe9", b"EMPTY": None},
                 id="bytes that are not UTF-8 are taken over"),
    pytest.param({b"": b"text", b"TOKEN": b"new"}, b"restored", {}, {b"": None, b"TOKEN": b"new"},
                 id="what is no variable is left out"),
])
def test_variables_after_the_answer(variables, now, kind, more, expected):
    found = variables(now, kind, **more)
    assert {name: found.get(name) for name in expected} == expected


def test_the_folder_stays_that_of_this_process(variables, here):
    """Also where `weightmap run` had one itself, of the same path, and of another one now."""
    folder = bytes(here)
    assert variables({b"WEIGHTMAP_SNAPSHOT": b"other"}, WEIGHTMAP_SNAPSHOT=folder)[
        b"WEIGHTMAP_SNAPSHOT"] == folder


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
        pytest.importorskip(module, reason=f"seeds the generator of {module}")
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


# --- with criu ---

TOOL = Path(weightmap.__file__).with_name("bin") / "weightmap"

PROGRAM = r"""
import asyncio, hashlib, json, os, random, secrets, signal, socket, ssl, sys, threading, time, uuid
import weightmap
folder = sys.argv[1]
weightmap.prefetch(os.path.join(folder, "cold.safetensors"))
children = map(int, open("/proc/1/task/1/children").read().split())
reading = [child for child in children if child != os.getpid()]
for child in reading:
    os.kill(child, signal.SIGSTOP)
try:
    import numpy, torch
except ImportError:
    numpy = torch = None


def say(what):
    print(json.dumps(what), flush=True)


def wait_for(condition):
    while not condition():
        time.sleep(0.005)


def path(name):
    return os.path.join(folder, name)


def digest(of):
    return hashlib.sha256(of).hexdigest()


# Files.
model = weightmap.open(path("model.safetensors"))
digest(model["w"].buffer())  # the mapping has all pages
private = weightmap.open(path("model.safetensors"), sharing="private", writable=True)
private["w"].buffer()[1 << 19 :][:7] = b"changed"
guarded = weightmap.open(path("guarded.safetensors"), protection="guard")
cold = weightmap.open(path("cold.safetensors"))
log = open(path("log"), "a")
log.write("before\n")
log.flush()

# Generators of random numbers.
own = random.Random(1)
random.seed(1)
ssl.RAND_bytes(1)
draw = {
    "os.urandom": lambda: os.urandom(16).hex(),
    "secrets": secrets.token_hex,
    "uuid4": lambda: str(uuid.uuid4()),
    "random": random.random,
    "ssl": lambda: ssl.RAND_bytes(16).hex(),
    "random.Random()": own.random,
}
if torch:
    numpy.random.seed(1)
    torch.manual_seed(1)
    rng = numpy.random.default_rng(1)
    generator = torch.Generator().manual_seed(1)
    draw["numpy"] = numpy.random.rand
    draw["torch"] = lambda: torch.rand(1).item()
    draw["numpy's default_rng()"] = rng.random
    draw["torch.Generator()"] = lambda: torch.rand(1, generator=generator).item()

# Threads.
if torch:
    torch.set_num_threads(2)
    factor = torch.arange(512 * 512, dtype=torch.float32).reshape(512, 512) % 7 / 7
def product():
    return digest((factor @ factor).numpy()) if torch else ""
product_before = product()

def serve(listening):
    while True:
        with listening.accept()[0] as connection:
            connection.sendall(os.environ["NAME"].encode())
        served.set()
served = threading.Event()
listening = socket.socket()
listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
listening.bind(("127.0.0.1", 0))
listening.listen()
threading.Thread(target=serve, args=[listening], daemon=True).start()

warmed = []
is_warming, may_warm = threading.Event(), threading.Event()
def warm():
    def wait(done, size):
        is_warming.set()
        may_warm.wait()
    warmed.append(model.warm(progress=wait).bytes)
warming = threading.Thread(target=warm)
warming.start()
is_warming.wait()

# Timers.
LASTS = 1.0
fired = {}
began = time.monotonic()
def fire(name):
    fired[name] = time.monotonic() - began
def sleep():
    time.sleep(LASTS)
    fire("time.sleep")
async def sleep_in_a_loop():
    await asyncio.sleep(LASTS)
    fire("asyncio.sleep")
signal.setitimer(signal.ITIMER_REAL, 600)
threading.Timer(LASTS, fire, ["threading.Timer"]).start()
threading.Thread(target=sleep).start()
threading.Thread(target=lambda: asyncio.run(sleep_in_a_loop())).start()

started_with_secret = os.environ["SECRET"]
say({"port": listening.getsockname()[1], "time": time.time(), "monotonic": time.monotonic()})

is_restored = weightmap.snapshot_here(new=["NAME", "SECRET"])

if not is_restored:
    for child in reading:
        os.kill(child, signal.SIGKILL)
log.write(os.environ["NAME"] + "\n")
log.flush()
may_warm.set()
warming.join()
is_restored_too = weightmap.snapshot_here()
say({
    "is_restored": [is_restored, is_restored_too],
    "time": time.time(),
    "monotonic": time.monotonic(),
    "alarm": signal.getitimer(signal.ITIMER_REAL)[0],
    "process": os.getpid(),
    "reading": reading,
    "arguments": sys.orig_argv[1:],
    "hash": hash("text"),
    "secret": os.environ.get("SECRET"),
    "kept": started_with_secret,
    "of proc": open("/proc/self/environ").read().split("SECRET=")[1].split("\0")[0],
    "draws": {name: function() for name, function in draw.items()},
    "products": [product_before, product()],
    "threads": torch.get_num_threads() if torch else 0,
    "model": digest(model["w"].buffer()),
    "private": bytes(private["w"].buffer()[1 << 19 :][:8]).hex(),
    "warmed": warmed,
    "mapping": [line for line in open("/proc/self/maps") if line.endswith("/cold.safetensors\n")],
})
if open(path("does")).read() == "serve":
    served.wait()
else:
    say("ready")
    wait_for(lambda: os.path.exists(path("reads")))
    report = cold.warm(one_reader=True)
    say({"was_reader": report.was_reader, "bytes_read": report.bytes_read,
         "bytes_waited_for": report.bytes_waited_for, "why_alone": report.why_alone,
         "cold": digest(cold["w"].buffer())})
    wait_for(lambda: os.path.exists(path("is_truncated")))
    tensor = guarded["w"]
    try:
        guarded.copy_to(tensor, bytearray(tensor.nbytes))
        error = None
    except weightmap.FileError as raised:
        error = raised.message
    say({"error": error, "zeros": tensor.buffer().tobytes() == bytes(tensor.nbytes),
         "state": guarded.state()})
wait_for(lambda: len(fired) == 3)
say(fired)
os._exit(3 if is_restored else 0)
"""


def missing():
    """Why no snapshot can be made here; empty if one can."""
    if not TOOL.exists():
        return "the package was built without the command line tool"
    if os.geteuid() != 0:
        return "only root makes snapshots"
    places = [os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin", "/sbin"]
    criu = shutil.which("criu", path=os.pathsep.join(places))
    if criu is None:
        return "there is no criu"
    checked = subprocess.run([criu, "check"], capture_output=True, text=True)
    return "" if checked.returncode == 0 else f"criu check: {checked.stderr.strip()}"


class Start:
    """A start of the program under `weightmap run --snapshot`."""

    def __init__(self, folder, name):
        environment = {"NAME": name, "SECRET": f"of {name}",
                       "WEIGHTMAP_RUNTIME_DIR": str(folder / "runtime"),
                       "WEIGHTMAP_START_DIR": str(folder / "starts")}
        started = fresh_python("", [folder / "program.py", folder], environment)
        tool = [TOOL, "run", "--snapshot", folder / "snapshots"]
        tool += ["-v", "--"] if name == "first" else ["--"]
        self.errors = folder / f"{name}.stderr"
        self.time = time.time()
        with open(self.errors, "w") as errors:
            self.process = subprocess.Popen([*tool, *started["args"]], env=started["env"],
                                            text=True, stdout=subprocess.PIPE, stderr=errors)

    def hear(self):
        """What it says next."""
        line = self.process.stdout.readline()
        assert line, self.errors.read_text()
        return json.loads(line)

    def hear_facts(self):
        self.facts = self.hear()
        self.heard = time.time()

    def hear_end(self):
        self.fired = self.hear()
        self.code = self.process.wait()


def connect(port):
    with socket.create_connection(("127.0.0.1", port)) as connection:
        return connection.makefile().read()


def write_model(path, content):
    """A checkpoint with one tensor, w, of these bytes."""
    header = json.dumps({"w": {"dtype": "U8", "shape": [len(content)],
                               "data_offsets": [0, len(content)]}}).encode()
    header += b" " * (-len(header) % 8)
    path.write_bytes(len(header).to_bytes(8, "little") + header + content)


class Starts:
    """One that makes the snapshot, one that is restored from it, and two more at the same time."""

    def __init__(self, folder):
        self.folder = folder
        self.content = os.urandom(1 << 20)
        self.cold_content = os.urandom(1 << 16) * (1 << 10)
        write_model(folder / "model.safetensors", self.content)
        write_model(folder / "guarded.safetensors", self.content)
        write_model(folder / "cold.safetensors", self.cold_content)
        make_cold([folder / "cold.safetensors"])  # so that reading it ahead takes a while
        (folder / "program.py").write_text(PROGRAM)
        (folder / "runtime").mkdir(mode=0o700)
        self.all = []

    def run(self):
        (self.folder / "does").write_text("serve")
        self.first = self.start("first")
        self.before = self.first.hear()
        self.serve_once(self.first)
        said = self.first.errors.read_text()
        assert "made a snapshot of" in said, said
        self.second = self.start("second")
        self.serve_once(self.second)
        (self.folder / "does").write_text("read")
        self.pair = [self.start("third"), self.start("fourth")]
        for each in self.pair:
            each.hear_facts()
            assert each.hear() == "ready"
        self.is_cold = make_cold([self.folder / "cold.safetensors"])
        self.read_in_pair()
        os.truncate(self.folder / "guarded.safetensors", 0)
        (self.folder / "is_truncated").touch()
        self.lost = [each.hear() for each in self.pair]
        for each in self.pair:
            each.hear_end()
        self.restored = [self.second, *self.pair]

    def start(self, name):
        self.all.append(Start(self.folder, name))
        return self.all[-1]

    def serve_once(self, start):
        start.hear_facts()
        start.answer = connect(self.before["port"])
        start.hear_end()

    def read_in_pair(self):
        """Stops the one that was elected half way, until the other has asked for the lock."""
        runtime = self.folder / "runtime"
        with Attempts(runtime) as attempts:
            (self.folder / "reads").touch()
            reader = stop_reader(runtime, [self.folder / "cold.safetensors"], self.pair_has_said)
            if reader is not None:
                attempts.wait(3)
                os.kill(reader, signal.SIGCONT)
        self.was_stopped = reader is not None
        self.elections = [each.hear() for each in self.pair]

    def pair_has_said(self):
        return len(select.select([each.process.stdout for each in self.pair], [], [], 0)[0]) == 2

    def end(self):
        for each in self.all:
            each.process.kill()
            each.process.communicate()


@pytest.fixture(scope="module")
def starts(tmp_path_factory, request):
    reason = missing()
    if reason:
        with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
            print(f"SKIPPED: tests of snapshots: {reason}", file=sys.stderr)
        pytest.skip(reason)
    made = Starts(tmp_path_factory.mktemp("snapshot"))
    try:
        made.run()
        yield made
    finally:
        made.end()


def test_one_start_makes_a_snapshot_and_the_others_are_restored(starts):
    assert starts.first.facts["is_restored"] == [False, False]
    assert [each.facts["is_restored"] for each in starts.restored] == [[True, True]] * 3
    assert [each.errors.read_text() for each in starts.restored] == [""] * 3


def facts(starts, name):
    """Of the first process, and of those that were restored."""
    return starts.first.facts[name], [each.facts[name] for each in starts.restored]


# What is the same.


def test_a_listening_socket_answers(starts):
    assert (starts.first.answer, starts.second.answer) == ("first", "second")


CHANGED = 1 << 19  # where the program writes "changed"
SAME = {
    "process": lambda starts: 1000,
    "arguments": lambda starts: [str(starts.folder / "program.py"), str(starts.folder)],
    "hash": lambda starts: starts.first.facts["hash"],
    "kept": lambda starts: "of first",
    "of proc": lambda starts: "of first",
    "threads": lambda starts: 2 if starts.first.facts["products"][0] else 0,
    "products": lambda starts: [starts.first.facts["products"][0]] * 2,
    "model": lambda starts: hashlib.sha256(starts.content).hexdigest(),
    "private": lambda starts: (b"changed" + starts.content[CHANGED + 7 :][:1]).hex(),
    "warmed": lambda starts: [(starts.folder / "model.safetensors").stat().st_size],
}


@pytest.mark.parametrize("fact", SAME)
def test_what_is_the_same_in_all_processes(starts, fact):
    expected = SAME[fact](starts)
    assert facts(starts, fact) == (expected, [expected] * 3)


@pytest.mark.parametrize("generator", ["random.Random()", "numpy's default_rng()",
                                       "torch.Generator()"])
def test_generators_of_the_program_are_the_same(starts, generator):
    first, restored = facts(starts, "draws")
    if generator not in first:
        pytest.skip("this test takes torch tensors")
    assert [draws[generator] for draws in restored] == [first[generator]] * 3


def test_the_file_of_a_log_goes_on_at_its_end(starts):
    lines = (starts.folder / "log").read_text().splitlines()
    assert lines[:3] == ["before", "first", "second"]
    assert sorted(lines[3:]) == ["fourth", "third"]


@pytest.mark.parametrize("timer", ["time.sleep", "threading.Timer", "asyncio.sleep"])
def test_a_timer_goes_on_with_what_was_left(starts, timer):
    """By the clock of the processes, which stands still between dump and restore."""
    assert min(each.fired[timer] for each in starts.all) >= 1.0


def test_an_alarm_goes_on_with_what_was_left(starts):
    """Unless it is due while the process is dumped: then criu loses it."""
    first, restored = facts(starts, "alarm")
    assert all(0 < left < 600 for left in [first, *restored])


def test_the_exit_status_is_that_of_the_program(starts):
    assert [each.code for each in starts.all] == [0, 3, 3, 3]


# What is new.


def test_monotonic_time_goes_on_from_the_dump_and_the_time_of_day_is_the_real_one(starts):
    for each in starts.all:
        assert each.time <= each.facts["time"] <= each.heard
        time_passed = each.facts["time"] - starts.before["time"]
        monotonic_passed = each.facts["monotonic"] - starts.before["monotonic"]
        assert monotonic_passed >= 0
        if each is not starts.first:
            assert time_passed - monotonic_passed >= each.time - starts.first.heard


@pytest.mark.parametrize("generator", ["os.urandom", "secrets", "uuid4", "ssl", "random", "numpy",
                                       "torch"])
def test_random_numbers_are_new(starts, generator):
    first, restored = facts(starts, "draws")
    if generator not in first:
        pytest.skip("this test takes torch tensors")
    assert len({draws[generator] for draws in [first, *restored]}) == 4


def test_the_environment_is_that_of_the_new_start(starts):
    names = ["second", "third", "fourth"]
    assert facts(starts, "secret") == ("of first", [f"of {name}" for name in names])


# Checkpoints.


def test_tensors_of_a_file_that_was_cold_have_their_values(starts):
    cold = hashlib.sha256(starts.cold_content).hexdigest()
    assert [each["cold"] for each in starts.elections] == [cold] * 2


def test_mappings_are_of_the_files(starts):
    first, restored = facts(starts, "mapping")
    assert [line.split()[1] for line in first] == ["r--s"]
    assert [[line.split()[1] for line in lines] for lines in restored] == [["r--s"]] * 3


def test_an_image_has_no_bytes_of_checkpoints(starts):
    """But for the page that was written to, and the beginning, which is read to be parsed."""
    [image] = starts.folder.glob("snapshots/*/image")
    written = b"".join(file.read_bytes() for file in image.iterdir())
    assert b"changed" + starts.content[CHANGED + 7 :][:64] in written
    places = {*range(1 << 17, 1 << 20, 1 << 16)} - {CHANGED}
    assert [at for at in places if starts.content[at + 2048 :][:64] in written] == []


def test_a_guarded_file_that_is_lost_is_an_error(starts):
    for lost in starts.lost:
        assert lost["error"].startswith('tensor "w": the file shrank while it was read')
        assert (lost["zeros"], lost["state"]) == (True, "lost")


def test_reading_ahead_that_was_under_way_keeps_no_snapshot_from_being_made(starts):
    first, restored = facts(starts, "reading")
    if not first:
        pytest.skip("the file was read before the process that reads it could be stopped")
    assert restored == [first] * 3  # as the program remembers it


def test_restored_processes_elect_a_reader(starts):
    if not starts.is_cold:
        print("SKIPPED: this file system keeps its files in memory", file=sys.stderr)
        pytest.skip("this file system keeps its files in memory")
    assert [each["why_alone"] for each in starts.elections] == ["", ""]
    size = (starts.folder / "cold.safetensors").stat().st_size
    assert sum(each["bytes_read"] for each in starts.elections) == size
    if starts.was_stopped:
        waiting, reading = sorted(starts.elections, key=lambda each: each["was_reader"])
        assert (reading["was_reader"], reading["bytes_waited_for"]) == (True, 0)
        assert (waiting["was_reader"], waiting["bytes_read"]) == (False, 0)
        assert waiting["bytes_waited_for"] > 0
