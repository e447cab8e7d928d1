#!/usr/bin/env python3
"""What `weightmap doctor -- COMMAND` finds in real starts.

    doctor_start_test.py FOLDER WEIGHTMAP MAKE_CHECKPOINT
"""

import json
import pathlib
import signal
import subprocess
import sys
import time
import unittest

from tool_case import FOLDER, ToolCase

# Says that it is ready, and waits for a signal, of which a child tells, too.
SERVES = """
echo to standard output
(trap 'echo child > "$2"; exit 0' TERM; while :; do sleep 0.02; done) &
trap 'echo parent > "$1"; wait; exit 0' TERM
echo > "$0"
while :; do sleep 0.02; done
"""
# Says when it is asked to end, and does not.
HOLDS_OUT = """
trap 'echo > "$1"' TERM
echo > "$0"
while :; do sleep 0.02; done
"""
# Has the weights open for longer than a sample takes.
HOLDS_WEIGHTS = "import sys, time; held = open(sys.argv[1], 'rb'); held.read(); time.sleep(0.5)"


def wait_for(path):
    while not path.exists():
        time.sleep(0.01)


class DoctorOfStarts(ToolCase):
    place = FOLDER
    words = ("doctor",)

    def facts(self, *arguments):
        return json.loads(self.ends(0, "--json", *arguments).stdout)

    def test_three_sentences(self):
        done = self.ends(0, "--", "sh", "-c", "sleep 0.3; echo to standard output")
        first, second, third = done.stdout.splitlines()
        self.assertRegex(first, r"^The start of sh took \d\.\d s until it ended: .*\.$")
        self.assertRegex(second, r"^It waited most for .*: \d\.\d s, \d+ % of the whole\.$")
        self.assertTrue(third.endswith("."))
        self.assertEqual(done.stderr, "to standard output\n")

    def test_the_facts_of_a_program_with_weights(self):
        model = self.make()
        facts = self.facts("--", sys.executable, "-c", HOLDS_WEIGHTS, model)
        self.assertEqual(facts["program"], pathlib.Path(sys.executable).name)
        self.assertEqual(facts["exit_status"], 0)
        phases = {phase["name"]: phase for phase in facts["phases"]}
        self.assertEqual(phases["weights"]["weight_bytes"], model.stat().st_size)
        whole = sum(phase["seconds"] for phase in facts["phases"])
        self.assertAlmostEqual(whole, facts["seconds"], places=6)
        self.assertAlmostEqual(sum(wait["seconds"] for wait in facts["waits"]), whole, places=6)
        self.assertEqual({wait["for"] for wait in facts["waits"]},
                         {"code_disk", "code_work", "model_work", "weights_disk", "first_touch",
                          "weights_work", "use_work", "other"})
        self.assertEqual(len(facts["sentences"]), 3)

    def test_a_command_that_goes_on_is_ended_with_its_children(self):
        ready, parent, child = (self.folder / name for name in ("ready", "parent", "child"))
        facts = self.facts("--ready", ready, "--", "sh", "-c", SERVES, ready, parent, child)
        self.assertIsNone(facts["exit_status"])
        self.assertEqual((parent.read_text(), child.read_text()), ("parent\n", "child\n"))

    def test_a_command_that_does_not_end(self):
        ready, asked = self.folder / "ready", self.folder / "asked"
        process = self.start("--", "sh", "-c", HOLDS_OUT, ready, asked)
        for told in (ready, asked):
            wait_for(told)
            process.send_signal(signal.SIGINT)
        self.assertEqual((process.communicate()[0], process.returncode), ("", 130))

    def test_a_command_that_fails(self):
        done = self.ends(0, "--", "sh", "-c", "exit 3")
        self.assertEqual(done.stderr, "weightmap: the command ended with status 3\n")
        self.assertEqual(self.facts("--", "sh", "-c", "kill -9 $$")["exit_status"], 137)

    def test_a_command_that_is_not_there(self):
        self.fails("cannot run no-such-command: No such file or directory", "--", "no-such-command")

    def test_signals_mean_what_they_meant(self):
        look = ["grep", "SigIgn", "/proc/self/status"]
        done = self.ends(0, "--", *look)
        plain = subprocess.run(look, capture_output=True, text=True, check=True)
        # glibc's posix_spawn() has a program ignore the two signals that are glibc's own.
        ignored = int(done.stderr.split()[1], 16) & 0x7FFFFFFF
        self.assertEqual(ignored, int(plain.stdout.split()[1], 16))

    def test_words_of_the_command_are_no_options(self):
        done = self.ends(0, "--", "sh", "-c", "echo \"$@\"", "sh", "--json", "--", "--dtype")
        self.assertEqual(done.stderr, "--json -- --dtype\n")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
