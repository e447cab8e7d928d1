"""Measures what it takes to start, restart and keep the servers of examples/serving.

    measure_serving.py FILE [--tensor tensor.0] [--python python3] [--workers 1 2 4 8]
                       [--server build/release/examples/serving/serving] [--rounds 7] [--cold]
                       [--write README.md]

Three servers answer the same requests: the one in C++, the one in Python, and torch_server.py,
whose workers load a copy of the file each, with torch.load(mmap=False). `--python` needs weightmap, numpy
and torch; this program itself needs none of them.

    first answer  from starting the program to the first answer to GET /row?id=0
    memory        after each worker has added up the tensor (GET /sum), which is all of FILE if that
                  has one tensor
    re-forked     a server with one worker: from SIGKILL to the worker to the first answer of the
                  one that the parent forks in its place. The parent has the program in memory and
                  torch imported; the mapped model is there, too, a loaded one is loaded again
    fresh         a server with one worker: from SIGKILL to all of it to the first answer of the
                  program started again, from exec on, with all its imports

Rounds are interleaved; the tables have medians. Each answer is compared between the servers.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from process_memory import children_of, pss_and_private
from samples import check_between, duration, machine, mebibytes, publish, table

FOLDER = Path(__file__).resolve().parent
EXAMPLE = FOLDER.parent / "examples" / "serving"
BEGIN, END = "<!-- measured serving: begin -->", "<!-- measured serving: end -->"
SECONDS_OF_PATIENCE = 300
SECONDS_BETWEEN_STARTS = 1.2  # a worker that dies sooner is not replaced at once
CPP, PYTHON, TORCH = "C++", "Python", "Python, `torch.load`"


class Server:
    """A server that has just been started."""

    def __init__(self, command: list[str]) -> None:
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        address = self.process.stdout.readline().strip()
        if not address:
            sys.exit(f"measure_serving.py: it did not start: {' '.join(command)}")
        self._port = int(address.rsplit(":", 1)[1])

    def get(self, path: str) -> tuple[dict[str, Any], int]:
        """Returns the answer and the process id of its worker."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, SECONDS_OF_PATIENCE)
        with contextlib.closing(connection):
            connection.request("GET", path)
            response = connection.getresponse()
            answer = json.load(response)
            if response.status != 200:
                sys.exit(f"measure_serving.py: {path}: {answer}")
            return answer, int(response.getheader("Worker", ""))

    def workers(self) -> set[int]:
        return children_of(self.process.pid)

    def get_from_all(self, path: str, count: int) -> None:
        """Sends requests until each of `count` workers has answered."""
        answered: set[int] = set()
        deadline = time.monotonic() + SECONDS_OF_PATIENCE
        while len(answered) < count:
            with ThreadPoolExecutor(2 * count) as pool:
                answered |= {worker for _, worker in pool.map(self.get, [path] * 2 * count)}
            if time.monotonic() > deadline:
                sys.exit(f"measure_serving.py: {len(answered)} of {count} workers answer")

    def end(self) -> None:
        self.process.terminate()
        self.process.wait()

    def kill_all(self) -> None:
        workers = self.workers()
        self.process.kill()
        for worker in workers:
            os.kill(worker, signal.SIGKILL)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


