#!/usr/bin/env python3
"""Asks a server of this folder everything it answers, and replaces its file and kills its workers.

    serving_test.py ROOT COMMAND...

COMMAND starts the server: build/release/examples/serving/serving, or python and serve.py.
Waits end when what they wait for has come; a minute without it is a failure.
"""

import concurrent.futures
import contextlib
import http.client
import json
import os
import pathlib
import re
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

from memory import children_of

SECONDS_OF_PATIENCE = 60
INFINITY, NAN = float("inf"), float("nan")


def wait_until(condition, what):
    deadline = time.monotonic() + SECONDS_OF_PATIENCE
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {SECONDS_OF_PATIENCE} s in vain until {what}")
        time.sleep(0.01)
    return found


def is_gone(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def is_accepted(connection):
    """Whether the process at the other end, on this machine, has taken it out of its queue."""
    port, of_server = connection.getsockname()[1], connection.getpeername()[1]
    for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, remote, *_, inode = line.split()[:10]
        if local.endswith(f":{of_server:04X}") and remote.endswith(f":{port:04X}"):
            return inode != "0"
    return False


class Server:
    """A server in a process of its own, at a free port of the loopback interface."""

    def __init__(self, command, checkpoint, *options):
        self.process = subprocess.Popen(
            [str(word) for word in (*command, checkpoint, *options)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.address = self.process.stdout.readline().strip()
        if not self.address:
            raise AssertionError(f"it did not start: {self.process.communicate()[1]}")
        self.port = int(self.address.rsplit(":", 1)[1])
        count = int(options[options.index("--workers") + 1]) if "--workers" in options else 2
        wait_until(lambda: len(self.workers()) == count, "all workers were there")

    def ask(self, path, method="GET"):
        """(status, JSON, worker) of the answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS_OF_PATIENCE)
        with contextlib.closing(connection):
            connection.request(method, path)
            answer = connection.getresponse()
            return answer.status, json.load(answer), int(answer.getheader("Worker"))

    def get(self, path):
        """(status, JSON) of the answer."""
        return self.ask(path)[:2]

    def neighbours(self, query):
        status, answer = self.get("/nearest?" + query)
        assert status == 200, answer
        return [(found["id"], found["score"]) for found in answer["neighbours"]]

    def workers(self):
        return children_of(self.process.pid)

    def health_of_all(self):
        """{worker: its answer}, once each of them has given one."""
        answers = {}

        def has_all():
            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                for status, answer, worker in pool.map(self.ask, ["/health"] * 8):
                    assert status == 200, answer
                    answers[worker] = answer
            return set(answers) >= self.workers()

        wait_until(has_all, "all workers had answered")
        return {worker: answers[worker] for worker in self.workers()}

    def wait_for_health(self, condition, what):
        wait_until(lambda: all(map(condition, self.health_of_all().values())), what)

    def end(self, number=signal.SIGTERM):
        """(what it wrote on stderr, exit code)."""
        self.process.send_signal(number)
        try:
            errors = self.process.communicate(timeout=SECONDS_OF_PATIENCE)[1]
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError("it did not end") from None
        return errors, self.process.returncode


# --- checkpoints with one matrix, written without torch -------------------------------------------

STORAGES = {
    "d": "DoubleStorage",
    "f": "FloatStorage",
    "e": "HalfStorage",
    "bf": "BFloat16Storage",
}


def write_matrix(path, code, rows):
    """A checkpoint {"matrix": rows} in the layout of torch.save; `code` is a key of STORAGES."""

    def text(word):
        return b"X" + struct.pack("<I", len(word)) + word.encode()

    def number(value):
        return b"J" + struct.pack("<i", value)

    columns = len(rows[0])
    persistent_id = (
        b"(" + text("storage") + b"ctorch\n" + STORAGES[code].encode() + b"\n" + text("0")
        + text("cpu") + number(len(rows) * columns) + b"tQ"
    )  # fmt: skip
    arguments = (
        b"(" + persistent_id + number(0) + number(len(rows)) + number(columns) + b"\x86"
        + number(columns) + number(1) + b"\x86\x89ccollections\nOrderedDict\n)Rt"
    )  # fmt: skip
    tensor = b"ctorch._utils\n_rebuild_tensor_v2\n" + arguments + b"R"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("matrix/data.pkl", b"\x80\x02}" + text("matrix") + tensor + b"s.")
        archive.writestr("matrix/byteorder", b"little")
        # Payloads of torch.save begin at multiples of 64.
        record = zipfile.ZipInfo("matrix/data/0")
        padding = -(archive.fp.tell() + 30 + len(record.filename) + 4) % 64
        record.extra = struct.pack("<HH", 0x4246, padding) + bytes(padding)
        archive.writestr(record, b"".join(encoded(code, value) for row in rows for value in row))
        archive.writestr("matrix/version", b"3\n")
    return path


def encoded(code, value):
    return struct.pack("<f", value)[2:] if code == "bf" else struct.pack("<" + code, value)


# --- tests ----------------------------------------------------------------------------------------


class ServerTests(unittest.TestCase):
    command: list = []
    root = pathlib.Path(__file__).resolve().parents[2]
    longMessage = True

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="serving-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.state_dict = self.root / "tests" / "data" / "state_dict.pt"

    @contextlib.contextmanager
    def serving(self, checkpoint, *options):
        server = Server(self.command, checkpoint, *options)
        try:
            yield server
        finally:
            if server.process.poll() is None:
                server.end()
            server.process.stdout.close()
            server.process.stderr.close()

    def matrix(self, code, rows, name="matrix.pt"):
        return write_matrix(self.folder / name, code, rows)

    def replace(self, checkpoint, code, rows):
        os.replace(write_matrix(self.folder / "new.pt", code, rows), checkpoint)

    def replace_by_text(self, checkpoint, text):
        (self.folder / "new.pt").write_text(text)
        os.replace(self.folder / "new.pt", checkpoint)

    # answers

    def test_rows_of_the_first_matrix(self):
        # Row r of 6 is [4r, 4r+1, 4r+2, 4r+3].
        with self.serving(self.state_dict) as server:
            for row in range(6):
                values = [4.0 * row + column for column in range(4)]
                expected = {"id": row, "tensor": "embedding.weight", "values": values}
                self.assertEqual(server.get(f"/embedding?id={row}"), (200, expected))

    def test_rows_of_a_named_matrix_of_each_type(self):
        for tensor in ("layers.0.weight", "layers.1.weight"):  # bfloat16, float64
            with self.serving(self.state_dict, "--tensor", tensor) as server:
                expected = {"id": 3, "tensor": tensor, "values": [12.0, 13.0, 14.0, 15.0]}
                self.assertEqual(server.get("/embedding?id=3"), (200, expected))
                self.assertEqual(server.neighbours("id=1&k=2&metric=dot"), [(3, 302.0), (2, 214.0)])

    def test_numbers_are_exact_to_the_last_bit(self):
        halves = [0.0, 1.5, -2.0, 65504.0, 2.0**-14, 2.0**-24, 1023 * 2.0**-24, 1 + 2.0**-10]
        bfloats = [0.0, 1.5, -2.0, 2.0**127, 2.0**-126, 2.0**-133, 1 + 2.0**-7, -0.0078125]
        floats = [0.5, 1 + 2.0**-23, 2.0**-149, -(2.0**127)]
        doubles = [0.1, 1 + 2.0**-52, 5e-324, -1.7976931348623157e308]
        for code, row in (("e", halves), ("bf", bfloats), ("f", floats), ("d", doubles)):
            with self.serving(self.matrix(code, [row])) as server:
                self.assertEqual(server.get("/embedding?id=0")[1]["values"], row, code)

    def test_what_is_no_number_is_null(self):
        for code in STORAGES:
            checkpoint = self.matrix(code, [[INFINITY, -INFINITY, NAN, 1.0]])
            with self.serving(checkpoint) as server:
                values = server.get("/embedding?id=0")[1]["values"]
                self.assertEqual(values, [None, None, None, 1.0], code)

    def test_nearest_by_cosine(self):
        with self.serving(self.state_dict) as server:
            found = server.neighbours("id=5&k=2")
            all_rows = server.neighbours("id=0&k=1000&metric=cosine")
        # 20..23 by 16..19: 20*16 + 21*17 + 22*18 + 23*19 = 1510; squares 1854 and 1230
        # 20..23 by 12..15: 20*12 + 21*13 + 22*14 + 23*15 = 1166; squares 1854 and 734
        self.assertEqual([row for row, _ in found], [4, 3])
        self.assertAlmostEqual(found[0][1], 1510 / (1854 * 1230) ** 0.5, places=6)
        self.assertAlmostEqual(found[1][1], 1166 / (1854 * 734) ** 0.5, places=6)
        self.assertEqual([row for row, _ in all_rows], [1, 2, 3, 4, 5])

    def test_nearest_by_product_in_each_type(self):
        for code in STORAGES:
            checkpoint = self.matrix(code, [[1, 0], [0.5, 2], [-3, 1], [4, -1]])
            with self.serving(checkpoint) as server:
                found = server.neighbours("id=0&k=3&metric=dot")
                self.assertEqual(found, [(3, 4.0), (1, 0.5), (2, -3.0)], code)

    def test_nearest_adds_up_all_columns(self):
        rows = [[(7 * row + column) % 5 - 2 for column in range(21)] for row in range(40)]
        products = [sum(a * b for a, b in zip(rows[3], row)) for row in rows]
        expected = sorted((-product, row) for row, product in enumerate(products) if row != 3)[:9]
        for code in STORAGES:
            with self.serving(self.matrix(code, rows)) as server:
                found = server.neighbours("id=3&k=9&metric=dot")
            self.assertEqual(found, [(row, float(-product)) for product, row in expected], code)

    def test_equal_rows_come_in_the_order_of_the_matrix(self):
        with self.serving(self.matrix("f", [[0, 1], [1, 0], [0, 2], [0, 3], [0, 4]])) as server:
            self.assertEqual(server.neighbours("id=0&k=2"), [(2, 1.0), (3, 1.0)])

    def test_rows_without_length_and_without_value_have_no_neighbours(self):
        with self.serving(self.matrix("f", [[0, 0], [1, 0], [NAN, 1], [INFINITY, 1]])) as server:
            self.assertEqual(server.neighbours("id=1&k=4"), [(0, 0.0)])
            self.assertEqual(server.neighbours("id=2&k=4"), [])
            self.assertEqual(server.neighbours("id=3&k=4&metric=dot"), [])

    def test_tensors_are_listed(self):
        expected = [
            ("embedding.weight", "float32", [6, 4]),
            ("layers.0.weight", "bfloat16", [4, 4]),
            ("layers.0.bias", "float16", [4]),
            ("layers.1.weight", "float64", [4, 4]),
            ("layers.1.mask", "bool", [2, 2]),
            ("steps", "int64", []),
            ("position_ids", "int32", [1, 6]),
        ]
        with self.serving(self.state_dict) as server:
            status, answer = server.get("/tensors")
        self.assertEqual(status, 200)
        found = [(tensor["name"], tensor["dtype"], tensor["shape"]) for tensor in answer["tensors"]]
        self.assertEqual(found, expected)

    def test_health_of_each_worker(self):
        status = self.state_dict.stat()
        with self.serving(self.state_dict, "--workers", "3") as server:
            answers = server.health_of_all()
            self.assertEqual(set(answers), server.workers())
        self.assertEqual(len(answers), 3)
        for pid, answer in answers.items():
            self.assertGreaterEqual(answer.pop("requests"), 1)
            generation = {
                "inode": status.st_ino,
                "size": status.st_size,
                "mtime_ns": status.st_mtime_ns,
            }
            self.assertEqual(
                answer,
                {
                    "ok": True,
                    "pid": pid,
                    "tensors": 7,
                    "embedding": "embedding.weight",
                    "generation": generation,
                    "current": True,
                    "refused": None,
                },
            )

    def test_health_counts_requests(self):
        with self.serving(self.state_dict, "--workers", "1") as server:
            for _ in range(4):
                server.get("/embedding?id=1")
            self.assertEqual(server.get("/embedding?id=6")[0], 400)
            self.assertEqual(server.get("/health")[1]["requests"], 6)

    # requests that make no sense

    def test_wrong_parameters_are_refused(self):
        row = "id must be an integer from 0 to 5"
        count = "k must be an integer from 1 to 1000"
        refusals = {
            "/embedding": "id is missing",
            "/embedding?": "id is missing",
            "/embedding?id=6": row,
            "/embedding?id=-1": row,
            "/embedding?id=+1": row,
            "/embedding?id=1.0": row,
            "/embedding?id=0x1": row,
            "/embedding?id=": row,
            "/embedding?id": row,
            "/embedding?id=%D9%A3": row,
            "/embedding?id=%FF%00": row,
            "/embedding?id=18446744073709551617": row,
            "/embedding?id=" + "9" * 5000: row,
            "/embedding?id=1&id=2": "id is given twice",
            "/embedding?id=1&k=2": "unknown parameter k",
            "/nearest?k=1": "id is missing",
            "/nearest?id=1": "k is missing",
            "/nearest?id=6&k=1": row,
            "/nearest?id=1&k=0": count,
            "/nearest?id=1&k=1001": count,
            "/nearest?id=1&k=2&metric=l2": "metric must be cosine or dot",
            "/health?id=1": "unknown parameter id",
            "/tensors?id=1": "unknown parameter id",
        }
        with self.serving(self.state_dict) as server:
            workers = server.workers()
            for path, error in refusals.items():
                self.assertEqual(server.get(path), (400, {"error": error}), path[:60])
            self.assertEqual(server.workers(), workers, "a worker died of a request")
            self.assertEqual(server.end(), ("", 0))

    def test_unknown_paths_are_not_found(self):
        with self.serving(self.state_dict) as server:
            for path in ("/", "/nearest/", "/nearest2?id=1", "/../health", "/%00"):
                self.assertEqual(server.get(path), (404, {"error": "no such path"}), path)

    def test_other_methods_are_refused(self):
        with self.serving(self.state_dict) as server:
            for method in ("POST", "PUT", "DELETE"):
                status, answer, _ = server.ask("/health", method)
                self.assertGreaterEqual(status, 400)
                self.assertEqual(list(answer), ["error"])
            self.assertEqual(server.end(), ("", 0))

    def test_what_is_not_http_and_clients_that_leave_early_do_no_harm(self):
        requests = (
            b"",
            b"GET /hea",
            b"\xff\xfe\x00 \x01\r\n\r\n",
            b"GET /health HTTP/9.9\r\n\r\n",
            b"GET /" + b"x" * 70000 + b" HTTP/1.1\r\n\r\n",
            b"GET /health HTTP/1.1\r\n" + b"A: b\r\n" * 200 + b"\r\n",
            b"GET /nearest?id=1&k=1 HTTP/1.1\r\n\r\n",
        )
        with self.serving(self.state_dict) as server:
            workers = server.workers()
            for request in requests * 3:
                connection = socket.create_connection(("127.0.0.1", server.port))
                with contextlib.suppress(ConnectionError):  # it need not hear all of it
                    connection.sendall(request)
                # Closed by a reset, which the server meets while it reads or writes.
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                connection.close()
            self.assertEqual(set(server.health_of_all()), workers)
            self.assertEqual(server.end(), ("", 0))

    def test_it_says_why_it_does_not_start(self):
        text = self.folder / "text.pt"
        text.write_text("no checkpoint")
        for arguments, error in (
            ((self.state_dict, "--tensor", "no.such"), "no.such"),
            ((self.state_dict, "--tensor", "position_ids"), "position_ids"),
            ((self.state_dict, "--tensor", "layers.0.bias"), "layers.0.bias is not a matrix"),
            ((self.folder / "missing.pt",), "missing.pt"),
            ((text,), "text.pt"),
        ):
            command = [str(word) for word in (*self.command, *arguments)]
            done = subprocess.run(command, capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertIn(error, done.stderr)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)

    def test_a_port_that_is_taken_is_refused(self):
        with self.serving(self.state_dict) as server:
            command = [*self.command, self.state_dict, "--port", server.port]
            done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("Address already in use", done.stderr)

    def test_it_listens_on_the_loopback_interface_only(self):
        with self.serving(self.state_dict) as server:
            self.assertRegex(server.address, r"^http://127\.0\.0\.1:[0-9]+$")
            lines = pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]
            port = f":{server.port:04X}"
            listening = {line.split()[1] for line in lines if line.split()[3] == "0A"}
        found = {place for place in listening if place.endswith(port)}
        self.assertEqual(found, {"0100007F" + port})

    # replacement

    def test_a_new_file_is_served(self):
        checkpoint = self.matrix("f", [[1, 1], [1, 2]])
        for tell in (False, True):
            with self.serving(checkpoint) as server:
                old = server.health_of_all()
                self.replace(checkpoint, "bf", [[3, 3], [3, 4], [3, 5]])
                if tell:
                    server.process.send_signal(signal.SIGHUP)
                inode = checkpoint.stat().st_ino
                server.wait_for_health(
                    lambda health: health["generation"]["inode"] == inode and health["current"],
                    "all workers served the new file",
                )
                self.assertEqual(server.get("/embedding?id=2")[1]["values"], [3.0, 5.0])
                self.assertEqual(server.workers(), set(old), "workers were to stay")
                self.assert_old_file_is_unmapped(server)
                self.assertEqual(server.end(), ("", 0))

    def assert_old_file_is_unmapped(self, server):
        def is_unmapped():
            processes = {server.process.pid, *server.workers()}
            maps = [pathlib.Path(f"/proc/{pid}/maps").read_text() for pid in processes]
            return not any(re.search(r"\.pt \(deleted\)", text) for text in maps)

        wait_until(is_unmapped, "nobody had the old file mapped any more")

    def test_a_file_that_is_cut_short_in_place_is_an_error_and_kills_nobody(self):
        checkpoint = self.matrix("f", [[float(row)] * 1024 for row in range(64)])
        with self.serving(checkpoint) as server:
            old = server.health_of_all()
            os.truncate(checkpoint, 4096)
            server.wait_for_health(
                lambda health: not health["ok"] and health["refused"],
                "all workers had noticed the loss",
            )
            for request in ("/embedding?id=63", "/nearest?id=1&k=2"):
                status, answer = server.get(request)
                self.assertEqual(status, 503)
                self.assertEqual(
                    answer, {"error": "the checkpoint was cut short or written to in place"}
                )
            self.replace(checkpoint, "f", [[5, 6]])
            server.wait_for_health(
                lambda health: health["ok"] and health["current"], "the new file was served"
            )
            self.assertEqual(server.get("/embedding?id=0")[1]["values"], [5.0, 6.0])
            self.assertEqual(server.workers(), set(old), "workers were to stay")
            self.assertEqual(server.end(), ("", 0))

    def test_a_bad_new_file_is_refused_and_a_good_one_is_served_after_it(self):
        checkpoint = self.matrix("f", [[1, 1], [1, 2]])
        with self.serving(checkpoint) as server:
            for bad in ("no checkpoint", ""):
                self.replace_by_text(checkpoint, bad)
                server.wait_for_health(
                    lambda health: health["refused"] and not health["current"],
                    "all workers had refused the file",
                )
                for health in server.health_of_all().values():
                    self.assertIn("matrix.pt", health["refused"])
                    self.assertTrue(health["ok"])
                self.assertEqual(server.get("/embedding?id=1")[1]["values"], [1.0, 2.0])
            self.replace(checkpoint, "f", [[5, 6]])
            server.wait_for_health(
                lambda health: health["refused"] is None and health["current"],
                "all workers served the good file",
            )
            self.assertEqual(server.get("/embedding?id=0")[1]["values"], [5.0, 6.0])
            self.assertEqual(server.end(), ("", 0))

    def test_a_new_file_without_the_tensor_is_refused(self):
        checkpoint = self.folder / "model.pt"
        shutil.copy(self.state_dict, checkpoint)
        with self.serving(checkpoint, "--tensor", "embedding.weight") as server:
            self.replace(checkpoint, "f", [[1, 1]])
            server.wait_for_health(
                lambda health: "embedding.weight" in (health["refused"] or ""),
                "all workers had missed the tensor",
            )
            self.assertEqual(server.get("/embedding?id=0")[1]["values"], [0.0, 1.0, 2.0, 3.0])

    def test_a_file_that_is_gone_is_served_on(self):
        checkpoint = self.matrix("f", [[1, 1], [1, 2]])
        with self.serving(checkpoint) as server:
            checkpoint.unlink()
            server.wait_for_health(
                lambda health: "No such file" in (health["refused"] or ""),
                "all workers had missed the file",
            )
            self.assertEqual(server.get("/embedding?id=1")[1]["values"], [1.0, 2.0])

    def test_no_request_fails_while_the_file_is_replaced(self):
        columns, replacements = 64, 30
        checkpoint = self.matrix("f", [[0] * columns] * 200)
        enough = threading.Event()

        def keep_asking(server):
            seen = []
            while not enough.is_set():
                status, answer = server.get("/embedding?id=199")
                self.assertEqual(status, 200, answer)
                version = answer["values"][0]
                # Wholly of one version.
                self.assertEqual(answer["values"], [version] * columns)
                ((_, product),) = server.neighbours("id=0&k=1&metric=dot")
                self.assertEqual(product**0.5 % columns**0.5, 0)  # columns * version * version
                seen.append(version)
            return seen

        with self.serving(checkpoint, "--workers", "3") as server:
            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                clients = [pool.submit(keep_asking, server) for _ in range(4)]
                try:
                    for version in range(1, replacements + 1):
                        if version % 5 == 0:
                            self.replace_by_text(checkpoint, "no checkpoint")
                            server.process.send_signal(signal.SIGHUP)
                            time.sleep(0.02)
                        self.replace(checkpoint, "f", [[version] * columns] * 200)
                        server.process.send_signal(signal.SIGHUP)
                        time.sleep(0.05)
                finally:
                    enough.set()
                versions = [version for client in clients for version in client.result()]
            server.wait_for_health(
                lambda health: health["current"] and health["refused"] is None,
                "all workers served the last file",
            )
            self.assertEqual(server.get("/embedding?id=0")[1]["values"][0], replacements)
            self.assertEqual(server.end(), ("", 0))
        self.assertLessEqual(set(versions), set(range(replacements + 1)))
        self.assertGreater(len(set(versions)), 2, "nothing was replaced while requests were made")

    # processes

    def test_a_killed_worker_comes_back_and_so_does_the_one_after(self):
        with self.serving(self.state_dict) as server:
            before = set(server.health_of_all())
            victim = min(before)
            deaths = []
            for _ in range(2):
                os.kill(victim, signal.SIGKILL)
                deaths.append(f"worker {victim} died: Killed\n")
                after = wait_until(
                    lambda: len(now := server.workers() - {victim}) == 2 and now,
                    "a new worker was there",
                )
                self.assertEqual(set(server.health_of_all()), after)
                (new,) = after - before
                self.assertEqual(before - after, {victim})
                self.assertEqual(server.get("/embedding?id=1")[1]["values"], [4.0, 5.0, 6.0, 7.0])
                before, victim = after, new
            self.assertEqual(server.end(), ("".join(deaths), 0))

    def test_a_worker_that_is_told_to_end_comes_back(self):
        with self.serving(self.state_dict, "--workers", "1") as server:
            (old,) = server.health_of_all()
            os.kill(old, signal.SIGTERM)
            wait_until(lambda: old not in server.workers(), "the worker had ended")
            self.assertEqual(server.get("/embedding?id=1")[1]["values"], [4.0, 5.0, 6.0, 7.0])
            self.assertEqual(server.end(), (f"worker {old} ended with exit code 0\n", 0))

    def test_a_worker_that_comes_back_serves_the_newest_file(self):
        checkpoint = self.matrix("f", [[1, 1]])
        with self.serving(checkpoint, "--workers", "1") as server:
            (old,) = server.health_of_all()
            os.kill(old, signal.SIGSTOP)  # it will not see the new file
            self.replace(checkpoint, "f", [[2, 2]])
            os.kill(old, signal.SIGKILL)
            wait_until(lambda: old not in server.workers(), "the worker was gone")
            server.wait_for_health(lambda health: health["current"], "the new file was served")
            self.assertEqual(server.get("/embedding?id=0")[1]["values"], [2.0, 2.0])

    def test_the_end_leaves_nothing_behind(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            with self.serving(self.state_dict, "--workers", "3") as server:
                workers = set(server.health_of_all())
                self.assertEqual(len(workers), 3)
                self.assertEqual(server.end(number), ("", 0))
            self.assertTrue(all(map(is_gone, workers)), workers)
            with self.assertRaises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", server.port))

    def test_the_end_waits_for_a_request_under_way(self):
        with self.serving(self.state_dict, "--workers", "1") as server:
            with socket.create_connection(("127.0.0.1", server.port)) as connection:
                connection.sendall(b"GET /embedding?id=1 HTTP/1.0\r\n")
                wait_until(lambda: is_accepted(connection), "a worker had accepted it")
                server.process.send_signal(signal.SIGTERM)
                connection.sendall(b"\r\n")
                answer = connection.makefile("rb").read()
            self.assertIn(b'"embedding.weight"', answer)
            self.assertEqual(server.end(), ("", 0))

    def test_the_end_waits_for_no_silent_client(self):
        with self.serving(self.state_dict, "--workers", "1") as server:
            (worker,) = server.health_of_all()
            with socket.create_connection(("127.0.0.1", server.port)):
                self.assertEqual(server.end(), ("", 0))
        self.assertTrue(is_gone(worker))

    def test_workers_end_when_their_parent_is_killed(self):
        with self.serving(self.state_dict) as server:
            workers = set(server.health_of_all())
            server.process.kill()
            server.process.wait()
            # Nobody's children any more, they may still wait to be buried.
            wait_until(lambda: all(map(is_gone, workers)), "the workers had ended")


if __name__ == "__main__":
    ServerTests.root = pathlib.Path(sys.argv[1])
    ServerTests.command = sys.argv[2:]
    unittest.main(argv=sys.argv[:1], verbosity=1)
