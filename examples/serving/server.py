"""Serves the rows of a matrix from several processes that share one mapped copy of a checkpoint.

    server.py FILE TENSOR [WORKERS [PORT]]     2 workers and a free port where none is given

    GET /row?id=N   the values of row N
    GET /sum        of all values
    GET /health     which process answers, and how it stands with the file

The same as server.cpp, whose first lines say what it does when workers die and the file changes.
Needs numpy.
"""

import contextlib
import json
import math
import os
import signal
import socketserver
import sys
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs

# Received by sigwait(); SIGALRM is the clock (workers.py has why).
SIGNALS = {signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGALRM}
signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # in the threads that numpy starts, too

import numpy  # noqa: E402
import weightmap  # noqa: E402

SECONDS_BETWEEN_LOOKS = 0.2  # checks of the file and of the parent


class Model:
    """One version of the file."""

    def __init__(self, file, tensor):
        self.checkpoint = weightmap.open(file, protection="guard")
        found = self.checkpoint[tensor]
        if found.dtype != "float32" or len(found.shape) != 2:
            raise ValueError(f"{file}: {tensor} is not a matrix of float32")
        self.values = found.numpy()

    def is_whole(self):
        """Returns whether the bytes read from it are those of the opened file."""
        return self.checkpoint.state() not in ("lost", "modified")

    def is_current(self):
        return self.checkpoint.is_current()


class ServedModel:
    """The current model."""

    open = Model

    def __init__(self, file, tensor):
        self.file, self.tensor = file, tensor
        self.model = self.open(file, tensor)

    def follow(self):
        """Opens the file again if it was replaced or lost; refuses one that cannot be served."""
        if not (self.model.is_current() and self.model.is_whole()):
            with contextlib.suppress(weightmap.Error, ValueError, KeyError):
                self.model = self.open(self.file, self.tensor)


class Handler(BaseHTTPRequestHandler):
    timeout = 5  # seconds for a client to send its request

    def do_GET(self):
        path, _, query = self.path.partition("?")
        answers = {"/row": self.row, "/sum": self.sum, "/health": self.health}
        if path not in answers:
            self.answer(404, {"error": "no such path"})
            return
        model = self.server.served.model
        status, answer = answers[path](model, query)
        # The response may stem from lost bytes.
        if path != "/health" and not model.is_whole():
            status, answer = 503, {"error": "the file was truncated or written to in place"}
        self.answer(status, answer)

    def row(self, model, query):
        text = parse_qs(query).get("id", [""])[0]
        row = int(text) if text.isascii() and text.isdigit() and len(text) < 19 else len(model.values)
        if row >= len(model.values):
            return 400, {"error": "id is not the number of a row"}
        values = model.values[row].tolist()
        return 200, {"id": row, "values": [v if math.isfinite(v) else None for v in values]}

    def sum(self, model, query):
        total = float(model.values.sum(dtype=numpy.float64))
        return 200, {"sum": total if math.isfinite(total) else None}

    def health(self, model, query):
        state = {"ok": model.is_whole(), "current": model.is_current()}
        return 200, {**state, "pid": os.getpid()}

    def answer(self, status, value):
        body = json.dumps(value).encode() + b"\n"
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Worker", str(os.getpid()))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format, *arguments):
        """Disables the log of requests."""


class Server(socketserver.TCPServer):
    """The listening socket. Every worker has it, and the first to accept a connection answers."""

    request_queue_size = 4096

    def __init__(self, served):
        port = int(sys.argv[4]) if len(sys.argv) > 4 else 0
        super().__init__(("127.0.0.1", port), Handler)
        self.socket.setblocking(False)  # those that come too late must not wait in accept()
        self.served, self.parent = served, os.getpid()

    def work(self):
        with contextlib.suppress(SystemExit):
            self.serve_forever(SECONDS_BETWEEN_LOOKS)

    def service_actions(self):
        """Runs between requests, so that none is cut off or sees two versions of the file."""
        if signal.SIGTERM in signal.sigpending() or os.getppid() != self.parent:
            raise SystemExit
        self.served.follow()

    def supervise(self, count):
        """Runs until SIGTERM or SIGINT. Also follows the file, for new workers."""
        workers, number = [0] * count, 0
        signal.setitimer(signal.ITIMER_REAL, SECONDS_BETWEEN_LOOKS, SECONDS_BETWEEN_LOOKS)
        while number not in (signal.SIGTERM, signal.SIGINT):
            for place, worker in enumerate(workers):
                if worker == 0 or os.waitpid(worker, os.WNOHANG)[0] != 0:
                    workers[place] = os.fork() or self.live()
            number = signal.sigwait(SIGNALS)
            self.served.follow()
        for worker in workers:
            os.kill(worker, signal.SIGTERM)
        for worker in workers:
            os.waitpid(worker, 0)

    def live(self):
        """The life of a worker, which never returns to what the parent was about to do."""
        try:
            self.work()
        finally:
            os._exit(0)


def main():
    served = ServedModel(sys.argv[1], sys.argv[2])
    with Server(served) as server:
        print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
        server.supervise(int(sys.argv[3]) if len(sys.argv) > 3 else 2)


if __name__ == "__main__":
    try:
        main()
    except (weightmap.Error, ValueError, KeyError, OSError) as error:
        sys.exit(f"server.py: {error}")
