"""Runs the programs of examples/python as their users do."""

import contextlib
import json
import os
import random
import re
import signal
import socket
import struct
import subprocess
import sys
import time
import urllib.error
import urllib.request
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("numpy", reason="serve.py and quickstart.py compute with numpy")

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "python"
STATE_DICT = ROOT / "tests" / "data" / "state_dict.pt"
MEBIBYTE = 1 << 20


def run(example, *arguments):
    command = [sys.executable, EXAMPLES / example, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


# --- a server and what is asked of it -----------------------------------------------------------


class Server:
    """serve.py in a process of its own, listening at a free port of the loopback interface."""

    def __init__(self, checkpoint, tensor, *options):
        command = [sys.executable, EXAMPLES / "serve.py", checkpoint, tensor, *options]
        self.process = subprocess.Popen(
            [str(word) for word in command],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.address = self.process.stdout.readline().strip()
        if not self.address:
            raise AssertionError(f"serve.py did not start: {self.process.communicate()[1]}")

    @property
    def port(self):
        return int(self.address.rsplit(":", 1)[1])

    def get(self, path):
        """(status, JSON) of the answer."""
        try:
            with urllib.request.urlopen(self.address + path) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as refusal:
            with refusal:
                return refusal.code, json.load(refusal)

    def nearest(self, query):
        status, answer = self.get("/nearest?" + query)
        assert status == 200, answer
        return [(found["row"], found["score"]) for found in answer["neighbours"]]

    def workers(self):
        return children_of(self.process.pid)

    def asked_of_every_worker(self, path):
        """{worker: answer}, after as many rounds as it takes until all have answered."""
        answers = {}
        for _ in range(100):
            with ThreadPoolExecutor(8) as pool:
                for status, answer in pool.map(self.get, [path] * 16):
                    assert status == 200, answer
                    answers[answer["worker"]] = answer
            if set(answers) >= self.workers():
                return answers
        raise AssertionError(f"only {set(answers)} of {self.workers()} answered 1600 requests")

    def end(self, number=signal.SIGTERM):
        """(what it printed since, its errors, exit code)."""
        self.process.send_signal(number)
        output, errors = self.process.communicate()
        return output, errors, self.process.returncode


@contextlib.contextmanager
def serving(checkpoint, tensor, *options):
    server = Server(checkpoint, tensor, *options)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.end()


def children_of(parent):
    children = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # a process that just ended
            state, parent_of_it = stat.read_text().rpartition(")")[2].split()[:2]
            if int(parent_of_it) == parent and state != "Z":
                children.add(int(stat.parent.name))
    return children


def kilobytes(file):
    """The sizes in a file of /proc, in bytes."""
    sizes = re.findall(r"(\w+):\s+(\d+) kB", Path(file).read_text())
    return {name: 1024 * int(size) for name, size in sizes}


# --- checkpoints with one matrix, written without torch -------------------------------------------


def write_matrix(path, storage_type, rows, columns, data):
    """A checkpoint {"matrix": ...} in the layout of torch.save, with `data` as its only storage."""

    def text(word):
        return b"X" + struct.pack("<I", len(word)) + word.encode()

    def number(value):
        return b"J" + struct.pack("<i", value)

    persistent_id = (
        b"(" + text("storage") + b"ctorch\n" + storage_type.encode() + b"\n" + text("0")
        + text("cpu") + number(rows * columns) + b"tQ"
    )  # fmt: skip
    arguments = (
        b"(" + persistent_id + number(0) + number(rows) + number(columns) + b"\x86"
        + number(columns) + number(1) + b"\x86\x89ccollections\nOrderedDict\n)Rt"
    )  # fmt: skip
    tensor = b"ctorch._utils\n_rebuild_tensor_v2\n" + arguments + b"R"
    pickle = b"\x80\x02}" + text("matrix") + tensor + b"s."
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("matrix/data.pkl", pickle)
        archive.writestr("matrix/byteorder", b"little")
        # Payloads of torch.save begin at multiples of 64, which numpy computes on as they are.
        record = zipfile.ZipInfo("matrix/data/0")
        end = archive.fp.tell() + 30 + len(record.filename) + 4
        padding = -end % 64
        record.extra = struct.pack("<HH", 0x4246, padding) + bytes(padding)
        archive.writestr(record, data)
        archive.writestr("matrix/version", b"3\n")
    return path


@pytest.fixture(scope="module")
def large_matrix(tmp_path_factory):
    """64 MiB of float32, 65,536 x 256: each row is 1 at its own number modulo 256, else 0."""
    rows = b"".join(bytes(4 * n) + b"\0\0\x80\x3f" + bytes(4 * (255 - n)) for n in range(256))
    path = tmp_path_factory.mktemp("large") / "matrix.pt"
    yield write_matrix(path, "FloatStorage", 65536, 256, rows * 256)
    path.unlink()


@pytest.fixture(scope="module")
def large_bfloat16_matrix(tmp_path_factory):
    """64 MiB of bfloat16, 131,072 x 256, of the same kind."""
    rows = b"".join(bytes(2 * n) + b"\x80\x3f" + bytes(2 * (255 - n)) for n in range(256))
    path = tmp_path_factory.mktemp("large") / "matrix.pt"
    yield write_matrix(path, "BFloat16Storage", 131072, 256, rows * 512)
    path.unlink()


# --- answers --------------------------------------------------------------------------------------


def test_server_finds_nearest_rows_by_cosine():
    # Row r of 6 is [4r, 4r+1, 4r+2, 4r+3].
    with serving(STATE_DICT, "embedding.weight", "--workers", "2") as server:
        found = server.nearest("row=5&k=2")
        first = server.nearest("row=0&k=9")
    # 20..23 by 16..19: 20*16 + 21*17 + 22*18 + 23*19 = 1510; squares 1854 and 1230
    # 20..23 by 12..15: 20*12 + 21*13 + 22*14 + 23*15 = 1166; squares 1854 and 734
    assert [row for row, _ in found] == [4, 3]
    expected = [1510 / (1854 * 1230) ** 0.5, 1166 / (1854 * 734) ** 0.5]
    assert [score for _, score in found] == pytest.approx(expected, abs=1e-6)
    assert [row for row, _ in first] == [1, 2, 3, 4, 5]


def test_server_finds_nearest_rows_by_product():
    with serving(STATE_DICT, "embedding.weight", "--workers", "1") as server:
        assert server.nearest("row=1&k=3&metric=dot") == [(5, 478.0), (4, 390.0), (3, 302.0)]


def test_server_reads_bfloat16_and_float64():
    # Row r of 4 is [4r, 4r+1, 4r+2, 4r+3] in both.
    for tensor in ("layers.0.weight", "layers.1.weight"):
        with serving(STATE_DICT, tensor, "--workers", "1") as server:
            assert server.nearest("row=1&k=2&metric=dot") == [(3, 302.0), (2, 214.0)]


def test_server_reads_float16(tmp_path):
    values = struct.pack("<6e", 1, 0, 0.5, 2, -3, 1)
    checkpoint = write_matrix(tmp_path / "half.pt", "HalfStorage", 3, 2, values)
    with serving(checkpoint, "matrix", "--workers", "1") as server:
        assert server.nearest("row=0&k=5&metric=dot") == [(1, 0.5), (2, -3.0)]


def test_equals_come_in_the_order_of_the_matrix_across_blocks(large_matrix):
    with serving(large_matrix, "matrix", "--workers", "1") as server:
        assert server.nearest("row=1031&k=5") == [(7 + 256 * n, 1.0) for n in (0, 1, 2, 3, 5)]


def test_the_nearest_are_found_in_any_block(tmp_path):
    # 40 rows so wide that a block holds 8, alike but for 1 + n / 2**20 with n = 7 * row modulo 40.
    rest = bytes(4 * 65535)
    rows = [struct.pack("<f", 1 + (7 * row % 40) / 2**20) + rest for row in range(40)]
    checkpoint = write_matrix(tmp_path / "wide.pt", "FloatStorage", 40, 65536, b"".join(rows))
    with serving(checkpoint, "matrix", "--workers", "1") as server:
        found = server.nearest("row=0&k=5&metric=dot")
    assert found == [
        (17, 1 + 39 / 2**20),
        (34, 1 + 38 / 2**20),
        (11, 1 + 37 / 2**20),
        (28, 1 + 36 / 2**20),
        (5, 1 + 35 / 2**20),
    ]


def test_rows_without_length_and_without_value_have_no_neighbours(tmp_path):
    values = struct.pack("<8f", 0, 0, 1, 0, float("nan"), 1, float("inf"), 1)
    checkpoint = write_matrix(tmp_path / "odd.pt", "FloatStorage", 4, 2, values)
    with serving(checkpoint, "matrix", "--workers", "1") as server:
        assert server.nearest("row=1&k=4") == [(0, 0.0)]
        assert server.nearest("row=2&k=4") == []
        assert server.nearest("row=3&k=4&metric=dot") == []


def test_many_threads_get_the_answers_of_an_independent_computation(tmp_path):
    generator = random.Random(3)
    matrix = [[generator.randint(-8, 8) for _ in range(16)] for _ in range(300)]
    data = struct.pack("<4800f", *(value for row in matrix for value in row))
    checkpoint = write_matrix(tmp_path / "random.pt", "FloatStorage", 300, 16, data)

    def expected(row):
        products = [sum(a * b for a, b in zip(matrix[row], other)) for other in matrix]
        others = sorted((-product, other) for other, product in enumerate(products) if other != row)
        return [(other, float(-product)) for product, other in others[:7]]

    with serving(checkpoint, "matrix", "--workers", "3") as server:
        with ThreadPoolExecutor(8) as pool:
            rows = range(0, 300, 2)
            found = list(pool.map(lambda row: server.nearest(f"row={row}&k=7&metric=dot"), rows))
    assert found == [expected(row) for row in rows]


def test_health_says_what_is_served():
    with serving(STATE_DICT, "embedding.weight", "--workers", "2") as server:
        answers = server.asked_of_every_worker("/health")
        assert set(answers) == server.workers()
    assert len(answers) == 2
    for pid, answer in answers.items():
        assert answer == {
            "status": "ok",
            "tensor": "embedding.weight",
            "dtype": "float32",
            "shape": [6, 4],
            "worker": pid,
        }


# --- requests that make no sense ------------------------------------------------------------------


@pytest.fixture(scope="module")
def small_server():
    with serving(STATE_DICT, "embedding.weight", "--workers", "2") as server:
        workers = server.workers()
        yield server
        assert server.workers() == workers, "a worker died of a request"
        assert server.end() == ("", "", 0)


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("", "row is missing"),
        ("?", "row is missing"),
        ("?k=3", "row is missing"),
        ("?row=6", "row is '6', expected an integer in [0, 5]"),
        ("?row=-1", "row is '-1', expected an integer in [0, 5]"),
        ("?row=1.0", "row is '1.0', expected an integer in [0, 5]"),
        ("?row=", "row is '', expected an integer in [0, 5]"),
        ("?row=%D9%A3", "row is '٣', expected an integer in [0, 5]"),
        ("?row=" + "9" * 5000, f"row is '{'9' * 40}', expected an integer in [0, 5]"),
        ("?row=1&k=0", "k is '0', expected an integer in [1, 1000]"),
        ("?row=1&k=1001", "k is '1001', expected an integer in [1, 1000]"),
        ("?row=1&row=2", "row is given twice"),
        ("?row=1&n=2", "unknown parameter 'n'; there are row, k, metric"),
        ("?row=1&metric=l2", "metric is 'l2', expected 'cosine' or 'dot'"),
        ("?row", "the query is not of the form name=value&name=value"),
        ("?row=1&&k=2", "the query is not of the form name=value&name=value"),
    ],
)
def test_bad_queries_are_refused(small_server, query, error):
    assert small_server.get("/nearest" + query) == (400, {"error": error})


