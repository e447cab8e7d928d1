#!/usr/bin/env python3
"""Reading a checkpoint where memory is limited to half of it.

    cgroup_test.py FOLDER WEIGHTMAP MAKE_CHECKPOINT

FOLDER is on a disk: its file system can drop a file from the page cache. Needs a memory cgroup of
its own; says aloud that it was skipped where it may not make one.
"""

import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import unittest

FOLDER, TOOL, MAKER = (pathlib.Path(argument).resolve() for argument in sys.argv[1:4])
MIB = 1 << 20


class MemoryGroup:
    """A cgroup of version 2 or 1 with a limit. OSError where none may be made."""

    # For each version: the mount, the files of the limit and of what happened.
    VERSIONS = (("/sys/fs/cgroup", "memory.max", "memory.events"),
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.oom_control"))

    def __init__(self, limit):
        refusals = []
        for mount, limit_file, self.events in self.VERSIONS:
            self.path = pathlib.Path(mount, f"weightmap-test-{os.getpid()}")
            if not pathlib.Path(mount, "cgroup.procs").exists():
                refusals.append(f"{mount} is no cgroup")
                continue
            try:
                self.path.mkdir()
            except OSError as refusal:
                refusals.append(str(refusal))
                continue
            try:
                (self.path / limit_file).write_text(str(limit))
                return
            except OSError as refusal:
                refusals.append(str(refusal))
                self.path.rmdir()
        raise OSError("; ".join(refusals))

    def join(self):
        (self.path / "cgroup.procs").write_text(str(os.getpid()))

    def kills(self):
        lines = (self.path / self.events).read_text().splitlines()
        return int(dict(line.split() for line in lines)["oom_kill"])

    def remove(self):
        self.path.rmdir()


class GroupCase(unittest.TestCase):
    def cannot_run(self, why):
        print(f"SKIPPED: {self.id()}: {why}", file=sys.stderr)
        self.skipTest(why)

    def limit(self, memory):
        try:
            self.group = MemoryGroup(memory)
        except OSError as refusal:
            self.cannot_run(f"no memory cgroup may be made: {refusal}")
        self.addCleanup(self.group.remove)


class InSharedMemory(GroupCase):
    def test_what_is_there_already_needs_no_room(self):
        self.limit(96 * MIB)
        folder = tempfile.TemporaryDirectory(dir="/dev/shm")
        self.addCleanup(folder.cleanup)
        file = pathlib.Path(folder.name, "model.pt")
        subprocess.run([MAKER, file, "--count", "8", "--shape", "2048x1024", "--dtype", "float32"], check=True,
                       preexec_fn=self.group.join)
        done = subprocess.run([TOOL, "warm", file], preexec_fn=self.group.join, capture_output=True, text=True)
        self.assertEqual((done.returncode, "left out" in done.stdout), (0, False), done.stdout + done.stderr)


class HalfTheMemory(GroupCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir=FOLDER)
        self.addCleanup(folder.cleanup)
        self.file = pathlib.Path(folder.name, "model.pt")
        self.order = pathlib.Path(folder.name, "order.json")
        subprocess.run([MAKER, self.file, "--count", "24", "--shape", "2048x1024", "--dtype",
                        "float32"], check=True)
        with open(self.file, "rb") as file:
            os.fsync(file.fileno())
        if subprocess.run([TOOL, "residency", "--evict", self.file], capture_output=True).returncode != 0:
            self.cannot_run("this file system keeps its files in memory")
        self.limit(self.file.stat().st_size // 2)

    def sample(self, engine, names):
        self.order.write_text(json.dumps(names))
        process = subprocess.Popen(
            [TOOL, "bench-sample", engine, self.file, self.order], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=self.group.join,
        )
        self.assertEqual(process.stdout.readline(), "ready\n")
        sample = json.loads(process.communicate("go\n")[0])
        self.assertEqual(process.returncode, 0)
        self.assertEqual(self.group.kills(), 0)
        self.assertEqual(sample["bytes"], 24 * 8 * MIB)
        return sample

    def names(self):
        return [f"tensor.{i}" for i in range(24)]

    def shuffled(self):
        names = self.names()
        random.Random(7).shuffle(names)
        return names

    def reads_once(self, sample):
        self.assertLessEqual(sample["disk_bytes"], 1.1 * self.file.stat().st_size)
        self.assertGreater(sample["disk_bytes"], 0.9 * self.file.stat().st_size)

    def test_reads_a_file_once_in_its_order(self):
        self.reads_once(self.sample("window", self.names()))

    def test_reads_a_file_once_in_any_order(self):
        self.reads_once(self.sample("window", self.shuffled()))

    def test_a_warm_up_of_all_of_it_is_not_killed(self):
        self.reads_once(self.sample("populate", self.names()))

    def test_a_warm_up_that_does_not_fit_says_so_and_fails(self):
        for more, status in (((), 1), (("--budget", "16MiB"), 0)):
            done = subprocess.run([TOOL, "warm", self.file, *more], preexec_fn=self.group.join,
                                  capture_output=True, text=True)
            self.assertIn("left out ", done.stdout)
            self.assertEqual(done.returncode, status, done.stderr)

    def test_locking_all_of_it_is_refused_and_not_killed(self):
        done = subprocess.run(
            [TOOL, "ls", "--info", self.file], env={**os.environ, "WEIGHTMAP_LOCKED": "1"},
            preexec_fn=self.group.join, capture_output=True, text=True,
        )
        if "RLIMIT_MEMLOCK" in done.stderr:
            self.cannot_run("this user may not lock so much memory")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"cannot lock \d+ bytes in memory: after \d+ there are \d+ "
                                      r"left \(15/16 of memory\.\w+ of .*weightmap-test-")
        self.assertEqual(self.group.kills(), 0)

    def test_holding_it_locks_what_fits_however_often_it_begins(self):
        folder = tempfile.TemporaryDirectory(prefix="weightmap-")  # a socket's path is short
        self.addCleanup(folder.cleanup)
        environment = {**os.environ, "WEIGHTMAP_RUNTIME_DIR": folder.name}
        daemon = subprocess.Popen(
            [TOOL, "hold", "--json", "--interval", "0.02", self.file], env=environment,
            preexec_fn=self.group.join, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.addCleanup(daemon.communicate)
        self.addCleanup(daemon.terminate)
        self.assertNotEqual(daemon.stdout.readline(), b"", "it was killed")
        for reloads in range(1, 4):  # for a moment of both files; between them it looks again
            copy = self.file.with_name("copy.pt")
            shutil.copy(self.file, copy)
            with open(copy, "rb") as file:
                os.fsync(file.fileno())
            subprocess.run([TOOL, "residency", "--evict", copy], capture_output=True, check=True)
            copy.replace(self.file)
            held = {"reloads": 0}
            while held["reloads"] < reloads:
                done = subprocess.run([TOOL, "hold", "--status", "--json"], env=environment,
                                      capture_output=True, text=True)
                self.assertIsNone(daemon.poll(), "it was killed")
                [held] = json.loads(done.stdout)["files"]
        if held["lock_refusal"]:
            self.cannot_run("this user may not lock so much memory")
        self.assertEqual(self.group.kills(), 0)
        self.assertGreater(held["bytes_left_out"], self.file.stat().st_size // 2)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
