#!/usr/bin/env python3
"""The command `weightmap bench --remote`, against a server that counts, and fails on purpose.

    bench_remote_test.py FOLDER WEIGHTMAP MAKE_CHECKPOINT
"""

import json
import pathlib
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "remote"))

from range_server import ALWAYS, redirected, stalled, status, truncated  # noqa: E402
from remote_case import CLEAN, TOOL, RemoteCase, document, make, run  # noqa: E402

CONTENDERS = ["libcurl", "libcurl-kept", "weightmap"]
SECRET = "X-Amz-Signature=SECRET"


class BenchOfRemoteFiles(RemoteCase):
    def setUp(self):
        super().setUp()
        make(self.file)
        self.size = self.file.stat().st_size
        self.url = self.server.url("model.pt")

    def measure(self, *arguments, **options):
        return document("bench", "--remote", self.url, "--rounds", "2", "--memory", "as-is",
                        *arguments, **options)

    def fails(self, *words, url=None, **options):
        """With all of these words on one line, and without the secret."""
        asked = f"{url or self.url}?{SECRET}"
        done = run("bench", "--remote", asked, "--rounds", "1", "--memory", "as-is", code=1,
                   **options)
        self.assertEqual(done.stdout, "")
        for word in (f"weightmap: {url or self.url}: ", *words):
            self.assertIn(word, done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1)
        self.assertNotIn("SECRET", done.stderr)

    def test_each_contender_fetches_the_file_in_each_round(self):
        found = self.measure()
        self.assertEqual((found["url"], found["file_bytes"], found["rounds"],
                          found["recycled_memory"]), (self.url, self.size, 2, False))
        self.assertEqual([one["contender"] for one in found["contenders"]], CONTENDERS)
        requests = 0
        for one in found["contenders"]:
            self.assertEqual(len(one["samples"]), 2)
            for sample in one["samples"]:
                self.assertGreaterEqual(sample["requests"], 1)
                self.assertEqual(sample["received_bytes"] - sample["received_twice_bytes"],
                                 self.size)
                self.assertGreater(sample["seconds"], 0)
                self.assertGreater(sample["cpu_seconds"], 0)
                requests += sample["requests"]
        self.assertEqual(len(self.server.requests), requests + 1)  # one asks for the size

    def test_figures_are_medians_and_ratios_are_to_libcurl(self):
        make(self.file, count=10)
        self.size = self.file.stat().st_size
        floor, kept, ours = self.measure()["contenders"]
        self.assertEqual((floor["time_ratio"], floor["cpu_ratio"]), (None, None))
        for one in (kept, ours):
            ratios = [mine["seconds"] / theirs["seconds"]
                      for mine, theirs in zip(one["samples"], floor["samples"])]
            self.assertAlmostEqual(one["time_ratio"]["low"], min(ratios))
            self.assertAlmostEqual(one["time_ratio"]["high"], max(ratios))
            self.assertLessEqual(one["cpu_ratio"]["low"], one["cpu_ratio"]["high"])
            median = sum(sample["seconds"] for sample in one["samples"]) / 2
            self.assertAlmostEqual(one["seconds"]["median"], median)
            self.assertAlmostEqual(one["mib_per_second"], self.size / 2**20 / median)
            self.assertAlmostEqual(one["cpu_seconds_per_gib"],
                                   one["cpu_seconds"]["median"] / (self.size / 2**30))
        self.assertEqual([floor[field]["median"] for field in
                          ("requests", "received_bytes", "received_twice_bytes")],
                         [2, self.size, 0])

    def test_the_table(self):
        text = run("bench", "--remote", f"{self.url}?{SECRET}", "--rounds", "1", code=0).stdout
        self.assertTrue(text.startswith(f"{self.url}: 12.0 MiB\n\nCONTENDER "), text)
        for contender in CONTENDERS:
            self.assertRegex(text, rf"\n{contender} +\d[\d.]* m?s +\d")
        self.assertIn("\n1 round, every sample a fresh process; memory touched and freed", text)
        self.assertNotIn("SECRET", text)

    def test_headers_and_connections_are_those_of_all(self):
        header = self.folder / "header"
        header.write_text("X-Token: abc\n")
        self.measure("--header", f"@{header}", "--connections", "1")
        self.assertEqual({request.headers["X-Token"] for request in self.server.requests}, {"abc"})

    def test_what_fails_is_named(self):
        self.fails("404", url=self.server.url("missing.pt"))
        (self.store / "notes.txt").write_bytes(b"some notes\n" * 1000)
        self.fails("weightmap: ", url=self.server.url("notes.txt"))

    def test_a_failure_of_libcurl_ends_it(self):
        whole = f"bytes=0-{self.size - 1}"
        for fault, words in ((status(503), "HTTP 503, not a range (206)"),
                             (redirected(self.server.url("other")), "HTTP 302, not a range (206)"),
                             (truncated(), "partial file")):
            self.server.heal()
            self.server.fault(fault, times=ALWAYS, match=lambda request: request.range == whole)
            self.fails("libcurl", words)

    def test_ctrl_c_ends_it(self):
        self.server.fault(stalled(), first=2, times=ALWAYS)  # the first asks for the size
        process = self.start("bench", "--remote", self.url, "--memory", "as-is")
        self.server.wait(lambda server: len(server.requests) >= 2)
        self.assertEqual(self.end(process, signal.SIGINT), 130)

    def test_a_sample_without_a_task(self):
        for task in ("", "[]", '{"url": 1}'):
            done = subprocess.run([TOOL, "bench-sample-remote", "libcurl"], input=task, env=CLEAN,
                                  capture_output=True, text=True, check=False)
            self.assertEqual((done.returncode, done.stdout, done.stderr),
                             (1, "ready\n", "standard input is no task\n"))

    def test_json_has_the_error(self):
        error = json.loads(run("bench", "--remote", self.server.url("missing.pt"), "--json",
                               code=1).stdout)["error"]
        self.assertEqual(error["code"], "io")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
