"""Memory of processes, as the kernel counts it."""

from __future__ import annotations

import re
from pathlib import Path


def pss_and_private(pid: int) -> tuple[int, int]:
    """Bytes. PSS counts a page that n processes have mapped as 1/n, so that it can be added up.

    Private bytes are of pages that the process has written and shares with no other.
    """
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    kib = {name: int(size) for name, size in re.findall(r"(\w+):\s+(\d+) kB", rollup)}
    return 1024 * kib["Pss"], 1024 * kib["Private_Dirty"]


def pss_of(pid: int, file: str) -> int:
    """Bytes of a file that the process has mapped, where a page that n have mapped counts 1/n."""
    smaps = Path(f"/proc/{pid}/smaps").read_text()
    path = re.escape(str(Path(file).resolve()))
    found = re.findall(rf"^[0-9a-f]+-.* {path}\n(?:[A-Z]\w+:.*\n)*?Pss: +(\d+) kB", smaps, re.M)
    return 1024 * sum(map(int, found))


def anonymous_bytes(pid: int) -> int:
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return 1024 * int(re.search(r"Anonymous:\s+(\d+) kB", rollup)[1])


def children_of(parent: int) -> set[int]:
    """Omits zombie processes."""
    children = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent_of_it = stat.read_text().rpartition(")")[2].split()[:2]
        except OSError:  # a process that just ended
            continue
        if int(parent_of_it) == parent and state != "Z":
            children.add(int(stat.parent.name))
    return children