def test_parameters_of_other_paths_are_refused(small_server):
    for path in ("/health?row=1", "/memory?x=1"):
        status, answer = small_server.get(path)
        assert (status, answer["error"][:17]) == (400, "unknown parameter")


def test_unknown_paths_are_not_found(small_server):
    error = {"error": "no such path; there are /nearest, /health, /memory"}
    for path in ("/", "/nearest/", "/nearest2?row=1", "/../health", "/%00"):
        assert small_server.get(path) == (404, error)


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"POST /nearest HTTP/1.1\r\n\r\n", b"501"),
        (b"GET /health HTTP/9.9\r\n\r\n", b"505"),
        (b"\xff\xfe\x00 \x01\r\n\r\n", b"400"),
        (b"one two three four\r\n\r\n", b"400"),
        (b"GET /" + b"x" * 70000 + b" HTTP/1.1\r\n\r\n", b"414"),
        (b"GET /health HTTP/1.1\r\n" + b"A: b\r\n" * 200 + b"\r\n", b"431"),
    ],
)
def test_what_is_not_a_request_gets_an_error_in_json(small_server, request_bytes, status):
    with socket.create_connection(("127.0.0.1", small_server.port)) as connection:
        connection.sendall(request_bytes)
        answer = b""
        with contextlib.suppress(ConnectionResetError):  # what it did not read, it throws away
            while part := connection.recv(65536):
                answer += part
    head, _, body = answer.partition(b"\r\n\r\n")
    if head.startswith(b"HTTP/"):
        assert head.split()[1] == status
    else:
        body = answer  # a first line that names no version is answered as HTTP 0.9 was: no header
    assert list(json.loads(body)) == ["error"]
    assert small_server.get("/health")[0] == 200


