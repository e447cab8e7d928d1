#!/usr/bin/env python3
"""Whether the tool works under the system call filter of the systemd units that are shipped.

    systemd_unit_test.py ROOT WEIGHTMAP MAKE_CHECKPOINT CXX

The filter is made from the unit's own lines as systemd would make it. CXX, the compiler, knows the
numbers of the system calls.
"""

import ctypes
import errno
import functools
import json
import os
import pathlib
import platform
import re
import signal
import socket
import struct
import subprocess
import sys
import unittest

from tool_case import ENVIRONMENT, ROOT, ToolCase

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "remote"))

from range_server import RangeServer  # noqa: E402

CXX = sys.argv[4]
UNIT = ROOT / "examples" / "systemd" / "weightmap-hold.service"
URL_UNIT = UNIT.with_name("weightmap-hold-url.service")
RECORDED = ROOT / "tests" / "tools" / "systemd_252_calls.txt"
GROUPS = ("@system-service", "@memlock")

ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
CACHESTAT = 451  # on every architecture; younger than the kernel headers of Debian 12
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
ALLOW, KILL, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
LIBC = ctypes.CDLL(None, use_errno=True)


def settings(name, unit=UNIT):
    """What the unit says of it."""
    return re.findall(rf"^{name}=(.*)$", unit.read_text(), re.MULTILINE)


def recorded_calls():
    lines = RECORDED.read_text().splitlines()
    return {call for line in lines if not line.startswith("#") for call in line.split()}


def calls_of_group(name):
    """As the systemd that is installed here expands it."""
    text = subprocess.run(["systemd-analyze", "syscall-filter", name], capture_output=True,
                          text=True, check=True).stdout
    words = {line.strip() for line in text.splitlines()[1:]}
    words = {word for word in words if word and not word.startswith("#")}
    return set().union(*(calls_of_group(w) if w.startswith("@") else {w} for w in words))


def group_lists():
    """By where it comes from, all that the groups of the unit allow."""
    lists = {"recorded of systemd 252": recorded_calls()}
    try:
        lists["systemd-analyze"] = set().union(*map(calls_of_group, GROUPS))
    except (OSError, subprocess.CalledProcessError):
        pass  # systemd is not installed
    return lists


@functools.cache
def numbers():
    """The system calls that this machine's headers know."""
    text = subprocess.run([CXX, "-dM", "-E", "-x", "c++", "-include", "sys/syscall.h", "/dev/null"],
                          capture_output=True, text=True, check=True).stdout
    return {name: int(number)
            for name, number in re.findall(r"^#define __NR_(\w+) (\d+)$", text, re.MULTILINE)}


def program(allowed, otherwise):
    """A filter for seccomp(2) that allows these numbers and answers `otherwise` to all others."""
    load, jump_if_equal, answer = 0x20, 0x15, 0x06
    lines = [(load, 0, 0, 4), (jump_if_equal, 1, 0, ARCHITECTURES[platform.machine()]),
             (answer, 0, 0, KILL), (load, 0, 0, 0)]
    for number in sorted(allowed):
        lines += [(jump_if_equal, 0, 1, number), (answer, 0, 0, ALLOW)]
    lines.append((answer, 0, 0, otherwise))
    return b"".join(struct.pack("=HBBI", *line) for line in lines)


def filter_of(groups, knows_cachestat, otherwise):
    wanted = set(" ".join(settings("SystemCallFilter")).split())
    calls = {**numbers(), **({"cachestat": CACHESTAT} if knows_cachestat else {})}
    if not knows_cachestat:
        calls.pop("cachestat", None)
    assert not any(word.startswith("~") for word in wanted), "the unit lists what is allowed"
    assert {word for word in wanted if word.startswith("@")} == set(GROUPS), wanted
    return program({calls[call] for call in groups | wanted if call in calls}, otherwise)


def under(filter_program):
    """For preexec_fn: the process and what it starts live under the filter from now on."""
    size = len(filter_program) // 8
    content = ctypes.create_string_buffer(filter_program)
    head = ctypes.create_string_buffer(struct.pack("@HP", size, ctypes.addressof(content)))

    def enter():
        if LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 or \
                LIBC.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, head) != 0:
            raise OSError(ctypes.get_errno(), "cannot install the filter")

    enter.content = content  # as long as the function lives
    return enter


