#!/usr/bin/env python3
"""The command `weightmap run`.

    run_test.py FOLDER WEIGHTMAP MAKE_CHECKPOINT
"""

import json
import os
import resource
import signal
import socket
import stat
import struct
import subprocess
import sys
import unittest

from tool_case import ENVIRONMENT, FOLDER, TOOL, ToolCase

# Has a file open, says so, and goes on until its input ends.
HOLDS_A_FILE = """
import sys
held = open(sys.argv[1], "rb")
held.read()
open(sys.argv[2], "w").close()
sys.stdin.read()
"""

# Answers at a port until its input ends.
SERVES = """
import http.server, sys, threading
class Ready(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/ready" else 404)
        self.end_headers()
    def log_message(self, *words):
        pass
server = http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Ready)
threading.Thread(target=server.serve_forever, daemon=True).start()
sys.stdin.read()
"""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Run(ToolCase):
    place = FOLDER
    is_inside = False
    words = ("run",)

    def setUp(self):
        super().setUp()
        # Where nothing can be kept: what goes on beside a command may outlive the test.
        self.environment = {**ENVIRONMENT, "WEIGHTMAP_START_DIR": "/proc/none"}

    def shell(self, text, *arguments, **options):
        return self.run_tool(*arguments, "--", "sh", "-c", text, **options)

    def is_for_others(self):
        """Whether another user may run the tool, which may lie in a folder that is its owner's."""
        try:
            return self.run_tool("--help", user=65534, group=65534, extra_groups=[]).returncode == 0
        except PermissionError:
            return False

    def plan(self, *command):
        return self.document("--show-plan", "--", *command)

    # --- the command ---

    def test_the_command_has_the_process(self):
        process = self.start("--", "sh", "-c", "echo $$; exit 3")
        self.assertEqual((process.communicate()[0], process.returncode), (f"{process.pid}\n", 3))

    def test_an_init_process_is_run_too(self):
        alone = ["unshare", "--pid", "--fork", "--mount-proc"]
        if subprocess.run([*alone, "true"], capture_output=True).returncode != 0:
            print("SKIPPED: there may be no namespace of processes", file=sys.stderr)
            self.skipTest("there may be no namespace of processes")
        done = subprocess.run([*alone, TOOL, "run", "--", "sh", "-c", "echo $$; exit 3"],
                              env=self.environment, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout), (3, "1\n"))

    def test_a_signal_ends_the_command(self):
        process = self.start("--", "sh", "-c", "echo there; read line", stdin=subprocess.PIPE)
        process.stdout.readline()
        process.terminate()
        self.assertEqual(process.wait(), -signal.SIGTERM)

    def test_the_command_has_no_child_that_it_does_not_know(self):
        done = self.shell("read children < /proc/$$/task/$$/children; echo \"[$children]\"")
        self.assertEqual((done.stdout, done.stderr), ("[]\n", ""))

    def test_signals_mean_what_they_meant(self):
        look = ["grep", "SigIgn", "/proc/self/status"]
        plain = subprocess.run(look, capture_output=True, text=True)
        self.assertEqual(self.run_tool("--", *look).stdout, plain.stdout)

    def test_input_and_output_are_the_command_s(self):
        self.prints("through\n", "--", "cat", input="through\n")

    def test_a_command_that_is_not_there(self):
        for command in ("no-such-command", "./no-such-command"):
            for drawn in ([], ["--timeline", self.folder / "start.html"]):
                self.fails(f"cannot run {command}: No such file or directory", *drawn, "--", command,
                           code=127)

    def test_a_command_that_may_not_be_run(self):
        self.write("plain.txt", b"no program")
        self.ends(126, "--", self.folder / "plain.txt")

    # --- what is learned ---

    def held(self):
        """A file that a start may learn; plans can be kept from now on."""
        self.environment["WEIGHTMAP_START_DIR"] = str(self.folder / "starts")
        held = self.write("held.bin", b"x" * 5000)
        os.utime(held, (1, 1))
        return held

    def learn(self, *options, secret="a-secret-word"):
        """Learns the start of a program that holds a file; returns the command and the file."""
        held = self.held()
        ready = self.folder / "ready"
        program = self.write("program.py", HOLDS_A_FILE.encode())
        command = [sys.executable, str(program), str(held), str(ready), secret]
        with self.start("-v", "--ready", ready, *options, "--", *command,
                        stdin=subprocess.PIPE) as process:
            line = process.stderr.readline()
            self.assertRegex(line, r"^weightmap run: learned \d+ files, .*, for the next start\n")
            process.stdin.close()
            self.rest = process.stderr.read()
        return command, held

    def test_a_start_is_learned_and_shown(self):
        command, held = self.learn()
        plan = self.plan(*command)
        self.assertEqual((plan["kind"], plan["version"]), ("weightmap start plan", 1))
        self.assertIn({"path": str(held), "size": 5000, "mtime_ns": 10**9}, plan["files"])
        paths = [file["path"] for file in plan["files"]]
        self.assertTrue(any("libc" in path for path in paths), paths)
        self.assertNotIn("a-secret-word", json.dumps(plan))
        [file] = (self.folder / "starts").iterdir()
        self.assertEqual(stat.S_IMODE(file.parent.stat().st_mode), 0o700)

    @unittest.skipIf(os.geteuid() != 0, "only root becomes another user")
    def test_another_user_learns_what_is_open_and_mapped(self):
        self.folder.chmod(0o777)
        if not self.is_for_others():
            self.skipTest("another user cannot run the command here")
        held = self.held()
        plan = self.folder / "plan.json"
        done = self.run_tool("-v", "--plan", plan, "--", "sh", "-c", f"exec 3< {held}; sleep 1",
                             user=65534, group=65534, extra_groups=[])
        self.assertEqual(done.returncode, 0)
        self.assertIn({"path": str(held), "size": 5000, "mtime_ns": 10**9},
                      json.loads(plan.read_text())["files"], done.stderr)

    def test_a_start_is_over_when_its_address_answers(self):
        port = free_port()
        process = self.start("-v", "--ready", f"http://127.0.0.1:{port}/ready", "--",
                             sys.executable, "-c", SERVES, port, stdin=subprocess.PIPE)
        self.read_until(process, "the command had started after ")
        process.communicate("")

    def read_until(self, process, words):
        """The lines of standard error up to the one that has these words."""
        said = []
        while not said or words not in said[-1]:
            said.append(process.stderr.readline())
            self.assertTrue(said[-1], said)
        return said

    def test_another_port_is_the_same_start_and_another_script_is_not(self):
        command, _ = self.learn()
        self.plan(*command[:-1], "another-word")
        other = self.ends(1, "--show-plan", "--", command[0], "other.py")
        self.assertIn("there is no plan of this start", other.stderr)

    def test_a_start_that_was_learned_is_read(self):
        command, held = self.learn()
        os.utime(held, (2, 2))  # so that it is another version
        done = self.run_tool("-v", "--", *command, input="")
        self.assertRegex(done.stderr, r"(read \d+ files? of the start|the start was cached)")
        self.assertNotIn("for the next start", done.stderr)

    def test_a_plan_may_lie_elsewhere(self):
        plan = self.folder / "image" / "plan.json"
        command, held = self.learn("--plan", str(plan))
        self.assertIn(str(held), plan.read_text())
        self.assertFalse((self.folder / "starts").exists())

    # --- what is wrong costs a line ---

    def remarks(self):
        done = self.shell("echo ran", "-v", "--plan", self.folder / "plan.json")
        self.assertEqual((done.returncode, done.stdout), (0, "ran\n"))
        return done.stderr

    def test_a_damaged_plan(self):
        self.write("plan.json", '{"kind"')
        self.assertIn("plan.json: the plan of a start: is no JSON", self.remarks())

    def test_a_plan_that_others_may_write_to(self):
        plan = {"kind": "weightmap start plan", "version": 1, "key": "", "files": []}
        self.write("plan.json", json.dumps(plan)).chmod(0o666)
        self.assertIn("others may write to this plan", self.remarks())

    @unittest.skipIf(os.geteuid() != 0, "only root gives files away")
    def test_a_plan_of_another_user(self):
        os.chown(self.write("plan.json", "{}"), 65534, 65534)
        self.assertIn("others may write to this plan", self.remarks())

    def test_a_plan_that_is_too_large(self):
        os.truncate(self.write("plan.json", ""), 1 << 30)
        self.assertIn("a plan of a start has at most 33554432 bytes", self.remarks())

    def test_a_pipe_in_a_plan_is_not_opened(self):
        os.mkfifo(self.folder / "pipe")
        held = self.write("file", bytes(1 << 20))
        files = [{"path": str(self.folder / "pipe"), "size": 1, "mtime_ns": 0},
                 {"path": str(self.folder / "gone"), "size": 1, "mtime_ns": 0},
                 {"path": str(held), "size": 1, "mtime_ns": 0}]
        plan = {"kind": "weightmap start plan", "version": 1, "key": "", "files": files}
        path = self.write("plan.json", json.dumps(plan).encode())
        said = "".join(self.said_beside("--plan", path, "--", "cat"))
        self.assertIn("left out 1 changed and 2 missing", said)
        self.assertIn("much of the plan has changed; --learn makes a new one", said)
        self.assertTrue((self.folder / "plan.json").exists())

    def test_a_plan_of_other_files_is_forgotten(self):
        command, _ = self.learn()
        [plan] = (self.folder / "starts").iterdir()
        content = json.loads(plan.read_text())
        for file in content["files"]:
            file["size"] += 1
        plan.write_text(json.dumps(content))
        said = "".join(self.said_beside("--", *command))
        self.assertIn("much of the plan has changed; the next start is learned", said)
        self.assertFalse(plan.exists())

    def test_a_model_that_is_not_there(self):
        done = self.shell("echo ran", "-v", "--model", self.folder / "none")
        self.assertEqual((done.returncode, done.stdout), (0, "ran\n"))
        self.assertIn(f"--model {self.folder}/none is neither there nor in the cache of the hub",
                      done.stderr)

    def test_a_model_that_is_damaged(self):
        model = self.write("model.pt", b"no weights")
        said = self.said_beside("--model", model, "--", "cat")
        self.assertTrue(any("model.pt: " in line for line in said), said)

    def test_the_weights_of_a_named_model_are_read(self):
        model = self.make()
        self.assert_weights_are_read("cat", "-", model)
        self.assert_weights_are_read("sh", "-c", "read line", f"--model={model}")
        self.environment["MODEL_PATH"] = str(model)
        self.assert_weights_are_read("cat")

    def test_weights_of_which_a_part_is_cached_are_read(self):
        header = json.dumps({"w": {"dtype": "U8", "shape": [6 << 20], "data_offsets": [0, 6 << 20]}})
        model = self.write("model.safetensors", struct.pack("<Q", len(header)) + header.encode()
                           + bytes(6 << 20))
        with open(model, "rb") as file:
            os.fsync(file)
        subprocess.run([TOOL, "residency", "--evict", model], check=True, stdout=subprocess.DEVNULL)
        with open(model, "rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
            os.pread(file.fileno(), 1, 3 << 20)
        self.said_beside("--model", model, "--", "cat")
        residency = json.loads(subprocess.run([TOOL, "residency", "--json", model], check=True,
                                              stdout=subprocess.PIPE).stdout)
        self.assertEqual(residency["cached_bytes"], model.stat().st_size)

    def assert_weights_are_read(self, *command):
        said = self.said_beside("--", *command)
        self.assertTrue(any("of weights until " in line for line in said), said)

    def said_beside(self, *arguments):
        """By what goes on beside a command that waits for its input, until it has ended."""
        process = self.start("-v", "--ready", "0s", *arguments, stdin=subprocess.PIPE,
                             stdout=subprocess.DEVNULL)
        said = self.read_until(process, "it waited for the disk")
        process.communicate("")
        return said

    # --- for a process that runs already ---

    def test_the_weights_of_a_process_that_runs_are_read(self):
        model = self.make()
        with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
            done = subprocess.run([TOOL, "read-ahead", "-v", f"--for={process.pid}", "--", "cat", model],
                                  env=self.environment, capture_output=True, text=True)
            process.communicate(b"")
        self.assertEqual((done.returncode, done.stdout), (0, ""))
        self.assertRegex(done.stderr, r"read .* of .* of weights until ")
        self.assertNotIn("learned", done.stderr)

    def test_a_model_that_is_not_there_for_a_process_that_runs(self):
        done = subprocess.run([TOOL, "read-ahead", "--json", f"--for={os.getpid()}",
                               "--model=none", "--", "cat"],
                              env=self.environment, capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        error = json.loads(done.stdout)["error"]
        self.assertEqual(error["code"], "not_found")
        self.assertIn("none: there is no such file", done.stderr)

    # --- the picture ---

    def draw(self, name, *command):
        picture = self.folder / name
        self.text("--timeline", picture, "--", *command)
        return picture.read_text()

    def assert_is_self_contained(self, text):
        for word in ("http:", "https:", "href", "src=", "url(", "@import", "<script"):
            self.assertNotIn(word, text)

    def test_a_page_has_bars_and_a_table(self):
        text = self.draw("start.html", "sh", "-c", "sleep 0.3; exit 0 a-secret-word")
        self.assert_is_self_contained(text)
        self.assertRegex(text, r"<h1>Start of sh: \d+\.\d s until it ended</h1>")
        for lane in ("imports, code files", "model creation, processors", "loads, weights open",
                     "faults, major", "disk rate, command", "memory, anonymous"):
            self.assertRegex(text, rf"\n{lane} +\[[ .:=+*#-]{{100}}\] up to ")
        self.assertIn('<th scope="row">all</th>', text)
        self.assertNotIn("a-secret-word", text)

    def test_a_hostile_name_is_escaped(self):
        program = self.folder / "<b>&\"'\x1b\xff\uffff"
        program.write_text("#!/bin/sh\nsleep 0.2\n")
        program.chmod(0o755)
        text = self.draw("start.html", program)
        self.assertIn("&lt;b&gt;&amp;&quot;&#39;\\x1B\xff\\xEF\\xBF\\xBF", text)
        self.assertNotIn("<b>", text)

    def test_a_picture_that_cannot_be_written_is_a_line(self):
        done = self.shell("echo ran", "--timeline", "/proc/none/start.html")
        self.assertEqual((done.returncode, done.stdout), (0, "ran\n"))
        self.assertRegex(done.stderr, r"^weightmap run: /proc/none/start.html: .*\n$")

    def start_without_pipes(self, *arguments):
        """As a shell does: nothing but the process itself is waited for."""
        with open(os.devnull, "w") as nothing:
            return self.run_tool(*arguments, stdout=nothing, stderr=nothing).returncode

    def test_the_picture_is_there_when_the_command_returns(self):
        for code in (0, 7):
            picture = self.folder / f"{code}.html"
            status = self.start_without_pipes("--timeline", picture, "--", "sh", "-c", f"exit {code}")
            self.assertEqual((status, picture.exists()), (code, True))

    def test_the_next_start_knows_the_plan(self):
        held = self.held()
        command = ["--", "sh", "-c", f"exec 3< {held}; sleep 0.3"]
        self.assertEqual(self.start_without_pipes(*command), 0)
        self.assertNotIn("learned", self.run_tool("-v", *command).stderr)
        self.assertEqual([path.suffix for path in (self.folder / "starts").iterdir()], [".json"])

    def test_a_start_does_not_wait_for_one_that_goes_on(self):
        self.environment["WEIGHTMAP_START_DIR"] = str(self.folder / "starts")
        first = self.start("-v", "--ready", "100s", "--", "cat", stdin=subprocess.PIPE,
                           stderr=subprocess.PIPE)
        while not list(self.folder.glob("starts/*.learning")):
            self.assertIsNone(first.poll())
        self.ends(0, "-v", "--ready", "100s", "--", "cat", stdin=subprocess.DEVNULL)
        first.communicate("")  # and what writes the plan beside it, whose errors go there, too

    def test_a_mark_that_a_killed_learner_has_left(self):
        held = self.held()
        command = ["sh", "-c", f"exec 3< {held}; sleep 0.3"]
        self.run_tool("-v", "--", *command)
        [plan] = (self.folder / "starts").iterdir()
        plan.rename(f"{plan}.learning")
        self.assertIn("learned", self.run_tool("-v", "--", *command).stderr)
        self.assertEqual(list((self.folder / "starts").iterdir()), [plan])

    def drawn_process(self, text, **options):
        return self.start("--timeline", self.folder / "start.html", "--", "sh", "-c", text, **options)

    def test_a_drawn_command_gets_signals_and_ends_as_itself(self):
        with self.drawn_process("trap 'echo got; exit 4' TERM; echo ready; "
                                "while :; do sleep 0.01; done") as process:
            self.assertEqual(process.stdout.readline(), "ready\n")
            process.terminate()
            self.assertEqual((process.communicate()[0], process.returncode), ("got\n", 4))
        with self.drawn_process("echo ready; while :; do sleep 0.01; done") as process:
            self.assertEqual(process.stdout.readline(), "ready\n")
            process.terminate()
            self.assertEqual(process.wait(), -signal.SIGTERM)
        self.assertTrue((self.folder / "start.html").exists())

    def test_a_drawn_command_reads_standard_input(self):
        with self.drawn_process("read word; echo $word", stdin=subprocess.PIPE) as process:
            self.assertEqual(process.communicate("said\n")[0], "said\n")

    def test_bars_are_part_of_what_is_said(self):
        done = self.shell("sleep 0.3", "-v")
        self.assertRegex(done.stderr, r"weightmap run: work +\[[#.]{40}\] \d\.\d s")
        self.assertRegex(done.stderr, r"weightmap run: memory, of files +\[[ .:=+*#-]{40}\] up to")

    def test_no_place_for_plans(self):
        for name in ("WEIGHTMAP_START_DIR", "XDG_CACHE_HOME", "HOME"):
            self.environment.pop(name, None)
        done = self.shell("echo ran", "-v")
        self.assertEqual(done.stdout, "ran\n")
        self.assertIn("there is no place for plans of starts", done.stderr)

    def test_a_place_that_is_full(self):
        held = self.held()
        # A learner that sees a file: the shell opens it for as long as it waits.
        done = self.shell(f"exec 3< {held}; sleep 1", "-v", preexec_fn=lambda: resource.setrlimit(
            resource.RLIMIT_FSIZE, (10, 10)))
        self.assertEqual(done.returncode, 0)
        self.assertIn("File too large", done.stderr)
        self.assertEqual(list((self.folder / "starts").iterdir()), [])

    def test_a_place_that_cannot_be_made(self):
        done = self.shell("echo ran; read line < /dev/null", "-v")
        self.assertEqual(done.stdout, "ran\n")
        # An ordinary user learns nothing of a command as short as this.
        self.assertRegex(done.stderr, "cannot make the folder /proc/none|nothing was learned")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[4:])
