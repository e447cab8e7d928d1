#!/usr/bin/env python3
"""Asks a server of examples/serving, replaces its file under load and kills its workers.

    serving_test.py ROOT COMMAND...

COMMAND starts the server: build/release/examples/serving/serving, or python and server.py.
Waits end when what they wait for has come; a minute without it is a failure.
"""

import concurrent.futures
import contextlib
import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import zipfile

SECONDS_OF_PATIENCE = 60


def wait_until(condition, what):
    deadline = time.monotonic() + SECONDS_OF_PATIENCE
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {SECONDS_OF_PATIENCE} s in vain until {what}")
        time.sleep(0.01)
    return found


def state_and_parent(pid):
    """None if there is no such process."""
    try:
        words = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return words[0], int(words[1])
    except (FileNotFoundError, ProcessLookupError):
        return None


def is_gone(pid):
    return (state_and_parent(pid) or "Z")[0] == "Z"


def is_accepted(connection):
    """Whether the process at the other end, on this machine, has taken it out of its queue."""
    port, of_server = connection.getsockname()[1], connection.getpeername()[1]
    for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, remote, *_, inode = line.split()[:10]
        if local.endswith(f":{of_server:04X}") and remote.endswith(f":{port:04X}"):
            return inode != "0"
    return False


def write_matrix(path, rows):
    """A checkpoint {"matrix": rows} of float32 in the layout of torch.save."""

    def text(word):
        return b"X" + struct.pack("<I", len(word)) + word.encode()

    def number(value):
        return b"J" + struct.pack("<i", value)

    columns = len(rows[0])
    storage = (b"(" + text("storage") + b"ctorch\nFloatStorage\n" + text("0") + text("cpu")
               + number(len(rows) * columns) + b"tQ")  # fmt: skip
    arguments = (b"(" + storage + number(0) + number(len(rows)) + number(columns) + b"\x86"
                 + number(columns) + number(1) + b"\x86\x89ccollections\nOrderedDict\n)Rt")  # fmt: skip
    tensor = b"ctorch._utils\n_rebuild_tensor_v2\n" + arguments + b"R"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("matrix/data.pkl", b"\x80\x02}" + text("matrix") + tensor + b"s.")
        archive.writestr("matrix/byteorder", b"little")
        # Payloads of torch.save begin at multiples of 64.
        record = zipfile.ZipInfo("matrix/data/0")
        padding = -(archive.fp.tell() + 30 + len(record.filename) + 4) % 64
        record.extra = struct.pack("<HH", 0x4246, padding) + bytes(padding)
        archive.writestr(record, b"".join(struct.pack(f"<{columns}f", *row) for row in rows))
        archive.writestr("matrix/version", b"3\n")
    return path


