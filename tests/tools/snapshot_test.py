#!/usr/bin/env python3
"""The command `weightmap run --snapshot`, and `--list`, `--check` and `--remove`.

    snapshot_test.py FOLDER WEIGHTMAP MAKE_CHECKPOINT

Needs root and criu; without them all but the refusals for that is left out, and said so.
"""

import contextlib
import errno
import json
import os
import pathlib
import platform
import re
import signal
import socket
import subprocess
import sys
import time
import unittest
import urllib.request

from tool_case import ENVIRONMENT, FOLDER, MAKER, TOOL, FolderCase, ToolCase


# Answers at a port with what it knows, and does what the path of a request says.
SERVES = """
import http.server, json, os, signal, sys
print("started", flush=True)
state = os.urandom(8).hex()
signals = []
signal.signal(signal.SIGUSR1, lambda number, frame: signals.append(number))
memory = open("/dev/shm/named", "w+")
memory.write(state)
memory.flush()
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/quit":
            os._exit(7)
        if self.path.startswith("/say/"):
            print(self.path[5:], flush=True)
        self.send_response(200)
        self.end_headers()
        known = {"pid": os.getpid(), "state": state, "signals": signals,
                 "memory": open("/dev/shm/named").read(), "words": sys.argv[1:]}
        self.wfile.write(json.dumps(known).encode())
    def log_message(self, *words):
        pass
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Answer).serve_forever()
"""

# Accepts a connection when a file is there.
ACCEPTS_LATE = """
import os, socket, sys, time
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while not os.path.exists(sys.argv[2]):
    time.sleep(0.01)
connection, _ = listener.accept()
connection.sendall(b"accepted")
"""

# Has a socket with a name in a folder that it removes at its end, as Python's forkserver has one.
NAMES_A_SOCKET = """
import os, shutil, signal, socket, stat, sys
folder = sys.argv[3] + "/private"
os.makedirs(folder, mode=0o750)
named = socket.socket(socket.AF_UNIX)
named.bind(folder + "/name")
named.listen()
def end(number, frame):
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(folder + "/name")
        print("connected, folder", oct(stat.S_IMODE(os.stat(folder).st_mode)), flush=True)
    shutil.rmtree(sys.argv[3])
    os._exit(0)
signal.signal(signal.SIGTERM, end)
""" + SERVES

# Asks for a snapshot as weightmap.snapshot_here() does, and says which process it is then.
CALLS = """
import os, sys, time
number = os.urandom(4).hex()
folder = os.environ["WEIGHTMAP_SNAPSHOT"]
with open(folder + "/called.new", "w") as call:
    call.write("".join(name + "\\0" for name in sys.argv[1:]))
os.rename(folder + "/called.new", folder + "/called")
while not os.path.exists(folder + "/answer"):
    time.sleep(0.01)
words = open(folder + "/answer").read().split("\\0")
print(words[0], number, [word for word in words if word.startswith("TOKEN=")], flush=True)
"""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def trouble():
    """Why snapshots cannot be made here; empty if they can."""
    with contextlib.ExitStack() as stack:
        case = FolderCase()
        case.place = FOLDER
        case.setUp()
        stack.callback(case.doCleanups)
        model = case.folder / "model.pt"
        subprocess.run([MAKER, model], check=True)
        done = subprocess.run([TOOL, "doctor", "--json", model], env=ENVIRONMENT,
                              capture_output=True, text=True, check=True)
    [finding] = [each for each in json.loads(done.stdout)["findings"]
                 if each["topic"] == "snapshots"]
    return "" if finding["state"] == "good" else finding["found"]


TROUBLE = trouble()
NOT_PERMITTED = "capability" in TROUBLE or "seccomp" in TROUBLE
if TROUBLE:
    print(f"SKIPPED: most tests of snapshots: {TROUBLE}", file=sys.stderr)


class SnapshotCase(ToolCase):
    place = FOLDER
    is_inside = False
    outlived = True

    def setUp(self):
        super().setUp()
        self.snapshots = self.folder / "snapshots"
        self.environment = {**ENVIRONMENT, "WEIGHTMAP_START_DIR": str(self.folder / "starts")}

    def write(self, name, text, mode=0o644):
        path = self.folder / name
        path.write_text(text)
        path.chmod(mode)
        return path

    def run_command(self, *command, **options):
        return self.run_tool("run", "--snapshot", self.snapshots, "--", *command, **options)


