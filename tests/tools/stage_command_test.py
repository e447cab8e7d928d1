#!/usr/bin/env python3
"""The command `weightmap stage`.

    stage_command_test.py FOLDER WEIGHTMAP MAKE_CHECKPOINT
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import unittest

from tool_case import FOLDER, ToolCase

MIB = 1 << 20


def open_files():
    """Device and inode of every file that a process has open."""
    for link in pathlib.Path("/proc").glob("[0-9]*/fd/*"):
        try:
            status = link.stat()
        except OSError:
            continue  # it was closed, or is another user's
        yield status.st_dev, status.st_ino


class Stage(ToolCase):
    place = FOLDER

    def setUp(self):
        super().setUp()
        self.file = self.make()
        self.name = f"weightmap-stage-test-{os.getpid()}"
        self.addCleanup(pathlib.Path("/dev/shm", self.name).unlink, missing_ok=True)

    def stay(self, *arguments):
        return self.start("stage", self.file, *arguments)

    def test_prints_the_path_and_stays_until_it_is_interrupted(self):
        for end in (signal.SIGINT, signal.SIGTERM):
            stager = self.stay()
            path = stager.stdout.readline().rstrip()
            self.assertRegex(path, rf"^/proc/{stager.pid}/fd/\d+$")
            self.assertEqual(pathlib.Path(path).read_bytes(), self.file.read_bytes())
            self.ends(0, "verify", "--crc", path)
            self.assertRegex(stager.stderr.readline(),
                             r"^weightmap: 16\.0 MiB in shared memory after [\d.]+ s: ")
            self.assertEqual(
                stager.stderr.readline(),
                "weightmap: there until this is interrupted (Ctrl-C) and nobody has it open or "
                f"mapped: {path}\n")
            stager.send_signal(end)
            self.assertEqual(stager.wait(), 0)
            self.assertFalse(os.path.exists(path))

    def test_json_has_the_stable_fields(self):
        stager = self.stay("--json")
        report = json.loads(stager.stdout.readline())
        self.assertEqual(list(report), ["file", "path", "pid", "descriptor", "sealed", "bytes",
                                        "direct_bytes", "cached_bytes", "dropped_bytes",
                                        "why_not_direct", "huge_bytes", "seconds"])
        self.assertEqual((report["file"], report["pid"], report["sealed"]),
                         (str(self.file), stager.pid, True))
        self.assertEqual(report["path"], f"/proc/{stager.pid}/fd/{report['descriptor']}")
        self.assertEqual(report["bytes"], self.file.stat().st_size)
        self.assertEqual(report["direct_bytes"] + report["cached_bytes"] + report["dropped_bytes"],
                         report["bytes"])
        info = self.document("ls", "--info", "--json", report["path"])
        self.assertIs(info["lives_in_memory"], True)
        self.assertIn(", kept in memory\n", self.run_tool("ls", "--info", report["path"]).stdout)

    def test_does_not_fill_the_page_cache(self):
        if self.run_tool("residency", "--evict", self.file).returncode != 0:
            os.sync()
            if self.run_tool("residency", "--evict", self.file).returncode != 0:
                print("SKIPPED: this file system keeps its files in memory", file=sys.stderr)
                self.skipTest("this file system keeps its files in memory")
        self.stay().stdout.readline()
        cached = self.document("residency", "--json", self.file)["cached_bytes"]
        self.assertLess(cached, 1 * MIB)  # the metadata

    def test_nothing_is_left_after_a_kill(self):
        stager = self.stay()
        status = os.stat(stager.stdout.readline().rstrip())
        copy = (status.st_dev, status.st_ino)
        self.assertGreaterEqual(status.st_blocks * 512, self.file.stat().st_size)
        self.assertIn(copy, open_files())
        stager.kill()
        stager.wait()
        self.assertFalse(os.path.exists(f"/proc/{stager.pid}/fd"))
        # A file without a name and without an owner takes no memory any more.
        self.assertNotIn(copy, open_files())

    def test_runs_a_command_that_has_it_open(self):
        script = ("import os, sys; "
                  "assert sys.argv[1:] == [f'/proc/self/fd/{os.environ[\"WEIGHTMAP_STAGED_FD\"]}', "
                  "f'--model=/proc/self/fd/{os.environ[\"WEIGHTMAP_STAGED_FD\"]}', '--', '-x'], "
                  "sys.argv; "
                  "print(os.fstat(int(os.environ['WEIGHTMAP_STAGED_FD'])).st_size, "
                  "len(open(sys.argv[1], 'rb').read())); sys.exit(7)")
        done = self.ends(7, "stage", self.file, "--", sys.executable, "-c", script, "{}", "--model={}",
                         "--", "-x")
        size = self.file.stat().st_size
        self.assertEqual(done.stdout, f"{size} {size}\n")

    def test_a_command_gets_signals_as_if_run_without(self):
        look = [sys.executable, "-c", "import signal; print(signal.getsignal(signal.SIGPIPE))"]
        bare = subprocess.run(look, capture_output=True, text=True)
        self.assertEqual(self.run_tool("stage", self.file, "--", *look).stdout, bare.stdout)
        self.ends(-signal.SIGTERM, "stage", self.file, "--", "sh", "-c", "kill -TERM $$")

    def test_says_that_a_command_cannot_be_run(self):
        done = self.ends(127, "stage", self.file, "--", "/no/such/program")
        self.assertEqual(done.stdout, "")
        self.assertIn("weightmap: cannot run /no/such/program: No such file or directory\n",
                      done.stderr)

    def test_makes_and_removes_a_copy_with_a_name(self):
        made = self.run_tool("stage", self.file, "--name", self.name)
        path = pathlib.Path("/dev/shm", self.name)
        self.assertEqual((made.stdout, made.returncode), (f"{path}\n", 0))
        self.assertEqual(path.read_bytes(), self.file.read_bytes())
        self.fails(f'"{path}" is there already; remove it first', "stage", self.file, "--name", self.name)
        self.prints("", "stage", "--remove", self.name)
        self.assertFalse(path.exists())
        self.ends(1, "stage", "--remove", self.name)

    def test_says_that_a_named_copy_was_made_where_it_cannot_be_printed(self):
        with open("/dev/full", "wb") as full:
            done = self.ends(1, "stage", self.file, "--name", self.name, stdout=full)
        self.assertIn(f"weightmap: /dev/shm/{self.name} was made all the same; weightmap stage "
                      f"--remove {self.name} removes it\n", done.stderr)
        self.assertTrue(pathlib.Path("/dev/shm", self.name).exists())

    def test_refuses_what_is_over_the_budget(self):
        refused = self.document("stage", self.file, "--budget", "1MiB", "--json", code=1)
        self.assertEqual(refused["error"]["message"],
                         f"a copy takes {self.file.stat().st_size} bytes of memory, and there are "
                         "1048576 (the budget)")

    def test_only_looks_whatever_the_environment_asks_for(self):
        tensors = self.document("ls", "--json", self.file)["tensors"]
        with open(self.file, "r+b") as file:
            file.seek(tensors[0]["file_offset"])
            file.write(b"\xff")  # which only a sum of it all would tell
        done = self.ends(0, "stage", self.file, "--name", self.name, environment={
            "WEIGHTMAP_VERIFY": "crc", "WEIGHTMAP_WRITABLE": "1"})
        self.assertEqual(done.stderr.splitlines()[1:], [], done.stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