class Unit(ToolCase):
    def setUp(self):
        if platform.machine() not in ARCHITECTURES:
            self.skipTest(f"the test does not know the architecture {platform.machine()}")
        super().setUp()
        self.file = self.make(shape="256x1024")
        self.environment = {**ENVIRONMENT, "WEIGHTMAP_RUNTIME_DIR": str(self.folder / "shared")}

    def tool(self, enter, *arguments):
        done = self.run_tool(*arguments, preexec_fn=enter)
        self.assertGreaterEqual(done.returncode, 0, f"{arguments}: killed by the filter")
        return json.loads(done.stdout)

    def works_under(self, enter):
        warmed = self.tool(enter, "warm", "--json", "--one-reader", "--crc", self.file)
        self.assertEqual(warmed["bytes"], self.file.stat().st_size)
        residency = self.tool(enter, "residency", "--json", self.file)
        self.assertEqual(residency["file_bytes"], self.file.stat().st_size)
        evicted = self.tool(enter, "residency", "--evict", "--json", self.file)["files"][0]
        self.assertEqual(evicted["file_bytes"], self.file.stat().st_size)
        self.holds_under(enter)

    def keeper(self, enter, *arguments, **options):
        """A daemon under the filter, and what it holds."""
        keeper = self.start("hold", "--json", *arguments, preexec_fn=enter, **options)
        line = keeper.stdout.readline()
        self.assertTrue(line, "the keeper ended")
        [held] = json.loads(line)["files"]
        self.assertEqual((held["state"], held["problem"]), ("held", None))
        return keeper, held

    def ends_well(self, keeper):
        keeper.send_signal(signal.SIGTERM)
        _, errors = keeper.communicate()
        self.assertEqual(keeper.returncode, 0, errors)

    def holds_under(self, enter):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
            (self.folder / "notify").unlink(missing_ok=True)
            listener.bind(str(self.folder / "notify"))
            keeper, held = self.keeper(enter, "--interval", "0.05", self.file, environment={
                "NOTIFY_SOCKET": str(self.folder / "notify"), "WATCHDOG_USEC": "100000"})
            self.assertIsNotNone(held["cached_bytes"])
            os.rename(self.make("new.pt", shape="256x1024"), self.file)
            while (status := self.tool(enter, "hold", "--status", "--json")["files"][0])["reloads"] == 0:
                self.assertIsNone(status["problem"])
            self.ends_well(keeper)
            # It notifies in an order that depends on what comes first.
            listener.setblocking(False)
            told = iter(lambda: listener.recv(4096), b"")
            self.assertTrue(any(message.startswith(b"WATCHDOG=1") for message in told))

    def test_nothing_that_the_service_does_is_refused(self):
        for name, groups in group_lists().items():
            with self.subTest(name):
                self.works_under(under(filter_of(groups, True, KILL)))

    def test_works_where_systemd_does_not_know_cachestat(self):
        [refusal] = settings("SystemCallErrorNumber") or ["KILL"]
        otherwise = KILL if refusal == "KILL" else ERRNO | getattr(errno, refusal)
        for name, groups in group_lists().items():
            with self.subTest(name):
                self.works_under(under(filter_of(groups, False, otherwise)))

    def test_both_units_have_the_same_filter(self):
        for name in ("SystemCallFilter", "SystemCallErrorNumber", "SystemCallArchitectures"):
            self.assertEqual(settings(name), settings(name, URL_UNIT))

    def test_a_remote_file_is_held(self):
        if "--connections" not in self.text("hold", "--help"):
            self.skipTest("the tool is built without libweightmap_remote")
        name = f"{self.folder.name}.pt"  # in /dev/shm, where it is nobody else's
        (self.folder / "store").mkdir()
        os.rename(self.file, self.folder / "store" / name)
        for groups_of, groups in group_lists().items():
            with self.subTest(groups_of), RangeServer(self.folder / "store") as server:
                try:
                    keeper, held = self.keeper(under(filter_of(groups, True, KILL)), server.url(name))
                    self.assertIsNone(held["url_problem"])
                    self.ends_well(keeper)
                finally:
                    for left in pathlib.Path("/dev/shm").glob(f"{name}*"):
                        left.unlink()

    def test_the_filter_bites(self):
        enter = under(program(set(numbers().values()) - {numbers()["mincore"]}, KILL))
        self.ends(-signal.SIGSYS, "residency", self.file, preexec_fn=enter)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[5:]])
