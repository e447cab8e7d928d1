#!/usr/bin/env python3
"""What is brought into memory on mounts of FUSE, which keep it, drop it at each open, or keep none.

    fuse_test.py FOLDER WEIGHTMAP MAKE_CHECKPOINT
"""

import json
import mmap
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading

import mounts
from tool_case import ENVIRONMENT, FOLDER, ToolCase, stop

SMALL = 1 << 20  # beside a model of 16 MiB: headers, and what is read ahead of them
DROPS = ("its file system drops what is in memory of a file whenever anybody opens the file; "
         "weightmap stage copies it into shared memory")

READS = "import sys; open(sys.argv[1], 'rb').read()"
# Maps the file, touches it, and counts what is still mapped of it once its start was learned.
MAPS = """
import mmap, os, pathlib, re, sys, time
with open(sys.argv[1], "rb") as file:
    mapped = mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ)
for at in range(0, len(mapped), 4096):
    mapped[at]
while not list(pathlib.Path(os.environ["WEIGHTMAP_START_DIR"]).glob("*.json")):
    time.sleep(0.01)
areas = pathlib.Path("/proc/self/smaps").read_text().split("VmFlags")
[area] = [area for area in areas if sys.argv[1] in area]
print(re.search(r"Rss: +([0-9]+) kB", area)[1])
"""


class Mounted(ToolCase):
    place = FOLDER
    outlived = True
    options = ()  # of bindfs

    def setUp(self):
        super().setUp()
        self.make("lower/model.pt", count=16, shape="256x1024")
        self.server = mounts.bindfs(self, self.folder / "lower", self.folder / "upper", *self.options)
        self.model = self.folder / "upper" / "model.pt"
        self.bytes = self.model.stat().st_size
        (self.folder / "runtime").mkdir(mode=0o700)
        self.environment = {**ENVIRONMENT, "WEIGHTMAP_START_DIR": str(self.folder / "starts"),
                            "WEIGHTMAP_RUNTIME_DIR": str(self.folder / "runtime")}

    def served(self):
        text = pathlib.Path(f"/proc/{self.server.pid}/io").read_text(encoding="ascii")
        return int(re.search("rchar: ([0-9]+)", text)[1])

    def keeper(self, *arguments):
        """A daemon, and what it holds by now."""
        process = self.start("hold", "--json", *arguments, stderr=subprocess.DEVNULL)
        limit = threading.Timer(100, process.kill)
        limit.start()
        self.addCleanup(limit.cancel)
        return process, json.loads(process.stdout.readline())["files"]

    def served_for(self, *arguments, code=0):
        before = self.served()
        done = self.ends(code, *arguments, timeout=100)
        return done, self.served() - before

    def served_for_starts(self):
        """Of a command that reads the model: learned the first time, planned the second."""
        return [self.served_for("run", "-v", "--model", self.model, "--", sys.executable, "-c",
                                READS, self.model) for _ in range(2)]


