"""Control groups that limit memory, of version 1 or 2."""
import contextlib
import os
import time

VERSION_1 = "/sys/fs/cgroup/memory"
VERSION_2 = "/sys/fs/cgroup"


class NoGroups(Exception):
    """The system has none, or does not let this user make one."""


def _write(path, text):
    with open(path, "w", encoding="ascii") as file:
        file.write(str(text))


def _parent():
    """The folder to make groups in, and the name of the file with the limit."""
    if os.path.exists(os.path.join(VERSION_1, "memory.limit_in_bytes")):
        return VERSION_1, "memory.limit_in_bytes"
    controllers = os.path.join(VERSION_2, "cgroup.controllers")
    if os.path.exists(controllers):
        with open(controllers, encoding="ascii") as file:
            if "memory" in file.read().split():
                return VERSION_2, "memory.max"
    raise NoGroups("there are no control groups for memory")


@contextlib.contextmanager
def memory_group(name, limit_bytes):
    """Makes a group, without swap where that can be said; its folder is the value. The processes
    in it must have ended by the end."""
    parent, limit = _parent()
    folder = os.path.join(parent, f"weightmap-{os.getpid()}-{name}")
    try:
        if parent == VERSION_2:
            _write(os.path.join(parent, "cgroup.subtree_control"), "+memory")
        os.mkdir(folder)
        _write(os.path.join(folder, limit), limit_bytes)
        swap = os.path.join(folder, "memory.swap.max")
        if os.path.exists(swap):
            _write(swap, 0)
    except OSError as error:
        raise NoGroups(str(error)) from error
    try:
        yield folder
    finally:
        for _ in range(50):  # an ended process is still in it for a moment
            with contextlib.suppress(OSError):
                os.rmdir(folder)
                break
            time.sleep(0.1)