def test_clients_that_leave_early_do_no_harm(small_server):
    for request in (b"", b"GET /hea", b"GET /nearest?row=1 HTTP/1.1\r\n\r\n"):
        for _ in range(10):
            connection = socket.create_connection(("127.0.0.1", small_server.port))
            connection.sendall(request)
            # Closed by a reset, which the server meets while it reads or writes.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()
    assert len(small_server.asked_of_every_worker("/health")) == 2


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((STATE_DICT, "no.such"), "no.such"),
        ((STATE_DICT, "steps"), "steps is of int64, not a matrix of real numbers"),
        ((STATE_DICT, "layers.0.bias"), "layers.0.bias has the shape [4], not of a matrix"),
        (("no_such_file.pt", "x"), "no_such_file.pt"),
    ],
)
def test_server_says_why_it_does_not_start(arguments, error):
    done = run("serve.py", *arguments)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("serve.py: ")
    assert error in done.stderr
    assert "Traceback" not in done.stderr


def test_server_says_that_its_port_is_taken(small_server):
    done = run("serve.py", STATE_DICT, "embedding.weight", "--port", small_server.port)
    assert (done.returncode, done.stdout) == (1, "")
    assert "Address already in use" in done.stderr


# --- memory ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("matrix", ["large_matrix", "large_bfloat16_matrix"])
def test_workers_share_one_copy_of_the_matrix(matrix, request):
    checkpoint = request.getfixturevalue(matrix)
    with serving(checkpoint, "matrix", "--workers", "3") as server:
        answers = server.asked_of_every_worker("/nearest?row=3&k=2")
        assert len(answers) == 3
        for pid in answers:
            pages = kilobytes(f"/proc/{pid}/smaps_rollup")
            status = kilobytes(f"/proc/{pid}/status")
            # It has mapped the whole matrix, and others have, too:
            assert status["RssFile"] > 64 * MEBIBYTE
            assert pages["Pss"] < 64 * MEBIBYTE
            # what is its own has room for a few blocks of 2 MiB, not for a copy of the matrix,
            assert pages["Private_Dirty"] < 16 * MEBIBYTE
            assert pages["Anonymous"] < 48 * MEBIBYTE  # with the interpreter and numpy
            # and it never had one in the meantime.
            assert status["VmHWM"] - status["RssFile"] - status["RssAnon"] < 16 * MEBIBYTE


