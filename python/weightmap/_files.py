"""weightmap.evict() and weightmap.publish(), for files that need not be open."""

from __future__ import annotations

import os

from weightmap import _core
from weightmap._info import Generation
from weightmap._record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from weightmap._open import PathLike, Progress


class EvictReport(Record):
    """What evict() did, in bytes."""

    file_bytes: int
    cached_before: int
    cached_after: int  # what stays
    # Why: "in_use" by a process that has it mapped or locked, this one perhaps; "unwritten", not on
    # the disk yet; "memory_file_system", the file has no other place. "" if nothing stays.
    reason: str = ""


class PublishReport(Record):
    """What publish() did."""

    generation: Generation  # of what the target names now
    replaced: bool  # there was a file of this name before
    copied: bool  # the new file is still where it was, too
    bytes: int


def evict(path: PathLike, *, progress: Progress | None = None) -> EvictReport:
    """Asks the system to drop a file from the page cache, so that the next read is a cold one.

    progress: is called with how far into the file the request has come, and its size. What it
        raises, and Ctrl-C, ends the call; what is dropped is dropped.
    """
    file_bytes, before, after, unwritten, lives_in_memory = _core.evict(
        os.fsencode(path), progress
    )
    reason = ""
    if after > 0:
        reason = "memory_file_system" if lives_in_memory else "unwritten" if unwritten else "in_use"
    return EvictReport(file_bytes, before, after, reason)


def publish(
    new: PathLike,
    target: PathLike,
    *,
    copy: bool = False,
    crc: bool = False,
    progress: Progress | None = None,
) -> PublishReport:
    """Makes `target` name the checkpoint `new`, at once and durably.

    Whoever opens `target` finds the old file or the new one, whole; who has the old one open keeps
    it. Within a file system the file is renamed, else it is copied beside `target` first.

    copy: leave `new` where it is.
    crc: compare every byte with its CRC-32 first.
    progress: is called with the bytes done and the bytes in all while sums are compared, then while
        the file is copied. What it raises before the end, and Ctrl-C, leaves `target` as it was.
    """
    generation, replaced, copied, size = _core.publish(
        os.fsencode(new), os.fsencode(target), copy, crc, False, progress
    )
    return PublishReport(Generation(*generation), replaced, copied, size)
