"""Keeps the workers of uvicorn_workers.py and forkserver.py."""

from __future__ import annotations

import signal
from collections.abc import Callable
from multiprocessing.context import ForkContext, ForkProcess, ForkServerContext, ForkServerProcess
from socket import socket

# Blocked in workers, too, as they start, and in threads: one that does not block them may get them
# instead of the supervisor, and SIGALRM and SIGTERM end the process then. So they are blocked
# before imports that start threads. SIGALRM is the clock of the supervisor, instead of
# sigtimedwait(), which returns a signal that never came where its process stood still meanwhile, as
# one does while a snapshot is taken of it (CPython 3.11).
SIGNALS = {signal.SIGTERM, signal.SIGINT, signal.SIGTTIN, signal.SIGALRM}
SECONDS_BETWEEN_LOOKS = 1  # for workers that died


def supervise(
    context: ForkContext | ForkServerContext,
    work: Callable[[socket], None],
    listener: socket,
    count: int,
) -> None:
    """Has `count` processes run work(listener) until SIGTERM or SIGINT. SIGTTIN: one more."""
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    signal.setitimer(signal.ITIMER_REAL, SECONDS_BETWEEN_LOOKS, SECONDS_BETWEEN_LOOKS)
    number, workers = 0, list[ForkProcess | ForkServerProcess]()
    while number not in (signal.SIGTERM, signal.SIGINT):
        count += number == signal.SIGTTIN
        workers = [worker for worker in workers if worker.is_alive()]
        for _ in range(count - len(workers)):
            workers.append(context.Process(target=work, args=(listener,)))
            workers[-1].start()
        number = signal.sigwait(SIGNALS)
    for worker in workers:
        worker.terminate()
    for worker in workers:
        worker.join()
