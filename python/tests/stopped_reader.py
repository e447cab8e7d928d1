"""The process that reads for others, stopped in the middle of it. For real elections: cold files.

A test evicts its files, starts the processes with WEIGHTMAP_RUNTIME_DIR of its own, and calls
stop_reader(): what follows depends on no speed.
"""

import contextlib
import ctypes
import fcntl
import os
import signal
import struct

import weightmap

_FLOCK = struct.Struct("hh4xqqi4x")
_IN_OPEN = 0x20
_EVENT = struct.Struct("iIII")
_libc = ctypes.CDLL(None, use_errno=True)


def make_cold(files):
    """Whether the file system can drop them from the page cache."""
    for file in files:
        with open(file, "rb") as opened:
            os.fsync(opened.fileno())
    return all(weightmap.evict(file).cached_after == 0 for file in files)


def reader_of(directory):
    """The process that was elected to read a file, or None."""
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(directory):
            if not name.startswith("warm-"):
                continue
            process = _lock_holder(os.path.join(directory, name))
            if process is not None:
                return process
    return None


def _lock_holder(path):
    with open(path, "rb") as file:
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, process = _FLOCK.unpack(fcntl.fcntl(file, fcntl.F_GETLK, asked))
    return process if kind != fcntl.F_UNLCK else None


def _is_half_cached(file):
    size = os.path.getsize(file)
    with weightmap.open(file) as checkpoint:
        return size / 8 < checkpoint.residency().cached_bytes < size * 7 / 8


def stop_reader(directory, files, has_ended):
    """Stops (SIGSTOP) the process that reads for others half way in a file; answers which.

    files: those that are read one after the other, in the beginning cold.
    has_ended: whether nobody will read any more. Then the answer is None.
    """
    while not has_ended():
        process = reader_of(directory)
        if process is None:
            continue
        os.kill(process, signal.SIGSTOP)
        if reader_of(directory) == process and any(map(_is_half_cached, files)):
            return process
        os.kill(process, signal.SIGCONT)
    return None


class Attempts:
    """Sees others try to become the reader."""

    def __init__(self, directory):
        self._events = _libc.inotify_init()
        if _libc.inotify_add_watch(self._events, os.fsencode(directory), _IN_OPEN) < 0:
            raise OSError(ctypes.get_errno(), "inotify_add_watch")

    def wait(self, count):
        """Returns after so many of them."""
        while count > 0:
            events = os.read(self._events, 4096)
            while events:
                _, _, _, length = _EVENT.unpack_from(events)
                count -= events[_EVENT.size :].startswith(b"warm-")
                events = events[_EVENT.size + length :]

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        os.close(self._events)
