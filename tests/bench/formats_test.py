#!/usr/bin/env python3
"""The tables of bench/compare_formats.py, of figures that are literals.

    formats_test.py ROOT INTERLEAVE_FOLDER [TESTS]
"""
import argparse
import json
import pathlib
import shlex
import sys
import tempfile
import unittest

ROOT, BUILD = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]).parent
sys.path.insert(0, str(ROOT / "bench"))

import compare_formats  # noqa: E402
from samples import interleave  # noqa: E402


def samples(ours, theirs):
    """Of contenders that print these figures."""
    return interleave(str(BUILD), {name: "echo " + shlex.quote(json.dumps(figures))
                                   for name, figures in (("weightmap", ours), ("theirs", theirs))},
                      1, "--recycle", "0")


class Tables(unittest.TestCase):
    def test_a_ratio_says_how_many_times_as_long_the_other_takes(self):
        taken = samples({"open_us": 500}, {"open_us": 1500})
        self.assertEqual(compare_formats.both(taken, "open_us"),
                         ["500 us", "1.5 ms", "3.0 [3.0, 3.0]"])
        self.assertEqual(compare_formats.figure_cell(taken, "open_us"),
                         "500 us, 1.5 ms: 3.0 [3.0, 3.0]")

    def test_every_format_has_three_times(self):
        taken = samples({"open_us": 1, "load_us": 4}, {"open_us": 2, "load_us": 4})
        of_all = {(kind, *options): taken for kind in compare_formats.FORMATS
                  for options in ((), ("--cold",))}
        lines = compare_formats.load_table(of_all)
        self.assertEqual(len(lines), 2 + 5)
        self.assertEqual(lines[2], "| `.pt`, `torch.load(mmap=True)` | 1 us, 2 us: 2.0 [2.0, 2.0] "
                                   "| 4 us, 4 us: 1.0 [1.0, 1.0] | 4 us, 4 us: 1.0 [1.0, 1.0] |")

    def test_what_resharding_reads(self):
        figures = {"bytes": 1 << 20, "read_bytes": 2 << 20, "load_us": 10}
        theirs = {"bytes": 1 << 20, "read_bytes": 5 << 20, "load_us": 20}
        lines = compare_formats.reshard_table({"rank 1 of 3": samples(figures, theirs)})
        self.assertEqual(lines[2], "| rank 1 of 3 | 1.0 MiB | 2.0 MiB | 5.0 MiB | 2.50 | 10 us "
                                   "| 20 us | 2.0 [2.0, 2.0] |")


class Checks(unittest.TestCase):
    def test_contenders_that_have_read_different_things_end_it(self):
        with tempfile.TemporaryDirectory() as folder:
            script = pathlib.Path(folder) / "python_once.py"
            script.write_text("import json, sys\n"
                              "print(json.dumps({'tensors': len(sys.argv[2]), 'bytes': 1}))\n")
            bench = compare_formats.Bench(argparse.Namespace(
                build=str(BUILD), folder=folder, rounds=1))
            here, compare_formats.HERE = compare_formats.HERE, folder
            self.addCleanup(setattr, compare_formats, "HERE", here)
            with self.assertRaisesRegex(SystemExit, "^x: the contenders have read different things"):
                bench.compare("load", "pt", "x")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
