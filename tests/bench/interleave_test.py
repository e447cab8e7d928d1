#!/usr/bin/env python3
"""The program interleave with contenders whose figures are literals.

    interleave_test.py INTERLEAVE [TESTS]
"""
import json
import pathlib
import shlex
import subprocess
import sys
import tempfile
import unittest

INTERLEAVE = sys.argv[1]


def run(*words):
    return subprocess.run([INTERLEAVE, "--recycle", "0", *words], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True)


class Interleave(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def measure(self, *words):
        done = run(*words)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return json.loads(done.stdout)

    def noting(self, name):
        """A contender that notes that it ran."""
        return f"{name}=echo {name} >> {shlex.quote(str(self.folder / 'log'))}; echo '{{}}'"

    def log(self):
        return (self.folder / "log").read_text().split()

    def counting(self, *values):
        """The command of a contender whose figure `ms` is one of `values` after the other."""
        todo = self.folder / str(len(list(self.folder.iterdir())))
        todo.write_text("".join(f"{value}\n" for value in values))
        file = shlex.quote(str(todo))
        return f"""printf '{{"ms": %s}}' "$(head -n 1 {file})"; sed -i 1d {file}"""

    def refused(self, code, message, *words):
        done = run(*words)
        self.assertEqual((done.returncode, done.stdout), (code, ""))
        self.assertIn(message, done.stderr)

    def test_runs_in_the_order_given(self):
        self.measure("--rounds", "2", "--in-order", *map(self.noting, "abc"))
        self.assertEqual(self.log(), ["a", "b", "c", "a", "b", "c"])

    def test_each_round_runs_all_and_none_always_follows_the_same(self):
        self.measure("--rounds", "6", *map(self.noting, "abc"))
        log = self.log()
        rounds = [log[at:at + 3] for at in range(0, 18, 3)]
        self.assertEqual([sorted(one) for one in rounds], [["a", "b", "c"]] * 6)
        self.assertEqual(len(log), 18)
        self.assertGreater(len({tuple(one) for one in rounds}), 1)

    def test_says_what_the_figures_say(self):
        report = self.measure("--rounds", "3", "slow=" + self.counting(4, 30, 8),
                              "quick=" + self.counting(2, 10, 1))
        self.assertEqual(report, {
            "rounds": 3, "recycled_mib": 0,
            "contenders": {
                "slow": {"runs": [{"ms": 4}, {"ms": 30}, {"ms": 8}],
                         "summaries": {"ms": {"median": 8, "min": 4, "p95": 30}},
                         "ratios": {"quick": {"ms": {"value": 3, "low": 2, "high": 8,
                                                     "confidence": 0.75}}}},
                "quick": {"runs": [{"ms": 2}, {"ms": 10}, {"ms": 1}],
                          "summaries": {"ms": {"median": 2, "min": 1, "p95": 10}},
                          "ratios": {"slow": {"ms": {"value": 1 / 3, "low": 0.125, "high": 0.5,
                                                     "confidence": 0.75}}}}}})

    def test_compares_numbers_that_both_have_and_that_are_not_0(self):
        report = self.measure("--rounds", "1",
                              """a=echo '{"ms": 2, "only": 1, "none": 3, "word": "x"}'""",
                              """b=echo '{"ms": 1, "none": 0, "word": "y"}'""")["contenders"]
        self.assertEqual(list(report["a"]["summaries"]), ["ms", "only", "none"])
        self.assertEqual(list(report["a"]["ratios"]["b"]), ["ms"])
        self.assertEqual(report["a"]["runs"][0]["word"], "x")

    def test_a_figure_that_one_round_lacks_is_not_summarized(self):
        first = self.folder / "first"
        command = f"""test -e {first} && echo '{{"ms": 1, "s": 1}}' || echo '{{"ms": 1}}'; touch {first}"""
        report = self.measure("--rounds", "2", "a=" + command)["contenders"]["a"]
        self.assertEqual(report["runs"], [{"ms": 1}, {"ms": 1, "s": 1}])
        self.assertEqual(list(report["summaries"]), ["ms"])

    def test_recycles_memory(self):
        done = subprocess.run([INTERLEAVE, "--recycle", "1", "--rounds", "1", "a=echo '{}'"],
                              stdout=subprocess.PIPE, text=True, check=True)
        self.assertEqual(json.loads(done.stdout)["recycled_mib"], 1)

    def test_a_contender_that_fails_ends_it(self):
        self.refused(1, "interleave: b: exit code 3", "--in-order", "a=echo '{}'", "b=exit 3")
        self.refused(1, "interleave: b: no such file", "b=echo no such file >&2; exit 1")
        self.refused(1, "interleave: b: ended by signal 9", "b=kill -9 $$")

    def test_what_is_no_json_object_ends_it(self):
        self.refused(1, "interleave: a: printed no JSON object: 5 ms", "a=echo 5 ms")
        self.refused(1, "interleave: a: printed no JSON object: [1]", "a=echo '[1]'")
        self.refused(1, "interleave: a: printed no JSON object: ", "a=true")

    def test_wrong_usage(self):
        self.refused(2, "NAME=COMMAND is required")
        self.refused(2, '"echo" is not NAME=COMMAND', "echo")
        self.refused(2, '"=echo" is not NAME=COMMAND', "=echo")
        self.refused(2, '"a=" is not NAME=COMMAND', "a=")
        self.refused(2, '"a" is the name of two contenders', "a=true", "a=false")
        self.refused(2, "--rounds", "--rounds", "0", "a=true")
        self.refused(2, "--rounds", "--rounds", "1001", "a=true")
        self.refused(2, "--recycle", "--recycle", "-1", "a=true")
        self.refused(2, "--turns", "--turns", "a=true")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
