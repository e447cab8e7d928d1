#!/usr/bin/env python3
"""The formulae of bench/fanout_sim.py, against schedules that are played slot by slot.

    fanout_test.py ROOT [TESTS]
"""
import contextlib
import io
import json
import pathlib
import sys
import unittest

ROOT = pathlib.Path(sys.argv[1])
sys.path.insert(0, str(ROOT / "bench"))

import fanout_sim  # noqa: E402
from swarm import Swarm  # noqa: E402

STORE = -1


def played(nodes, chunks, parent_of, children):
    """Slots of a schedule in which every link carries 1/`children` of a node's rate, and each node
    gets the chunks in order from its parent, which has to have them whole."""
    has, slots = {node: 0 for node in range(nodes)}, 0
    while any(count < chunks for count in has.values()):
        before = {STORE: chunks, **has}
        for node, count in before.items():
            if node != STORE and count < before[parent_of(node)]:
                has[node] += 1
        slots += children
    return slots


def played_whole(nodes, chunks, senders):
    """Slots until all have the file, if a store and those who have it send it to one at a time."""
    having, slots = 0, 0
    while having < nodes:
        having += having + senders
        slots += chunks
    return slots


class Formulae(unittest.TestCase):
    def test_the_bound(self):
        self.assertEqual(fanout_sim.bound(1000, 256), 265)
        self.assertEqual(fanout_sim.bound(1023, 256), 265)
        self.assertEqual(fanout_sim.bound(1024, 256), 266)
        self.assertEqual(fanout_sim.bound(1, 7), 7)
        self.assertEqual(fanout_sim.bound(1000, 256, 8), 262)
        self.assertEqual(fanout_sim.bound(3, 11, 0.5), 22)

    def test_one_chunk_reaches_the_bound(self):
        for nodes, slots in ((1, 1), (2, 2), (3, 2), (4, 3), (1023, 10), (1024, 11)):
            self.assertEqual(fanout_sim.bound(nodes, 1), slots)
            self.assertEqual(played_whole(nodes, 1, 1), slots)

    def test_a_chain(self):
        for nodes, chunks, slots in ((1, 5, 5), (4, 5, 8), (60, 20, 79)):
            self.assertEqual(fanout_sim.chain(nodes, chunks), slots)
            self.assertEqual(played(nodes, chunks, lambda node: node - 1, 1), slots)
        self.assertEqual(fanout_sim.chain(1000, 256), 1255)

    def test_a_tree(self):
        for nodes, chunks, children, slots in ((1, 5, 2, 10), (3, 5, 2, 12), (4, 5, 2, 14),
                                               (100, 20, 2, 52), (13, 4, 3, 18), (14, 4, 3, 21)):
            self.assertEqual(fanout_sim.tree(nodes, chunks, children), slots)
            self.assertEqual(
                played(nodes, chunks, lambda node, k=children: (node - 1) // k if node else STORE,
                       children), slots)
        self.assertEqual(fanout_sim.tree(1000, 256, 2), 530)

    def test_whole_files(self):
        for nodes, store, slots in ((1, 1, 256), (2, 1, 512), (3, 1, 512), (1000, 1, 2560),
                                    (32, 4, 1024), (1000, 29, 1536), (20, 29, 256)):
            self.assertEqual(fanout_sim.whole_files(nodes, 256, store), slots)
            self.assertEqual(played_whole(nodes, 256, store), slots)
        self.assertEqual(fanout_sim.whole_files(4, 100, 0.5), 400)

    def test_the_store_alone(self):
        self.assertEqual(fanout_sim.directly(100, 64), 6400)
        self.assertEqual(fanout_sim.directly(4, 64, 8), 64)
        self.assertEqual(Swarm(100, 64, tries=0).run(), (6400, 100.0))
        self.assertEqual(Swarm(4, 64, store=8, tries=0).run(), (64, 4.0))
        self.assertEqual(Swarm(1, 64, store=0.25).run(), (256, 1.0))

    def test_140_gb_for_1000_nodes_of_25_gigabits(self):
        chunks = 8345  # of 16 MiB
        for slots, seconds in ((fanout_sim.bound(1000, chunks), 45),
                               (fanout_sim.chain(1000, chunks), 50),
                               (fanout_sim.tree(1000, chunks, 2), 90),
                               (fanout_sim.whole_files(1000, chunks), 448),
                               (fanout_sim.directly(1000, chunks, 16), 2800)):
            self.assertEqual(round(slots * (16 << 20) / 3.125e9), seconds)


