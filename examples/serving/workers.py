"""The processes of a server, each in its place: a new one is forked where one died."""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from typing import NoReturn

SECONDS_TO_END = 3  # for a worker that is told to, before it is killed
SECONDS_BETWEEN_STARTS = 1  # in one place

# Waited for, one after the other, instead of interrupting. Workers inherit that: a Ctrl-C, which
# reaches every process of a terminal, is the parent's to handle.
SIGNALS = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD}


def block_signals() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # whoever started this may have ignored it
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)


def wait_for_signal(seconds: float) -> int:
    """The next signal, or 0 if none came in time."""
    found = signal.sigtimedwait(SIGNALS, seconds)
    return found.si_signo if found else 0


class Workers:
    """For a process with one thread, which is what fork() copies. Needs block_signals()."""

    def __init__(self, count: int, work: Callable[[], None]) -> None:
        self._work = work  # the life of a worker
        self._pids = [0] * count  # by place; 0: nobody
        self._started = [-float(SECONDS_BETWEEN_STARTS)] * count

    def start_missing(self) -> None:
        """Forks where nobody is.

        In a place where one was started just before, later, since the next may do no better.
        """
        now = time.monotonic()
        for place, pid in enumerate(self._pids):
            if pid == 0 and now >= self._started[place] + SECONDS_BETWEEN_STARTS:
                self._started[place] = now
                self._pids[place] = os.fork() or self._live()

    def bury_dead(self) -> None:
        """Finds out who died, and says so on stderr."""
        for pid, status in self._dead():
            if status < 0:
                what = f"died: {signal.strsignal(-status)}"
            else:
                what = f"ended with exit code {status}"
            print(f"worker {pid} {what}", file=sys.stderr, flush=True)

    def send_all(self, number: int) -> None:
        for pid in filter(None, self._pids):  # not waited for yet, so no other process's number
            os.kill(pid, number)

    def end(self) -> None:
        deadline = time.monotonic() + SECONDS_TO_END
        self.send_all(signal.SIGTERM)
        while any(self._pids) and time.monotonic() < deadline:
            wait_for_signal(0.01)
            self._dead()
        self.send_all(signal.SIGKILL)
        for pid in filter(None, self._pids):
            os.waitpid(pid, 0)

    def _dead(self) -> list[tuple[int, int]]:
        """Process id and exit code of those that ended since the last look."""
        dead = []
        for place, pid in enumerate(self._pids):
            waited, status = os.waitpid(pid, os.WNOHANG) if pid else (0, 0)
            if waited:
                self._pids[place] = 0
                dead.append((pid, os.waitstatus_to_exitcode(status)))
        return dead

    def _live(self) -> NoReturn:
        """Never returns to what the parent was about to do."""
        code = 1
        try:
            self._work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
