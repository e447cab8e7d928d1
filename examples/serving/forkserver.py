"""The model served by forks of a template, which is a process that does nothing else.

    MODEL=FOLDER python forkserver.py [WORKERS [PORT]]     2 workers, port 8080

Only the template, multiprocessing's forkserver, imports the model. So this process may have what
must not be there at a fork: threads, CUDA, an event loop. SIGTTIN asks for one more worker.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from http.server import HTTPServer
from multiprocessing import resource_tracker
from socket import create_server, socket

import workers
from handler import Handler


def work(listener: socket) -> None:
    server = HTTPServer(listener.getsockname(), Handler, bind_and_activate=False)
    server.socket.close()
    server.socket, server.timeout = listener, 0.2
    # A request under way is answered before the end.
    signal.pthread_sigmask(signal.SIG_BLOCK, workers.SIGNALS)
    parent = multiprocessing.parent_process()
    while signal.SIGTERM not in signal.sigpending() and parent and parent.is_alive():
        server.handle_request()


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    port = int(sys.argv[2]) if len(sys.argv) > 2 else 8080
    listener = create_server(("127.0.0.1", port), backlog=128)
    listener.setblocking(False)  # a worker that another one preceded must not wait in accept()
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["__main__", "model"])
    # The template is a new interpreter, and looks for modules where this one does.
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
    resource_tracker.ensure_running()  # as it starts, it unblocks signals that are to be blocked
    workers.supervise(context, work, listener, count)