class Chunks(unittest.TestCase):
    def test_1000_nodes(self):
        """What a generator of random numbers can change is less than the distance between these."""
        for options, low, high in (({"directed": True}, 1.1, 1.25),
                                   ({"order": "rarest"}, 1.1, 1.25),
                                   ({"order": "random"}, 1.25, 1.6),
                                   ({"order": "strict"}, 6, 11)):
            slots, files = Swarm(1000, 256, **options).run()
            self.assertTrue(low < slots / 265 < high, (options, slots))
            self.assertLess(files, high)

    def test_100_000_nodes_are_within_one_and_a_half_times_the_bound(self):
        self.assertEqual(fanout_sim.bound(100_000, 64), 80)
        slots, files = Swarm(100_000, 64, directed=True).run()
        self.assertTrue(80 <= slots <= 120, slots)
        self.assertTrue(1 <= files < 2, files)

    def test_a_store_that_serves_all_at_their_rate(self):
        self.assertEqual(Swarm(20, 100, store=20, directed=True).run()[0], 100)

    def test_what_does_not_fit_is_refused(self):
        with self.assertRaisesRegex(ValueError, "^100000 nodes with 65536 chunks need more than "
                                                "1024 MiB: fewer, larger chunks$"):
            Swarm(100_000, 65536)


class Program(unittest.TestCase):
    def run_main(self, *words):
        with contextlib.redirect_stdout(io.StringIO()) as output:
            fanout_sim.main(words)
        return output.getvalue()

    def refused(self, message, *words):
        errors = io.StringIO()
        with contextlib.redirect_stderr(errors), self.assertRaises(SystemExit) as raised:
            fanout_sim.main(words)
        self.assertEqual(raised.exception.code, 2)
        self.assertIn(message, errors.getvalue())

    def test_advises_the_simplest_way_that_is_quick_enough(self):
        rows = json.loads(self.run_main("advise", "--nodes", "8", "32", "200", "--store-rates",
                                        "12.5e9", "--chunks", "64", "--json"))
        self.assertEqual([row["use"] for row in rows],
                         ["directly", "chunks of peers", "chunks of peers"])
        self.assertEqual(rows[0]["nodes_at_full_rate"], 4.0)
        self.assertEqual(rows[0]["alone_seconds"], 44.8)
        self.assertAlmostEqual(rows[1]["seconds"]["directly"], 358.4)

    def test_says_the_quickest_if_none_is_quick_enough(self):
        [row] = json.loads(self.run_main("advise", "--nodes", "200", "--patience", "0.5",
                                         "--chunks", "64", "--json"))
        self.assertEqual(row["use"], "chunks of peers")

    def test_compares(self):
        lines = self.run_main("compare", "--nodes", "1000", "--bytes", str(256 << 24),
                              "--node-rate", str(1 << 24), "--store-rate", str(1 << 24),
                              "--chunks", "32").splitlines()
        self.assertEqual(lines[:7], [
            "1,000 nodes:", "",
            "|  | last node | times the bound | files from the store |", "|---|---|---|---|",
            "| bound | 265.0 s | 1.00 | 1.0 |",
            "| directly | 256,000.0 s | 966.04 | 1,000.0 |",
            "| chain | 1,255.0 s | 4.74 | 1.0 |"])

    def test_refuses_what_is_no_number_of_nodes(self):
        self.refused("--nodes: 0 is no number above 0", "compare", "--nodes", "0")
        self.refused("--nodes: 1.5 is no whole number", "advise", "--nodes", "1.5")
        self.refused("--store-rate: nan is no number above 0", "compare", "--store-rate", "nan")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
