#!/usr/bin/env python3
"""The command `weightmap bench --start`.

    bench_start_test.py FOLDER WEIGHTMAP MAKE_CHECKPOINT
"""

import json
import os
import sys
import unittest

from tool_case import FOLDER, ToolCase

CONTENDERS = ["stock", "stock again", "run"]


class BenchOfStarts(ToolCase):
    place = FOLDER

    def bench(self, *arguments, code=0):
        return self.ends(code, "bench", *arguments)

    def make(self):
        """Makes a file that a start reads, larger than the libraries beside it, and weights."""
        data, model = self.write("data", bytes(16 << 20)), super().make(count=2)
        for path in (data, model):
            os.utime(path, (1, 1))
            with open(path, "rb") as file:
                os.fsync(file.fileno())
        return data, model

    def test_states_are_measured_in_turns(self):
        data, model = self.make()
        done = self.bench("--start", "--rounds", "2", "--json", "--", "cat", data, model)
        facts = json.loads(done.stdout)
        self.assertEqual((facts["program"], facts["until"], facts["rounds"]), ("cat", "end", 2))
        self.assertEqual(facts["weight_bytes"], model.stat().st_size)
        self.assertGreaterEqual(facts["file_bytes"], 16 << 20)
        self.assertEqual([state["state"] for state in facts["states"]],
                         ["cached", "model-cold", "cold"])
        for state in facts["states"]:
            self.assertIsNone(state["why_not"], state)
            self.assertEqual([series["contender"] for series in state["series"]], CONTENDERS)
            for series in state["series"]:
                self.assertEqual(len(series["samples_ms"]), 2)
            ratios = [series["ratio"] is None for series in state["series"]]
            self.assertEqual(ratios, [True, False, False])
        self.assertLess(facts["states"][2]["bytes_in_use"], 16 << 20)

    def test_a_start_is_over_when_it_is_ready(self):
        data, _ = self.make()
        ready = self.folder / "ready"
        ready.touch()  # left over from another start
        script = f"cat {data}; echo > {ready}; sleep 1000"
        done = self.bench("--start", "--rounds", "1", "--scenarios", "cached", "--ready", ready,
                          "--", "sh", "-c", script)
        self.assertIn("It is over when the command is ready.", done.stdout)
        self.assertRegex(done.stdout, r"\nstock again +\d")

    def test_a_state_that_cannot_be_had(self):
        done = self.bench("--start", "--rounds", "1", "--scenarios", "model-cold", "--",
                          "sh", "-c", "sleep 0.2", code=1)
        self.assertIn("model-cold: not measured: no model is known: --model names it", done.stdout)

    def test_a_command_that_fails(self):
        done = self.bench("--start", "--", "sh", "-c", "exit 3", code=1)
        self.assertIn("the command ended with status 3", done.stderr)
        done = self.bench("--start", "--ready", self.folder / "ready", "--", "true", code=1)
        self.assertIn("the command ended before it was ready", done.stderr)
        for name in ("no-such-command", "./no-such-command"):
            self.assertEqual(self.bench("--start", "--", name, code=1).stderr,
                             f"weightmap: cannot run {name}: No such file or directory\n")

    def test_a_model_that_is_not_there(self):
        done = self.bench("--start", "--model", self.folder / "none", "--", "sh", "-c",
                          "sleep 0.2", code=1)
        self.assertIn("none", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
