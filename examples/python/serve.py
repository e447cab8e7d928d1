"""Serves nearest rows of an embedding matrix from N processes that share one copy of it.

    serve.py CHECKPOINT TENSOR [--workers 4] [--port 8080] [--report]

    GET /nearest?row=N&k=5[&metric=cosine|dot]   the rows most like row N
    GET /health                                  what is served, and by which process
    GET /memory                                  what the process that answers has in memory

The parent opens the checkpoint and a socket, then forks. Each worker answers one request at a time,
straight from the mapped file: there is one copy of the matrix, in the page cache, however many
workers there are. SIGUSR1 to the parent prints a table that counts it.
"""

from __future__ import annotations

import os

# Workers are what runs in parallel here. More threads in each would only compete for the same
# cores, and those that a library starts before the fork would be missing after it.
for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"

import argparse
import gc
import json
import re
import signal
import socketserver
import sys
import time
import traceback
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler
from typing import Any, NoReturn
from urllib.parse import parse_qsl

import numpy

import weightmap

BLOCK_BYTES = 2 << 20  # of float32: what a worker computes on at a time
MOST_NEIGHBOURS = 1000
SECONDS_TO_FINISH = 3  # for a worker that is told to end, before it is killed
SECONDS_TO_READ = 10  # for a client to send its request
SECONDS_OF_A_HEALTHY_WORKER = 1

# Handled one after the other by the parent, which waits for them, so they stay blocked. Workers
# inherit that: a Ctrl-C, which reaches every process of a terminal, is the parent's to handle.
SIGNALS = {signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGCHLD}


# --- the matrix ---------------------------------------------------------------------------------


