#!/usr/bin/env python3
"""What opening costs, in figures that neither neighbours nor the processor change: system calls,
reads, bytes, page faults, instructions, allocations. The bounds are a third above what
was counted when they were set, so that only a step backwards meets them.

    counts_test.py BENCH MAKE_CHECKPOINT [TESTS]

BENCH is the folder of the benchmarks, built with optimisation. Instructions are counted by
valgrind, and left out with a word where it is missing.
"""
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

BENCH = pathlib.Path(sys.argv[1])
MAKE_CHECKPOINT = sys.argv[2]
HUGE_PAGES = pathlib.Path("/sys/kernel/mm/transparent_hugepage/enabled")


def output(*words):
    return subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout


def has_huge_pages():
    return HUGE_PAGES.exists() and "[never]" not in HUGE_PAGES.read_text()


class Counts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.commands = {str(count): [str(BENCH / "open_once"), cls.make(count)]
                        for count in (10, 10_000, 100_000)}
        contenders = [f"{name}={' '.join(words)}" for name, words in cls.commands.items()]
        cls.counted = json.loads(output(
            BENCH / "interleave", "--rounds", "3", "--recycle", "0", "--system-calls",
            *contenders))["contenders"]

    @classmethod
    def make(cls, count):
        path = cls.folder / f"tensors_{count}.pt"
        if not path.exists():
            output(MAKE_CHECKPOINT, path, "--count", str(count), "--shape", "4x4")
        return str(path)

    def least(self, name, figure):
        return min(run[figure] for run in self.counted[name]["runs"])

    def instructions(self, name):
        if shutil.which("valgrind") is None:
            self.skipTest("valgrind is missing")
        done = subprocess.run(
            ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null",
             *self.commands[name]], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        counted = re.search(r"Collected : (\d+)", done.stderr)
        self.assertIsNotNone(counted, done.stderr)
        return int(counted[1])

    def test_opening_ten_tensors_is_one_read_and_few_system_calls(self):
        self.assertEqual(self.least("10", "reads"), 1)
        # Three of them ask, once in a process, whether the host takes back free memory.
        self.assertLessEqual(self.counted["10"]["system_calls"], 12)

    def test_opening_many_tensors_reads_the_metadata_once(self):
        self.assertLessEqual(self.least("100000", "reads"), 4)
        self.assertLessEqual(self.least("100000", "bytes_read"), 20_000_000)
        self.assertLessEqual(self.counted["100000"]["system_calls"], 50)

    def test_few_pages_are_touched(self):
        self.assertLessEqual(self.least("10", "minor_faults"), 36)

    @unittest.skipUnless(has_huge_pages(), "needs transparent huge pages")
    def test_tables_of_many_tensors_take_huge_pages(self):
        self.assertLessEqual(self.least("10000", "minor_faults"), 200)
        self.assertLessEqual(self.least("100000", "minor_faults"), 500)

    def test_instructions_of_few(self):
        self.assertLessEqual(self.instructions("10"), 1_200_000)

    def test_instructions_of_many(self):
        self.assertLessEqual(self.instructions("100000"), 230_000_000)

    def test_a_lookup_allocates_nothing(self):
        done = json.loads(output(BENCH / "open_bench", f"--files={self.folder}",
                                 "--benchmark_filter=^find(_absent)?/100000$",
                                 "--benchmark_min_time=0.01", "--benchmark_format=json"))
        self.assertEqual([run["allocations"] for run in done["benchmarks"]], [0, 0])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
