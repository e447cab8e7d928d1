"""weightmap.processes() and what it returns."""

from __future__ import annotations

import os

from weightmap import _core
from weightmap._record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from weightmap._open import PathLike


class MappedCheckpoint(Record):
    """What one process has mapped of one file, in bytes."""

    process: int
    command: str
    file: str  # the path when it was mapped; "/memfd:NAME" for memory without one
    version: str  # "current", "replaced" by another file of its name, or "deleted"
    device: int
    inode: int
    file_bytes: int
    has_shared: bool
    has_private: bool
    writable: bool
    mapped_bytes: int  # of address space
    resident_bytes: int  # RSS
    pss_bytes: int  # PSS: each page divided by the number of processes that have it
    anonymous_bytes: int  # of resident_bytes, copied by writing
    huge_mapped_bytes: int  # of resident_bytes, mapped 2 MiB at a time
    locked_bytes: int  # of pss_bytes, what may not leave memory


class Processes(Record):
    """Who has checkpoints mapped."""

    mapped: list[MappedCheckpoint]  # by file, then process
    unreadable_processes: int  # that the system does not let us look at

    @property
    def pss_bytes(self) -> int:
        """What the machine spends on all of them."""
        return sum(mapped.pss_bytes for mapped in self.mapped)


def _mapped(fields: dict[str, Any]) -> MappedCheckpoint:
    for name in ("command", "file"):
        fields[name] = os.fsdecode(fields[name])
    return MappedCheckpoint(**fields)


def processes(*paths: PathLike) -> Processes:
    """The processes that have one of these files mapped, or, without any, any checkpoint.

    Those on an older file that lost the name are found, too. A staged copy is found by its path.
    """
    mapped, unreadable = _core.processes([os.fsencode(path) for path in paths])
    return Processes([_mapped(fields) for fields in mapped], unreadable)
