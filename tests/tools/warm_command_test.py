#!/usr/bin/env python3
"""What warm brings into memory, and says.

    warm_command_test.py FOLDER WEIGHTMAP MAKE_CHECKPOINT
"""

import json
import os
import pathlib
import resource
import signal
import sys
import time
import unittest

from fixture_case import Caching, Case, Terminal
from tool_case import TOOL

from held_pages import keep_cached


class Warm(Case):
    def test_brings_the_whole_file_in(self):
        path = self.make("--count", 5, "--shape", "1024x1024", "--dtype", "float32")
        report = self.document("warm", "--json", path)
        seconds = report.pop("seconds")
        self.assertGreater(seconds, 0)
        self.assertGreater(report.pop("budget_bytes"), 0)
        self.assertTrue(report.pop("budget_reason"))
        self.assertEqual(
            report,
            {
                "file": str(path),
                "tensors": None,
                "order": None,
                "bytes": path.stat().st_size,
                "bytes_in_memory": path.stat().st_size,
                "drops_pages_at_open": False,
                "bytes_left_out": 0,
                "method": "read",
                "method_reason": "it is for other processes",
                "exact_reads": False,
                "steps": 11,
                "locked": False,
                "crc": None,
                "one_reader": None,
            },
        )

    def test_takes_tensors_in_the_order_they_are_named(self):
        path = self.make("--count", 5, "--shape", "1024x1024", "--dtype", "float32")
        order = self.write("order.txt", b"# last first\ntensor.4\n\ntensor.[01]\n")
        report = self.document("warm", "--json", path, "--order", order)
        self.assertEqual(report["tensors"], 3)
        self.assertLess(report["bytes"], path.stat().st_size)
        some = self.document("warm", "--json", path, "tensor.*", "--except", "tensor.[0-3]")
        self.assertEqual(some["tensors"], 1)
        self.assertLessEqual(some["bytes"], 8 << 20)

    def test_stays_with_what_it_has_locked_until_it_is_interrupted(self):
        path = self.make("--count", 5, "--shape", "1024x1024", "--dtype", "float32")
        holder = self.start("warm", "--lock", "--json", path)
        self.assertEqual(holder.stderr.readline(),
                         "weightmap: locked in memory until this is interrupted (Ctrl-C)\n")
        status = pathlib.Path(f"/proc/{holder.pid}/status").read_text()
        self.assertIsNone(holder.poll())
        holder.send_signal(signal.SIGINT)
        report = json.loads(holder.communicate()[0])
        self.assertEqual(holder.returncode, 0)
        self.assertIs(report["locked"], True)
        locked = int(status.split("VmLck:")[1].split()[0]) * 1024
        if locked == 0:
            self.skipTest("memory is not locked here (AddressSanitizer switches that off)")
        self.assertGreaterEqual(locked, report["bytes"])

    def test_says_how_much_may_be_locked(self):
        path = self.make("--count", 1, "--shape", "1024x1024", "--dtype", "float32")
        self.folder.chmod(0o755)

        def become_somebody_with_little():
            resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536))
            if os.geteuid() == 0:
                os.setuid(65534)  # root may lock as much as it likes

        try:
            tool = self.start("warm", "--lock", path, preexec_fn=become_somebody_with_little)
        except PermissionError:
            self.skipTest("the tool lies where only root may run it")
        said = tool.stderr.readline()
        if "until this is interrupted" in said:
            tool.send_signal(signal.SIGINT)
        tool.communicate()
        if tool.returncode == 0 and b"AddressSanitizer" in TOOL.read_bytes():
            self.skipTest("memory is not locked here (AddressSanitizer switches that off)")
        self.assertEqual(tool.returncode, 1)
        self.assertRegex(
            said,
            r"made\.pt: cannot lock \d+ bytes in memory: .* \(RLIMIT_MEMLOCK is 65536 bytes\)",
        )

    def test_takes_an_order_without_what_is_left_out(self):
        path = self.make("--count", 5)
        order = self.write("order.txt", b"tensor.4\ntensor.[01]\n")
        report = self.document("warm", "--json", path, "--order", order, "--except", "*.4")
        self.assertEqual(report["tensors"], 2)
        self.assertEqual(report["order"], {"file": str(order), "tensors": 3, "unmatched_lines": 0})
        report = self.document("warm", "--json", path, "tensor.3", "--order", order)
        self.assertEqual(report["tensors"], 4)

    def test_says_which_lines_of_an_order_match_nothing(self):
        path = self.make("--count", 5)
        order = self.write("order.txt", b"tensor.4\ntensor.7\n")
        done = self.run_tool("warm", "--json", path, "--order", order)
        self.assertEqual(json.loads(done.stdout)["order"]["unmatched_lines"], 1)
        self.assertEqual(
            done.stderr,
            f"weightmap: warning: {order}: 1 line of the order matched no tensor\n",
        )

    def test_refuses_an_order_that_names_nothing(self):
        path = self.make("--count", 5)
        order = self.write("order.txt", b"a\n")
        self.fails(
            f"{order}: the order is of another model: none of its lines (1) names a tensor of this one",
            "warm", path, "--order", order,
        )
        order.write_bytes(b"# nothing\n")
        self.fails(f"{path}: the order in {order} has no lines", "warm", path, "--order", order)

    def test_brings_in_first_what_the_order_beside_the_file_names(self):
        path = self.make("--count", 5, "--shape", "1024x1024", "--dtype", "float32")
        order = self.write("made.pt.order", b"tensor.3\ntensor.1\ngone\n")
        report = self.document("warm", "--json", path)
        self.assertEqual((report["tensors"], report["steps"]), (None, 11))
        self.assertEqual(report["order"], {"file": str(order), "tensors": 2, "unmatched_lines": 1})
        self.assertGreaterEqual(report["bytes"], 20 << 20)
        some = self.document("warm", "--json", path, "--except", "tensor.[12]")
        self.assertEqual((some["tensors"], some["order"]["tensors"]), (3, 2))

    def test_looks_for_no_order_where_it_is_told_what_to_take(self):
        path = self.make("--count", 5)
        self.write("made.pt.order", b"tensor.3\n")
        for arguments in (["--no-order"], ["tensor.1"], ["--no-order", "--except", "tensor.1"]):
            self.assertIsNone(self.document("warm", "--json", path, *arguments)["order"])
        other = self.write("other", b"tensor.2\n")
        report = self.document("warm", "--json", path, "--order", other)
        self.assertEqual((report["tensors"], report["order"]["file"]), (1, str(other)))

    def test_warms_the_file_in_its_own_order_where_the_order_is_unusable(self):
        path = self.make("--count", 5)
        for content, reason in (
            (b"a\nb\n", "the order is of another model: none of its lines (2) names a tensor of this one"),
            (b"a" * (1 << 20) + b"a\n", "a line has more than 1 MiB (at byte 0)"),
        ):
            order = self.write("made.pt.order", content)
            done = self.run_tool("warm", "--json", path)
            self.assertEqual(
                (done.stderr, done.returncode),
                (f"weightmap: warning: {order}: {reason}; --no-order ignores it\n", 0),
            )
            self.assertIsNone(json.loads(done.stdout)["order"])
        order.write_bytes(b"# nothing was recorded\n")
        done = self.run_tool("warm", "--json", path)
        self.assertEqual((json.loads(done.stdout)["order"], done.stderr), (None, ""))
        order.unlink()
        order.mkdir()
        self.assertIn("is a directory, expected a regular file", self.run_tool("warm", path).stderr)

    def test_stops_at_the_budget(self):
        path = self.make("--count", 5, "--shape", "1024x1024", "--dtype", "float32")
        report = self.document("warm", "--json", path, "--budget", "8MiB")
        self.assertEqual((report["bytes"], report["budget_reason"]), (8 << 20, ""))
        self.assertEqual(report["bytes_left_out"], path.stat().st_size - (8 << 20))
        self.assertEqual((report["steps"], report["method"], report["method_reason"],
                          report["budget_bytes"]), (4, "read", "it is for other processes", 8 << 20))
        done = self.run_tool("warm", path, "--budget", "8MiB")
        self.assertRegex(
            done.stdout,
            r"\A8\.0 MiB in memory after [0-9.]+ s \(.*/s\)\n"
            r"left out 12\.0 MiB: the budget is 8\.0 MiB\n\Z",
        )

    def test_takes_sizes_with_fractions_and_units(self):
        path = self.make("--count", 1, "--shape", "8")
        for text, expected in (("4096", 4096), ("4096B", 4096), ("2k", 2048), ("2KB", 2048),
                               ("2Ki", 2048), ("2KiB", 2048), ("1.5M", 1572864),
                               ("0.5GiB", 536870912), ("8.0 MiB", 8388608),
                               ("3T", 3298534883328), ("1P", 1125899906842624),
                               ("15E", 17293822569102704640)):
            report = self.document("warm", "--json", path, "--budget", text)
            self.assertEqual(report["budget_bytes"], expected, text)

    def test_compares_sums_on_the_way(self):
        path = self.make("--count", 5, "--shape", "1024x1024", "--dtype", "float32")
        self.assertRegex(self.run_tool("warm", "--crc", path).stdout, r"\nOK CRC of 5 storages\n\Z")
        offset = self.document("ls", "--json", path)["tensors"][3]["file_offset"]
        with open(path, "r+b") as file:
            file.seek(offset)
            byte = file.read(1)[0]
            file.seek(offset)
            file.write(bytes([byte ^ 1]))
        report = self.document("warm", "--crc", "--json", path, code=1)
        crc = report["crc"]
        self.assertEqual((crc["storages_checked"], crc["storages_left_out"]), (5, 0))
        self.assertEqual(crc["faults"][0]["file_offset"], offset)
        self.assertIn('the storage of tensor "tensor.3", has CRC-32', crc["faults"][0]["message"])
        some = self.document("warm", "--crc", "--json", path, "tensor.0")
        self.assertEqual((some["crc"]["storages_checked"], some["crc"]["faults"]), (1, []))
        self.assertEqual(some["crc"]["storages_left_out"], 4)

    def test_draws_no_bar_where_standard_error_is_no_terminal(self):
        path = self.make("--count", 2, "--shape", "1024x1024", "--dtype", "float32")
        self.assertEqual(self.run_tool("warm", path).stderr, "")

    def test_does_not_wait_for_an_order_that_is_a_fifo(self):
        path = self.make("--count", 2)
        os.mkfifo(f"{path}.order")
        done = self.run_tool("warm", path)
        self.assertEqual(done.returncode, 0)
        self.assertIn("is a FIFO (named pipe), expected a regular file", done.stderr)


