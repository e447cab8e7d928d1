#!/usr/bin/env python3
"""The benchmark of single stages runs to its end: each of them, more than once, on a small file.

    stages_test.py STAGE_BENCH MAKE_CHECKPOINT
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

STAGE_BENCH, MAKE_CHECKPOINT = sys.argv[1:3]
STAGES = [
    "directory_from_memory", "directory_from_file", "pickle_record", "pickle_packed",
    "pickle_general", "read_tensors", "locate_storages", "make_catalog",
]


class Stages(unittest.TestCase):
    def test_every_stage_of_an_open_runs_again_and_again(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "tensors_10.pt"
            subprocess.run([MAKE_CHECKPOINT, path, "--count", "10", "--shape", "4x4"], check=True)
            done = subprocess.run(
                [STAGE_BENCH, f"--files={folder}", f"--benchmark_filter=^({'|'.join(STAGES)})/10$",
                 "--benchmark_min_time=0.001", "--benchmark_format=json"],
                capture_output=True, text=True,
            )
        self.assertEqual(done.returncode, 0, done.stderr)
        runs = json.loads(done.stdout)["benchmarks"]
        self.assertEqual([run["name"] for run in runs], [f"{stage}/10" for stage in STAGES])
        self.assertEqual([run for run in runs if run.get("error_occurred")], [])
        self.assertGreater(min(run["iterations"] for run in runs), 1)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
