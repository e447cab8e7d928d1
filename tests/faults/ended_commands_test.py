#!/usr/bin/env python3
"""What fetch, stage, apply, hold and run --snapshot leave when they are ended, or have no room, at each
call by which they change a file, or when the system has no more threads for them: what is old or
what is new, never a mixture, and the next run ends the work.

    ended_commands_test.py FOLDER WEIGHTMAP ENDING_CALLS [--each]

ENDING_CALLS is the library of ending_calls.cpp. A command is killed (SIGKILL) at each call, and has
no room at each; it is interrupted (SIGINT) at each third one, and run --snapshot is ended at each
16th; with --each all are at each.
"""

import mmap
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1] / name) for name in ("tools", "support")]

from safetensors_files import file_of  # noqa: E402
from mounts import need_leases  # noqa: E402
from tool_case import ENVIRONMENT, FolderCase  # noqa: E402

FOLDER, TOOL, LIBRARY = (pathlib.Path(argument).resolve() for argument in sys.argv[1:4])
STEP = 1 if "--each" in sys.argv[4:] else 3
SHARED = pathlib.Path("/dev/shm")
LIMIT = 60  # seconds that no command needs
MOST = 400  # calls, more than any of them makes
KILLED, INTERRUPTED, NO_ROOM, NO_THREAD = range(4)  # as in ending_calls.cpp

# What changes names or contents of files; not times.
CHANGES = {name + bits for bits in ("", "64") for name in """
    chmod chown copy_file_range creat fallocate fchmod fchmodat fchown fchownat fdatasync fopen
    freopen fsetxattr fsync ftruncate lchown link linkat lsetxattr memfd_create mkdir mkdirat mkdtemp
    mknod mkostemp mkostemps mkstemp mkstemps open openat posix_fallocate pwrite pwritev pwritev2
    remove removexattr rename renameat renameat2 rmdir sendfile setxattr shm_open shm_unlink splice
    symlink symlinkat syncfs tmpfile truncate unlink unlinkat vmsplice write writev""".split()}


def weights(name, version):
    return file_of({name: ("U8", [65536], version.encode() * 65536)})