class OneReader(Caching):
    """What `warm --one-reader` says; one_reader_test.py has what it does."""

    def reader(self, path, shared=None):
        runtime = {"WEIGHTMAP_RUNTIME_DIR": str(shared or self.folder / "shared")}
        return self.document("warm", "--one-reader", path, "--json", environment=runtime)["one_reader"]

    def test_says_that_it_was_the_reader_or_that_none_was_needed(self):
        path = self.model()
        nobody = {"was_reader": False, "takeovers": 0, "bytes_read": 0, "bytes_waited_for": 0,
                  "why_alone": ""}
        alone = self.reader(path)
        self.assertEqual(alone, {**nobody, "was_reader": True, "bytes_read": alone["bytes_read"]})
        self.assertGreater(alone["bytes_read"], 0)
        keep_cached(self, path)
        self.assertEqual(self.reader(path), nobody)

    def test_a_relative_runtime_directory_is_said_to_be_wrong(self):
        self.assertEqual(self.reader(self.model(), shared="shared")["why_alone"],
                         "environment variable WEIGHTMAP_RUNTIME_DIR must be an absolute path")

    def test_says_why_nobody_could_be_elected(self):
        self.assertEqual(self.reader(self.model(), shared="/nonexistent/shared")["why_alone"],
                         'cannot make the folder "/nonexistent/shared": No such file or directory')


