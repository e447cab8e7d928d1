"""What patched functions did: PatchReport, which the blocks of patch() yield."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import NamedTuple

from weightmap import config

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
        self.calls: deque[PatchedCall] = deque(maxlen=10_000)
        # That a call follows in a thread which the block's own has started, as loaders do.
        self._settings = config._patches.get()

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


def settings_of(reports: Iterable[PatchReport]) -> AbstractContextManager[None]:
    """weightmap.config.patch() as it was where these blocks began, the last of them before others;
    but what this thread has patched itself goes before all."""
    return config._inherited(*(report._settings for report in reports))


def caller() -> str:
    """The module outside of these packages whose call led here."""
    frame = sys._getframe(1)
    name = ""
    while frame is not None:
        name = frame.f_globals.get("__name__", "?")
        if name.partition(".")[0] not in _INSIDE:
            break
        frame = frame.f_back  # type: ignore[assignment]
    return name
