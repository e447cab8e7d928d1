#!/usr/bin/env python3
"""Runs the examples on a fixture.

    examples_test.py ROOT FOLDER_WITH_THE_EXAMPLES
"""

import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(sys.argv[1])
FOLDER = pathlib.Path(sys.argv[2])
FIXTURE = ROOT / "tests" / "data" / "state_dict.pt"


def run(example, *arguments):
    command = [FOLDER / example, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


class Examples(unittest.TestCase):
    def test_quickstart_lists_and_sums(self):
        done = run("quickstart", FIXTURE, "embedding.weight")
        self.assertEqual(done.stderr, "")
        self.assertEqual(
            done.stdout,
            "embedding.weight float32\n"
            "layers.0.weight bfloat16\n"
            "layers.0.bias float16\n"
            "layers.1.weight float64\n"
            "layers.1.mask bool\n"
            "steps int64\n"
            "position_ids int32\n"
            "embedding.weight sums to 276\n",
        )
        self.assertEqual(done.returncode, 0)

    def test_quickstart_says_why_a_type_does_not_fit(self):
        done = run("quickstart", FIXTURE, "steps")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(
            done.stderr,
            f'{FIXTURE}: tensor "steps": int64 reads as std::int64_t, not as float\n',
        )

    def test_quickstart_adds_up_half_types(self):
        for name, total in (("layers.0.weight", 120), ("layers.0.bias", 6)):
            done = run("quickstart", FIXTURE, name)
            self.assertEqual((done.stderr, done.returncode), ("", 0))
            self.assertTrue(done.stdout.endswith(f"\n{name} sums to {total}\n"), done.stdout)

    def test_save_writes_a_checkpoint(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "model.pt")
            done = run("save", path)
            self.assertEqual((done.stderr, done.returncode), ("", 0))
            size = path.stat().st_size
            self.assertEqual(done.stdout, f"{size} bytes, the first storage at byte 832\n")
            done = run("print_slice", path, "model.weight", 1, 1)
            self.assertEqual((done.stdout, done.stderr), ("0.5 0.5 0.5\n", ""))

    def test_save_says_why_it_cannot_write(self):
        done = run("save", "/nonexistent/model.pt")
        self.assertEqual(done.returncode, 1)
        self.assertIn("cannot open the directory: No such file or directory", done.stderr)

    def test_print_slice_prints_rows(self):
        done = run("print_slice", FIXTURE, "embedding.weight", 1, 2)
        self.assertEqual((done.stdout, done.stderr), ("4 5 6 7\n8 9 10 11\n", ""))

    def test_print_slice_refuses_rows_that_do_not_exist(self):
        done = run("print_slice", FIXTURE, "embedding.weight", 5, 2)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("of size 6", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
