"""What patched functions did: PatchReport, which the blocks of patch() yield."""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from weightmap import config

# Over the blocks under way and their reports. A child may be forked while another thread has it.
_lock = threading.Lock()


def lock() -> threading.Lock:
    """The one of this process."""
    return _lock


def _renew_lock() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)

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

    def __init__(self) -> None:
        self._calls: deque[PatchedCall] = deque(maxlen=10_000)
        # That a call follows in a thread which the block's own has started, as loaders do.
        self._settings = config._overrides.get()

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


def settings_of(reports: Iterable[PatchReport]) -> AbstractContextManager[None]:
    """weightmap.config.override() as it was where these blocks began, the last of them before others;
    but what this thread has overridden itself goes before all."""
    return config._inherited(*(report._settings for report in reports))


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
