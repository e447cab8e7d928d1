#!/usr/bin/env python3
"""The tables of bench/serving_start.py, of figures that are literals.

    starts_test.py ROOT INTERLEAVE_FOLDER [TESTS]
"""
import argparse
import functools
import json
import os
import pathlib
import shlex
import sys
import unittest
from unittest import mock

ROOT, BUILD = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]).parent
sys.path.insert(0, str(ROOT / "bench"))

import serving_start  # noqa: E402
import starts_under_run  # noqa: E402

OURS = {"token": 7, "call_to_token_us": 1000, "start_to_token_us": 3000}
THEIRS = {"token": 7, "call_to_token_us": 2000, "start_to_token_us": 4000}
CASE = ("large", "bin", "cold")


def echo(figures):
    return "echo " + shlex.quote(json.dumps(figures))


def bench():
    return serving_start.Bench(argparse.Namespace(
        build=str(BUILD), folder="models", rounds=1))


def compare(ours, theirs):
    """What Bench.compare() says of contenders that print these figures."""
    figures = {"weightmap": ours, "theirs": theirs}
    with mock.patch.object(serving_start.Bench, "_shell_line",
                           lambda _, name, *case: echo(figures[name])):
        return bench().compare(*CASE)


class Tables(unittest.TestCase):
    def setUp(self):
        self.samples = {CASE: compare(OURS, THEIRS)}

    def test_a_ratio_says_how_many_times_as_long_the_other_takes(self):
        self.assertEqual(
            serving_start.time_table(self.samples)[2],
            "| large, `.bin`, cold | 1.0 ms, 2.0 ms: 2.0 [2.0, 2.0] | 3.0 ms, 4.0 ms: 1.3 [1.3, 1.3] |")


@functools.cache
def samples_under_run(restores=True):
    times = {"stock": 4_000_000, "stock under run": 2_000_000, "weightmap under run": 1_000_000,
             starts_under_run.SNAPSHOT: 500_000, starts_under_run.TEMPLATE: 250_000}
    with mock.patch.object(starts_under_run, "can_restore", lambda: restores), \
            mock.patch.object(starts_under_run, "can_be_forked", lambda: restores), \
            mock.patch.object(starts_under_run.Starts, "_prepare", lambda *_: "true"), \
            mock.patch.object(starts_under_run.Starts, "_start", lambda _, name, prefix="": echo(
                {"start_to_token_us": times[name], "start_to_call_us": times[name] // 2})):
        starts = starts_under_run.Starts(str(BUILD), "models", "python", "transformers", 1)
        return {(state, "this disk", load): starts.compare(state, load=load)
                for state, load in (("everything cold", "quiet"), ("cached", "quiet"),
                                    ("cached", "two busy beside"))}


class UnderRun(unittest.TestCase):
    def test_a_row_has_all(self):
        self.assertEqual(starts_under_run.start_tables("transformers", samples_under_run())[2],
                         "| transformers, everything cold, this disk | 4.00 s "
                         "| 2.00 s: 2.00 [2.00, 2.00] | 1.00 s: 4.00 [4.00, 4.00] "
                         "| 500.0 ms: 8.00 [8.00, 8.00] | 250.0 ms: 16.00 [16.00, 16.00] |")

    def test_a_row_without_snapshots_and_templates_has_gaps(self):
        self.assertTrue(starts_under_run.start_tables("transformers", samples_under_run(False))[2].endswith(
            "| 1.00 s: 4.00 [4.00, 4.00] |  |  |"))

    def test_imports_have_a_table_and_a_load_is_named(self):
        self.assertEqual(starts_under_run.start_tables("transformers", samples_under_run())[-1],
                         "| transformers, cached, this disk, two busy beside | 2.00 s "
                         "| 1.00 s: 2.00 [2.00, 2.00] | 500.0 ms: 4.00 [4.00, 4.00] |")

    def test_busy_processes_end_with_what_they_are_beside(self):
        with starts_under_run.busy_processes(1) as none, self.assertRaises(ChildProcessError):
            self.assertIsNone(none)
            raise ChildProcessError
        with self.assertRaises(ChildProcessError):
            os.waitpid(-1, os.WNOHANG)

    def test_one_processor_is_that_of_the_whole_start(self):
        with mock.patch.object(starts_under_run, "can_restore", lambda: False):
            starts = starts_under_run.Starts("build", "models", "python", "torch", 1)
        prefix = starts_under_run.LOADS["one processor"]
        self.assertIn(" taskset -c 0 env -u PYTHONPATH ", starts._start("stock", prefix))

    def test_the_figure_is_a_sentence(self):
        self.assertEqual(
            " ".join(" ".join(starts_under_run.start_figure(samples_under_run())).split()),
            "- **Starting** Python and transformers with a model of 1.5 GB, everything cold, until the "
            "first token takes **1.00 s** with weightmap under `weightmap run`, 4.00 s as stock. "
            "- **Restoring** that process from a snapshot takes **500.0 ms**, everything cold, and "
            "**500.0 ms** cached.")

    def test_a_start_is_made_under_run_with_its_plan(self):
        with mock.patch.object(starts_under_run, "can_restore", lambda: True):
            starts = starts_under_run.Starts("build", "models", "python", "torch", 1)
        with mock.patch("os.makedirs"):
            self.assertIn("build/tools/weightmap run --snapshot models/snapshots/torch --plan ",
                          starts._start(starts_under_run.SNAPSHOT))
            self.assertIn("build/tools/weightmap run --plan models/plans/torch-stock-under-run.json "
                          "-- python ", starts._start("stock under run"))
            self.assertNotIn("weightmap run", starts._start("stock"))
        self.assertIn("drop_caches", starts._prepare("everything cold"))
        self.assertIn("evict models/large.bin/pytorch_model.bin", starts._prepare("model cold"))


class Checks(unittest.TestCase):
    def test_engines_that_say_different_tokens_end_it(self):
        with self.assertRaisesRegex(SystemExit, "large.bin: the tokens differ"):
            compare(OURS, {**THEIRS, "token": 8})

    def test_the_file_is_evicted_before_a_cold_start_and_read_before_another(self):
        file = "models/large.bin/pytorch_model.bin"
        self.assertTrue(bench()._shell_line("weightmap", *CASE).startswith(
            f"{BUILD}/tools/weightmap residency --evict {file} >/dev/null && "))
        self.assertTrue(bench()._shell_line("weightmap", "large", "bin", "cached").startswith(
            f"cat {file} >/dev/null && "))

    def test_only_processes_of_weightmap_find_the_package(self):
        self.assertNotIn("PYTHONPATH", bench()._shell_line("weightmap", *CASE))
        self.assertIn(f" env -u PYTHONPATH {sys.executable} ", bench()._shell_line("theirs", *CASE))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