class Server:
    """A server in a process of its own, at a free port of the loopback interface."""

    def __init__(self, command, checkpoint, tensor, count):
        self.process = subprocess.Popen(
            [str(word) for word in (*command, checkpoint, tensor, count)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        address = self.process.stdout.readline().strip()
        if not address.startswith("http://127.0.0.1:"):
            raise AssertionError(f"it did not start: {self.process.communicate()[1]}")
        self.port = int(address.rsplit(":", 1)[1])
        wait_until(lambda: len(self.workers()) == count, "all workers were there")

    def ask(self, path):
        """(status, JSON, worker) of the answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS_OF_PATIENCE)
        with contextlib.closing(connection):
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, json.load(answer), int(answer.getheader("Worker"))

    def get(self, path):
        return self.ask(path)[:2]

    def workers(self):
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
        found = {pid: state_and_parent(pid) for pid in pids}
        return {pid for pid, of in found.items()
                if of and of[0] != "Z" and of[1] == self.process.pid}  # fmt: skip

    def wait_for_all(self, condition, what):
        """Until each worker's health, at one time, fulfils the condition."""

        def have_all():
            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                answers = {pid: health for _, health, pid in pool.map(self.ask, ["/health"] * 8)}
            good = {pid for pid, health in answers.items() if condition(health)}
            return len(good) == len(answers) and good >= self.workers() and good

        return wait_until(have_all, what)

    def end(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        try:
            errors = self.process.communicate(timeout=SECONDS_OF_PATIENCE)[1]
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError("it did not end") from None
        return errors, self.process.returncode


class ServerTests(unittest.TestCase):
    command: list = []
    root = pathlib.Path(__file__).resolve().parents[2]

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="serving-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.checkpoint = self.folder / "matrix.pt"

    @contextlib.contextmanager
    def serving(self, rows, count=2):
        write_matrix(self.checkpoint, rows)
        server = Server(self.command, self.checkpoint, "matrix", count)
        try:
            yield server
        finally:
            if server.process.poll() is None:
                server.end()
            server.process.stdout.close()
            server.process.stderr.close()

    def replace(self, rows):
        os.replace(write_matrix(self.folder / "new.pt", rows), self.checkpoint)

    def replace_by_text(self):
        (self.folder / "new.pt").write_text("not a checkpoint")
        os.replace(self.folder / "new.pt", self.checkpoint)

    def test_rows_and_their_sum(self):
        rows = [[0.5, 2.0**-149], [-(2.0**127), 3.0], [float("nan"), float("-inf")]]
        with self.serving(rows[:2]) as server:
            self.assertEqual(server.get("/row?id=0"), (200, {"id": 0, "values": rows[0]}))
            self.assertEqual(server.get("/row?id=1"), (200, {"id": 1, "values": rows[1]}))
        with self.serving(rows) as server:
            self.assertEqual(server.get("/row?id=2")[1]["values"], [None, None])
        with self.serving([[1, 2], [3, 4]]) as server:
            self.assertEqual(server.get("/sum"), (200, {"sum": 10.0}))

    def test_rows_that_do_not_exist_are_refused(self):
        refusal = (400, {"error": "id is not the number of a row"})
        with self.serving([[1, 2], [3, 4]]) as server:
            for query in ("", "?id=", "?id=2", "?id=-1", "?id=1.0", "?id=x", "?id=" + "9" * 40):
                self.assertEqual(server.get("/row" + query), refusal, query)

    def test_it_says_why_it_does_not_start(self):
        text = self.folder / "text.pt"
        text.write_text("not a checkpoint")
        state_dict = self.root / "tests" / "data" / "state_dict.pt"
        for file, tensor, error in (
            (state_dict, "no.such", "no.such"),
            (state_dict, "layers.0.bias", "float"),
            (self.folder / "missing.pt", "matrix", "missing.pt"),
            (text, "matrix", "text.pt"),
        ):
            done = subprocess.run([*self.command, file, tensor], capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertIn(error, done.stderr)

    def test_no_request_fails_while_the_file_is_replaced(self):
        columns, last = 64, 12
        seen, enough = set(), threading.Event()

        def keep_asking(server):
            while not enough.is_set():
                status, answer = server.get("/row?id=199")
                self.assertEqual(status, 200, answer)
                # Wholly of one version.
                self.assertEqual(answer["values"], answer["values"][:1] * columns)
                seen.add(answer["values"][0])

        with self.serving([[0] * columns] * 200, 3) as server:
            workers = server.workers()
            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                clients = [pool.submit(keep_asking, server) for _ in range(4)]
                try:
                    for version in range(1, last + 1):
                        self.replace_by_text()
                        server.wait_for_all(lambda health: not health["current"], "it was refused")
                        self.replace([[version] * columns] * 200)
                        server.wait_for_all(lambda health: health["current"], "it was served")
                        wait_until(lambda: version in seen or clients[0].done(), "it was read")
                finally:
                    enough.set()
                for client in clients:
                    client.result()
            self.assertEqual(server.workers(), workers, "workers were to stay")
            for pid in (server.process.pid, *workers):
                wait_until(lambda: "(deleted)" not in pathlib.Path(f"/proc/{pid}/maps").read_text(),
                           "the old files were unmapped")  # fmt: skip
            self.assertEqual(server.end(), ("", 0))
        self.assertEqual(seen - {0.0}, set(map(float, range(1, last + 1))))

    def test_a_file_that_is_truncated_in_place_is_an_error_and_kills_nobody(self):
        lost = (503, {"error": "the file was truncated or written to in place"})
        with self.serving([[float(row)] * 1024 for row in range(64)]) as server:
            workers = server.workers()
            os.truncate(self.checkpoint, 4096)
            for request in ("/row?id=63", "/sum"):
                self.assertEqual(server.get(request), lost)
            server.wait_for_all(lambda health: not health["ok"], "all had noticed the loss")
            self.replace([[5, 6]])
            server.wait_for_all(lambda health: health["ok"] and health["current"], "it was served")
            self.assertEqual(server.get("/row?id=0")[1]["values"], [5.0, 6.0])
            self.assertEqual(server.workers(), workers, "workers were to stay")
            self.assertEqual(server.end(), ("", 0))

    def test_a_killed_worker_is_replaced_by_one_that_serves_the_newest_file(self):
        with self.serving([[1, 1]]) as server:
            for version in (2, 3):
                before = server.workers()
                victim = min(before)
                os.kill(victim, signal.SIGSTOP)  # it will not see the new file
                self.replace([[version, 9]])
                os.kill(victim, signal.SIGKILL)
                wait_until(lambda: victim not in (now := server.workers()) and len(now) == 2,
                           "a new worker was there")  # fmt: skip
                server.wait_for_all(lambda health: health["current"], "all served the new file")
                self.assertEqual(server.get("/row?id=0")[1]["values"], [version, 9.0])
            self.assertEqual(server.end(), ("", 0))

    def test_the_end_leaves_nothing_behind(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            with self.serving([[1, 1]], 3) as server:
                workers = server.workers()
                self.assertEqual(server.end(number), ("", 0))
            self.assertTrue(all(map(is_gone, workers)), workers)
            with self.assertRaises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", server.port))

    def test_the_end_waits_for_a_request_under_way(self):
        with self.serving([[7, 8]], 1) as server:
            with socket.create_connection(("127.0.0.1", server.port)) as connection:
                connection.sendall(b"GET /row?id=0 HTTP/1.0\r\n")
                wait_until(lambda: is_accepted(connection), "a worker had accepted it")
                server.process.send_signal(signal.SIGTERM)
                connection.sendall(b"\r\n")
                body = connection.makefile("rb").read().partition(b"\r\n\r\n")[2]
            self.assertEqual(json.loads(body), {"id": 0, "values": [7.0, 8.0]})
            self.assertEqual(server.end(), ("", 0))

    def test_workers_end_when_their_parent_is_killed(self):
        with self.serving([[1, 1]]) as server:
            workers = server.workers()
            server.process.kill()
            server.process.wait()
            wait_until(lambda: all(map(is_gone, workers)), "the workers had ended")


if __name__ == "__main__":
    ServerTests.root = pathlib.Path(sys.argv[1])
    ServerTests.command = sys.argv[2:]
    unittest.main(argv=sys.argv[:1], verbosity=1)