@unittest.skipIf(TOOL.read_bytes()[:2] == b"#!", "a command in Python becomes the tool too late")
class Bar(Caching):
    """The progress bar, on a terminal that only standard error leads to."""

    def warm_with_a_stop(self, path):
        """Warms a file, and stops the process for a moment once its bar has appeared."""
        with Terminal() as terminal, self.start("warm", path, stderr=terminal.theirs) as child:
            terminal.leave_to_child()
            if terminal.read():
                child.send_signal(signal.SIGSTOP)
                time.sleep(0.3)
                child.send_signal(signal.SIGCONT)
            drawn = terminal.read_all()
            self.assertRegex(child.stdout.read(), r"\A[\d.]+ MiB in memory after ")
            self.assertEqual(child.wait(), 0)
        return drawn

    def test_shows_bytes_rate_and_time_left_and_wipes_the_line(self):
        path = self.make("--count", 75, "--shape", "1024x1024", "--dtype", "float32")
        for _ in range(10):  # a fast disk may be done before the process is stopped
            drawn = self.warm_with_a_stop(self.evicted(path))
            if "left" in drawn:
                break
        amount = r"\d+(\.\d)? [KMG]?i?B"
        first, *_, last = drawn.split("\x1b[K")[:-1]
        self.assertRegex(first, rf"\A\r\[#*\.*\] +\d+%  {amount} of 300\.0 MiB\Z")
        self.assertRegex(
            drawn, rf"\r\[#*\.*\] +\d+%  {amount} of 300\.0 MiB, {amount}/s, \d+ s left\x1b\[K"
        )
        self.assertEqual(last, "\r")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
