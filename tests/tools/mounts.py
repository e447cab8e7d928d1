"""File systems that tests mount, which only root can, and what tests need of them."""

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import unittest


def main(arguments):
    """Runs the tests of the program; ends with 77, as ctest wants it, if all were left out."""
    result = unittest.main(argv=arguments, exit=False).result
    if result.testsRun > 0 and len(result.skipped) == result.testsRun:
        print(f"SKIPPED: {result.skipped[0][1]}")
        sys.exit(77)
    sys.exit(0 if result.wasSuccessful() else 1)


def need(case, *programs, device=None):
    missing = [program for program in programs if not shutil.which(program)]
    if os.geteuid() != 0 or missing or (device and not os.path.exists(device)):
        case.skipTest(f"needs root, {', '.join((*programs, device or ''))}")


def need_leases(case):
    with tempfile.TemporaryFile(dir=case.folder) as file:
        try:
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        except OSError as error:
            case.skipTest(f"needs leases of the file system: {error}")


def bindfs(case, lower, upper, *options):
    """Serves `lower` at `upper` by FUSE; without kernel_cache an open drops what is cached.

    Returns the server, in the foreground so that it can be stopped.
    """
    need(case, "bindfs", device="/dev/fuse")
    for folder in (lower, upper):
        folder.mkdir(exist_ok=True)
    was = os.stat(upper).st_dev
    server = subprocess.Popen(["bindfs", "-f", *options, lower, upper])
    case.addCleanup(server.wait)
    case.addCleanup(subprocess.run, ["umount", "-l", upper])
    while os.stat(upper).st_dev == was:
        case.assertIsNone(server.poll(), "bindfs has ended")
    return server


def overlay(case, folder, merged="merged", lower="lower", upper="upper", base=None):
    """Mounts folder/lower under folder/upper at folder/merged, which it returns.

    With `base` it is told the layers as they are called there.
    """
    need(case)
    work = folder / f"work-of-{merged}"
    for path in (folder / lower, folder / upper, folder / merged, work):
        path.mkdir(exist_ok=True)
    done = subprocess.run(
        ["mount", "-t", "overlay", "overlay", "-o",
         ",".join(f"{name}={path if base is None else path.relative_to(base)}" for name, path in
                  (("lowerdir", folder / lower), ("upperdir", folder / upper), ("workdir", work))),
         folder / merged], capture_output=True, text=True, cwd=base)
    if done.returncode != 0:
        case.skipTest(f"no overlay can be mounted: {done.stderr}")
    case.addCleanup(subprocess.run, ["umount", "-l", folder / merged])
    return folder / merged
