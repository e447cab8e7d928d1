#!/usr/bin/env python3
"""What `weightmap hold` keeps, answers, survives and leaves behind.

    hold_test.py FOLDER WEIGHTMAP MAKE_CHECKPOINT
"""

import contextlib
import ctypes
import hashlib
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import socket
import stat
import struct
import sys
import tempfile
import time
import unittest

from tool_case import ENVIRONMENT, FOLDER, TOOL, ToolCase, stop

from held_pages import keep_cached

INTERVAL = "0.05"  # seconds between two looks
IS_SANITIZED = b"AddressSanitizer" in TOOL.read_bytes()


def memory_that_is_locked(process):
    text = pathlib.Path(f"/proc/{process}/status").read_text(encoding="ascii")
    return int(text.split("VmLck:")[1].split()[0]) * 1024


class Client:
    """A connection to a keeper."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.connect(str(path))
        self.file = self.socket.makefile("rb")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()
        self.socket.close()

    def send(self, line):
        self.socket.sendall(line + b"\n")

    def receive(self):
        line = self.file.readline()
        return json.loads(line) if line else None

    def ask(self, operation, file=None):
        request = {"op": operation} if file is None else {"op": operation, "file": str(file)}
        self.send(json.dumps(request).encode())
        return self.receive()


class Case(ToolCase):
    def setUp(self):
        super().setUp()  # a socket's path is short, so not below the build folder
        self.shared = self.folder / "shared"
        self.socket = self.shared / "hold.sock"
        self.environment = {key: text for key, text in ENVIRONMENT.items()
                            if not key.startswith(("NOTIFY_", "WATCHDOG_"))}
        self.environment["WEIGHTMAP_RUNTIME_DIR"] = str(self.shared)
        files = tempfile.TemporaryDirectory(dir=FOLDER)
        self.addCleanup(files.cleanup)
        self.file = self.make(pathlib.Path(files.name) / "model.pt")

    def make(self, path, count=4):
        return super().make(path, count, "256x1024")

    def keeper(self, *arguments, **options):
        """Running, with what it is given in memory; what it said then is `.report`."""
        process = self.start("hold", "--json", "--interval", INTERVAL, *arguments, **options)
        line = process.stdout.readline()
        self.assertTrue(line, process.poll() is not None and process.stderr.read())
        process.report = json.loads(line)
        return process

    def stop(self, process):
        """Ends it as systemd does; answers what it wrote to standard error."""
        process.send_signal(signal.SIGTERM)
        out, errors = process.communicate()
        self.assertEqual((process.returncode, out), (0, ""), errors)
        return errors

    def asked(self, *arguments, code=0, **options):
        return self.ends(code, "hold", *arguments, **options)

    def status(self):
        with Client(self.socket) as client:
            return client.ask("status")

    def status_when(self, condition):
        """The first status of which it is true."""
        with Client(self.socket) as client:
            while not condition(status := client.ask("status")):
                pass
        return status

    def file_when(self, condition):
        return self.status_when(lambda status: condition(status["files"][0]))["files"][0]


class Holds(Case):
    def test_holds_files_and_says_what_it_holds(self):
        other = self.make(self.file.with_name("other.pt"), count=2)
        keeper = self.keeper(self.file, other)
        report = keeper.report
        self.assertEqual(report["pid"], keeper.pid)
        self.assertEqual([file["file"] for file in report["files"]], [str(self.file), str(other)])
        sizes = [path.stat().st_size for path in (self.file, other)]
        self.assertEqual([file["file_bytes"] for file in report["files"]], sizes)
        self.assertEqual(report["file_bytes"], sum(sizes))
        for file, size in zip(report["files"], sizes):
            self.assertGreaterEqual(file["resident_bytes"], size)
            self.assertEqual(
                (file["state"], file["bytes_left_out"], file["reloads"], file["problem"]),
                ("held", 0, 0, None))
            self.assertLessEqual(file["cached_bytes"], size)
            if file["locked"]:
                self.assertEqual(file["cached_bytes"], size)
        self.assertEqual(report["resident_bytes"],
                         sum(file["resident_bytes"] for file in report["files"]))
        self.assertEqual(report["files"][0]["generation"]["inode"], self.file.stat().st_ino)

    def test_locks_what_it_holds(self):
        if IS_SANITIZED:
            self.skipTest("memory is not locked here (AddressSanitizer switches that off)")
        keeper = self.keeper(self.file)
        file = keeper.report["files"][0]
        if not file["locked"]:
            self.skipTest(f"memory may not be locked here: {file['lock_refusal']}")
        self.assertEqual(file["lock_refusal"], "")
        self.assertGreaterEqual(memory_that_is_locked(keeper.pid), self.file.stat().st_size)

    def test_holds_without_locking(self):
        keep_cached(self, self.file)
        keeper = self.keeper("--no-lock", self.file)
        file = keeper.report["files"][0]
        self.assertEqual((file["locked"], file["lock_refusal"]), (False, ""))
        self.assertEqual(memory_that_is_locked(keeper.pid), 0)
        self.assertGreaterEqual(file["resident_bytes"], self.file.stat().st_size)

    def test_what_is_resident_of_another_users_file_is_unknown_and_so_is_the_sum(self):
        if os.geteuid() != 0:
            self.skipTest("only root can become somebody else")
        self.folder.chmod(0o755)
        self.shared.mkdir()
        self.shared.chmod(0o700)
        os.chown(self.shared, 65534, 65534)
        file = self.make(self.folder / "other.pt")
        file.chmod(0o644)
        other = {"user": 65534, "group": 65534, "extra_groups": []}
        try:
            self.keeper("--no-lock", file, **other)
        except PermissionError as refusal:
            self.skipTest(f"another user cannot run the tool here: {refusal}")
        done = self.asked("--status", **other)
        self.assertRegex(done.stdout, r"other\.pt +4\.0 MiB +\?  held, not locked\n"
                                      r"1 file, \? resident, held by process \d+\n\Z")
        self.assertIsNone(self.status()["resident_bytes"])

    def test_opens_as_it_needs_whatever_the_environment_asks_for(self):
        tensors = self.document("ls", "--json", self.file)["tensors"]
        with open(self.file, "r+b") as file:
            file.seek(tensors[0]["file_offset"])
            file.write(b"\xff")  # which only a sum of it all would tell
        environment = {"WEIGHTMAP_VERIFY": "crc", "WEIGHTMAP_WRITABLE": "1"}
        keeper = self.keeper(self.file, environment=environment)
        self.assertEqual([file["file"] for file in keeper.report["files"]], [str(self.file)])
        maps = pathlib.Path(f"/proc/{keeper.pid}/maps").read_text()
        [mapping] = [line for line in maps.splitlines() if line.endswith(str(self.file))]
        self.assertEqual(mapping.split()[1], "r--s")
        self.stop(keeper)

    def test_goes_on_where_it_may_not_lock_and_says_why(self):
        keeper = self.keeper_with_little(0)
        file = keeper.report["files"][0]
        self.assertEqual((file["state"], file["locked"]), ("held", False))
        self.assertRegex(file["lock_refusal"], r"^cannot lock \d+ bytes in memory: ")
        self.assertGreaterEqual(file["resident_bytes"], self.file.stat().st_size)
        self.assertIn("held, not locked: cannot lock", self.stop(keeper))

    def test_locks_a_new_file_when_the_old_one_gives_it_room(self):
        new = self.make(self.file.with_name("new.pt"))
        keeper = self.keeper_with_little(self.file.stat().st_size * 3 // 2)
        self.assertTrue(keeper.report["files"][0]["locked"])
        os.chown(new, *os.stat(self.file)[4:6])
        shutil.copystat(self.file, new)
        os.utime(new)
        os.rename(new, self.file)
        file = self.file_when(lambda file: file["reloads"] == 1 and file["state"] == "held")
        self.assertEqual((file["locked"], file["lock_refusal"]), (True, ""))

    def keeper_with_little(self, limit):
        """One that may lock so many bytes."""
        if IS_SANITIZED:
            self.skipTest("memory is not locked here (AddressSanitizer switches that off)")

        def become_somebody_with_little():
            resource.setrlimit(resource.RLIMIT_MEMLOCK, (limit, limit))
            if os.geteuid() == 0:
                os.setgid(65534)
                os.setuid(65534)  # root may lock as much as it likes

        if os.geteuid() == 0:
            self.folder.chmod(0o755)
            self.file.parent.chmod(0o755)
            self.shared.mkdir(mode=0o700)
            for path in (self.shared, self.file):
                os.chown(path, 65534, 65534)
        try:
            return self.keeper(self.file, preexec_fn=become_somebody_with_little)
        except PermissionError:
            self.skipTest("the tool lies where only root may run it")

    def test_leaves_nothing_after_sigterm_and_sigint(self):
        for end in (signal.SIGTERM, signal.SIGINT):
            keeper = self.keeper(self.file)
            self.assertEqual([path.name for path in self.shared.iterdir()], ["hold.sock"])
            keeper.send_signal(end)
            keeper.communicate()
            self.assertEqual(keeper.returncode, 0)
            self.assertEqual(list(self.shared.iterdir()), [])


class Compared(Case):
    def sums(self, *files, **others):
        path = self.folder / "SHA256SUMS"
        lines = [(hashlib.sha256(file.read_bytes()).hexdigest(), file.name) for file in files]
        path.write_text("".join(f"{sum}  {name}\n" for sum, name in [*lines, *others.items()]))
        return path

    def sha256(self):
        return hashlib.sha256(self.file.read_bytes()).hexdigest()

    def test_a_file_of_this_digest_is_held(self):
        for options in (["--sha256", self.sha256()], ["--sums", self.sums(self.file)]):
            keeper = self.keeper(*options, self.file)
            [file] = keeper.report["files"]
            self.assertEqual((file["state"], file["sha256_compared"], file["problem"]),
                             ("held", True, None))
            self.stop(keeper)
        [file] = self.keeper(self.file).report["files"]
        self.assertIs(file["sha256_compared"], False)

    def test_a_file_of_another_digest_ends_the_start(self):
        done = self.asked("--sha256", "0" * 64, self.file, code=1)
        self.assertEqual(done.stdout, "")
        self.assertEqual(done.stderr,  # once
                         f"weightmap: {self.file}: has the SHA-256 {self.sha256()}, and should "
                         f"have {'0' * 64} (as was asked for); fetch or copy it again\n")

    def test_a_file_without_a_digest_is_refused(self):
        other = self.make(self.file.with_name("other.pt"))
        done = self.asked("--sums", self.sums(other), self.file, code=1)
        self.assertEqual(done.stderr, f"weightmap: {self.file}: cannot be held: --sums has no line "
                                      "for model.pt\n")
        done = self.asked("--require-digest", self.file, code=1)
        self.assertEqual(done.stderr, f"weightmap: {self.file}: cannot be held: no SHA-256 of model.pt "
                                      "is known, which is required\n")
        self.keeper("--sums", self.sums(other), other)
        with Client(self.socket) as client:
            answer = client.ask("hold", self.file)
        self.assertEqual(answer["error"]["message"],
                         "cannot be held: --sums has no line for model.pt")

    def test_a_file_that_is_added_with_another_digest_is_refused_and_let_go_of(self):
        keeper = self.keeper("--sums", self.sums(**{"0" * 64: "model.pt"}))
        with Client(self.socket) as client:
            client.ask("hold", self.file)
            while (file := client.ask("status")["files"][0])["state"] == "warming":
                pass
        self.assertEqual((file["state"], file["locked"], file["resident_bytes"]),
                         ("refused", False, 0))
        self.assertIn(f"has the SHA-256 {self.sha256()}, and should have ", file["problem"])
        self.assertEqual(memory_that_is_locked(keeper.pid), 0)
        self.assertIn("refused, not locked; has the SHA-256 ",
                      self.asked("--status", code=1).stdout)
        self.assertIn("; it is not held\n", self.stop(keeper))

    def test_a_new_version_of_another_digest_does_not_take_the_place(self):
        first = self.sha256()
        new = self.make(self.file.with_name("new.pt"), count=5)
        third = self.make(self.file.with_name("third.pt"), count=6)
        keeper = self.keeper("--sums", self.sums(self.file), self.file)
        os.rename(new, self.file)
        with Client(self.socket) as client:
            while not (file := client.ask("status")["files"][0])["problem"]:
                pass
            self.assertEqual((file["state"], file["reloads"]), ("held", 0))
            self.assertTrue(file["problem"].endswith(
                f"has the SHA-256 {self.sha256()}, and should have {first} (as was asked for); "
                "fetch or copy it again"), file["problem"])
        self.assertIn("; what is held stays held\n", self.stop(keeper))
        self.keeper("--sha256", hashlib.sha256(third.read_bytes()).hexdigest(), third)


class Replaced(Case):
    def replace(self, path):
        os.rename(path, self.file)

    def test_holds_the_new_file_when_one_is_replaced(self):
        keeper = self.keeper(self.file)
        new = self.make(self.file.with_name("new.pt"), count=6)
        inode, size = new.stat().st_ino, new.stat().st_size
        keep_cached(self, new)
        self.replace(new)
        file = self.file_when(lambda file: file["reloads"] == 1 and file["state"] == "held")
        self.assertEqual((file["generation"]["inode"], file["file_bytes"]), (inode, size))
        self.assertGreaterEqual(file["resident_bytes"], size)
        maps = pathlib.Path(f"/proc/{keeper.pid}/maps").read_text(encoding="utf-8")
        self.assertNotIn("(deleted)", re.sub(r".*/(memfd|dev/zero).*", "", maps))
        self.assertIn("was replaced; the new file is in memory, the old one released",
                      self.stop(keeper))

    def test_keeps_the_old_one_when_the_file_vanishes(self):
        keeper = self.keeper(self.file)
        inode = self.file.stat().st_ino
        self.file.rename(self.file.with_name("elsewhere.pt"))
        file = self.file_when(lambda file: file["problem"])
        self.assertEqual(file["problem"], "cannot look at the file: No such file or directory")
        self.assertEqual((file["state"], file["generation"]["inode"]), ("held", inode))
        self.assertGreaterEqual(file["resident_bytes"], file["file_bytes"])
        self.file.with_name("elsewhere.pt").rename(self.file)
        file = self.file_when(lambda file: not file["problem"])
        self.assertEqual(file["reloads"], 0)
        self.assertIn("No such file or directory; what is held stays held", self.stop(keeper))

    def test_keeps_the_old_one_when_what_comes_is_no_checkpoint(self):
        keeper = self.keeper(self.file)
        inode = self.file.stat().st_ino
        bad = self.file.with_name("bad.pt")
        bad.write_bytes(b"not a checkpoint at all")
        self.replace(bad)
        file = self.file_when(lambda file: file["problem"])
        self.assertEqual((file["generation"]["inode"], file["reloads"]), (inode, 0))
        self.replace(self.make(self.file.with_name("good.pt"), count=3))
        file = self.file_when(lambda file: file["reloads"] == 1)
        self.assertIsNone(file["problem"])
        # Said once, however often it looked.
        self.assertEqual(self.stop(keeper).count("stays held"), 1)

    def test_a_new_mode_or_name_is_no_new_content(self):
        self.keeper(self.file)
        self.file.chmod(0o600)
        os.link(self.file, self.file.with_name("link.pt"))
        missing = self.file.with_name("gone.pt")
        self.file.rename(missing)
        self.file_when(lambda file: file["problem"])
        missing.rename(self.file)
        self.assertEqual(self.file_when(lambda file: not file["problem"])["reloads"], 0)


class Asked(Case):
    def test_holds_and_releases_what_it_is_asked_for(self):
        keeper = self.keeper()
        self.assertEqual(keeper.report["files"], [])
        with Client(self.socket) as client:
            held = client.ask("hold", self.file)
            self.assertEqual((held["ok"], held["file"]), (True, str(self.file)))
            self.status_when(lambda status: status["files"][0]["state"] == "held")
            again = client.ask("hold", self.file.parent / "x" / ".." / "model.pt")
            self.assertEqual((again["ok"], again["file"]), (True, str(self.file)))
            self.assertEqual(len(client.ask("status")["files"]), 1)
            self.assertEqual(client.ask("release", self.file), {"ok": True, "file": str(self.file)})
            status = client.ask("status")
            self.assertEqual((status["files"], status["resident_bytes"]), ([], 0))
            refused = client.ask("release", self.file)
            self.assertEqual(refused, {"ok": False, "error": {
                "code": "invalid_argument", "message": f"{self.file} is not held",
                "file_offset": None}})
            self.assertEqual(client.ask("hold", "/nonexistent/model.pt")["error"]["code"], "io")
            self.assertEqual(client.ask("status")["ok"], True)
        maps = pathlib.Path(f"/proc/{keeper.pid}/maps").read_text(encoding="utf-8")
        self.assertNotIn("model.pt", maps)

    def test_is_asked_by_the_command_line(self):
        self.keeper()
        done = self.asked("--add", os.path.relpath(self.file, self.folder), cwd=self.folder)
        self.assertRegex(done.stdout, rf"^{re.escape(str(self.file))}: (warming|held), ")
        self.status_when(lambda status: status["files"][0]["state"] == "held")
        done = self.asked("--status")
        self.assertRegex(done.stdout, r"\AFILE +SIZE +RESIDENT  STATE\n"
                                      r".*model\.pt +4\.0 MiB +4\.0 MiB  held, (not )?locked\n"
                                      r"1 file, 4\.0 MiB resident, held by process \d+\n\Z")
        status = json.loads(self.asked("--status", "--json").stdout)
        self.assertEqual(status["files"][0]["file"], str(self.file))
        self.assertEqual(self.asked("--release", self.file).stdout, f"{self.file}: released\n")
        done = self.asked("--release", self.file, code=1)
        self.assertEqual(done.stderr, f"weightmap: {self.file} is not held\n")

    def test_answers_garbage_with_an_error(self):
        self.keeper()
        lines = {
            b"": "a request is a JSON object on one line",
            b"nonsense": "a request is a JSON object on one line",
            b"[1]": "a request is a JSON object on one line",
            b"\xff\xfe\x00": "a request is a JSON object on one line",
            b"[" * 60000: "a request is a JSON object on one line",
            b"{}": '"op" must be "hold", "release" or "status"',
            b'{"op":5}': '"op" must be "hold", "release" or "status"',
            b'{"op":"dance"}': '"op" must be "hold", "release" or "status"',
            b'{"op":"hold"}': '"file" must be an absolute path',
            b'{"op":"hold","file":["/a"]}': '"file" must be an absolute path',
            b'{"op":"release","file":"a"}': '"file" must be an absolute path',
        }
        with Client(self.socket) as client:
            for line, message in lines.items():
                client.send(line)
                answer = client.receive()
                self.assertEqual((answer["ok"], answer["error"]["message"]), (False, message))
            self.assertTrue(client.ask("status")["ok"])

    def test_a_path_with_a_zero_byte_is_refused(self):
        self.keeper()
        with Client(self.socket) as client:
            client.send(json.dumps({"op": "hold", "file": f"{self.file}\0x"}).encode())
            self.assertEqual(client.receive()["error"]["code"], "invalid_argument")

    def test_answers_many_requests_that_come_at_once_and_in_pieces(self):
        self.keeper()
        with Client(self.socket) as client:
            client.socket.sendall(b'{"op":"status"}\n' * 500)
            for _ in range(500):
                self.assertTrue(client.receive()["ok"])
            for byte in b'{"op":"status"}\n':
                client.socket.sendall(bytes([byte]))
            self.assertTrue(client.receive()["ok"])

    def test_leaves_a_client_with_too_long_a_line(self):
        self.keeper()
        with Client(self.socket) as client:
            try:
                client.send(b"x" * (1 << 20))
            except (BrokenPipeError, ConnectionResetError):
                pass
            self.assertEqual(client.receive()["error"]["message"], "a line may have 65536 bytes")
        self.assertTrue(self.status()["ok"])

    def test_is_kept_waiting_by_nobody(self):
        self.keeper(self.file)
        clients = []
        self.addCleanup(lambda: [client.__exit__() for client in clients])
        for _ in range(200):  # more than it serves at a time
            clients.append(Client(self.socket))
            clients[-1].socket.sendall(b'{"op":')
        slow = Client(self.socket)
        clients.append(slow)
        slow.socket.setblocking(False)
        try:  # asks, and never reads
            while True:
                slow.socket.send(b'{"op":"status"}\n' * 1000)
                self.assertTrue(self.status()["ok"])
        except BlockingIOError:
            pass
        self.assertTrue(self.status()["ok"])


    def test_answers_a_newcomer_when_its_descriptors_are_used_up(self):
        def have_few_descriptors():
            resource.setrlimit(resource.RLIMIT_NOFILE, (16, 16))

        self.keeper(self.file, preexec_fn=have_few_descriptors)
        clients = [Client(self.socket) for _ in range(40)]
        self.addCleanup(lambda: [client.__exit__() for client in clients])
        self.assertTrue(clients[-1].ask("status")["ok"])
        self.assertEqual(clients[0].file.readline(), b"")  # the one that was quiet for longest
        self.assertTrue(self.status()["ok"])


class Sockets(Case):
    def test_the_socket_is_for_its_user_alone(self):
        before = os.umask(0)
        self.addCleanup(os.umask, before)
        self.keeper()
        self.assertEqual(stat.S_IMODE(self.socket.stat().st_mode), 0o600)

    def test_refuses_other_users_even_where_they_reach_the_socket(self):
        if os.geteuid() != 0:
            self.skipTest("only root can become somebody else")
        self.keeper("--socket", self.folder / "open.sock")
        self.folder.chmod(0o755)
        (self.folder / "open.sock").chmod(0o666)
        self.assertEqual(self.answer_to_nobody(self.folder / "open.sock"), b"refused")
        with Client(self.folder / "open.sock") as client:
            self.assertTrue(client.ask("status")["ok"])

    @staticmethod
    def answer_to_nobody(path):
        """What another user hears: "refused" for nothing."""
        ours, theirs = os.pipe()
        child = os.fork()
        if child == 0:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            try:
                with Client(path) as client:
                    answer = client.ask("status")
            except (BrokenPipeError, ConnectionResetError):
                answer = None
            except OSError as error:
                answer = error
            os.write(theirs, b"refused" if answer is None else repr(answer).encode())
            os._exit(0)
        os.close(theirs)
        with os.fdopen(ours, "rb") as heard:
            answer = heard.read()
        os.waitpid(child, 0)
        return answer

    def false_keeper(self, answer, user=0):
        """A process of this user that listens in place of a keeper; says what it was asked."""
        path = self.folder / "false.sock"
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        ours, theirs = os.pipe()
        self.folder.chmod(0o777)
        child = os.fork()
        if child == 0:
            os.setuid(user)
            listener.bind(str(path))  # the end that is connected to is its user's
            listener.listen()
            os.write(theirs, b"listens")
            client, _ = listener.accept()
            asked = client.recv(1 << 16)
            with contextlib.suppress(OSError):
                while answer and asked:
                    client.sendall(answer)
            os.write(theirs, asked)
            os._exit(0)
        listener.close()
        os.close(theirs)
        self.assertEqual(os.read(ours, 7), b"listens")
        path.chmod(0o666)
        done = self.asked("--socket", path, "--add", "http://127.0.0.1:1/m.pt?sig=secret", code=1)
        with os.fdopen(ours, "rb") as heard:
            asked = heard.read()
        os.waitpid(child, 0)
        return asked, done.stderr

    def test_an_answer_without_end_is_no_answer(self):
        asked, error = self.false_keeper(b"x" * (1 << 20), os.geteuid())
        self.assertIn(b"secret", asked)
        self.assertIn("the daemon's answer is longer than 16777216 bytes", error)

    def test_a_keeper_that_never_answers_is_waited_for_a_minute(self):
        path = self.folder / "silent.sock"
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.addCleanup(listener.close)
        listener.bind(str(path))
        listener.listen()
        process = self.start("hold", "--socket", path, "--status")
        client, _ = listener.accept()
        self.addCleanup(client.close)
        self.assertEqual(client.recv(1 << 16), b'{"op":"status"}\n')
        [number] = [int(link.name) for link in pathlib.Path(f"/proc/{process.pid}/fd").iterdir()
                    if os.readlink(link).startswith("socket:")]
        of_process = os.pidfd_open(process.pid)
        self.addCleanup(os.close, of_process)
        pidfd_getfd = 438  # on all processors
        descriptor = ctypes.CDLL(None).syscall(pidfd_getfd, of_process, number, 0)
        if descriptor < 0:
            self.skipTest("the system does not show the other process's socket")
        with socket.socket(fileno=descriptor) as asking:
            limit = asking.getsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.calcsize("ll"))
        self.assertEqual(struct.unpack("ll", limit), (60, 0))

    def test_another_user_who_listens_hears_nothing(self):
        if os.geteuid() != 0:
            self.skipTest("only root can become somebody else")
        self.assertEqual(self.false_keeper(b"", 65534), (
            b"", f"weightmap: what listens on {self.folder}/false.sock is another user's, and is "
            "neither asked nor believed\n"))

    def test_a_second_keeper_is_refused(self):
        self.keeper(self.file)
        done = self.asked(self.file, code=1)
        self.assertEqual(done.stderr, f"weightmap: a daemon answers already on {self.socket}; "
                                      "weightmap hold --add FILE asks it to hold one more\n")
        self.assertTrue(self.status()["ok"])

    def test_of_many_that_start_at_once_one_keeps(self):
        keepers = [self.start("hold", "--json") for _ in range(8)]
        reports = [keeper.stdout.readline() for keeper in keepers]
        self.assertEqual(sum("pid" in report for report in reports), 1)

    def test_replaces_the_socket_of_a_killed_keeper(self):
        keeper = self.keeper(self.file)
        keeper.kill()
        keeper.wait()
        self.assertTrue(self.socket.exists())
        again = self.keeper(self.file)
        self.assertEqual(self.status()["pid"], again.pid)
        self.stop(again)
        self.assertEqual(list(self.shared.iterdir()), [])

    def test_does_not_remove_what_is_no_socket(self):
        self.shared.mkdir(mode=0o700)
        self.socket.write_text("precious")
        done = self.asked(self.file, code=1)
        self.assertEqual(done.stderr, f"weightmap: {self.socket} exists and is not a socket\n")
        self.assertEqual(self.socket.read_text(), "precious")

    def test_leaves_a_socket_that_is_another_keepers(self):
        keeper = self.keeper()
        self.socket.unlink()
        other = self.keeper()
        self.stop(keeper)
        self.assertTrue(self.socket.exists())
        self.assertEqual(self.status()["pid"], other.pid)


def parse_metrics(text):
    """The samples of a text of Prometheus: {(name, labels): value}."""
    samples = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, labels, value = re.fullmatch(r"(\w+)(\{.*\})? (\d+)", line).groups()
            samples[name, labels] = int(value)
    return samples


class Measured(Case):
    def setUp(self):
        super().setUp()
        self.metrics = self.folder / "weightmap.prom"
        self.labels = f'{{checkpoint="{self.file}"}}'
        with open(self.file, "rb") as file:
            os.fsync(file.fileno())  # so that it can be evicted

    def measured(self, name):
        return parse_metrics(self.metrics.read_text())[f"weightmap_{name}", self.labels]

    def wait_until(self, condition):
        while not condition():
            time.sleep(0.001)

    def test_writes_what_it_holds(self):
        keeper = self.keeper("--metrics", self.metrics, self.file)
        self.wait_until(lambda: "evicted_bytes_total" in self.metrics.read_text())
        [file] = self.status()["files"]
        size = self.file.stat().st_size
        self.assertEqual(self.measured("file_bytes"), size)
        self.assertEqual(self.measured("resident_bytes"), file["resident_bytes"])
        self.assertEqual(self.measured("locked"), int(file["locked"]))
        self.assertEqual(self.measured("left_out_bytes"), 0)
        self.assertEqual(self.measured("generation_changes_total"), 0)
        self.assertEqual(self.measured("reader_elections_total"), file["elections"])
        self.stop(keeper)
        self.assertEqual(list(self.folder.glob("*.prom")), [])

    def test_replaces_the_file_in_one_step(self):
        self.keeper("--metrics", self.metrics, self.file)
        with open(self.metrics, encoding="utf-8") as old:
            inode = os.fstat(old.fileno()).st_ino
            self.wait_until(lambda: self.metrics.stat().st_ino != inode)
            self.assertEqual(os.fstat(old.fileno()).st_nlink, 0)
            self.assertTrue(old.readline().startswith("# HELP weightmap_"))
            self.assertTrue(old.read().endswith("\n"))

    def test_counts_generations_and_follows_what_is_added_and_released(self):
        self.keeper("--metrics", self.metrics, self.file)
        os.rename(self.make(self.file.with_name("new.pt"), count=6), self.file)
        self.wait_until(lambda: self.measured("generation_changes_total") == 1)
        self.assertEqual(self.measured("file_bytes"), self.file.stat().st_size)
        with Client(self.socket) as client:
            client.ask("release", self.file)
        self.wait_until(lambda: self.labels not in self.metrics.read_text())
        with Client(self.socket) as client:
            client.ask("hold", self.file)
        self.wait_until(lambda: self.labels in self.metrics.read_text())

    def test_counts_the_warm_ups_that_it_was_elected_for(self):
        evicted = self.run_tool("residency", "--evict", "--json", self.file)
        [report] = json.loads(evicted.stdout)["files"]
        if report["cached_after"] > 0:
            self.skipTest("nothing can be evicted here")
        self.keeper("--metrics", self.metrics, self.file)
        self.wait_until(lambda: self.measured("reader_elections_total") == 1)

    def test_counts_what_was_evicted(self):
        keeper = self.keeper("--no-lock", "--metrics", self.metrics, self.file)
        self.wait_until(lambda: "evicted_bytes_total" in self.metrics.read_text())
        before = self.measured("evicted_bytes_total")
        stop(keeper)
        page_out(keeper.pid, self.file)
        looked = self.document("residency", "--json", self.file)
        keeper.send_signal(signal.SIGCONT)
        if looked["cached_bytes"] == self.file.stat().st_size:
            self.skipTest("another process's pages cannot be taken here")

        def is_counted():
            # Again, since it may have stopped between counting and bringing back what is missing.
            page_out(keeper.pid, self.file)
            return self.measured("evicted_bytes_total") > before

        self.wait_until(is_counted)

    def test_status_says_that_nothing_was_counted_without_metrics(self):
        self.keeper("--no-lock", self.file)
        self.assertIsNone(self.status()["files"][0]["evicted_bytes"])

    def test_does_not_replace_what_is_no_metrics(self):
        for path, content in ((self.metrics, b"precious"), (self.file, self.file.read_bytes())):
            path.write_bytes(content)
            done = self.asked("--metrics", path, self.file, code=1)
            self.assertEqual(done.stderr, f"weightmap: {path} exists and is no metrics of a "
                                          "daemon\n")
            self.assertEqual(path.read_bytes(), content)
        self.metrics.write_text("# HELP weightmap_file_bytes of a killed daemon\n")
        self.keeper("--metrics", self.metrics, self.file)
        self.assertEqual(self.measured("file_bytes"), self.file.stat().st_size)

    def test_goes_on_where_the_metrics_cannot_be_written_and_says_so_once(self):
        folder = self.folder / "metrics"
        folder.mkdir()
        keeper = self.keeper("--metrics", folder / "weightmap.prom", self.file)
        folder.rename(self.folder / "elsewhere")  # it may be writing there
        for _ in range(3):
            os.rename(self.make(self.file.with_name("new.pt")), self.file)
            number = self.status()["files"][0]["reloads"]
            self.file_when(lambda file, number=number: file["reloads"] > number)
        self.assertEqual(self.stop(keeper).count("; the metrics are old\n"), 1)

    def test_fails_where_the_metrics_cannot_be_written_at_the_start(self):
        done = self.asked("--metrics", self.folder / "missing" / "a.prom", self.file, code=1)
        self.assertIn("No such file or directory", done.stderr)


def page_out(process, file):
    """Takes the pages of `file` that another process has mapped, where the system does that."""
    class IoVector(ctypes.Structure):
        _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]

    maps = pathlib.Path(f"/proc/{process}/maps").read_text(encoding="utf-8")
    madv_pageout, process_madvise = 21, 440
    descriptor = os.pidfd_open(process)
    for mapping in maps.splitlines():
        if mapping.endswith(str(file)):
            begin, end = (int(address, 16) for address in mapping.split()[0].split("-"))
            ctypes.CDLL(None).syscall(process_madvise, descriptor,
                                      ctypes.byref(IoVector(begin, end - begin)), 1, madv_pageout,
                                      0)
    os.close(descriptor)


class Notified(Case):
    def listen(self, name):
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(listener.close)
        listener.bind(name)
        return listener

    def notified(self, listener, wanted):
        """The next message that begins so; others before it are heard, too."""
        while True:
            message = listener.recv(4096).decode()
            if message.startswith(wanted):
                return message

    def tells_all(self, listener, name):
        keeper = self.keeper(self.file, environment={"NOTIFY_SOCKET": name})
        self.assertEqual(self.notified(listener, ""), "READY=1\nSTATUS=holding 1 file, 4.0 MiB")
        os.rename(self.make(self.file.with_name("new.pt"), count=8), self.file)
        self.assertRegex(self.notified(listener, ""),
                         r"\ARELOADING=1\nMONOTONIC_USEC=\d+\nSTATUS=reloading")
        self.assertEqual(self.notified(listener, ""), "READY=1\nSTATUS=holding 1 file, 8.0 MiB")
        self.stop(keeper)
        self.assertEqual(self.notified(listener, ""), "STOPPING=1")

    def test_tells_who_started_it(self):
        name = str(self.folder / "notify")
        self.tells_all(self.listen(name), name)

    def test_tells_on_an_abstract_socket(self):
        name = f"weightmap-test-{os.getpid()}"
        self.tells_all(self.listen("\0" + name), "@" + name)

    def test_says_that_it_is_alive(self):
        name = str(self.folder / "notify")
        listener = self.listen(name)
        self.keeper(self.file, environment={"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "100000"})
        for _ in range(3):
            self.notified(listener, "WATCHDOG=1")

    def test_goes_on_where_nobody_listens(self):
        for name in (str(self.folder / "nobody"), "@nobody", "relative", "/" + "x" * 300):
            self.stop(self.keeper(self.file, environment={"NOTIFY_SOCKET": name}))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
