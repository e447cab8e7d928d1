#!/usr/bin/env python3
"""Takes from the page cache what tests have put there, as a kernel does that reclaims cold pages.

    disturb_page_cache.py FOLDER... [--seconds N]

Until the time is over: evicts every file in the folders (posix_fadvise), pages out what processes
have mapped of them (process_madvise, where this user may), and reads and evicts a file of its own
beside them. What is locked in memory stays. Prints how often it did so.
"""

import argparse
import contextlib
import ctypes
import os
import pathlib
import re
import signal
import stat
import sys
import tempfile
import time

LIBC = ctypes.CDLL(None)
PROCESS_MADVISE, PAGEOUT = 440, 21
MAPPED = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) \S+ \S+ \S+ \d+ +(/.*)$", re.MULTILINE)


class Range(ctypes.Structure):
    _fields_ = (("begin", ctypes.c_void_p), ("length", ctypes.c_size_t))


def evict(path):
    with contextlib.suppress(OSError):
        if not stat.S_ISREG(os.lstat(path).st_mode):
            return
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def page_out(process, folders):
    """Takes the pages from the process's own mappings, too, which eviction leaves alone."""
    with contextlib.suppress(OSError):
        maps = pathlib.Path("/proc", process, "maps").read_text(encoding="utf-8", errors="replace")
        ranges = [(int(begin, 16), int(end, 16)) for begin, end, file in MAPPED.findall(maps)
                  if file.startswith(folders)]
        if not ranges:
            return
        descriptor = os.pidfd_open(int(process))
        for begin, end in ranges:
            part = Range(begin, end - begin)
            LIBC.syscall(PROCESS_MADVISE, descriptor, ctypes.byref(part), 1, PAGEOUT, 0)
        os.close(descriptor)


def disturb(folders, neighbour):
    neighbour.read_bytes()
    for process in filter(str.isdigit, os.listdir("/proc")):
        page_out(process, tuple(folder + "/" for folder in folders))
    for folder in folders:
        for parent, _, files in os.walk(folder):
            for file in files:
                evict(os.path.join(parent, file))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folders", nargs="+", type=os.path.realpath)
    parser.add_argument("--seconds", type=float, default=60)
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # prints all the same
    end, rounds = time.monotonic() + arguments.seconds, 0
    with tempfile.TemporaryDirectory(dir=arguments.folders[0]) as own:
        neighbour = pathlib.Path(own, "neighbour")
        neighbour.write_bytes(b"n" * (4 << 20))
        try:
            while time.monotonic() < end:
                disturb(arguments.folders, neighbour)
                rounds += 1
        finally:
            print(f"{rounds} rounds")


if __name__ == "__main__":
    main()