class Measurement:
    """Samples by (what, server, workers)."""

    def __init__(self, given: argparse.Namespace) -> None:
        self._file = given.file
        self._cold = given.cold
        what = [given.file, given.tensor]
        self._commands = {
            CPP: [given.server, *what],
            PYTHON: [given.python, str(EXAMPLE / "server.py"), *what],
            TORCH: [given.python, str(FOLDER / "torch_server.py"), *what],
        }
        self.samples: dict[tuple[str, str, int], list[float]] = defaultdict(list)
        self._answers: dict[str, Any] = {}

    def round(self, counts: list[int]) -> None:
        for count in counts:
            for name in self._commands:
                self._first_answer_and_memory(name, count)
        for name in self._commands:
            self._restart(name)

    def _start(self, name: str, count: int) -> Server:
        return Server([*self._commands[name], str(count)])

    def _first_answer_and_memory(self, name: str, count: int) -> None:
        if self._cold:
            evict(self._file)
            began = time.perf_counter()
            with self._start(name, count) as server:
                self._check(server)
                self._add("cold", name, count, time.perf_counter() - began)
            bring_in(self._file)
        began = time.perf_counter()
        with self._start(name, count) as server:
            self._check(server)
            self._add("warm", name, count, time.perf_counter() - began)
            server.get_from_all("/sum", count)
            memory = [pss_and_private(pid) for pid in (server.process.pid, *server.workers())]
        self._add("pss", name, count, sum(pss for pss, _ in memory))
        # The parent comes first.
        self._add("private", name, count, statistics.mean(private for _, private in memory[1:]))

    def _restart(self, name: str) -> None:
        server = self._start(name, 1)
        self._check(server)
        time.sleep(SECONDS_BETWEEN_STARTS)
        (old,) = server.workers()
        began = time.perf_counter()
        os.kill(old, signal.SIGKILL)
        answering = old
        while answering == old:
            # A connection that the dead worker had accepted is reset.
            with contextlib.suppress(ConnectionError, http.client.HTTPException):
                answering = self._check(server)
        self._add("re-forked", name, 1, time.perf_counter() - began)

        began = time.perf_counter()
        server.kill_all()
        with self._start(name, 1) as fresh:
            self._check(fresh)
            self._add("fresh", name, 1, time.perf_counter() - began)
        server.process.wait()

    def _check(self, server: Server) -> int:
        """Requests a row, which must equal that of the other servers."""
        answer, worker = server.get("/row?id=0")
        if self._answers.setdefault("row", answer) != answer:
            sys.exit("measure_serving.py: the servers do not answer the same")
        return worker

    def _add(self, what: str, name: str, count: int, value: float) -> None:
        self.samples[what, name, count].append(value)


def evict(path: str) -> None:
    """Evicts the file from the page cache, except mapped pages."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def bring_in(path: str) -> None:
    with open(path, "rb", buffering=0) as file:
        while file.read(1 << 20):
            pass


# --- tables ---------------------------------------------------------------------------------------


def seconds_cell(seconds: float) -> str:
    return duration(1e6 * seconds)


def compared(
    medians: dict[tuple[str, str, int], float], what: str, count: int, show: Callable[[float], str]
) -> list[str]:
    """Returns cells: each of our servers, the other one, and its ratio to ours."""
    ours = [medians[what, name, count] for name in (CPP, PYTHON)]
    other = medians[what, TORCH, count]
    return [*map(show, ours), show(other), *(f"{other / value:,.1f} x" for value in ours)]


def report(measurement: Measurement, given: argparse.Namespace) -> list[str]:
    medians = {key: statistics.median(values) for key, values in measurement.samples.items()}
    columns = [CPP, PYTHON, TORCH, "ratio to C++", "ratio to Python"]
    starts = [("warm", "page cache warm"), *([("cold", "evicted before")] if given.cold else [])]
    size = os.path.getsize(given.file)
    lines = [
        f"{machine()}, a file of {mebibytes(size)}: medians of {given.rounds} interleaved rounds.",
        "",
        "From exec to the first answer:",
        "",
    ]
    rows = [
        [f"{count}, {state}", *compared(medians, what, count, seconds_cell)]
        for what, state in starts
        for count in given.workers
    ]
    lines += table(["workers", *columns], rows)
    lines += ["", "From the death of the only worker to the first answer of the next:", ""]
    rows = [
        [f"{what} process", *compared(medians, what, 1, seconds_cell)]
        for what in ("re-forked", "fresh")
    ]
    lines += table(["restarted as a", *columns], rows)
    for what, title in (
        ("pss", "Sum of PSS of the parent and its workers, after each has read all of it:"),
        ("private", "Private bytes of a worker, on average:"),
    ):
        rows = [
            [str(count), *compared(medians, what, count, mebibytes)] for count in given.workers
        ]
        lines += ["", title, "", *table(["workers", *columns], rows)]
    return lines


def arguments() -> argparse.Namespace:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", help="a checkpoint of torch.save, a dict of tensors")
    parser.add_argument("--tensor", default="tensor.0", help="a matrix of float32")
    server = FOLDER.parent / "build" / "release" / "examples" / "serving" / "serving"
    parser.add_argument("--server", default=str(server), help="the server in C++")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--cold", action="store_true", help="also with FILE evicted before")
    parser.add_argument("--write", help="a file with markers, to write the tables to")
    given = parser.parse_args()
    check_between(parser, given.write, BEGIN, END)
    return given


def main() -> None:
    given = arguments()
    measurement = Measurement(given)
    for number in range(given.rounds):
        print(f"round {number + 1} of {given.rounds}", file=sys.stderr, flush=True)
        measurement.round(given.workers)
    publish(report(measurement, given), given.write, BEGIN, END)


if __name__ == "__main__":
    main()