def test_memory_answers_what_the_kernel_counts(large_matrix):
    with serving(large_matrix, "matrix", "--workers", "1") as server:
        server.nearest("row=0&k=1")
        status, answer = server.get("/memory")
        pages = kilobytes(f"/proc/{answer['worker']}/smaps_rollup")
        sizes = kilobytes(f"/proc/{answer['worker']}/status")
        assert server.workers() == {answer["worker"]}
    assert status == 200
    assert set(answer) == {"pss", "private_dirty", "rss_file", "rss_anon", "worker"}
    assert answer["rss_file"] > 64 * MEBIBYTE
    # It moves a little between two looks, and the parent has the matrix mapped as well.
    for mine, kernels in [
        ("pss", pages["Pss"]),
        ("private_dirty", pages["Private_Dirty"]),
        ("rss_file", sizes["RssFile"]),
        ("rss_anon", sizes["RssAnon"]),
    ]:
        assert abs(answer[mine] - kernels) < 4 * MEBIBYTE, mine


def test_report_adds_up_to_one_copy(large_matrix):
    with serving(large_matrix, "matrix", "--workers", "3", "--report") as server:
        workers = server.asked_of_every_worker("/nearest?row=3&k=2")
        server.process.send_signal(signal.SIGUSR1)
        asked_for = [server.process.stdout.readline() for _ in range(7)]
        output, errors, code = server.end()
    assert (errors, code) == ("", 0)
    for table in (asked_for, output.splitlines()):
        assert table[0].split() == ["process", "pid", "PSS", "RssFile", "RssAnon"]
        rows = [line.split() for line in table[1:5]]
        assert [row[0] for row in rows] == ["parent", "worker", "worker", "worker"]
        assert int(rows[0][1]) == server.process.pid
        assert {int(row[1]) for row in rows[1:]} == set(workers)
        summed = table[5].split()
        assert (summed[0], summed[2]) == ("sum", "MiB")
        assert float(summed[1]) == pytest.approx(sum(float(row[2]) for row in rows), abs=0.3)
        assert 64 < float(summed[1]) < 192
        assert table[6].strip() == (
            "3 workers with a copy each would have 3 x 64.0 MiB = 192.0 MiB of matrix alone"
        )


