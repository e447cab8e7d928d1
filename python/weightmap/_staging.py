"""What weightmap.stage() returns, and budgets."""

from __future__ import annotations

import os

from weightmap import _core
from weightmap._errors import InvalidArgumentError
from weightmap.reports import StageReport


class StagedFile:
    """A copy of a checkpoint in shared memory.

    Opened by weightmap.open(staged), by its path in other processes of the same user, or by its
    descriptor where that was inherited or received. Memory without a name is free again once
    nobody has it open or mapped; a copy with a name stays until remove_staged().

    Safe to use from any thread, and after a fork.
    """

    def __init__(self, staged: _core.StagedFile) -> None:
        self._staged: _core.StagedFile | None = staged

    def _open(self) -> _core.StagedFile:
        if self._staged is None:
            raise InvalidArgumentError("the staged copy was closed")
        return self._staged

    def fileno(self) -> int:
        """Its descriptor, open for reading: for subprocess's pass_fds, socket.send_fds()."""
        return self._open().descriptor()

    @property
    def path(self) -> str:
        """/proc/PID/fd/N, until close(), or /dev/shm/NAME."""
        return os.fsdecode(self._open().path())

    def pinnable_memory(self) -> memoryview:
        """The copy as this process may write to it, for stage(pinnable=True); else it is empty.

        Pinned for a device it is not copied, as private memory would be, and no file system refuses
        it, as shared mappings of files are. A write changes what everybody reads. It stays while
        this memoryview does, and forked children have it, too. Where a tensor lies in it:
        Tensor.file_offset.
        """
        return memoryview(self._open().pinnable_memory())

    @property
    def report(self) -> StageReport:
        return StageReport(**self._open().report())

    @property
    def closed(self) -> bool:
        return self._staged is None

    def close(self) -> None:
        """Closes the descriptor; those who have the copy open keep it."""
        self._staged = None

    def __enter__(self) -> StagedFile:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<weightmap.StagedFile {'closed' if self.closed else self.path}>"


_MOST_BYTES = 2**64 - 1


def bytes_allowed(name: str, budget: int | None) -> int:
    """A budget as the library takes it: 0 for None, which is what there is room for."""
    if budget is None:
        return 0
    is_number = hasattr(budget, "__index__") and not isinstance(budget, bool)
    if not is_number or not 0 < budget <= _MOST_BYTES:
        raise InvalidArgumentError(
            f"{name} is {budget!r}, expected None or a number of bytes from 1 to {_MOST_BYTES:,}"
        )
    return budget


def remove_staged(name: str) -> None:
    """Removes /dev/shm/name. Those who have it open or mapped keep it.

    Any thread may call it, and a forked child.
    """
    _core.remove_staged(os.fsencode(name))
