#!/usr/bin/env python3
"""What `weightmap doctor -- COMMAND` finds in real starts.

    doctor_start_test.py FOLDER WEIGHTMAP MAKE_CHECKPOINT
"""

import json
import os
import pathlib
import signal
import socket
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
HOLDS_WEIGHTS = """
import sys, time
held = [open(name, "rb") for name in sys.argv[1:]]
time.sleep(0.5)
"""
# More than which a file without an ending is one of weights.
NAMELESS_WEIGHTS = 64 << 20


# Tells of imports, as an interpreter does if it is asked to, and of itself.
IMPORTS = """
[ "$PYTHONPROFILEIMPORTTIME" = 1 ] || exit 0
printf 'import time: self [us] | cumulative | imported package\\n' >&2
printf 'import time:    400000 |     400000 |   heavy\\nown words\\n' >&2
printf 'import time:      1000 |     401000 | light\\n' >&2
echo to standard output
exit 3
"""
# Is of the version 3.15 as far as lazy imports go, and takes a while to be imported.
SITE = "import sys, time; sys.get_lazy_imports = lambda: '{}'; time.sleep(0.12)"
SERVES_PYTHON = "import pathlib, signal, sys; pathlib.Path(sys.argv[1]).touch(); signal.pause()"
AGAIN = "weightmap: starting it a second time, to see what it imports\n"


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
        self.assertFalse(facts["weights_can_be_mapped"])

    def test_weights_that_need_not_be_converted(self):
        names = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                 "model.gguf", "models--org--name/blobs/0a1b2c")  # as in the cache of the hub
        for name in names:
            begin = b"GGUF" if name.endswith("gguf") else bytes([2, *7 * [0], *b"{}"])
            os.truncate(self.write(name, begin), NAMELESS_WEIGHTS)
        facts = self.facts("--", sys.executable, "-c", HOLDS_WEIGHTS, *names)
        phases = {phase["name"]: phase for phase in facts["phases"]}
        self.assertEqual(phases["weights"]["weight_bytes"], len(names) * NAMELESS_WEIGHTS)
        self.assertTrue(facts["weights_can_be_mapped"])

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

    def test_costly_imports_and_why_they_are_imported(self):
        done = self.ends(0, "--imports", "--", "sh", "-c", IMPORTS)
        lines = done.stdout.splitlines()
        start = next(number for number, line in enumerate(lines) if line.startswith("Its imports"))
        self.assertEqual(lines[start:start + 2], [
            "Its imports took 0.4 s of the second start, of 2 modules in 1 interpreter. What costs "
            "most, with what it imports itself:",
            "     400 ms  heavy (by light)"])
        self.assertIn("Workers that are forked from a process that has imported", done.stdout)
        self.assertNotIn("lazy", done.stdout)
        self.assertEqual(sorted(done.stderr.splitlines(keepends=True)), sorted([
            AGAIN, "own words\n", "to standard output\n",
            "weightmap: the second start ended with status 3\n"]))

    def test_the_facts_of_imports(self):
        done = self.ends(0, "--json", "--imports", "--", "sh", "-c", IMPORTS)
        imports = json.loads(done.stdout)["imports"]
        self.assertEqual([imports.pop(name) for name in ("modules", "interpreters", "exit_status")],
                         [2, 1, 3])
        self.assertAlmostEqual(imports.pop("seconds"), 0.401)
        [heavy] = imports.pop("costly")
        self.assertEqual((heavy["module"], heavy["imported_by"]), ("heavy", ["light"]))
        self.assertAlmostEqual(heavy["seconds"], 0.4)
        self.assertTrue(imports.pop("advice"))
        self.assertEqual(imports, {})
        self.assertNotIn("imports", self.facts("--", "true"))

    def test_the_imports_of_a_real_python(self):
        done = self.ends(0, "--json", "--imports", "--", sys.executable, "-c", "import json.tool")
        imports = json.loads(done.stdout)["imports"]
        self.assertEqual((imports["interpreters"], imports["exit_status"]), (1, 0))
        self.assertGreater(imports["modules"], 5)
        self.assertGreater(imports["seconds"], 0)
        self.assertEqual(done.stderr, AGAIN)

    def test_who_tells_of_no_imports(self):
        for command in (["true"], [sys.executable, "-I", "-c", "pass"]):
            with self.subTest(command):
                self.assertIn("No Python told of its imports: the command runs none, or one that "
                              "ignores its environment (-E, -I).\n",
                              self.ends(0, "--imports", "--", *command).stdout)

    def test_lazy_imports_are_advised_to_a_python_that_has_them_and_does_not_use_them(self):
        ready = self.folder / "ready"
        for state, is_advised in (("normal", True), ("all", False)):
            self.write("sitecustomize.py", SITE.format(state))
            done = self.ends(0, "--json", "--imports", "--ready", ready, "--", sys.executable, "-c",
                             SERVES_PYTHON, ready, environment={"PYTHONPATH": str(self.folder)})
            imports = json.loads(done.stdout)["imports"]
            self.assertIsNone(imports["exit_status"])
            advice = [each for each in imports["advice"] if "lazy" in each]
            self.assertEqual([each.split(" can ")[0] for each in advice],
                             is_advised * [f"Python {sys.version.split()[0]}"])

    def test_a_package_without_bytecode_is_named(self):
        package = self.folder / "uncompiled"
        package.mkdir()
        (package / "__init__.py").write_text("import time; time.sleep(0.12)")
        for writes_none, is_named in ("1", True), ("", False):
            environment = {"PYTHONPATH": str(self.folder), "PYTHONDONTWRITEBYTECODE": writes_none}
            done = self.ends(0, "--imports", "--ready", self.folder / "ready", "--", sys.executable,
                             "-c", "import uncompiled\n" + SERVES_PYTHON, self.folder / "ready",
                             environment=environment)
            self.assertEqual("Most modules of uncompiled have no bytecode" in done.stdout, is_named)

    def test_a_port_that_is_open_before_the_second_start(self):
        with socket.create_server(("127.0.0.1", 0)) as server:
            done = self.ends(1, "--imports", "--ready", server.getsockname()[1], "--", "sleep", "60")
        self.assertEqual(done.stderr.splitlines()[-1],
                         "weightmap: --ready holds before the second start has begun")

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