class Plan:
    """At which call of this environment's tool it ends, and how."""

    def __init__(self, path):
        path.write_bytes(bytes(128))
        with open(path, "r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 128)
        self.environment = {**ENVIRONMENT, "LD_PRELOAD": str(LIBRARY), "ENDING_CALLS": str(path),
                            "ENDING_PROGRAM": str(TOOL)}
        self.set(-1)

    def set(self, calls, how=KILLED):
        self._memory[8:] = bytes(120)
        self._memory[:8] = struct.pack("<ii", calls, how)

    def disarm(self):
        """From here on none of them ends it."""
        self._memory[:4] = struct.pack("<i", -1)

    @property
    def call(self):
        """The one that was ended, in words; empty if it was not reached."""
        return self._memory[8:].rstrip(b"\0").decode()


class Ended(FolderCase):
    place = FOLDER

    def setUp(self):
        super().setUp()
        self.plan = Plan(self.folder / "plan")
        self.clean = dict(ENVIRONMENT)
        self.mark = f"weightmap-ended-{self.folder.name}"
        self.here = self.folder / "here"
        self.addCleanup(self.remove_shared)
        for version in ("old", "new"):
            self.make_version(self.folder / version, version[0])

    def make_version(self, store, letter):
        store.mkdir()
        (store / f"{self.mark}.safetensors").write_bytes(weights("a", letter))
        (store / "model.safetensors.index.json").write_text(
            '{"metadata":{"version":"%s"},"weight_map":{"a":"model-00001-of-00002.safetensors",'
            '"b":"model-00002-of-00002.safetensors"}}' % letter)
        (store / "model-00001-of-00002.safetensors").write_bytes(weights("a", letter))
        (store / "model-00002-of-00002.safetensors").write_bytes(weights("b", letter))

    def file(self, version):
        return self.folder / version / f"{self.mark}.safetensors"

    def url(self, version):
        return f"file://{self.file(version)}"

    def remove_shared(self):
        for path in SHARED.glob(f"*{self.mark}*"):
            path.unlink()

    def in_shared(self):
        return sorted(path.name for path in SHARED.glob(f"*{self.mark}*"))

    def which(self, path):
        """The version that the file is of; anything else than its bytes is a failure."""
        found = path.read_bytes()
        [version] = [each for each in ("old", "new") if self.file(each).read_bytes() == found]
        return version

    def run_tool(self, *arguments, environment=None):
        return subprocess.run([TOOL, *map(str, arguments)], env=environment or self.clean, check=False,
                              capture_output=True, text=True, timeout=LIMIT)

    steps = 1
    least_threads = 1

    def each_call(self, how, least):
        """Sets the plan to each call in turn until one is not reached, of which there are at least
        so many."""
        for at in range(0, MOST, max(self.steps, STEP if how == INTERRUPTED else 1)):
            self.plan.set(at, how)
            yield
            if not self.plan.call:
                self.assertGreaterEqual(at, self.least_threads if how == NO_THREAD else least)
                return
        self.fail("it makes more calls than this test ends it at")

    def ends(self, how, done):
        """How the command may end: it says why, and what it says is so. True if it has done all."""
        if not self.plan.call:
            self.assertEqual(done.returncode, 0, done.stderr)
        if how == KILLED and self.plan.call:
            self.assertEqual(done.returncode, -signal.SIGKILL)
            return False
        self.assertIn(done.returncode, (0, 1, 130, -signal.SIGINT), done.stderr)
        if done.returncode != 0 and how == NO_ROOM:
            self.assertRegex(done.stderr, r"^weightmap: .*No space left on device")
        if done.returncode != 0 and how == NO_THREAD:
            self.assertRegex(done.stderr, r"^weightmap.*: cannot (start|begin) a thread: Resource temp")
        if done.returncode == 1 and how == INTERRUPTED:
            self.assertIn("cancelled", done.stderr)
        return done.returncode == 0


class Fetch(Ended):
    """A file over an older one."""

    def ended_at_each_call(self, how):
        arguments = "fetch", "--force", self.url("new"), self.here / "m.safetensors"
        for _ in self.each_call(how, least=15):
            shutil.rmtree(self.here, ignore_errors=True)
            self.here.mkdir()
            shutil.copy(self.file("old"), self.here / "m.safetensors")
            done = self.ends(how, self.run_tool(*arguments, environment=self.plan.environment))
            found = self.which(self.here / "m.safetensors")
            if done:
                self.assertEqual(found, "new")
            again = self.run_tool(*arguments)
            self.assertEqual(again.returncode, 0, again.stderr)
            self.assertEqual(self.which(self.here / "m.safetensors"), "new")
            self.assertEqual([path.name for path in self.here.iterdir()], ["m.safetensors"])


class FetchSet(Ended):
    """A set over an older one of the same names."""

    def which_set(self):
        """The version of all files; "mixed" if there are two, or one is not there."""
        names = sorted(path.name for path in (self.folder / "old").glob("model*"))
        found = [(self.here / name).read_bytes() if (self.here / name).exists() else None
                 for name in names]
        for version in ("old", "new"):
            if found == [(self.folder / version / name).read_bytes() for name in names]:
                return version
        for name, content in zip(names, found):
            if content is not None:
                self.assertIn(content, [(self.folder / version / name).read_bytes()
                                        for version in ("old", "new")])
        return "mixed"

    def ended_at_each_call(self, how):
        index = f"file://{self.folder}/new/model.safetensors.index.json"
        arguments = "fetch", index, f"{self.here}/"
        refused = 0
        for _ in self.each_call(how, least=50):
            shutil.rmtree(self.here, ignore_errors=True)
            self.here.mkdir()
            for path in (self.folder / "old").glob("model*"):
                shutil.copy(path, self.here)
            done = self.ends(how, self.run_tool(*arguments, environment=self.plan.environment))
            found = self.which_set()
            if done:
                self.assertEqual(found, "new")
            if found == "mixed":
                opened = self.run_tool("ls", self.here)
                self.assertEqual(opened.returncode, 1)
                self.assertIn("so they are of two versions", opened.stderr)
                # Who knows no mark finds no file that leads to the others.
                self.assertFalse((self.here / "model.safetensors.index.json").exists())
                refused += 1
            again = self.run_tool(*arguments)
            self.assertEqual(again.returncode, 0, again.stderr)
            self.assertEqual(self.which_set(), "new")
            self.assertEqual(len(list(self.here.iterdir())), 3)
        if how in (KILLED, NO_ROOM):  # the others end none between its first and its last name
            self.assertGreater(refused, 0)


class Stage(Ended):
    """A file, or a URL, as a name in shared memory."""

    least_threads = 0

    def staged_at_each_call(self, how, what):
        arguments = "stage", what, "--name", self.mark
        for _ in self.each_call(how, least=4):
            self.remove_shared()
            done = self.ends(how, self.run_tool(*arguments, environment=self.plan.environment))
            there = self.in_shared()
            self.assertIn(there, ([self.mark],) if done else ([], [self.mark]))
            if there:
                self.assertEqual(self.which(SHARED / self.mark), "new")
                self.assertEqual(self.run_tool("stage", "--remove", self.mark).returncode, 0)
            again = self.run_tool(*arguments)
            self.assertEqual(again.returncode, 0, again.stderr)
            self.assertEqual(self.which(SHARED / self.mark), "new")
            self.assertEqual(self.in_shared(), [self.mark])

    def ended_at_each_call(self, how):
        self.staged_at_each_call(how, self.file("new"))


class StageUrl(Stage):
    least_threads = 1

    def ended_at_each_call(self, how):
        self.staged_at_each_call(how, self.url("new"))


class StageForCommand(Ended):
    """The command sees the whole file, or is not run."""

    least_threads = 0  # for the file; a URL takes some

    def ended_at_each_call(self, how):
        for what in (self.file("new"), self.url("new")):
            for _ in self.each_call(how, least=2):
                done = self.run_tool("stage", what, "--", "cat", "{}",
                                     environment=self.plan.environment)
                whole = weights("a", "n").decode("latin1")
                self.assertEqual(done.stdout, whole if self.ends(how, done) else "")


class Apply(Ended):
    """A delta, and a link that leads to what it makes."""

    def setUp(self):
        super().setUp()
        for version in ("old", "new"):
            self.file(version).unlink()
        made = self.run_tool("delta", self.folder / "old", self.folder / "new", self.folder / "delta")
        self.assertEqual(made.returncode, 0, made.stderr)
        self.link, self.made = self.here / "now", self.here / "made"

    def shards(self, folder):
        return [path.read_bytes() for path in sorted(folder.glob("model*.safetensors"))]

    def ended_at_each_call(self, how):
        arguments = ("apply", self.folder / "old", self.folder / "delta", "--to", self.made,
                     "--once", "--publish", self.link)
        versions = {str(self.folder / "old"): self.shards(self.folder / "old"),
                    str(self.made): self.shards(self.folder / "new")}
        for _ in self.each_call(how, least=20):
            shutil.rmtree(self.here, ignore_errors=True)
            self.here.mkdir()
            self.link.symlink_to(self.folder / "old")
            done = self.ends(how, self.run_tool(*arguments, environment=self.plan.environment))
            self.assertEqual(self.shards(self.link), versions[os.path.realpath(self.link)])
            if done:
                self.assertEqual(os.path.realpath(self.link), str(self.made))
            elif how != KILLED:
                self.assertNotIn(".made.weightmap-new", os.listdir(self.here))
            again = self.run_tool(*arguments)
            self.assertEqual(again.returncode, 0, again.stderr)
            self.assertEqual(self.shards(self.link), versions[str(self.made)])
            self.assertEqual(sorted(os.listdir(self.here)), ["made", "now"])


class ApplyInPlace(Apply):
    """Nobody finds anything else than the old version or the new one by the name of the model."""

    least_threads = 0

    def ended_at_each_call(self, how):
        need_leases(self)
        model = self.here / "model"
        arguments = "apply", model, self.folder / "delta", "--in-place"
        versions = [self.shards(self.folder / version) for version in ("old", "new")]
        for _ in self.each_call(how, least=12):
            shutil.rmtree(self.here, ignore_errors=True)
            shutil.copytree(self.folder / "old", model)
            done = self.ends(how, self.run_tool(*arguments, environment=self.plan.environment))
            if model.exists():
                self.assertIn(self.shards(model), versions[1:] if done else versions)
            else:
                self.assertFalse(done)
            if not (model / "weightmap_version.json").exists():
                again = self.run_tool(*arguments)
                self.assertEqual(again.returncode, 0, again.stderr)
            self.assertEqual(self.shards(model), versions[1])
            # The lock of a process that was killed is free, and the next one's.
            self.assertEqual({"model", ".model.weightmap-lock"} | set(os.listdir(self.here)),
                             {"model", ".model.weightmap-lock"})
            self.assertNotIn(".weightmap-in-place", os.listdir(model))


class Hold(Ended):
    """A daemon that follows a URL: an update to another version."""

    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory(prefix="weightmap-")  # a socket's path is short
        self.addCleanup(folder.cleanup)
        self.plan.environment["WEIGHTMAP_RUNTIME_DIR"] = folder.name
        self.store = self.folder / f"{self.mark}.safetensors"
        self.copy = SHARED / self.store.name
        self.daemon = None

    def start(self):
        """A daemon; returns once it has made the store's version the copy, and removed all else."""
        words = [TOOL, "hold", "--no-lock", "--interval", "0.02", f"file://{self.store}"]
        self.daemon = subprocess.Popen(list(map(str, words)), env=self.plan.environment,
                                       stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        self.addCleanup(self.daemon.communicate)
        self.addCleanup(self.daemon.kill)
        self.wait(self.is_done)

    def wait(self, condition):
        """Returns once it is true, and True then; False if the daemon has ended before."""
        end = time.monotonic() + LIMIT
        while not condition():
            if self.daemon.poll() is not None:
                return condition()
            self.assertLess(time.monotonic(), end, self.in_shared())
            time.sleep(0.005)
        return True

    def is_done(self):
        return (self.copy.exists() and self.copy.read_bytes() == self.store.read_bytes()
                and len(self.in_shared()) == 2)

    def publish(self, version):
        new = self.store.with_suffix(".new")
        shutil.copy(self.file(version), new)
        os.rename(new, self.store)

    def ended_at_each_call(self, how):
        self.publish("old")
        self.start()
        versions = ["new", "old"]
        for _ in self.each_call(how, least=10):
            self.publish(versions[0])
            done = self.wait(lambda: self.is_done() or (how == NO_THREAD and self.plan.call))
            self.assertIn(self.which(self.copy), versions)
            if how == NO_THREAD and self.plan.call:  # it goes on once there are threads again
                self.plan.disarm()
                done = self.wait(self.is_done)
            if self.plan.call and how in (KILLED, INTERRUPTED):
                self.assertEqual(self.daemon.wait(LIMIT), -signal.SIGKILL if how == KILLED else 0)
                self.start()
                done = self.is_done()
            self.assertTrue(done, self.in_shared())
            versions.reverse()


# Asks for a snapshot as weightmap.snapshot_here() does, and says which process it is then.
ASKS_FOR_A_SNAPSHOT = """
import os, time
number = os.urandom(4).hex()
folder = os.environ.get("WEIGHTMAP_SNAPSHOT")
if folder is None:
    print("alone", number)
    raise SystemExit
open(folder + "/called", "x").close()
while not os.path.exists(folder + "/answer"):
    time.sleep(0.01)
print(open(folder + "/answer").read().split("\\0")[0], number, flush=True)
"""


class Snapshot(Ended):
    """A picture that is made. One that is not whole is never restored, and made anew."""

    steps = 1 if STEP == 1 else 16  # a start takes long

    def setUp(self):
        super().setUp()
        self.program = self.folder / "program.py"
        self.program.write_text(ASKS_FOR_A_SNAPSHOT)
        os.utime(self.program, (1, 1))  # before any start
        self.plan.environment["WEIGHTMAP_START_DIR"] = str(self.folder / "starts")
        tried = self.start()
        if tried.stderr:  # without a snapshot: no criu, not root, a mount that nothing is told of
            print(f"SKIPPED: {tried.stderr}", file=sys.stderr)
            self.skipTest(tried.stderr)

    def start(self):
        return self.run_tool("run", "--snapshot", self.here, "--", sys.executable, self.program,
                             environment=self.plan.environment)

    def ended_at_each_call(self, how):
        for _ in self.each_call(how, least=30):
            shutil.rmtree(self.here, ignore_errors=True)
            ended = self.start()
            self.plan.disarm()
            if how in (NO_ROOM, NO_THREAD) or not self.plan.call:  # no picture, perhaps, but a command
                self.assertEqual(ended.returncode, 0, ended.stderr)
                self.assertRegex(ended.stdout, "^(original|alone) .*\n$")
            again = self.start()
            self.assertEqual(again.returncode, 0, again.stderr)
            if again.stdout.startswith("restored") and ended.stdout:
                self.assertEqual(again.stdout.split()[1], ended.stdout.split()[1])
            last = self.start()
            self.assertEqual((last.returncode, last.stderr), (0, ""))
            self.assertEqual(last.stdout, f"restored {again.stdout.split()[1]}\n")
            self.assertEqual(len(list(self.here.glob("*/manifest.json"))), 1)
            self.assertEqual(list(self.here.glob("*.new")), [])


class WithoutThreads(Ended):
    """Commands that change no file, and what they are wrapped around."""

    def runs(self, *arguments):
        """At each thread that is refused; the results of those that succeeded."""
        for _ in self.each_call(NO_THREAD, least=0):
            done = self.run_tool(*arguments, environment=self.plan.environment)
            if self.ends(NO_THREAD, done):
                yield done

    def test_warm(self):
        for options in ([], ["--crc"]):
            self.assertTrue(list(self.runs("warm", *options, self.file("new"))))

    def test_ps_needs_none(self):
        for _ in self.each_call(NO_THREAD, least=1):
            done = self.run_tool("ps", self.file("new"), environment=self.plan.environment)
            self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_verify(self):
        self.assertTrue(list(self.runs("verify", "--crc", self.file("new"))))

    def test_a_drawn_command_runs_or_is_not_begun(self):
        page = self.folder / "start.html"
        outputs = [done.stdout for done in self.runs("run", "--timeline", page, "--", "echo", "ran")]
        self.assertEqual(set(outputs), {"ran\n"})


class Intercepted(unittest.TestCase):
    @unittest.skipIf(shutil.which("nm") is None, "no nm")
    def test_all_calls_that_change_a_file(self):
        """Those of the tool are those of the library, so that no new one is left out."""
        def symbols(which, path):
            lines = subprocess.run(["nm", "-D", which, path], capture_output=True, text=True,
                                   check=True).stdout.splitlines()
            return {line.split()[-1].partition("@")[0] for line in lines}
        self.assertEqual((symbols("--undefined-only", TOOL) & CHANGES)
                         - symbols("--defined-only", LIBRARY), set())


def test(how):
    def run(self):
        try:
            self.ended_at_each_call(how)
        except AssertionError as error:
            raise AssertionError(f"ended at {self.plan.call!r}: {error}") from error
    return run


def add_tests(case):
    for name, how in (("killed", KILLED), ("interrupted", INTERRUPTED), ("without_room", NO_ROOM),
                      ("without_threads", NO_THREAD)):
        setattr(case, f"test_{name}", test(how))


for each in (Fetch, FetchSet, Stage, StageUrl, StageForCommand, Apply, ApplyInPlace, Hold,
             Snapshot):
    add_tests(each)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *(word for word in sys.argv[4:] if word != "--each")])