# --- processes ------------------------------------------------------------------------------------


def wait_until(condition):
    while not condition():
        time.sleep(0.02)


def is_gone(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_a_killed_worker_is_replaced_and_so_is_the_one_after():
    with serving(STATE_DICT, "embedding.weight", "--workers", "2") as server:
        before = server.workers()
        victim = min(before)
        for _ in range(2):
            os.kill(victim, signal.SIGKILL)
            line = server.process.stderr.readline()
            after = server.workers()
            assert len(before) == len(after) == 2
            (new,) = after - before
            assert line == f"worker {victim} died (SIGKILL), {new} takes its place\n"
            assert before - after == {victim}
            assert set(server.asked_of_every_worker("/health")) == after
            before, victim = after, new
        assert server.nearest("row=1&k=1&metric=dot") == [(5, 478.0)]
        assert server.end() == ("", "", 0)
    assert all(is_gone(pid) for pid in after)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_end_leaves_nothing_behind(number):
    with serving(STATE_DICT, "embedding.weight", "--workers", "3") as server:
        workers = server.workers()
        assert len(workers) == 3
        assert server.end(number) == ("", "", 0)
    assert all(is_gone(pid) for pid in workers)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.port))


def test_the_end_waits_for_no_silent_client():
    with serving(STATE_DICT, "embedding.weight", "--workers", "1") as server:
        (worker,) = server.workers()
        with socket.create_connection(("127.0.0.1", server.port)):
            output, errors, code = server.end()
    assert (output, errors, code) == ("", "", 0)
    assert is_gone(worker)


def test_workers_end_when_their_parent_is_killed():
    with serving(STATE_DICT, "embedding.weight", "--workers", "2") as server:
        workers = server.workers()
        assert len(workers) == 2
        server.process.kill()
        server.process.communicate()  # until the last of them has closed its end of the pipes
        # Nobody's children any more, they may still wait to be buried.
        wait_until(lambda: all(is_gone(pid) or is_zombie(pid) for pid in workers))
    assert server.process.returncode == -signal.SIGKILL


def is_zombie(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_server_listens_on_the_loopback_interface_only():
    with serving(STATE_DICT, "embedding.weight", "--workers", "1") as server:
        assert re.fullmatch(r"http://127\.0\.0\.1:[0-9]+", server.address)
        listening = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    places = [fields[1] for fields in listening if fields[3] == "0A"]
    port = f"{server.port:04X}"
    assert [place for place in places if place.endswith(":" + port)] == ["0100007F:" + port]


# --- the other programs ---------------------------------------------------------------------------


def test_quickstart_lists_and_shows():
    done = run("quickstart.py", STATE_DICT, "embedding.weight")
    assert done.stderr == ""
    assert done.stdout == (
        "embedding.weight float32 [6, 4]\n"
        "layers.0.weight bfloat16 [4, 4]\n"
        "layers.0.bias float16 [4]\n"
        "layers.1.weight float64 [4, 4]\n"
        "layers.1.mask bool [2, 2]\n"
        "steps int64 []\n"
        "position_ids int32 [1, 6]\n"
        "the first rows of embedding.weight, writable: False\n"
        "[[0. 1. 2. 3.]\n"
        " [4. 5. 6. 7.]]\n"
    )
    assert done.returncode == 0


def test_torch_state_gives_a_model_its_weights():
    pytest.importorskip("torch", reason="torch_state.py is about a torch model")
    done = run("torch_state.py")
    assert done.stderr == ""
    assert done.stdout == (
        "without memory at first: True\n"
        "loaded: 0.weight, 1.weight, 1.bias, 3.weight, 3.bias\n"
        "the model's weights are the mapped tensors: True\n"
        "the same answers: True\n"
    )
    assert done.returncode == 0