class Keeps(Mounted):
    options = ("-o", "kernel_cache")

    def test_warm_reads_it_once_and_counts_it(self):
        done, served = self.served_for("warm", "--json", self.model)
        report = json.loads(done.stdout)
        self.assertEqual((report["bytes_in_memory"], report["drops_pages_at_open"]),
                         (self.bytes, False))
        self.assertLess(served, self.bytes + SMALL)
        self.assertLess(self.served_for("warm", self.model)[1], SMALL)

    def test_warm_has_a_read_in_flight_for_each_step(self):
        slow = self.folder / "slow"
        server = mounts.bindfs(self, self.folder / "lower", slow, *self.options, "--read-rate=500k")
        self.addCleanup(server.kill)  # answers no more
        warming = self.start("warm", slow / "model.pt", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        # Two on a disk; here one for each of the steps of 2 MiB, and the one that waits for them.
        while len(os.listdir(f"/proc/{warming.pid}/task")) < 1 + self.bytes // (2 << 20):
            self.assertIsNone(warming.poll())

    def test_run_reads_it_once(self):
        (_, first), (_, second) = self.served_for_starts()
        self.assertLess(first, self.bytes + SMALL)
        self.assertLess(second, SMALL)

    def test_run_reads_weights_beside_code_that_comes_another_way(self):
        (self.folder / "disk").mkdir()
        (self.folder / "disk" / "code").write_bytes(b"c" * (1 << 20))
        code = mounts.bindfs(self, self.folder / "disk", self.folder / "code", *self.options)
        plan = self.folder / "plan"
        run = ["run", "-v", "--plan", plan, "--model", self.model, "--", sys.executable, "-c"]
        self.ends(0, *run, "", timeout=100)
        there = (self.folder / "code" / "code").stat()
        planned = {"path": str(self.folder / "code" / "code"), "size": there.st_size,
                   "mtime_ns": there.st_mtime_ns}
        plan.write_text(json.dumps({**json.loads(plan.read_text()), "files": [planned]}))
        self.ends(0, "residency", "--evict", self.model)
        self.addCleanup(code.send_signal, signal.SIGCONT)
        code.send_signal(signal.SIGSTOP)  # no code comes any more
        before = self.served()
        starting = self.start(*run, "import time; time.sleep(100)", stderr=subprocess.DEVNULL)
        while self.served() - before < self.bytes:
            self.assertIsNone(starting.poll(), "the weights wait for the code")
        starting.kill()

    def test_hold_holds_it(self):
        _, [file] = self.keeper(self.model)
        self.assertEqual((file["state"], file["cached_bytes"]), ("held", self.bytes))


    def test_hold_reads_again_what_the_system_has_dropped(self):
        keeper, _ = self.keeper("--interval", "0.05", self.model)
        stop(keeper)
        self.write_again()
        self.assertLess(self.resident_of(keeper), self.bytes)
        keeper.send_signal(signal.SIGCONT)
        while self.resident_of(keeper) < self.bytes:
            self.assertIsNone(keeper.poll())

    def write_again(self):
        """Past the cache, so that the first 2 MiB of it are dropped; the file is as it was."""
        before = self.model.stat()
        memory = mmap.mmap(-1, 2 << 20)
        memory.write(self.model.read_bytes()[:2 << 20])
        file = os.open(self.model, os.O_WRONLY | os.O_DIRECT)
        os.pwritev(file, [memory], 0)
        os.close(file)
        os.utime(self.model, ns=(before.st_atime_ns, before.st_mtime_ns))

    def resident_of(self, process):
        """Of one mapping of it; a stopped process may be about to close another."""
        areas = pathlib.Path(f"/proc/{process.pid}/smaps").read_text(encoding="ascii")
        by_offset = {}
        for area in areas.split("VmFlags"):
            if str(self.model) in area:
                offset = re.search(r"^[0-9a-f]+-[0-9a-f]+ \S+ ([0-9a-f]+) ", area, re.MULTILINE)[1]
                resident = int(re.search("Rss: +([0-9]+) kB", area)[1]) << 10
                by_offset[offset] = max(resident, by_offset.get(offset, 0))
        return sum(by_offset.values())


class DropsAtOpen(Mounted):
    memory_after_warm = 1  # of the file
    warm_status = 0
    ways = (["--one-reader"], ["--threads", "4"])

    def test_warm_reads_it_once_and_says_what_stays(self):
        done, served = self.served_for("warm", "--json", self.model, code=self.warm_status)
        report = json.loads(done.stdout)
        kept = self.bytes * self.memory_after_warm
        self.assertTrue(report["drops_pages_at_open"])
        self.assertLessEqual(report["bytes_in_memory"], kept)
        # The system may take a few pages back at any moment; the report says so, too.
        self.assertGreaterEqual(report["bytes_in_memory"], kept - SMALL)
        self.assertLess(served, self.bytes + SMALL)
        text = self.ends(self.warm_status, "warm", self.model).stdout
        self.assertRegex(text, r"\A" + ("" if self.memory_after_warm else r"0 B of ") +
                         r"16\.0 MiB in memory after [0-9.]+ s \(.*\)\n"
                         r"not kept: the file system drops what is in memory of a file whenever "
                         r"anybody opens the file;\n"
                         r"weightmap stage copies it into shared memory\n\Z")

    def test_warm_of_tensors_in_any_way_reads_them_once(self):
        for ways in self.ways:
            before = self.served()
            done = self.run_tool("warm", self.model, "*", *ways)
            self.assertLess(self.served() - before, self.bytes + SMALL, ways)
            self.assertIn("\nnot kept: ", done.stdout, ways)

    def test_run_leaves_it_to_the_command_and_says_why(self):
        for done, served in self.served_for_starts():
            self.assertLess(served, self.bytes + SMALL)
        # A command may end before `run` has looked at its model.
        while f"weightmap run: {self.model}: is not read ahead: {DROPS}\n" not in done.stderr:
            done, _ = self.served_for_starts()[0]

    def test_run_drops_nothing_of_what_the_command_has_mapped(self):
        done = self.ends(0, "run", "--ready", "0s", "--model", self.model, "--", sys.executable,
                         "-c", MAPS, self.model)
        self.assertEqual(int(done.stdout) << 10, -(-self.bytes // 4096) * 4096)

    def test_doctor_does_not_advise_to_warm_it(self):
        text = self.ends(0, "doctor", "--json", self.model).stdout
        self.assertNotIn("weightmap warm", text)
        [found] = [finding for finding in json.loads(text)["findings"]
                   if finding["topic"] == "page cache"]
        self.assertEqual(found, {
            "topic": "page cache", "state": "slow",
            "found": "the file system drops it whenever anybody opens the file, so warming does "
                     "not help", "advice": f"weightmap stage {self.model} -- COMMAND {{}}"})

    def test_hold_refuses_it_at_the_start_and_when_asked(self):
        error = ("cannot be held: its file system drops what is in memory of a file, locked or "
                 "not, whenever anybody opens the file; weightmap stage copies it into shared "
                 "memory, which stays")
        self.fails(f"{self.model}: {error}", "hold", self.model)
        self.keeper()
        self.fails(error, "hold", "--add", self.model)
        self.assertEqual(self.document("hold", "--status", "--json")["files"], [])


class KeepsNothing(DropsAtOpen):
    options = ("-o", "direct_io")
    memory_after_warm = 0
    warm_status = 1
    ways = (["--threads", "4"],)  # to map it would be to read it again


if __name__ == "__main__":
    mounts.main(sys.argv[:1])
