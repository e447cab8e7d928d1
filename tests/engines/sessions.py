"""Processes by their sessions: an engine is a session, with all that it starts."""

import os
import pathlib


def sessions():
    """The processes of each, without those that have ended."""
    found = {}
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            stat = pathlib.Path(f"/proc/{process}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        state, _, _, session = stat.rpartition(")")[2].split()[:4]
        if state != "Z":
            found.setdefault(int(session), []).append(int(process))
    return found


def resident_bytes(processes):
    """In memory for these, where a page of n processes is an n-th in each (PSS)."""
    total = 0
    for process in processes:
        try:
            lines = pathlib.Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
        except (FileNotFoundError, ProcessLookupError):
            continue
        total += sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))
    return total
