#!/usr/bin/env python3
"""The table of bench/compare_remote.py, of figures and a server's log that are literals.

    remote_bench_test.py ROOT INTERLEAVE_FOLDER [TESTS]
"""
import argparse
import contextlib
import io
import json
import pathlib
import shlex
import sys
import tempfile
import unittest

ROOT, BUILD = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]).parent
sys.path.insert(0, str(ROOT / "bench"))

import compare_remote  # noqa: E402
from samples import interleave  # noqa: E402

SIZE = 1 << 30


class Table(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def rows(self, figures, log):
        commands = {name: "echo " + shlex.quote(json.dumps({"wall_us": wall, "cpu_us": cpu}))
                    for name, (wall, cpu) in figures.items()}
        samples = interleave(str(BUILD), commands, 2, "--recycle", "0")
        (self.folder / "seen.log").write_text(log)
        counts = compare_remote.asked(str(self.folder / "seen.log"))
        return compare_remote.as_table(compare_remote.summary(samples, counts, SIZE, 2))

    def test_a_row_has_rate_processor_and_what_was_asked_for(self):
        lines = self.rows({"weightmap": (2_000_000, 600_000), "libcurl": (1_000_000, 500_000)},
                          f"/weightmap/a b.pt {SIZE}\n/weightmap/a b.pt {SIZE}\n"
                          f"/weightmap/a b.pt 2048\n/weightmap/a b.pt 0\n"
                          f"/libcurl/a b.pt {2 * SIZE}\n")
        self.assertEqual(lines[2:], [
            "| weightmap | 512 | 2.00 [2.00, 2.00] |  | 0.60 | 1.20 [1.20, 1.20] |  | 2 | 1,024 |",
            "| libcurl | 1,024 |  |  | 0.50 |  |  | 0 | 0 |"])

    def test_ratios_are_to_both_floors(self):
        lines = self.rows({"libcurl-prefault": (2_000_000, 750_000),
                           "libcurl": (1_000_000, 500_000)}, "/libcurl/a.pt 0\n")
        self.assertEqual(lines[2:], [
            "| libcurl-prefault | 512 | 2.00 [2.00, 2.00] |  | 0.75 | 1.50 [1.50, 1.50] |  | 0 | 0 |",
            "| libcurl | 1,024 |  | 0.50 [0.50, 0.50] | 0.50 |  | 0.67 [0.67, 0.67] | 0 | 0 |"])

    def test_without_libcurl_there_are_no_ratios(self):
        lines = self.rows({"obstore": (1_000_000, 500_000)}, f"/obstore/a.pt {2 * SIZE}\n")
        self.assertEqual(lines[2:], ["| obstore | 1,024 |  |  | 0.50 |  |  | 0 | 0 |"])


class Contenders(unittest.TestCase):
    def test_what_is_not_there_is_left_out_aloud(self):
        arguments = argparse.Namespace(build="/nowhere", file=__file__, errors=0,
                                       only=["libcurl", "runai"])
        with contextlib.redirect_stderr(io.StringIO()) as errors:
            commands = compare_remote.Contenders(arguments, "http://host").commands([])
        self.assertEqual(commands, {})
        self.assertEqual(errors.getvalue(),
                         "libcurl is left out: /nowhere/bench/curl_floor is not built\n"
                         "runai is left out: it reads safetensors only\n")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
