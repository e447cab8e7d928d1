"""A copy in /dev/shm that has no name until it is whole."""

from __future__ import annotations

import errno
import os

from weightmap._errors import FileError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

SHARED_MEMORY = "/dev/shm"
_STEP = 64 << 20  # bytes that are reserved at a time


class Copy:
    """A file of `size` bytes; a context manager. What is without a name in the end is gone.

    write() may be called from any thread, for ranges that do not overlap.
    """

    def __init__(self, size: int) -> None:
        _check_room(size)
        flags = os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC
        self.descriptor = os.open(SHARED_MEMORY, flags, 0o400)
        os.ftruncate(self.descriptor, size)
        self._size = size

    def reserving(self) -> Iterator[None]:
        """Allocates the memory ahead of the bytes, a step at a time. Raises OSError where there is
        not enough."""
        for offset in range(0, self._size, _STEP):
            os.posix_fallocate(self.descriptor, offset, min(_STEP, self._size - offset))
            yield

    def write(self, offset: int, content: memoryview) -> None:
        while content:
            written = os.pwrite(self.descriptor, content, offset)
            content, offset = content[written:], offset + written

    def name(self, path: str) -> None:
        """Raises FileExistsError if there is such a file."""
        descriptors = os.open("/proc/self/fd", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            # With a folder given, os.link() follows the link that a descriptor is in /proc.
            os.link(str(self.descriptor), path, src_dir_fd=descriptors, follow_symlinks=True)
        finally:
            os.close(descriptors)

    def __enter__(self) -> Copy:
        return self

    def __exit__(self, *exception: object) -> None:
        os.close(self.descriptor)


def _check_room(size: int) -> None:
    """Before memory is filled that another one may need."""
    status = os.statvfs(SHARED_MEMORY)
    free = status.f_bavail * status.f_frsize
    if status.f_blocks and size > free:
        raise FileError(
            f"has {free:,} bytes left, and a copy takes {size:,}",
            file=SHARED_MEMORY,
            errno=errno.ENOSPC,
        )
