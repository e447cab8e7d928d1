#!/usr/bin/env python3
"""bench/fanout_sim.py: its simulation against what no way can beat, and its advice.

    fanout_test.py ROOT [TESTS]
"""
import contextlib
import io
import json
import math
import pathlib
import sys
import unittest

ROOT = pathlib.Path(sys.argv[1])
sys.path.insert(0, str(ROOT / "bench"))

import fanout_sim  # noqa: E402
from fanout_sim import Swarm  # noqa: E402


def bound(nodes, chunks):
    """No way is quicker, with a store as fast as a node: the last node to get its first chunk lacks
    all others by then, and the last chunk that the store sends has to be passed on."""
    return chunks - 1 + math.ceil(math.log2(nodes + 1))


class Chunks(unittest.TestCase):
    def test_the_store_alone(self):
        self.assertEqual(fanout_sim.directly(100, 64), 6400)
        self.assertEqual(fanout_sim.directly(4, 64, 8), 64)
        self.assertEqual(Swarm(100, 64, tries=0).run(), (6400, 100.0))
        self.assertEqual(Swarm(4, 64, store=8, tries=0).run(), (64, 4.0))
        self.assertEqual(Swarm(1, 64, store=0.25).run(), (256, 1.0))
        self.assertEqual(Swarm(20, 100, store=20).run()[0], 100)

    def test_many_nodes_are_close_to_the_bound(self):
        """What a generator of random numbers can change is less than the distance between these."""
        for nodes, chunks, slots_of_bound, low, high, most_files in (
                (1000, 256, 265, 1.1, 1.25, 1.25), (100_000, 64, 80, 1, 1.5, 2)):
            self.assertEqual(bound(nodes, chunks), slots_of_bound)
            slots, files = Swarm(nodes, chunks).run()
            self.assertTrue(low <= slots / slots_of_bound <= high, (nodes, slots))
            self.assertTrue(1 <= files < most_files, (nodes, files))

    def test_what_does_not_fit_is_refused(self):
        with self.assertRaisesRegex(ValueError, "^100000 nodes with 65536 chunks need more than "
                                                "1024 MiB: fewer, larger chunks$"):
            Swarm(100_000, 65536)


class Program(unittest.TestCase):
    def advise(self, *words):
        with contextlib.redirect_stdout(io.StringIO()) as output:
            fanout_sim.main(["advise", "--chunks", "64", *words])
        return output.getvalue()

    def test_advises_the_simplest_way_that_is_quick_enough(self):
        rows = json.loads(self.advise("--nodes", "8", "32", "200", "--store-rates", "12.5e9",
                                      "--json"))
        self.assertEqual([row["use"] for row in rows],
                         ["directly", "chunks of peers", "chunks of peers"])
        self.assertEqual(rows[0]["nodes_at_full_rate"], 4.0)
        self.assertEqual(rows[0]["alone_seconds"], 44.8)
        self.assertAlmostEqual(rows[1]["seconds"]["directly"], 358.4)

    def test_prints_a_table(self):
        lines = self.advise("--nodes", "8").splitlines()
        self.assertEqual(lines[:2], [
            "| nodes | store | nodes at full rate | directly | chunks of peers | use |",
            "|---|---|---|---|---|---|"])
        self.assertRegex(lines[2], r"^\| 8 \| 100 Gb/s \| 4\.0 \| 90 s \| \d+ s \| directly \|$")

    def test_says_the_quickest_if_none_is_quick_enough(self):
        [row] = json.loads(self.advise("--nodes", "200", "--patience", "0.5", "--json"))
        self.assertEqual(row["use"], "chunks of peers")

    def test_refuses_what_is_no_number_of_nodes(self):
        for message, *words in (("--nodes: 0 is no number above 0", "--nodes", "0"),
                                ("--nodes: 1.5 is no whole number", "--nodes", "1.5"),
                                ("--store-rates: nan is no number above 0", "--store-rates", "nan")):
            errors = io.StringIO()
            with contextlib.redirect_stderr(errors), self.assertRaises(SystemExit) as raised:
                self.advise(*words)
            self.assertEqual(raised.exception.code, 2)
            self.assertIn(message, errors.getvalue())


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
