"""Files in the runtime directory that belong to a process until it ends."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import stat
import struct
import threading

from weightmap import _core

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_FLAGS = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
# Of this process. A record lock belongs to the process as a whole: it keeps none of its threads
# apart, and the first that closes the file gives it up for all.
_own: set[str] = set()
# So who looks at a file, opens or closes it, has this lock. The garbage collector may end a load
# that was abandoned, which closes a file, while this thread has it.
_threads = threading.RLock()


def _begin_child() -> None:
    global _threads
    _threads = threading.RLock()
    _own.clear()


os.register_at_fork(after_in_child=_begin_child)


class OwnedFile:
    """A file that this process has locked, and removes in close().

    The lock ends with its owner, and no forked child has it: owner() tells others whether there is
    one. For one thread at a time.
    """

    def __init__(self, path: str, descriptor: int) -> None:
        self._path = path
        self._descriptor: int | None = descriptor
        self._process = os.getpid()

    @classmethod
    def take(cls, name: str) -> OwnedFile | None:
        """None: somebody has it, or looks at it just now. Raises weightmap.Error and OSError."""
        path = _path(name)
        with _threads:
            if path in _own:
                return None
            descriptor = _open(path, os.O_CREAT)
            try:
                # Not if it was taken for a dead one's, and removed, before it was locked.
                if _lock(descriptor) and os.fstat(descriptor).st_nlink == 1:
                    os.truncate(descriptor, 0)
                    _own.add(path)
                    return cls(path, descriptor)
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)
            return None

    def write(self, content: bytes) -> None:
        """From the beginning of the file."""
        if self._descriptor is not None:
            os.pwrite(self._descriptor, content, 0)

    def close(self) -> None:
        """A forked child changes nothing by it."""
        if self._descriptor is None or self._process != os.getpid():
            return
        with _threads:
            with contextlib.suppress(OSError):
                os.unlink(self._path)
            os.close(self._descriptor)
            _own.discard(self._path)
            self._descriptor = None


def content_of(name: str) -> bytes | None:
    """What another process has written; None: it has no owner, and so is no more, or is our own."""
    path = _path(name)
    with _threads:
        return None if path in _own else _content_at(path)


def _content_at(path: str) -> bytes | None:
    try:
        descriptor = _open(path)
    except FileNotFoundError:
        return None
    try:
        if not _lock(descriptor):
            return os.pread(descriptor, 4096, 0)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        return None
    finally:
        os.close(descriptor)


def names_with(prefix: str) -> list[str]:
    """Of what is in the runtime directory."""
    return [name for name in os.listdir(_path("")) if name.startswith(prefix)]


def remove_left(*prefixes: str) -> None:
    """Removes what processes that died have left in the runtime directory."""
    for prefix in prefixes:
        for name in names_with(prefix):
            with contextlib.suppress(OSError):  # what is none of ours
                content_of(name)


def key_of(files: Iterable[str]) -> str:
    """The same for all who have these versions of these files, in this order."""
    digest = hashlib.sha256()
    for file in files:
        status = os.stat(file)
        numbers = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        digest.update(struct.pack("<4Q", *(number & 0xFFFF_FFFF_FFFF_FFFF for number in numbers)))
    return digest.hexdigest()[:32]


def _path(name: str) -> str:
    return os.path.join(os.fsdecode(_core.runtime_directory()), name)


def _open(path: str, flags: int = 0) -> int:
    descriptor = os.open(path, _FLAGS | flags, 0o600)
    status = os.fstat(descriptor)
    lets_others_in = status.st_mode & 0o077 != 0 or status.st_uid != os.geteuid()
    if lets_others_in or not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise OSError(f"{path} is not a regular file of this user alone")
    return descriptor


def _lock(descriptor: int) -> bool:
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True
