"""Serves rows of an embedding from several processes that share one mapped copy of a checkpoint.

    serve.py FILE [--tensor NAME] [--workers 2] [--port 8080]

    GET /embedding?id=N                        one row
    GET /nearest?id=N&k=K[&metric=cosine|dot]  the rows most like it
    GET /tensors                               what the checkpoint holds
    GET /health                                which process answers, from which version of the file

Prints its address. A worker that dies is replaced; a file that is replaced (by rename) is served
from the next request on, without a pause, if it can be. SIGHUP looks at once, and again at a file
that was refused. SIGTERM ends all.
"""

from __future__ import annotations

import os

# Workers are what runs in parallel here. More threads in each would only compete for the same
# cores, and those that a library starts before the fork would be missing after it.
for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"

import argparse
import contextlib
import dataclasses
import functools
import gc
import json
import math
import re
import signal
import socketserver
import sys
import traceback
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qsl

import model
import workers

MOST_NEIGHBOURS = 1000
SECONDS_TO_READ = 5  # for a client to send its request
SECONDS_BETWEEN_LOOKS = 0.2  # at the file and the parent


class TimeToEnd(Exception):
    """For a worker."""


class BadRequest(Exception):
    """Why a request makes no sense."""


class Parameters(dict[str, str]):
    """Of a query, by name; refuses those that are not known or given twice."""

    def __init__(self, query: str, known: tuple[str, ...]) -> None:
        super().__init__()
        for name, value in parse_qsl(query, keep_blank_values=True):
            if name not in known:
                raise BadRequest(f"unknown parameter {name[:40]}")
            if name in self:
                raise BadRequest(f"{name} is given twice")
            self[name] = value

    def integer(self, name: str, lowest: int, highest: int) -> int:
        if name not in self:
            raise BadRequest(f"{name} is missing")
        if re.fullmatch("[0-9]{1,18}", self[name]) and lowest <= int(self[name]) <= highest:
            return int(self[name])
        raise BadRequest(f"{name} must be an integer from {lowest} to {highest}")

    def metric(self) -> str:
        name = self.get("metric", "cosine")
        if name not in ("cosine", "dot"):
            raise BadRequest("metric must be cosine or dot")
        return name


