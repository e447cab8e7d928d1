"""Pages of a file that stay in the page cache, whatever the system or another process evicts."""

import contextlib
import ctypes
import mmap
import os
import unittest

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.mmap.restype = ctypes.c_void_p
LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int,
                      ctypes.c_long]
LIBC.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
LIBC.mlock.argtypes = LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


@contextlib.contextmanager
def cached(path, offset=0, length=None):
    """Meanwhile the pages of a range are cached, whoever else evicts what; brings in no others."""
    start = offset // mmap.PAGESIZE * mmap.PAGESIZE
    end = os.path.getsize(path) if length is None else offset + length
    with open(path, "rb") as file:
        address = LIBC.mmap(
            None, end - start, mmap.PROT_READ, mmap.MAP_SHARED, file.fileno(), start)
    try:
        LIBC.madvise(address, end - start, mmap.MADV_RANDOM)
        if LIBC.mlock(address, end - start) != 0:
            reason = os.strerror(ctypes.get_errno())
            raise unittest.SkipTest(f"cannot lock {end - start} bytes in memory: {reason}")
        yield
    finally:
        LIBC.munmap(address, end - start)


def keep_cached(case, path, *extent):
    """cached() until the end of a test case."""
    kept = cached(path, *extent)
    kept.__enter__()
    case.addCleanup(kept.__exit__, None, None, None)