class Refusals(SnapshotCase):
    """Where no snapshot is possible the command is started as without."""

    def assert_runs_without(self, reason, **options):
        done = self.run_command("sh", "-c", "echo ran $$; exit 3", **options)
        self.assertRegex(done.stdout, r"^ran \d+\n$")
        self.assertEqual(done.returncode, 3)
        self.assertIn(f"weightmap run: without a snapshot: {reason}", done.stderr)

    def test_no_criu(self):
        self.environment["WEIGHTMAP_CRIU"] = "/proc/none"
        self.assert_runs_without("there is no program criu, which makes and restores snapshots; "
                                 "scripts/install-criu of weightmap installs it")

    def use_any_criu(self):
        self.environment["WEIGHTMAP_CRIU"] = "/bin/true"

    @unittest.skipIf(NOT_PERMITTED, TROUBLE)
    def test_a_folder_that_cannot_be_made(self):
        self.use_any_criu()
        self.snapshots = pathlib.Path("/proc/none")
        self.assert_runs_without("cannot make the folder /proc/none: No such file or directory")

    @unittest.skipIf(NOT_PERMITTED, TROUBLE)
    def test_a_folder_that_others_may_write_to(self):
        self.use_any_criu()
        self.snapshots.mkdir()
        self.snapshots.chmod(0o777)
        self.assert_runs_without(f"{self.snapshots}: others may write to it, so it is not used")

    @unittest.skipIf(NOT_PERMITTED, TROUBLE)
    def test_a_folder_of_another_user(self):
        self.use_any_criu()
        self.snapshots.mkdir()
        os.chown(self.snapshots, 65534, 65534)
        self.assert_runs_without(f"{self.snapshots}: belongs to user 65534, not to user 0, so it is "
                                 "not used")

    @unittest.skipIf(os.geteuid() != 0, "only root becomes another user")
    def test_no_capability(self):
        self.use_any_criu()
        self.folder.chmod(0o777)
        self.assert_runs_without("the capability CAP_SYS_ADMIN is missing, which root has, and a "
                                 "container with --cap-add", user=65534, group=65534, extra_groups=[])


