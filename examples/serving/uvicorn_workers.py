"""The model as an ASGI application whose workers are forks of this process.

    MODEL=FOLDER python uvicorn_workers.py [WORKERS [PORT]]     2 workers, port 8080

`uvicorn --workers` starts each worker as a new interpreter, which imports everything again. Here
uvicorn runs in forks of a process that has the model mapped. SIGTTIN asks for one more worker.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
import sys
from collections.abc import Awaitable, Callable
from socket import create_server, socket
from typing import Any

import workers

signal.pthread_sigmask(signal.SIG_BLOCK, workers.SIGNALS)  # in the threads of these imports, too

import uvicorn  # noqa: E402

import model  # noqa: E402


async def app(scope: Any, receive: Any, send: Callable[[Any], Awaitable[None]]) -> None:
    status, body = await asyncio.to_thread(model.answer, scope["query_string"].decode())
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def work(listener: socket) -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, workers.SIGNALS)
    uvicorn.Server(uvicorn.Config(app, lifespan="off", log_level="warning")).run([listener])


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    port = int(sys.argv[2]) if len(sys.argv) > 2 else 8080
    listener = create_server(("127.0.0.1", port), backlog=128)
    workers.supervise(multiprocessing.get_context("fork"), work, listener, count)
