"""What keeps a process from being forked for later starts: each obstacle by its name.

A fork has the memory of the process and nothing else that only one can have: no threads, no
children, no timers; and what it does have in common with its parent, such as a connection or an
offset in a file, is for one of the two.
"""

from __future__ import annotations

import os
import signal
import stat
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_HARMLESS_DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")


def first_obstacle(standard: list[list[int]]) -> str:
    """Returns why this process cannot be forked; empty if it can be.

    `standard` has the device and the inode of the three standard streams at the start of the
    command. Threads that are none of Python's are left to remaining_threads().
    """
    return next(_obstacles(standard), "")


def remaining_threads() -> str:
    """Names the threads besides the caller, right after a fork: those of OpenBLAS end before one,
    and begin again; others would be missing in the new process. Empty if there is none."""
    main = str(os.getpid())
    tasks = [task for task in os.listdir("/proc/self/task") if task != main]
    names = [_text(f"/proc/self/task/{task}/comm") for task in tasks]
    if not names:
        return ""
    return f"it has {len(names) + 1} threads, which no fork has ({', '.join(sorted(names))})"


def _obstacles(standard: list[list[int]]) -> Iterator[str]:
    asyncio = sys.modules.get("asyncio")
    if asyncio and asyncio._get_running_loop():
        yield "an event loop is running, which all forks would share"
    threading = sys.modules.get("threading")
    names = [each.name for each in threading.enumerate()[1:]] if threading else []
    if names:
        yield f"it has threads, which no fork has: {', '.join(names)}"
    if _has_children():
        yield "it has child processes, which are no children of a fork"
    kinds = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
    if any(signal.getitimer(kind)[0] for kind in kinds):
        yield "a timer of it is running, which no fork has"
    for number, began in enumerate(standard):
        if began != _identity(number):
            yield f"descriptor {number} is not what the command was started with"
    for number in open_descriptors():
        reason = _against_descriptor(number)
        if reason:
            yield f"descriptor {number} {reason}"
    for path in _shared_memory():
        yield f"it shares memory that it can write to, so that forks would share it: {path}"
    lines = _text("/proc/self/smaps").splitlines()  # proc(5)
    flags = {flag for line in lines if line.startswith("VmFlags:") for flag in line.split()}
    if "lo" in flags:
        yield "it has locked memory, which would not be locked in a fork"
    if "dc" in flags:
        yield "it has memory that no fork has (MADV_DONTFORK)"


def open_descriptors() -> list[int]:
    """Those besides the standard streams."""
    numbers = [int(name) for name in os.listdir("/proc/self/fd")]
    return sorted(number for number in numbers if number > 2 and _identity(number))


def _identity(number: int) -> list[int]:
    try:
        status = os.fstat(number)
    except OSError:
        return []
    return [status.st_dev, status.st_ino]


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _against_descriptor(number: int) -> str:
    path = os.readlink(f"/proc/self/fd/{number}")
    mode = os.fstat(number).st_mode
    if path in _HARMLESS_DEVICES or stat.S_ISDIR(mode):
        return ""
    if path.startswith("/dev/nvidia"):
        return f"is {path}: CUDA does not work in a fork of a process that has used it"
    if not stat.S_ISREG(mode):
        return f"is {path}, which all forks would share"
    information = _text(f"/proc/self/fdinfo/{number}")
    if "\nlock:" in information:
        return f"holds a lock of {path}, which a fork would keep"
    flags = next(line for line in information.splitlines() if line.startswith("flags:"))
    if int(flags.split()[1], 8) & os.O_ACCMODE != os.O_RDONLY:
        return f"is open for writing, which all forks would do at one offset: {path}"
    return ""


def _shared_memory() -> Iterator[str]:
    for line in _text("/proc/self/maps").splitlines():
        fields = line.split(maxsplit=5)
        if "w" in fields[1] and "s" in fields[1]:
            yield fields[5] if len(fields) > 5 else "without a name"


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read().strip()
    except OSError:  # a thread that has just ended
        return ""
