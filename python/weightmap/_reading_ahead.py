"""Brings a checkpoint into memory in the background, for whoever will need it soon."""

from __future__ import annotations

import threading

from weightmap._errors import Error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from weightmap import _core


class ReadingAhead:
    """A thread that warms tensors, in this order; what it cannot bring is read when it is touched.

    indices: positions of the tensors; none for all of the files, unless all of them is cached.
    one_reader: as of Checkpoint.warm().
    """

    def __init__(
        self,
        core: _core.Checkpoint,
        indices: Sequence[int] = (),
        *,
        threads: int = 2,
        one_reader: bool = False,
    ) -> None:
        self._cancelled = False
        self._thread = threading.Thread(
            target=self._read,
            args=(core, list(indices), threads, one_reader),
            name="weightmap-reading-ahead",
            daemon=True,
        )
        self._thread.start()

    def _read(
        self, core: _core.Checkpoint, indices: list[int], threads: int, one_reader: bool
    ) -> None:
        try:
            if indices or not _is_cached(core):
                core.warm(indices, [], threads, 0, False, one_reader, self._go_on)
        except (Error, OSError, MemoryError, _Cancelled):
            pass

    def _go_on(self, _done: int, _all: int) -> None:
        if self._cancelled:
            raise _Cancelled

    def close(self) -> None:
        """Ends the reading; what came stays."""
        self._cancelled = True
        self._thread.join()


class _Cancelled(Exception):
    pass


def _is_cached(core: _core.Checkpoint) -> bool:
    """Whether all of it is; False also where the system does not tell."""
    try:
        now = core.residency()
    except Error:
        return False
    return bool(now["cached_bytes"] == now["file_bytes"])
