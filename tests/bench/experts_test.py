#!/usr/bin/env python3
"""The programs that compare ways to have experts in memory, with a file of 512 KiB.

    experts_test.py SOURCES BENCH [TESTS]
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

SOURCES, BENCH = map(pathlib.Path, sys.argv[1:3])
WAYS = ("mapping", "random", "populate", "pread", "pread_lru", "slots", "memory", "weightmap")
EXPERT = 64 << 10


def run(*words):
    return subprocess.run([str(word) for word in words], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True)


class Experts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.file = cls.folder / "experts.safetensors"
        made = run(sys.executable, SOURCES / "bench" / "make_experts.py", cls.file, "--layers", 1,
                   "--experts", 8, "--kib", EXPERT >> 10)
        assert made.returncode == 0, made.stderr

    def trace(self, text):
        path = self.folder / "trace.txt"
        path.write_text(text)
        return path

    def once(self, *words):
        done = run(BENCH / "experts_once", self.file, "--disk-sample", EXPERT, *words)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return json.loads(done.stdout)

    def test_all_ways_compute_with_the_bytes_that_were_chosen(self):
        words, chosen = 0, (0, 1, 2, 3, 7, 0)
        data = self.file.read_bytes()[-8 * EXPERT:]
        for expert in chosen:
            part = data[expert * EXPERT:(expert + 1) * EXPERT]
            words += sum(int.from_bytes(part[at:at + 8], "little") for at in range(0, EXPERT, 8))
        trace = self.trace("# by hand\nlayers 1 experts 8\n0,1\n2,3\n7,0\n")
        for way in WAYS:
            with self.subTest(way):
                figures = self.once("--way", way, "--budget", 4 * EXPERT + 4096 * 4, "--trace",
                                    trace)
                self.assertEqual(figures["sum"], words % 2**64 % 1_000_000_007)

    def test_counts_the_misses_of_all_but_the_first_third(self):
        trace = self.trace("layers 1 experts 8\n0,1\n0,2\n2,3\n")
        figures = self.once("--way", "slots", "--budget", 3 * EXPERT, "--trace", trace)
        self.assertEqual(figures["missed_mib"], 2 * EXPERT / 2 / 2**20 // 0.01 * 0.01)

    def test_processes_that_share_play_choices_of_their_own(self):
        one, two = (self.once("--layers", 1, "--experts", 8, "--chosen", 1, "--tokens", 6,
                              "--budget", 8 * EXPERT, "--processes", processes)["sum"]
                    for processes in (1, 2))
        self.assertNotEqual(one, two)

    def test_refuses_what_it_cannot_play(self):
        for text, message in (("layers 1 experts 9\n8\n", "the file has 8 experts, the trace 1"),
                              ("layers 1 experts 8\n8\n", 'token 1: "8" are no experts'),
                              ("layers 1 experts 8\n0,0\n", 'token 1: "0,0" are no experts'),
                              ("layers 1 experts 8\n0 1\n", "token 1 has other layers"),
                              ("0,1\n", "is no trace"), ("layers 1 experts 8\n", "has no tokens")):
            with self.subTest(text):
                done = run(BENCH / "experts_once", self.file, "--trace", self.trace(text))
                self.assertEqual(done.returncode, 1)
                self.assertIn(message, done.stderr)
        done = run(BENCH / "experts_once", self.file, "--way", "guess", "--layers", 1,
                   "--experts", 8)
        self.assertEqual(done.returncode, 1)
        self.assertIn("there is no way guess", done.stderr)

    def test_policies(self):
        # "best" keeps 0 for each second call; lru never has what is called next.
        trace = self.trace("layers 1 experts 8\n" + "0\n1\n2\n" * 20)
        done = run(BENCH / "expert_policies", trace, "--budgets", 25)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        cells = done.stdout.splitlines()[2].split(" | ")
        self.assertEqual(cells[:2], ["| trace.txt, 25 %", "0.0 %"])
        self.assertEqual(cells[-1], "50.0 % (0.50) |")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