class Handler(BaseHTTPRequestHandler):
    """HTTP/1.0, one request a connection: a client that keeps one open would keep the worker."""

    server: Server
    timeout = SECONDS_TO_READ

    def do_GET(self) -> None:
        answers = {
            "/embedding": self.embedding,
            "/nearest": self.nearest,
            "/tensors": self.tensors,
            "/health": self.health,
        }
        path, _, query = self.path.partition("?")
        if path not in answers:
            self.send_json(404, {"error": "no such path"})
            return
        self.server.requests += 1
        served = self.server.served.model
        try:
            answer = answers[path](query)
        except BadRequest as error:
            self.send_json(400, {"error": str(error)})
        except Exception:
            traceback.print_exc()
            self.send_json(500, {"error": "an error of the server, which has written it down"})
        else:
            if path == "/health" or served.is_whole():
                self.send_json(200, answer)
            else:  # it may be made of bytes that are gone
                lost = "the checkpoint was cut short or written to in place"
                self.send_json(503, {"error": lost})

    def embedding(self, query: str) -> dict[str, Any]:
        matrix = self.server.served.model.matrix
        row = Parameters(query, ("id",)).integer("id", 0, matrix.rows - 1)
        # JSON has no NaN and no infinity.
        values = [value if math.isfinite(value) else None for value in matrix.row(row)]
        return {"id": row, "tensor": matrix.name, "values": values}

    def nearest(self, query: str) -> dict[str, Any]:
        matrix = self.server.served.model.matrix
        given = Parameters(query, ("id", "k", "metric"))
        row = given.integer("id", 0, matrix.rows - 1)
        count = given.integer("k", 1, MOST_NEIGHBOURS)
        found = matrix.nearest(row, count, given.metric())
        return {"id": row, "neighbours": [{"id": other, "score": score} for other, score in found]}

    def tensors(self, query: str) -> dict[str, Any]:
        Parameters(query, ())
        return {"tensors": self.server.served.model.tensors()}

    def health(self, query: str) -> dict[str, Any]:
        Parameters(query, ())
        served = self.server.served
        return {
            "ok": served.model.is_whole(),
            "pid": os.getpid(),
            "requests": self.server.requests,
            "tensors": len(served.model.tensors()),
            "embedding": served.model.matrix.name,
            "generation": dataclasses.asdict(served.generation),
            "current": served.is_current(),
            "refused": served.refusal,
        }

    def send_json(self, status: int, value: dict[str, Any]) -> None:
        body = json.dumps(value, allow_nan=False).encode() + b"\n"
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Worker", str(os.getpid()))
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
    request_queue_size = 4096

    def __init__(self, address: tuple[str, int]) -> None:
        super().__init__(address, Handler)
        # All workers wake up for a connection. Those that come too late must not wait in accept().
        self.socket.setblocking(False)
        self.parent = os.getpid()
        self.requests = 0
        self.served: model.ServedModel

    def work(self, open_served: Callable[[], model.ServedModel]) -> None:
        """The life of a worker."""
        self.served = open_served()
        with contextlib.suppress(TimeToEnd):
            self.serve_forever(SECONDS_BETWEEN_LOOKS)

    def service_actions(self) -> None:
        """Between requests: none is cut off, and none sees two versions of the file."""
        pending = signal.sigpending()
        if signal.SIGTERM in pending or os.getppid() != self.parent:
            raise TimeToEnd
        if signal.SIGHUP in pending:
            signal.sigwait({signal.SIGHUP})
            self.served.retry()
        else:
            self.served.follow()

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), (ConnectionError, TimeoutError)):
            traceback.print_exc()


def supervise(crew: workers.Workers, served: model.ServedModel | None) -> None:
    """Until SIGTERM or SIGINT. Follows the file, too, so that workers begin with the newest."""
    while True:
        crew.start_missing()
        number = workers.wait_for_signal(SECONDS_BETWEEN_LOOKS)
        if number in (signal.SIGTERM, signal.SIGINT):
            return
        crew.bury_dead()
        if number == signal.SIGHUP:
            crew.send_all(signal.SIGHUP)
        if served:
            served.retry() if number == signal.SIGHUP else served.follow()


def arguments() -> argparse.Namespace:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", help="a checkpoint")
    parser.add_argument("--tensor", help="the embedding; by default the first matrix")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--address", default="127.0.0.1", help="there is no access control")
    parser.add_argument("--port", type=int, default=0, help="0, the default, takes a free one")
    parser.add_argument(
        "--torch-load",
        action="store_true",
        help="each worker loads a copy with torch.load(mmap=False), to compare with",
    )
    given = parser.parse_args()
    if not 1 <= given.workers <= 256:
        parser.error("--workers is not in [1, 256]")
    if not 0 <= given.port <= 65535:
        parser.error("--port is not in [0, 65535]")
    return given


def serve(given: argparse.Namespace) -> None:
    if given.torch_load:
        import torch  # noqa: F401  once, in the parent: a restarted worker finds it there

        kind: Any = model.LoadedModel
    else:
        kind = model.MappedModel
    open_model = functools.partial(kind, tensor=given.tensor)
    open_served = functools.partial(model.ServedModel, given.file, open_model)
    served = None if given.torch_load else open_served()
    with Server((given.address, given.port)) as server:
        workers.block_signals()
        gc.freeze()  # a collection in a worker would write to, and so copy, pages of the parent
        crew = workers.Workers(
            given.workers, lambda: server.work((lambda: served) if served else open_served)
        )
        try:
            print(f"http://{given.address}:{server.server_address[1]}", flush=True)
            supervise(crew, served)
        finally:
            crew.end()


def main() -> int:
    try:
        serve(arguments())
    except (model.Refused, OSError) as error:
        print(f"serve.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