class Matrix:
    """A mapped matrix and what it takes to compare its rows, a block at a time."""

    def __init__(self, tensor: weightmap.Tensor) -> None:
        if tensor.dtype not in ("float16", "bfloat16", "float32", "float64"):
            raise ValueError(f"{tensor.name} is of {tensor.dtype}, not a matrix of real numbers")
        if tensor.ndim != 2 or 0 in tensor.shape:
            raise ValueError(f"{tensor.name} has the shape {list(tensor.shape)}, not of a matrix")
        self.name = tensor.name
        self.dtype = tensor.dtype
        self.nbytes = tensor.nbytes
        self.rows, self.columns = tensor.shape
        # numpy has no bfloat16, which is the upper half of a float32: its bits can be widened.
        self._is_bfloat16 = tensor.dtype == "bfloat16"
        self._stored = (tensor.bits() if self._is_bfloat16 else tensor).numpy()
        self._inverse_norms = self._compute_inverse_norms()

    def nearest(self, row: int, count: int, metric: str) -> list[tuple[int, float]]:
        """The `count` rows most like `row`, best first; equals in the order of the matrix.

        Rows whose score is not finite are left out.
        """
        query = self._block(row, row + 1)[0].copy()
        if metric == "cosine":
            query *= self._inverse_norms[row]
        best_rows = numpy.empty(0, numpy.int64)
        best_scores = numpy.empty(0, query.dtype)
        with numpy.errstate(all="ignore"):
            for start, block in self._blocks():
                scores = block @ query
                if metric == "cosine":
                    scores *= self._inverse_norms[start : start + len(block)]
                wanted = numpy.isfinite(scores)
                if start <= row < start + len(block):
                    wanted[row - start] = False
                if len(best_scores) == count:
                    wanted &= scores > best_scores[-1]
                found = numpy.flatnonzero(wanted)
                best_rows = numpy.concatenate([best_rows, found + start])
                best_scores = numpy.concatenate([best_scores, scores[found]])
                order = numpy.argsort(-best_scores, kind="stable")[:count]
                best_rows, best_scores = best_rows[order], best_scores[order]
        return list(zip(best_rows.tolist(), best_scores.tolist(), strict=True))

    def _compute_inverse_norms(self) -> numpy.ndarray:
        """1 / length of each row, 0 for rows of zeros, so that cosines are products."""
        parts = []
        with numpy.errstate(all="ignore"):
            for _, block in self._blocks():
                norms = numpy.sqrt(numpy.einsum("ij,ij->i", block, block))
                parts.append(numpy.where(norms > 0, 1 / norms, 0))
        return numpy.concatenate(parts)

    def _blocks(self) -> Iterator[tuple[int, numpy.ndarray]]:
        """Every row once: (number of the first row, rows) of about BLOCK_BYTES."""
        step = max(1, BLOCK_BYTES // (4 * self.columns))
        for start in range(0, self.rows, step):
            yield start, self._block(start, min(start + step, self.rows))

    def _block(self, start: int, stop: int) -> numpy.ndarray:
        """Rows to compute with: the mapped bytes, or a copy of these rows if of another type."""
        stored = self._stored[start:stop]
        if self._is_bfloat16:
            widened = stored.astype(numpy.uint32)
            widened <<= 16
            return widened.view(numpy.float32)
        computed = numpy.float64 if self.dtype == "float64" else numpy.float32
        return stored.astype(computed, copy=False)


# --- memory, as the kernel counts it --------------------------------------------------------------


def memory_of(pid: int) -> dict[str, int]:
    """Bytes. PSS counts a page that n processes have mapped as 1/n, so that it can be added up."""
    with open(f"/proc/{pid}/smaps_rollup") as file:
        pages = _kilobytes(file.read())
    with open(f"/proc/{pid}/status") as file:
        status = _kilobytes(file.read())
    return {
        "pss": pages["Pss"],
        "private_dirty": pages["Private_Dirty"],
        "rss_file": status["RssFile"],
        "rss_anon": status["RssAnon"],
    }


def _kilobytes(text: str) -> dict[str, int]:
    return {name: 1024 * int(size) for name, size in re.findall(r"(\w+):\s+(\d+) kB", text)}


def memory_table(parent: int, workers: list[int], matrix: Matrix) -> str:
    lines = [f"{'process':<8} {'pid':>8} {'PSS':>12} {'RssFile':>12} {'RssAnon':>12}"]
    total = 0
    for kind, pid in [("parent", parent), *(("worker", pid) for pid in workers)]:
        try:
            memory = memory_of(pid)
        except (OSError, KeyError):  # it just died, and so has no memory
            continue
        total += memory["pss"]
        columns = (mebibytes(memory[column]) for column in ("pss", "rss_file", "rss_anon"))
        lines.append(f"{kind:<8} {pid:>8} " + " ".join(f"{column:>12}" for column in columns))
    copies = f"{len(workers)} workers with a copy each would have {len(workers)} x"
    lines.append(f"{'sum':<8} {'':>8} {mebibytes(total):>12}")
    lines.append(
        f"{copies} {mebibytes(matrix.nbytes)} = {mebibytes(len(workers) * matrix.nbytes)}"
        f" of {matrix.name} alone"
    )
    return "\n".join(lines)


def mebibytes(size: int) -> str:
    return f"{size / (1 << 20):,.1f} MiB"


# --- answers --------------------------------------------------------------------------------------


class BadRequest(Exception):
    """Why a request makes no sense."""


def parameters(query: str, known: Mapping[str, str | None]) -> dict[str, str]:
    """`known` has each parameter's default; None for one that must be given."""
    try:
        given = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
    except ValueError:
        raise BadRequest("the query is not of the form name=value&name=value") from None
    values: dict[str, str] = {}
    for name, value in given:
        if name not in known:
            raise BadRequest(f"unknown parameter {name[:40]!r}; there are {', '.join(known)}")
        if name in values:
            raise BadRequest(f"{name} is given twice")
        values[name] = value
    for name, default in known.items():
        if name not in values and default is None:
            raise BadRequest(f"{name} is missing")
    return {name: values.get(name, default or "") for name, default in known.items()}


def integer(name: str, text: str, lowest: int, highest: int) -> int:
    if not re.fullmatch("[0-9]{1,18}", text) or not lowest <= int(text) <= highest:
        raise BadRequest(f"{name} is {text[:40]!r}, expected an integer in [{lowest}, {highest}]")
    return int(text)


class Handler(BaseHTTPRequestHandler):
    """HTTP/1.0, one request a connection: a client that keeps one open would keep the worker."""

    server: Server
    timeout = SECONDS_TO_READ

    def do_GET(self) -> None:
        answers = {"/nearest": self.nearest, "/health": self.health, "/memory": self.memory}
        path, _, query = self.path.partition("?")
        if path not in answers:
            self.send_json(404, {"error": f"no such path; there are {', '.join(answers)}"})
            return
        try:
            answer = answers[path](query)
        except BadRequest as error:
            self.send_json(400, {"error": str(error)})
        except Exception:
            traceback.print_exc()
            self.send_json(500, {"error": "an error of the server, which has written it down"})
        else:
            self.send_json(200, {**answer, "worker": os.getpid()})

    def nearest(self, query: str) -> dict[str, Any]:
        matrix = self.server.matrix
        given = parameters(query, {"row": None, "k": "5", "metric": "cosine"})
        row = integer("row", given["row"], 0, matrix.rows - 1)
        count = integer("k", given["k"], 1, MOST_NEIGHBOURS)
        metric = given["metric"]
        if metric not in ("cosine", "dot"):
            raise BadRequest(f"metric is {metric[:40]!r}, expected 'cosine' or 'dot'")
        found = matrix.nearest(row, count, metric)
        neighbours = [{"row": neighbour, "score": score} for neighbour, score in found]
        return {"row": row, "metric": metric, "neighbours": neighbours}

    def health(self, query: str) -> dict[str, Any]:
        parameters(query, {})
        matrix = self.server.matrix
        shape = [matrix.rows, matrix.columns]
        return {"status": "ok", "tensor": matrix.name, "dtype": matrix.dtype, "shape": shape}

    def memory(self, query: str) -> dict[str, Any]:
        parameters(query, {})
        return dict(memory_of(os.getpid()))

    def send_json(self, status: int, value: dict[str, Any]) -> None:
        body = json.dumps(value, allow_nan=False).encode() + b"\n"
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What http.server itself refuses: requests that are not HTTP, other methods."""
        self.close_connection = True
        self.send_json(code, {"error": message or self.responses[code][0]})

    def log_message(self, format: str, *arguments: Any) -> None:
        """Answers are not logged."""


class Server(socketserver.TCPServer):
    """The listening socket. Every worker has it, and the first to accept a connection answers."""

    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], matrix: Matrix) -> None:
        super().__init__(address, Handler)
        # All workers wake up for a connection. Those that come too late must not wait in accept().
        self.socket.setblocking(False)
        self.matrix = matrix
        self.parent = os.getpid()

    def service_actions(self) -> None:
        """Called between requests: none is cut off by the end of the worker."""
        is_told_to_end = signal.SIGTERM in signal.sigpending()
        if is_told_to_end or os.getppid() != self.parent:
            raise SystemExit

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), (ConnectionError, TimeoutError)):
            traceback.print_exc()


# --- processes ------------------------------------------------------------------------------------


class Workers:
    """Forks workers, puts a new one in the place of one that died, and ends them all."""

    def __init__(self, server: Server, count: int) -> None:
        self._server = server
        self._started = {self._start(): time.monotonic() for _ in range(count)}

    @property
    def pids(self) -> list[int]:
        return list(self._started)

    def replace_dead(self) -> None:
        for pid in self.pids:
            status = self._status_if_dead(pid)
            if status is None:
                continue
            lived = time.monotonic() - self._started.pop(pid)
            if lived < SECONDS_OF_A_HEALTHY_WORKER:
                time.sleep(SECONDS_OF_A_HEALTHY_WORKER)  # the next may do no better
            new = self._start()
            self._started[new] = time.monotonic()
            why = signal.Signals(-status).name if status < 0 else f"exit code {status}"
            print(f"worker {pid} died ({why}), {new} takes its place", file=sys.stderr, flush=True)

    def end(self) -> None:
        deadline = time.monotonic() + SECONDS_TO_FINISH
        self._signal(signal.SIGTERM)
        while self._started and time.monotonic() < deadline:
            for pid in self.pids:
                if self._status_if_dead(pid) is not None:
                    del self._started[pid]
            time.sleep(0.01)
        self._signal(signal.SIGKILL)
        for pid in self.pids:
            os.waitpid(pid, 0)
        self._started.clear()

    def _signal(self, number: signal.Signals) -> None:
        for pid in self.pids:  # not waited for yet, so the number cannot be another process's
            os.kill(pid, number)

    @staticmethod
    def _status_if_dead(pid: int) -> int | None:
        waited, status = os.waitpid(pid, os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if waited else None

    def _start(self) -> int:
        return os.fork() or self._work()

    def _work(self) -> NoReturn:
        """The life of a worker; never returns to what the parent was about to do."""
        code = 1
        try:
            self._server.serve_forever(poll_interval=0.2)
        except SystemExit:
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)


def supervise(server: Server, count: int, report: bool) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # whoever started this may have ignored it
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    gc.freeze()  # a collection in a worker would write to, and so copy, pages of the parent
    workers = Workers(server, count)
    try:
        host, port = server.server_address[:2]
        print(f"http://{host}:{port}", flush=True)
        while (number := signal.sigwait(SIGNALS)) not in (signal.SIGTERM, signal.SIGINT):
            if number == signal.SIGCHLD:
                workers.replace_dead()
            else:
                print(memory_table(os.getpid(), workers.pids, server.matrix), flush=True)
        if report:
            print(memory_table(os.getpid(), workers.pids, server.matrix), flush=True)
    finally:
        workers.end()


def arguments() -> argparse.Namespace:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkpoint", help="a file that torch.save wrote")
    parser.add_argument("tensor", help="name of a matrix in it")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--host", default="127.0.0.1", help="there is no access control")
    parser.add_argument("--port", type=int, default=0, help="0, the default, takes a free one")
    parser.add_argument("--report", action="store_true", help="print the memory table at the end")
    given = parser.parse_args()
    if not 1 <= given.workers <= 256:
        parser.error("--workers is not in [1, 256]")
    if not 0 <= given.port <= 65535:
        parser.error("--port is not in [0, 65535]")
    return given


def main() -> int:
    given = arguments()
    try:
        matrix = Matrix(weightmap.open(given.checkpoint)[given.tensor])
        server = Server((given.host, given.port), matrix)
    except (weightmap.Error, ValueError, OSError) as error:
        print(f"serve.py: {error}", file=sys.stderr)
        return 1
    with server:
        supervise(server, given.workers, given.report)
    return 0


if __name__ == "__main__":
    sys.exit(main())
