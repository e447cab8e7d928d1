#!/usr/bin/env python3
"""Many processes that warm one file together read it once.

    one_reader_test.py FOLDER WEIGHTMAP MAKE_CHECKPOINT

FOLDER is on a disk: its file system can drop a file from the page cache.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

FOLDER, TOOL, MAKER = (pathlib.Path(argument).resolve() for argument in sys.argv[1:4])
ENVIRONMENT = {key: text for key, text in os.environ.items() if not key.startswith("WEIGHTMAP_")}
WORKERS = 8


class Worker:
    def __init__(self, path, environment, *arguments):
        self.process = subprocess.Popen(
            [TOOL, "warm", "--one-reader", "--json", path, *map(str, arguments)],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def bytes_so_far(self):
        """Read from the disk; as much as at the end where it has ended."""
        text = pathlib.Path(f"/proc/{self.process.pid}/io").read_text(encoding="ascii")
        return int(dict(line.split(": ") for line in text.splitlines())["read_bytes"])

    def has_mapped(self, path):
        maps = pathlib.Path(f"/proc/{self.process.pid}/maps").read_text(encoding="utf-8")
        return str(path) in maps

    def has_ended(self):
        stat = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text(encoding="ascii")
        return stat.rsplit(")", 1)[1].split()[0] == "Z"

    def end(self):
        """Exit status, bytes read from the disk, and the report."""
        with self.process.stdout, self.process.stderr:
            text, self.errors = self.process.stdout.read(), self.process.stderr.read()
        _, status, usage = os.wait4(self.process.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        return (self.process.returncode, usage.ru_inblock * 512, json.loads(text) if text else None)


class OneReader(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir=FOLDER)
        self.addCleanup(folder.cleanup)
        self.file = pathlib.Path(folder.name, "model.pt")
        self.shared = pathlib.Path(folder.name, "shared")
        self.environment = {**ENVIRONMENT, "WEIGHTMAP_RUNTIME_DIR": str(self.shared)}
        subprocess.run([MAKER, self.file, "--count", "24", "--shape", "2048x1024", "--dtype",
                        "float32"], check=True)
        self.size = self.file.stat().st_size
        with open(self.file, "rb") as file:
            os.fsync(file.fileno())
        if not self.evict():
            why = f"{FOLDER}: its file system does not drop files from the page cache"
            print(f"SKIPPED: {self.id()}: {why}", file=sys.stderr)
            self.skipTest(why)

    def evict(self):
        return subprocess.run([TOOL, "residency", "--evict", self.file], capture_output=True,
                              check=False).returncode == 0

    def worker(self, *arguments):
        return Worker(self.file, self.environment, *arguments)

    def all_end_well(self, workers):
        """Bytes read from the disk and the reports."""
        ends = [worker.end() for worker in workers]
        self.assertEqual([(code, worker.errors) for (code, _, _), worker in zip(ends, workers)],
                         [(0, b"")] * len(workers))
        reports = [report for _, _, report in ends]
        self.assertEqual([report["bytes"] for report in reports], [self.size] * len(workers))
        return sum(read for _, read, _ in ends), [report["one_reader"] for report in reports]

    def leaves_nothing(self):
        self.assertEqual(list(self.shared.iterdir()), [])

    def reads_at_most(self, bytes_read, attempt):
        """The best of some rounds: what the system takes from the cache on the way is read again."""
        for _ in range(5):
            self.evict()
            read = attempt()
            if read <= bytes_read:
                return
        self.fail(f"{read} bytes were read, not {bytes_read} at most")

    def test_cold_workers_read_the_file_once(self):
        self.reads_at_most(1.02 * self.size, self.cold_workers)

    def cold_workers(self):
        read, reports = self.all_end_well([self.worker() for _ in range(WORKERS)])
        self.assertGreater(read, 0.9 * self.size)
        self.assertGreaterEqual(sum(report["was_reader"] for report in reports), 1)
        counted = sum(report["bytes_read"] for report in reports)
        self.assertGreater(counted, 0.9 * self.size)
        self.leaves_nothing()
        return max(read, counted - 0.03 * self.size)

    def test_workers_in_other_orders_and_with_smaller_budgets_read_the_file_once(self):
        self.reads_at_most(1.02 * self.size, self.workers_in_other_orders)

    def workers_in_other_orders(self):
        workers = [self.worker("--budget", "16MiB"), self.worker("tensor.9", "tensor.1", "tensor.*"),
                   *(self.worker() for _ in range(3))]
        ends = [worker.end() for worker in workers]
        self.assertEqual([code for code, _, _ in ends], [0] * len(workers))
        self.assertEqual([end[2]["bytes"] for end in ends[2:]], [self.size] * 3)
        self.leaves_nothing()
        return sum(read for _, read, _ in ends)

    def stopped_reader(self):
        """One that has read a part of the file."""
        for _ in range(50):
            reader = self.worker()
            while not reader.has_ended() and reader.bytes_so_far() < self.size / 4:
                pass
            reader.process.send_signal(signal.SIGSTOP)
            if not reader.has_ended() and any(self.shared.iterdir()):
                return reader
            reader.process.send_signal(signal.SIGCONT)
            reader.end()
            self.evict()
        self.fail("no reader could be stopped half way")

    def all_wait(self, workers):
        """For what a reader that is stopped does not bring: all that is cached they have soon."""
        for worker in workers:
            while not worker.has_ended() and not worker.has_mapped(self.file):
                time.sleep(0.01)
        time.sleep(1)

    def test_others_read_on_when_the_reader_is_killed(self):
        self.reads_at_most(1.1 * self.size, self.a_killed_reader)

    def a_killed_reader(self):
        reader = self.stopped_reader()
        workers = [self.worker() for _ in range(WORKERS - 1)]
        self.all_wait(workers)
        self.assertEqual([worker.has_ended() for worker in workers], [False] * len(workers))
        reader.process.kill()
        code, read_before, _ = reader.end()
        self.assertEqual(code, -signal.SIGKILL)
        read, reports = self.all_end_well(workers)
        self.assertGreaterEqual(sum(report["takeovers"] for report in reports), 1)
        self.assertGreater(sum(report["bytes_waited_for"] for report in reports), 0)
        self.leaves_nothing()
        return read_before + read

    def test_a_stopped_reader_goes_on_and_the_others_with_it(self):
        self.reads_at_most(1.02 * self.size, self.a_stopped_reader)

    def a_stopped_reader(self):
        reader = self.stopped_reader()
        workers = [self.worker() for _ in range(3)]
        time.sleep(0.1)
        reader.process.send_signal(signal.SIGCONT)
        read, _ = self.all_end_well([reader, *workers])
        self.leaves_nothing()
        return read


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
