"""What patched functions did: PatchReport, which the blocks of patch() yield."""

from __future__ import annotations

import contextlib
import contextvars
import os
import sys
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from weightmap import config

# Over the blocks under way and their reports. A child may be forked while another thread has it.
# The garbage collector may end a block that was abandoned while this thread has the lock.
_lock = threading.RLock()


def lock() -> threading.RLock:
    """The one of this process."""
    return _lock


def _renew_lock() -> None:
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_renew_lock)

# The blocks that this thread or task has opened itself.
_opened_here: contextvars.ContextVar[tuple[PatchReport, ...]] = contextvars.ContextVar(
    "weightmap.patch", default=()
)
_with_settings: list[PatchReport] = []  # of the blocks under way, in all threads
_plain_start = threading.Thread.start
_own_start: Any = None  # threading.Thread's, while there are any
_ATTRIBUTE = "_weightmap_blocks"  # of a thread: those in which it was started

_INSIDE = ("weightmap", "torch", "safetensors", "contextlib")


class PatchedCall(NamedTuple):
    """One call of a function that is patched."""

    function: str  # "torch.load", "torch.save", "safe_open"
    file: str  # what it was given
    by: str  # the module that called it, "transformers.modeling_utils"
    why: str  # why the package's own function did it; empty where weightmap did


class PatchReport:
    """What the patched functions did while this block was open, in all threads.

    calls: each PatchedCall, in order; of more than 10,000 the last ones.
    served, left: those that weightmap did, and those that it left to the package's own function.
    """

    def __init__(self, settings: Mapping[str, Any] | None = None) -> None:
        self._calls: deque[PatchedCall] = deque(maxlen=10_000)
        # That a call follows in a thread which was started in the block, as loaders do.
        self._settings = config._overrides.get() if settings is None else settings

    @property
    def calls(self) -> list[PatchedCall]:
        with lock():
            return list(self._calls)

    @property
    def served(self) -> list[PatchedCall]:
        return [call for call in self.calls if not call.why]

    @property
    def left(self) -> list[PatchedCall]:
        return [call for call in self.calls if call.why]

    def __str__(self) -> str:
        """A line for each of the calls."""
        return "\n".join(
            f"{call.function}({call.file}) by {call.by}: {call.why or 'weightmap'}"
            for call in self.calls
        )


def note(reports: Iterable[PatchReport], function: str, file: Any, why: str) -> None:
    """One call more, in all of them."""
    call = PatchedCall(function, str(file), caller(), why)
    with lock():
        for report in reports:
            report._calls.append(call)


@contextlib.contextmanager
def begun(report: PatchReport) -> Iterator[None]:
    """Has the block's settings reach what follows here, and the threads that are started in it."""
    try:
        _opened_here.set((*_opened_here.get(), report))
        if report._settings:
            with lock():
                _with_settings.append(report)
                _follow_settings()
        yield
    finally:
        _opened_here.set(tuple(each for each in _opened_here.get() if each is not report))
        if report._settings:
            with lock():
                if report in _with_settings:
                    _with_settings.remove(report)
                _follow_settings()


def _follow_settings() -> None:
    """Has threads told which blocks they are started in, as long as that matters."""
    global _own_start
    thread: Any = threading.Thread
    if _with_settings and _own_start is None:
        _own_start, thread.start = thread.start, _start
    elif not _with_settings and thread.start is _start:  # and not what another tool made of it
        thread.start, _own_start = _own_start, None


def _start(thread: threading.Thread) -> None:
    """What threading.Thread.start is meanwhile."""
    setattr(thread, _ATTRIBUTE, _blocks_here())
    (_own_start or _plain_start)(thread)


def _blocks_here() -> tuple[PatchReport, ...]:
    started_in = getattr(threading.current_thread(), _ATTRIBUTE, ())
    return (*started_in, *_opened_here.get())


def settings_of(reports: Iterable[PatchReport]) -> AbstractContextManager[None]:
    """weightmap.config.override() as it was where these blocks began, the last of them before
    others, in the threads that opened them or were started in them; a thread that runs beside them
    keeps its own. What this thread has overridden itself goes before all."""
    here = _blocks_here()
    return config._inherited(*(each._settings for each in reports if each in here))


def settings_here() -> AbstractContextManager[None]:
    """What a call in this thread finds set, be it by a block that it was started in."""
    return settings_of(_with_settings)


def caller() -> str:
    """The module outside of these packages whose call led here."""
    frame = sys._getframe(1)
    name = ""
    while frame is not None:
        name = str(frame.f_globals.get("__name__", "?"))
        if name.partition(".")[0] not in _INSIDE:
            break
        frame = frame.f_back  # type: ignore[assignment]
    return name