@unittest.skipIf(TROUBLE, TROUBLE)
class Snapshots(SnapshotCase):
    def setUp(self):
        super().setUp()
        self.port = free_port()
        self.held = self.write("held.txt", "content")
        self.program = self.write("serves.py", SERVES)
        for path in (self.held, self.program):
            os.utime(path, (1, 1))  # before any start
        self.command = [sys.executable, str(self.program), str(self.port), str(self.held)]

    # --- starts ---

    @contextlib.contextmanager
    def served(self, *options, command=None):
        """A command under `run --snapshot` that answers; its output is in self.said afterwards."""
        words = [TOOL, "run", "--snapshot", self.snapshots, "--ready", f"http://127.0.0.1:{self.port}/",
                 *options, "--", *(command or self.command)]
        with subprocess.Popen(words, env=self.environment, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True) as process:
            try:
                self.ask(process)
                yield process
            finally:
                process.terminate()
                self.said, self.complaint = process.communicate()

    def ask(self, process, path="/"):
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}") as answer:
                    return json.load(answer)
            except OSError:
                if process.poll() is not None:
                    raise AssertionError(process.communicate()) from None
                time.sleep(0.02)

    def manifests(self):
        return list(self.snapshots.glob("*/manifest.json"))

    def wait_for_snapshot(self, process):
        while not self.manifests():
            self.assertIsNone(process.poll())
            time.sleep(0.02)

    def make(self):
        """Makes a snapshot; returns what the process knew."""
        with self.served() as process:
            self.wait_for_snapshot(process)
            known = self.ask(process)
        self.assertEqual(self.complaint, "")
        return known

    def assert_is_refused(self, reason):
        with self.served() as process:
            self.ask(process)
        self.assertEqual(self.said, "started\n")
        self.assertRegex(self.complaint.splitlines()[0],
                         f"^weightmap run: the snapshot is not used: {reason}")

    def test_a_start_is_restored(self):
        first = self.make()
        self.assertEqual(self.said, "started\n")
        with self.served() as process:
            second = self.ask(process, "/say/again")
        self.assertEqual(second, {**first, "words": first["words"]})
        self.assertEqual(first["pid"], 1000)
        self.assertEqual((self.said, self.complaint), ("again\n", ""))

    def test_a_restore_is_drawn(self):
        self.make()
        picture = self.folder / "start.html"
        with self.served("--timeline", picture):
            while not picture.exists():
                time.sleep(0.02)
        names = re.findall(r"^(?:.*<pre>)?([\w, ]*\w) +\[", picture.read_text(), re.MULTILINE)
        self.assertEqual(names[:4], ["image check", "restore", "first use", "image, read by calls"])

    def test_the_first_process_goes_on(self):
        with self.served() as process:
            before = self.ask(process)
            self.wait_for_snapshot(process)
            self.assertEqual(self.ask(process), before)

    def test_one_of_two_starts_makes_the_snapshot(self):
        command = [sys.executable, self.write("calls.py", CALLS)]
        words = ["run", "--snapshot", self.snapshots, "--", *command]
        self.run_command("true")  # makes the folder
        processes = [self.start(*words) for _ in range(4)]
        said = [process.communicate() for process in processes]
        for output, complaint in said:
            self.assertRegex(output, "^(original|restored) ")
            if complaint:
                self.assertEqual(complaint, "weightmap run: no snapshot is made: another start is "
                                            "making it\n")
        [manifest] = self.manifests()
        self.assertTrue(self.run_command(*command).stdout.startswith("restored "))

    def test_a_start_that_is_learned_again_makes_a_new_one(self):
        first = self.make()
        with self.served("--learn") as process:
            self.wait_for_snapshot(process)
            second = self.ask(process)
        self.assertNotEqual(second["state"], first["state"])
        with self.served() as process:
            self.assertEqual(self.ask(process), second)

    # --- what is restored stands still until its image has been compared ---

    def make_calling(self):
        """Makes a snapshot of a program that says so as soon as it goes on; returns the command."""
        command = [sys.executable, self.write("calls.py", CALLS)]
        os.utime(command[1], (1, 1))
        self.assertTrue(self.run_command(*command).stdout.startswith("original "))
        return command

    def test_nothing_of_a_damaged_image_runs(self):
        command = self.make_calling()
        self.damage_image()
        done = self.run_command(*command)
        self.assertRegex(done.stdout, r"^original \w+ \[\]\n$")
        self.assertRegex(done.stderr, r"^weightmap run: the snapshot is not used: .*/pages-.*: its "
                                      r"checksum is \w+, expected \w+\n$")

    def test_criu_goes_on_once_the_image_has_been_compared(self):
        went_on = self.folder / "went on"
        self.fake_criu('if [ "$1" = restore ]; then\nfor word; do [ "$last" = --action-script ] && '
                       'script=$word; last=$word; done\nCRTOOLS_SCRIPT_ACTION=post-restore "$script" '
                       f'&& touch "{went_on}"\nexit 1\nfi')
        for is_damaged in (True, False):
            self.snapshots = self.folder / f"damaged {is_damaged}"
            command = self.make_calling()
            if is_damaged:
                self.lengthen_image(256 << 20)  # so that it is compared for long
            self.assertTrue(self.run_command(*command).stdout.startswith("original "))
            self.assertEqual(went_on.exists(), not is_damaged)

    def test_a_killed_start_leaves_nothing_that_stands_still(self):
        standing = self.folder / "standing"
        script = self.write("stand", '#!/bin/sh\n[ "$CRTOOLS_SCRIPT_ACTION" = post-restore ] || exit 0\n'
                            f'touch "{standing}"\nexec sleep 1000\n', 0o755)
        self.fake_criu(f'[ "$1" = restore ] && set -- "$@" --action-script "{script}"')
        command = self.make_calling()
        process = self.start("run", "--snapshot", self.snapshots, "--", *command)
        while not standing.exists():
            self.assertIsNone(process.poll())
            time.sleep(0.02)
        process.kill()
        self.assertEqual(process.communicate(), ("", ""))  # once nobody has the pipes any more

    def test_signals_and_the_exit_status_are_the_command_s(self):
        self.make()
        for _ in range(2):  # restored; and started anew
            with self.served() as process:
                process.send_signal(signal.SIGUSR1)
                while not self.ask(process)["signals"]:
                    time.sleep(0.02)
                with contextlib.suppress(OSError):
                    urllib.request.urlopen(f"http://127.0.0.1:{self.port}/quit")
                self.assertEqual(process.wait(), 7)
            self.ends(0, "run", "--remove", self.snapshots, "all")
        with self.served() as process:
            pass
        self.assertEqual(process.returncode, -signal.SIGTERM)

    def test_shared_memory_is_restored_and_the_command_s_own(self):
        first = self.make()
        self.assertEqual(first["memory"], first["state"])
        self.assertFalse(os.path.exists("/dev/shm/named"))
        with self.served() as process:
            self.assertEqual(self.ask(process)["memory"], first["state"])

    def test_nothing_is_left_of_a_command_that_has_ended(self):
        self.make()
        for name in os.listdir("/proc"):
            with contextlib.suppress(OSError):
                words = pathlib.Path("/proc", name, "cmdline").read_bytes()
                self.assertNotIn(os.fsencode(self.program), words)

    def test_four_are_restored_from_one_image(self):
        self.environment["TOKEN"] = "first"
        command = [sys.executable, self.write("calls.py", CALLS), "TOKEN"]
        os.utime(command[1], (1, 1))
        first = self.run_command(*command)
        word, number, token = first.stdout.split(" ", 2)
        self.assertEqual((word, token, first.stderr), ("original", "[]\n", ""))
        words = ["run", "--snapshot", self.snapshots, "--", *command]
        processes = [self.start(*words, environment={"TOKEN": f"worker {i}"}) for i in range(4)]
        for i, process in enumerate(processes):
            self.assertEqual(process.communicate(),
                             (f"restored {number} ['TOKEN=worker {i}']\n", ""))

    def test_connections_between_the_processes_go_on(self):
        program = self.write("talks.py", "import socket\n"
                             "listener = socket.create_server(('127.0.0.1', 0))\n"
                             "one = socket.create_connection(listener.getsockname())\n"
                             "other = listener.accept()[0]\nlistener.close()\n" + CALLS +
                             "one.sendall(b'x')\nprint(other.recv(1))\n")
        os.utime(program, (1, 1))
        for word in ("original", "restored"):
            done = self.run_command(sys.executable, program)
            self.assertTrue(done.stdout.startswith(word), done)
            self.assertTrue(done.stdout.endswith("\nb'x'\n"), done)

    def assert_fails(self, call, number):
        done = self.run_command(sys.executable, "-c", "import ctypes\n"
                                "libc = ctypes.CDLL(None, use_errno=True)\n"
                                f"print(libc.syscall({call}), ctypes.get_errno())")
        self.assertEqual((done.stdout, done.stderr), (f"-1 {number}\n", ""))

    def test_there_is_no_io_uring(self):
        self.assert_fails("425, 1, None", errno.ENOSYS)

    @unittest.skipIf(platform.machine() != "x86_64", "an instruction set of x86")
    def test_there_is_no_amx(self):
        self.assert_fails("158, 0x1023, 18", errno.EOPNOTSUPP)

    # --- what an image belongs to ---

    def test_a_file_that_changed_by_one_byte_in_its_old_time(self):
        self.make()
        self.program.write_text(SERVES.replace('"started"', '"Started"'))
        os.utime(self.program, (1, 1))
        with self.served():
            pass
        self.assertEqual(self.said, "Started\n")
        # The command may end before a new snapshot is made, which a second line then says.
        self.assertEqual(self.complaint.splitlines()[0], "weightmap run: the snapshot is not used: "
                         f"{self.program} was written to or replaced")

    def test_a_module_that_changed(self):
        self.program.write_text("import module\n" + SERVES)
        module = self.write("module.py", "")
        for path in (module, self.program):
            os.utime(path, (1, 1))
        time.sleep(0.02)
        self.make()
        os.utime(module, (2, 2))
        self.assert_is_refused(f"{module} was written to or replaced")

    def test_a_refused_image_is_removed_and_made_anew(self):
        self.make()
        os.utime(self.program, (2, 2))
        with self.served() as process:
            self.wait_for_snapshot(process)
            known = self.ask(process)
        with self.served() as process:
            self.assertEqual(self.ask(process), known)

    def image(self):
        return max(self.snapshots.glob("*/image/pages-*.img"), key=lambda path: path.stat().st_size)

    def change_manifest(self, **machine):
        [path] = self.manifests()
        manifest = json.loads(path.read_text())
        manifest["machine"].update(machine)
        path.write_text(json.dumps(manifest))

    def damage_image(self):
        with open(self.image(), "r+b") as file:
            file.seek(5000)
            byte = file.read(1)
            file.seek(5000)
            file.write(bytes([byte[0] ^ 1]))

    def lengthen_image(self, size):
        """With the checksum that it had."""
        image = self.image()
        os.truncate(image, size)
        [path] = self.manifests()
        manifest = json.loads(path.read_text())
        [entry] = [each for each in manifest["image"] if each["name"] == image.name]
        entry["size"] = size
        path.write_text(json.dumps(manifest))

    def move_snapshots(self):
        self.snapshots = self.snapshots.rename(self.folder / "moved")

    def cut_manifest(self):
        [path] = self.manifests()
        path.write_text(path.read_text()[:-10])

    # What is done to a snapshot or to what it belongs to, and why it is refused then.
    CHANGES = {
        "a file that changed in time alone": (
            lambda case: os.utime(case.program, (2, 2)), r".*/serves\.py was written to or replaced"),
        "a file that is longer": (
            lambda case: case.program.write_text(SERVES + "\n"), r".*/serves\.py has \d+ bytes, and had \d+"),
        "another kernel": (
            lambda case: case.change_manifest(kernel="2.4"),
            rf"it is of the kernel 2\.4, this is {os.uname().release} "),
        "another processor": (
            lambda case: case.change_manifest(processor="Z80"),
            "it is of the processor Z80, this is .*, features [0-9a-f]{16}"),
        "another environment": (
            lambda case: case.environment.update(SECRET="new"), "the environment has another SECRET"),
        "a folder that was moved": (move_snapshots, "its processes look for .*/snapshots-[0-9]+/here"),
        "a damaged image": (damage_image, r".*/pages-.*: its checksum is [0-9a-f]+, expected [0-9a-f]+"),
        "a truncated image": (
            lambda case: os.truncate(case.image(), 4096), r".*/pages-.*: has 4096 bytes, expected \d+"),
        "an image without a file": (
            lambda case: case.image().unlink(), ".*/pages-1.img: cannot look at the file: No such file"),
        "an image of another user": (
            lambda case: os.chown(case.image(), 65534, 65534),
            ".*/pages-.*: belongs to user 65534, not to user 0"),
        "an image that others may write to": (
            lambda case: case.image().chmod(0o666), ".*/pages-.*: others may write to it"),
        "a folder of an image that others may write to": (
            lambda case: case.image().parent.chmod(0o777), ".*/image: others may write to it"),
        "a damaged manifest": (cut_manifest, ".*: the manifest of a snapshot: is no JSON"),
    }

    def test_a_snapshot_that_does_not_fit_is_refused(self):
        for number, (name, (change, reason)) in enumerate(self.CHANGES.items()):
            with self.subTest(name):
                self.snapshots = self.folder / f"snapshots-{number}"
                self.environment["SECRET"] = "old"
                self.program.write_text(SERVES)
                os.utime(self.program, (1, 1))
                self.make()
                change(self)
                self.assert_is_refused(reason)

    def calls(self, *new, **variables):
        """What a program says that calls with these names, and what the tool says."""
        if not (self.folder / "calls.py").exists():
            os.utime(self.write("calls.py", CALLS), (1, 1))
        self.environment.update(variables)
        done = self.run_command(sys.executable, self.folder / "calls.py", *new)
        return done.stdout.split(" ")[0], done.stderr

    def test_variables_count_but_for_those_that_a_call_names(self):
        """Starts of a call one after the other: the names, the variables, and what becomes of it."""
        for starts in (
            ((["TOKEN"], {"MODEL": "a", "TOKEN": "1"}, "original", ""),
             (["TOKEN"], {"MODEL": "a", "TOKEN": "2"}, "restored", ""),
             (["TOKEN"], {"MODEL": "b", "TOKEN": "2"}, "original", "another MODEL"),
             (["TOKEN"], {"MODEL": "b", "TOKEN": "1"}, "restored", "")),
            (([], {"MODEL": "a"}, "original", ""), ([], {"MODEL": "a"}, "restored", ""),
             ([], {"MODEL": "b"}, "original", "another MODEL")),
            ((["TOKEN"], {}, "original", ""),
             (["TOKEN"], {"TOKEN": "1", "MORE": ""}, "original", "MORE, and had none")),
        ):
            self.snapshots = self.snapshots.with_name(self.snapshots.name + "+")
            before = dict(self.environment)
            for names, variables, said, refusal in starts:
                with self.subTest(names=names, variables=variables):
                    complaint = f"weightmap run: the snapshot is not used: the environment has {refusal}\n"
                    self.assertEqual(self.calls(*names, **variables), (said, complaint if refusal else ""))
            self.environment = before

    # --- files that were read, wherever they are ---

    def assert_counts(self, path, reads="open({}).close()", wrapped=(), state="was written to or"):
        """A start that read the file is not restored once the file has changed."""
        self.program.write_text(f"import subprocess\n{reads.format(repr(str(path)))}\n{CALLS}")
        for each in (path, self.program):
            os.utime(each, (1, 1))
        words = [*wrapped, TOOL, "run", "--snapshot", self.snapshots, "--", sys.executable,
                 self.program]
        time.sleep(0.02)  # so that the start is later than these changes
        said = [subprocess.run(words, env=self.environment, capture_output=True, text=True)
                for _ in range(2)]
        self.assertEqual([(done.stdout[:8], done.stderr) for done in said],
                         [("original", ""), ("restored", "")])
        os.utime(path, (2, 2))
        done = subprocess.run(words, env=self.environment, capture_output=True, text=True)
        self.assertEqual((done.stdout[:8], done.stderr),
                         ("original", f"weightmap run: the snapshot is not used: {path} {state} "
                                      "replaced\n"))

    def mounted(self):
        """A folder with a file system of its own."""
        place = self.folder / "mounted here"
        place.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", place], check=True)
        self.addCleanup(subprocess.run, ["umount", "--lazy", place], check=True)
        return place

    def test_a_file_of_another_mount(self):
        path = self.mounted() / "config"
        path.write_text("old")
        self.assert_counts(path)

    def test_a_file_of_run(self):
        path = pathlib.Path("/run") / f"weightmap-test-{os.getpid()}"
        path.write_text("old")
        self.addCleanup(path.unlink)
        self.assert_counts(path)

    def test_a_file_that_a_process_has_read_that_ended_at_once(self):
        path = self.mounted() / "config"
        path.write_text("old")
        self.assert_counts(path, "subprocess.run(['cat', {}], stdout=subprocess.DEVNULL)")

    def test_a_link_that_leads_to_another_version(self):
        for name in ("v1", "v2"):
            (self.folder / name).mkdir()
            os.utime(self.write(f"{name}/model", name), (1, 1))
        self.program.write_text(f"import sys\nopen(sys.argv[1] + '/model').read()\n{CALLS}")
        os.utime(self.program, (1, 1))
        current = self.folder / "current"
        for version, said in (("v1", "original"), ("v1", "restored"), ("v2", "original")):
            current.unlink(missing_ok=True)
            current.symlink_to(version)
            done = self.run_command(sys.executable, self.program, current)
            self.assertEqual(done.stdout[:8], said)
        self.assertEqual(done.stderr, f"weightmap run: the snapshot is not used: {current} leads to "
                         f"{self.folder}/v2, and led to {self.folder}/v1\n")

    def test_a_file_system_that_is_mounted_while_the_command_starts(self):
        place = self.folder / "late"
        place.mkdir()
        self.program.write_text("import subprocess\nsubprocess.run(['mount', '-t', 'tmpfs', 'none', "
                                f"{str(place)!r}], check=True)\n{CALLS}")
        done = self.run_command(sys.executable, self.program)
        self.assertEqual((done.stdout[:8], done.stderr), ("original", "weightmap run: no snapshot is "
                         f"made: {place} was mounted while the command started, and nothing told "
                         "which of its files it opens, so that nothing would tell when they change\n"))

    def test_the_files_of_an_image_are_its_owner_s(self):
        self.make()
        self.assertEqual({path.stat().st_mode & 0o777 for path in self.snapshots.rglob("*")
                          if path.is_file()}, {0o600})

    def test_variables_of_a_session_do_not_count(self):
        first = self.make()
        self.environment["SSH_TTY"] = "/dev/pts/7"
        with self.served() as process:
            self.assertEqual(self.ask(process), first)

    def test_another_word_is_another_command(self):
        self.make()
        with self.served(command=[*self.command, "more"]) as process:
            self.assertEqual(self.ask(process)["words"][-1], "more")
        self.assertEqual((self.said, self.complaint), ("started\n", ""))

    # --- starts and restores that fail ---

    def test_a_file_that_changes_while_the_command_starts(self):
        self.program.write_text("open(__import__('sys').argv[2]).close()\n" + SERVES)
        os.utime(self.program, (1, 1))
        time.sleep(0.02)  # so that the start is later than this change
        ready = self.folder / "ready"
        words = ["run", "--snapshot", self.snapshots, "--ready", ready, "--", *self.command]
        process = self.start(*words, stdout=subprocess.DEVNULL)
        self.ask(process)
        self.held.write_text("other content")
        ready.touch()
        self.assertEqual(process.stderr.readline(), "weightmap run: no snapshot is made: "
                         f"{self.held} was changed while the command started\n")
        process.terminate()
        process.wait()

    def test_what_the_command_writes_is_not_what_it_is_made_of(self):
        log, output = self.folder / "log", self.folder / "output"
        self.program.write_text(f"import sys; log = open({str(log)!r}, 'a'); log.write('x'); "
                                f"log.flush(); open({str(output)!r}, 'w').close(); "
                                f"open({str(output)!r}).close(); import os; "
                                f"os.rename({str(output)!r}, {str(output) + '.new'!r}); "
                                f"open({str(output) + '.new'!r}).close(); import module\n" + SERVES)
        module = self.write("module.py", "")  # whose bytecode is written
        os.utime(module, (1, 1))
        time.sleep(0.02)
        os.utime(self.program, (1, 1))
        first = self.make()
        log.write_text(log.read_text() + "more")
        pathlib.Path(f"{output}.new").unlink()
        with self.served() as process:
            self.assertEqual(self.ask(process), first)

    def test_a_folder_that_the_command_has_open_and_makes_files_in(self):
        made = self.folder / "made"
        made.mkdir()
        self.program.write_text(f"import os; folder = os.open({str(made)!r}, os.O_RDONLY); "
                                f"open({str(made / 'new')!r}, 'w').close()\n" + SERVES)
        os.utime(self.program, (1, 1))
        first = self.make()
        (made / "later").touch()
        with self.served() as process:
            self.assertEqual(self.ask(process), first)

    def test_a_command_that_ends_before_it_is_ready(self):
        done = self.run_tool("run", "--snapshot", self.snapshots, "--ready", "100s", "--", "sh", "-c",
                             "echo done; exit 5")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (5, "done\n", ""))
        self.assertEqual(self.manifests(), [])

    def test_a_command_that_is_not_there(self):
        done = self.run_command("./none")
        self.assertEqual((done.returncode, done.stderr),
                         (127, "weightmap: cannot run ./none: No such file or directory\n"))

    def test_a_port_that_is_in_use(self):
        self.make()
        with socket.socket() as other:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            other.bind(("127.0.0.1", self.port))
            other.listen()
            done = self.run_command(*self.command)
        first, *rest = done.stderr.splitlines()
        self.assertEqual(first, "weightmap run: the snapshot is not restored: "
                                f"127.0.0.1:{self.port} is in use")
        self.assertIn("Address already in use", rest[-1])
        self.assertEqual(done.returncode, 1)
        self.assertEqual(len(self.manifests()), 1)

    def connected(self):
        while True:
            with contextlib.suppress(ConnectionRefusedError):
                return socket.create_connection(("127.0.0.1", self.port))
            time.sleep(0.02)

    def test_a_connection_that_is_not_accepted_yet(self):
        program = self.write("late.py", ACCEPTS_LATE)
        ready, go = self.folder / "ready", self.folder / "go"
        os.utime(program, (1, 1))
        command = [TOOL, "run", "--snapshot", self.snapshots, "--ready", ready, "--",
                   sys.executable, program, str(self.port), go]
        with subprocess.Popen(command, env=self.environment) as process, self.connected() as client:
            ready.touch()
            self.wait_for_snapshot(process)
            go.touch()
            self.assertEqual(client.recv(8), b"accepted")
        with subprocess.Popen(command, env=self.environment), self.connected() as client:
            self.assertEqual(client.recv(8), b"accepted")

    def make_with_named_socket(self):
        self.program = self.write("names.py", NAMES_A_SOCKET)
        os.utime(self.program, (1, 1))
        self.place = self.folder / "of the command"
        self.command[1:] = [str(self.program), str(self.port), str(self.held), str(self.place)]
        self.make()
        self.assertFalse(self.place.exists())

    def test_a_socket_whose_folder_is_gone(self):
        self.make_with_named_socket()
        with self.served() as process:
            self.ask(process)
        self.assertEqual(self.said, "started\nconnected, folder 0o750\n")
        self.assertRegex(self.complaint, "^weightmap run: the snapshot was not restored: criu: ")

    def test_a_socket_whose_name_is_in_use(self):
        self.make_with_named_socket()
        (self.place / "private").mkdir(parents=True)
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(str(self.place / "private/name"))
            other.listen()
            done = self.run_command(*self.command)
        self.assertEqual(done.stderr.splitlines()[0],
                         "weightmap run: the snapshot is not restored: "
                         f"{self.place}/private/name is in use")
        self.assertEqual(len(self.manifests()), 1)

    def test_one_of_several_restored_at_once_gets_the_port(self):
        self.make()
        words = ["run", "-v", "--snapshot", self.snapshots, "--ready",
                 f"http://127.0.0.1:{self.port}/", "--", *self.command]
        processes = [self.start(*words, stdout=subprocess.DEVNULL) for _ in range(3)]
        said = sorted(process.stderr.readline() for process in processes)
        for process in processes:
            process.terminate()
            process.communicate()
        in_use = f"the snapshot is not restored: 127.0.0.1:{self.port} is in use\n"
        self.assertRegex(said[0], "the image was read and compared after")
        self.assertEqual(said[1:], ["weightmap run: " + in_use] * 2)

    def test_a_process_that_has_left_the_command(self):
        command = ["sh", "-c", '(setsid sleep 1000 > /dev/null &); exec "$@"', "sh", *self.command]
        with self.served("-v", command=command) as process:
            said = process.stderr.readline()
        self.assertRegex(said, r"no snapshot is made: process \d+ of the command has left it, as "
                               "daemons do, and would be missing")
        self.assertEqual(self.manifests(), [])

    def test_a_full_disk(self):
        self.snapshots.mkdir(mode=0o700)
        script = ('mount -t tmpfs -o size=2m,mode=700 none "$1" && shift && exec "$@"')
        words = ["unshare", "--mount", "sh", "-c", script, "sh", self.snapshots, TOOL, "run", "-v",
                 "--snapshot", self.snapshots, "--ready", f"http://127.0.0.1:{self.port}/", "--",
                 *self.command]
        with subprocess.Popen(words, env=self.environment, stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True) as process:
            self.assertIn("no snapshot is made: criu: ", process.stderr.readline())
            self.ask(process)  # goes on
            process.terminate()
            process.communicate()

    def fake_criu(self, text):
        criu = self.environment.get("WEIGHTMAP_CRIU", "criu")
        fake = self.write("criu", f'#!/bin/sh\nPATH="$PATH:/usr/local/sbin:/usr/sbin"\n{text}\n'
                                  f'exec {criu} "$@"\n', 0o755)
        os.utime(fake, (1, 1))
        self.environment["WEIGHTMAP_CRIU"] = str(fake)

    def test_an_old_criu(self):
        self.fake_criu('[ "$1" = --version ] && echo Version: 3.17.1 && exit')
        with self.served() as process:
            self.ask(process)
        self.assertRegex(self.complaint, "no snapshot is made: .*/criu has version 3.17.1, expected "
                                         "4.0 or later; scripts/install-criu of weightmap builds one")

    def test_a_restore_that_fails(self):
        self.fake_criu('[ "$1" = restore ] && exit 1')
        self.make()
        with self.served() as process:
            self.ask(process)
        self.assertEqual(self.said, "started\n")
        self.assertIn("the snapshot was not restored: ", self.complaint)
        self.assertIn("the restore failed without a word", self.complaint)
        self.assertEqual(self.manifests(), [])

    def test_a_restore_that_hangs(self):
        self.fake_criu('[ "$1" = restore ] && exec sleep 1000')
        self.make()
        with self.served() as process:
            self.ask(process)
        self.assertEqual((self.said, self.complaint),
                         ("started\n", "weightmap run: the snapshot was not restored: the restore "
                                       "hangs\n"))

    # --- the list ---

    def test_snapshots_are_listed_checked_and_removed(self):
        self.make()
        [path] = self.manifests()
        key = path.parent.name
        done = self.run_tool("run", "--check", self.snapshots)
        self.assertEqual(done.returncode, 0)
        titles, row = done.stdout.splitlines()
        self.assertEqual(titles.split(), ["SNAPSHOT", "SIZE", "MADE", "STATE", "COMMAND"])
        self.assertRegex(row, rf"^{key[:8]} .* MiB .* good +{sys.executable} ")
        os.truncate(self.image(), 4096)
        self.assertEqual(self.run_tool("run", "--list", self.snapshots).returncode, 0)
        done = self.run_tool("run", "--check", self.snapshots, "--json")
        self.assertEqual(done.returncode, 1)
        [listed] = json.loads(done.stdout)["snapshots"]
        self.assertRegex(listed["trouble"], "pages-1.img: has 4096 bytes, expected")
        self.assertEqual((listed["key"], listed["listeners"], listed["snapshot_here"]),
                         (key, [f"127.0.0.1:{self.port}"], False))
        done = self.run_tool("run", "--remove", self.snapshots, "none")
        self.assertEqual((done.returncode, done.stderr),
                         (1, "weightmap: there is no snapshot none\n"))
        done = self.run_tool("run", "--remove", self.snapshots, key[:8])
        self.assertEqual((done.returncode, done.stdout), (0, "removed 1 snapshot\n"))
        self.assertEqual(self.run_tool("run", "--list", self.snapshots).stdout,
                         "there are no snapshots\n")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[4:])
