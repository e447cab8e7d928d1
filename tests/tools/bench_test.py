#!/usr/bin/env python3
"""What `weightmap bench` measures, refuses and leaves behind.

    bench_test.py FOLDER WEIGHTMAP MAKE_CHECKPOINT

FOLDER is on a disk: its file system can drop a file from the page cache.
"""

import json
import os
import pathlib
import pty
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

from tool_case import ENVIRONMENT, FOLDER, TOOL, ToolCase

from held_pages import cached, keep_cached

NO_PYTHON = ("--python", "/nonexistent")
ONE_ROUND = ("--reference", "map", "--scenarios", "warm", "--orders", "file", "--rounds", "1")
TENSORS, TENSOR_BYTES = 4, 1024 * 1024 * 2


def is_running(process):
    """Whether it is there and not only waiting to be waited for."""
    try:
        state = pathlib.Path("/proc", str(process), "stat").read_text(encoding="ascii")
    except FileNotFoundError:
        return False
    return state.rsplit(")", 1)[1].split()[0] != "Z"


class Case(ToolCase):
    place = FOLDER

    def setUp(self):
        super().setUp()
        orders = tempfile.TemporaryDirectory(dir=FOLDER)
        self.addCleanup(orders.cleanup)
        self.orders = pathlib.Path(orders.name)  # where the tool puts temporary files
        self.environment = {**ENVIRONMENT, "TMPDIR": str(self.orders)}
        self.file = self.make()

    def make(self, name="model.pt"):
        path = super().make(name, TENSORS, dtype="bfloat16")
        with open(path, "rb") as file:
            os.fsync(file.fileno())
        return path

    def can_be_evicted(self, path):
        return self.run_tool("residency", "--evict", path).returncode == 0

    def bench(self, *arguments, code=0, python=NO_PYTHON):
        return json.loads(self.text("bench", "--json", *python, *arguments, code=code))

    def series(self, *arguments, **options):
        document = self.bench(self.file, "--memory", "as-is", *arguments, **options)
        return document["files"][0]["series"]

    def make_shards(self):
        """The same tensors in two files with an index, in a folder."""
        folder = self.folder / "shards"
        folder.mkdir()
        self.ends(0, "convert", self.file, f"{folder}/", "--max-shard-size", "5MiB")
        return folder

    def cannot_run(self, why):
        print(f"SKIPPED: {self.id()}: {why}", file=sys.stderr)
        self.skipTest(why)

    def needs_a_disk(self):
        if not self.can_be_evicted(self.file):
            self.cannot_run(f"{FOLDER}: its file system does not drop files from the page cache")

    def leaves_nothing_behind(self):
        self.assertEqual([path.name for path in self.folder.iterdir()], ["model.pt"])
        self.assertEqual(list(self.orders.iterdir()), [])


class Measures(Case):
    def test_cold_samples_begin_with_an_empty_cache_and_read_the_disk(self):
        self.needs_a_disk()
        series = self.series("--engines", "populate,map,copy", "--scenarios", "cold", "--rounds",
                             "2", "--orders", "file,random")
        self.assertEqual([(one["engine"], one["order"]) for one in series],
                         [(engine, order) for order in ("file", "random")
                          for engine in ("populate", "populate again", "map", "copy")])
        for one in series:
            self.assertEqual((one["scenario"], one["why_not"], len(one["samples"])),
                             ("cold", None, 2))
            for sample in one["samples"]:
                self.assertEqual(sample["cached_before"], 0)
                # Nearly all: others (`weightmap ps`) may read the head of a file that is mapped.
                self.assertGreater(sample["disk_bytes"], 0.9 * TENSORS * TENSOR_BYTES)
                self.assertLessEqual(sample["cached_after"], os.path.getsize(self.file))

    def test_warm_and_poisoned_samples_read_nothing_from_the_disk(self):
        self.needs_a_disk()
        measure = ("--engines", "populate,map,copy", "--orders", "random", "--rounds", "2")
        done = self.run_tool("bench", "--json", *NO_PYTHON, self.file, "--memory", "as-is", *measure,
                             "--scenarios", "poisoned")
        poisoned = json.loads(done.stdout)["files"][0]["series"]  # with or without samples
        with cached(self.file):
            warm = self.series(*measure, "--scenarios", "warm")
        self.assertEqual([one["engine"] for one in warm],
                         ["populate", "populate again", "map", "copy"])
        for one in poisoned:
            if one["why_not"]:
                print(f"poisoned was not tested: {one['why_not']}", file=sys.stderr)
                continue
            self.assertEqual(len(one["samples"]), 2)
            for sample in one["samples"]:
                self.assertLessEqual(sample["cached_before"], os.path.getsize(self.file))
        for one in warm:
            self.assertEqual((one["why_not"], len(one["samples"])), (None, 2))
            for sample in one["samples"]:
                self.assertEqual((sample["disk_bytes"], sample["major_faults"]), (0, 0))
                self.assertEqual(sample["cached_before"], os.path.getsize(self.file))

    def test_times_come_in_the_order_of_events(self):
        keep_cached(self, self.file)
        for one in self.series("--engines", "populate,map,copy", "--scenarios", "warm",
                               "--orders", "file", "--rounds", "1"):
            for sample in one["samples"]:
                times = [sample[key] for key in
                         ("open_ms", "first_byte_ms", "first_tensor_ms", "all_ms")]
                self.assertEqual(times, sorted(times))
                self.assertGreater(times[0], 0)

    def test_all_engines_read_the_same_bytes_as_the_file_has(self):
        expected = self.checksum_of_tensors()
        self.needs_a_disk()
        series = self.series("--engines", "disk,populate,window,map-huge,map,copy",
                             "--scenarios", "cold", "--rounds", "1")
        for one in series:
            self.assertEqual([int(sample["checksum"], 16) for sample in one["samples"]],
                             [expected], one["why_not"])

    def checksum_of_tensors(self):
        content = self.file.read_bytes()
        total = 0
        for one in self.document("ls", "--json", self.file)["tensors"]:
            words = memoryview(content)[one["file_offset"]:one["file_offset"] + one["nbytes"]]
            total += sum(words.cast("Q"))
        return total % 2**64

    def test_copying_has_memory_of_its_own_and_mapping_has_none(self):
        keep_cached(self, self.file)
        series = self.series("--engines", "map,copy", *ONE_ROUND)
        own = {one["engine"]: one["samples"][0]["anonymous_bytes"] for one in series}
        self.assertLess(own["map"], TENSOR_BYTES)
        self.assertGreaterEqual(own["copy"], TENSORS * TENSOR_BYTES)

    def test_all_files_of_a_set_are_brought_into_the_state_and_read(self):
        shards = self.make_shards()
        sizes = [file.stat().st_size for file in shards.iterdir()]
        self.assertEqual(len(sizes), 3)  # with the index
        for file in shards.iterdir():
            with open(file, "rb") as opened:
                os.fsync(opened.fileno())
        if not self.can_be_evicted(shards):
            self.cannot_run(f"{FOLDER}: its file system does not drop files from the page cache")
        measure = ("--memory", "as-is", "--engines", "disk,populate,map,copy", "--orders",
                   "random", "--rounds", "1")
        cold = self.bench(shards, *measure, "--scenarios", "cold")["files"][0]
        for file in shards.iterdir():
            keep_cached(self, file)
        warm = self.bench(shards, *measure, "--scenarios", "warm")["files"][0]
        self.assertEqual((cold["tensors"], warm["tensors"]), (TENSORS, TENSORS))
        sums = set()
        for one in cold["series"] + warm["series"]:
            if (one["engine"], one["scenario"]) == ("disk", "warm"):
                continue
            self.assertEqual(one["why_not"], None, one["engine"])
            sample = one["samples"][0]
            self.assertEqual(sample["cached_before"],
                             0 if one["scenario"] == "cold" else sum(sizes))
            sums.add(int(sample["checksum"], 16))
        self.assertEqual(sums, {self.checksum_of_tensors()})

    def test_says_which_tensor_is_needed_first(self):
        keep_cached(self, self.file)
        file = self.bench(self.file, "--engines", "map", *ONE_ROUND, "--tensor", "tensor.2")["files"][0]
        self.assertEqual((file["named_tensor"], file["named_tensor_bytes"], file["tensors"]),
                         ("tensor.2", TENSOR_BYTES, TENSORS))

    def test_writes_a_table_of_each_state_and_order(self):
        keep_cached(self, self.file)
        text = self.text("bench", self.file, *NO_PYTHON, "--engines", "map", "--reference", "map",
                         "--scenarios", "warm", "--orders", "random", "--rounds", "1")
        self.assertIn("warm, random order", text)
        self.assertIn("map again", text)

    def test_leaves_nothing_behind(self):
        keep_cached(self, self.file)
        self.series("--engines", "map", "--scenarios", "warm", "--rounds", "1")
        self.leaves_nothing_behind()


class Refuses(Case):

    def test_a_file_that_lives_in_memory_is_never_cold(self):
        shared = pathlib.Path("/dev/shm")
        if not os.access(shared, os.W_OK):
            self.cannot_run("/dev/shm is not there")
        with tempfile.TemporaryDirectory(dir=shared) as folder:
            file = self.make(pathlib.Path(folder, "model.pt"))
            series = self.bench(file, "--engines", "map", "--reference", "map", "--scenarios",
                                "cold", "--rounds", "1", code=1)["files"][0]["series"]
        for one in series:
            self.assertEqual(one["samples"], [])
            self.assertIn("the file system keeps its files in memory", one["why_not"])

    def test_the_disk_alone_is_measured_cold_only(self):
        keep_cached(self, self.file)
        disk = self.series("--engines", "disk", *ONE_ROUND)[-1]
        self.assertEqual((disk["engine"], disk["samples"]), ("disk", []))
        self.assertIn("past the page cache", disk["why_not"])


class Lists(Case):
    def test_lists_engines_without_a_python(self):
        listed = self.document("bench", "--list", "--json", *NO_PYTHON)
        engines = {one["name"]: one["why_not"] for one in listed["engines"]}
        self.assertEqual(list(engines), ["disk", "populate", "window", "map-huge", "map", "copy", "torch-mmap",
                                         "torch-copy", "safetensors-mmap", "safetensors-pread",
                                         "weightmap-torch", "fastsafetensors",
                                         "runai-streamer"])
        self.assertIsNone(engines["populate"])
        self.assertEqual(engines["torch-mmap"],
                         "cannot run /nonexistent: No such file or directory")

    def test_knows_the_engines_that_python_knows(self):
        # -I -S: a Python with nothing installed, so that this test needs no torch.
        bare = self.folder / "python"
        bare.write_text(f'#!/bin/sh\nexec {shutil.which("python3")} -I -S "$@"\n', encoding="utf-8")
        bare.chmod(0o755)
        lists = [self.document("bench", "--list", "--json", "--python", python)["engines"]
                 for python in (bare, "/nonexistent")]
        self.assertEqual(*([one["name"] for one in engines] for engines in lists))
        self.assertEqual(lists[0][-1]["why_not"], "torch is not installed")

    def test_an_engine_that_fails_says_why_and_others_go_on(self):
        keep_cached(self, self.file)
        """A Python whose engine reads other bytes, one whose engine dies, and one that hangs up."""
        script = self.folder / "python"
        engines = [{"name": "torch-mmap", "title": "wrong", "why_not": "", "reads": "pt"},
                   {"name": "torch-copy", "title": "dies", "why_not": "", "reads": "pt"},
                   {"name": "weightmap-torch", "title": "in a hurry", "why_not": "", "reads": "pt"}]
        sample = {key: 1 for key in
                  ("open_ms", "first_byte_ms", "first_tensor_ms", "all_ms", "disk_bytes",
                   "minor_faults", "major_faults", "anonymous_bytes", "file_bytes", "checksum")}
        sample["bytes"] = TENSORS * TENSOR_BYTES
        script.write_text(f"""#!/bin/sh
case "$3" in
  --list) echo '{json.dumps(engines)}' ;;
  torch-mmap) echo ready; read go; echo '{json.dumps(sample)}' ;;
  torch-copy) echo ready; read go; echo first >&2; echo "out of luck" >&2; exit 3 ;;
  weightmap-torch) echo '{json.dumps(sample)}' ;;
esac
""", encoding="utf-8")
        script.chmod(0o755)
        document = self.bench(self.file, *ONE_ROUND, "--engines",
                              "map,torch-mmap,torch-copy,weightmap-torch",
                              python=("--python", script))
        series = {one["engine"]: one for one in document["files"][0]["series"]}
        self.assertEqual(len(series["map"]["samples"]), 1)
        self.assertRegex(series["torch-mmap"]["why_not"],
                         r"^read other bytes: checksum 1 instead of \d+$")
        self.assertEqual(series["torch-copy"]["why_not"], "out of luck")
        self.assertIn("did not wait", series["weightmap-torch"]["why_not"])

    def test_an_engine_of_another_format_says_what_it_reads(self):
        script = self.folder / "python"
        engines = [{"name": "torch-mmap", "title": "x", "why_not": "", "reads": "pt"}]
        script.write_text(f"#!/bin/sh\necho '{json.dumps(engines)}'\n", encoding="utf-8")
        script.chmod(0o755)
        document = self.bench(self.make_shards(), "--memory", "as-is", "--engines", "torch-mmap",
                              *ONE_ROUND, python=("--python", script))
        why_not = {one["engine"]: one["why_not"] for one in document["files"][0]["series"]}
        self.assertEqual(why_not["torch-mmap"],
                         "reads one file of torch, and this is safetensors in 3 files")


class Interrupted(Case):
    def setUp(self):
        """A Python whose sample says in `started` who it is, and never ends."""
        super().setUp()
        self.started = self.folder / "started"
        os.mkfifo(self.started)
        self.script = self.folder / "python"
        self.script.write_text(f"""#!/bin/sh
case "$3" in
  --list) echo '[{{"name": "torch-mmap", "title": "slow", "why_not": "", "reads": "pt"}}]' ;;
  torch-mmap) echo ready; read go; echo $$ > '{self.started}'; exec sleep 1000 ;;
esac
""", encoding="utf-8")
        self.script.chmod(0o755)

    def interrupt(self, number):
        """The process of the sample, after its end."""
        command = [TOOL, "bench", self.file, "--python", self.script, "--engines", "torch-mmap",
                   "--reference", "torch-mmap", "--scenarios", "warm"]
        with subprocess.Popen(command, env=self.environment, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True) as bench:
            sample = int(self.started.read_text(encoding="ascii"))
            bench.send_signal(number)
            output, errors = bench.communicate()
        self.assertEqual((bench.returncode, output, errors),
                         (130, "", "weightmap: interrupted; everything is as it was before\n"))
        return sample

    def test_an_interrupt_ends_the_sample_and_removes_what_was_made(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(number):
                self.assertFalse(is_running(self.interrupt(number)))
        self.started.unlink()
        self.script.unlink()
        self.leaves_nothing_behind()

    def test_whole_rounds_of_what_was_begun_are_reported(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            screen, terminal = pty.openpty()
            command = [TOOL, "bench", self.file, "--engines", "map", "--reference", "map",
                       "--scenarios", "warm", "--orders", "file", "--rounds", "1000", "--json"]
            with subprocess.Popen(command, env=self.environment, stdout=subprocess.PIPE,
                                  stderr=terminal, text=True) as bench:
                os.close(terminal)
                shown = b""
                while b"[5 of 2000, about " not in shown:  # both have been measured twice
                    shown += os.read(screen, 4096)
                bench.send_signal(number)
                report = json.loads(bench.communicate()[0])
            os.close(screen)
            self.assertEqual(bench.returncode, 130)
            first, again = report["files"][0]["series"]
            self.assertEqual(len(first["samples"]), len(again["samples"]))
            self.assertGreaterEqual(len(first["samples"]), 2)
            self.assertLess(len(first["samples"]), 1000)
            self.assertIn("It was interrupted: only whole rounds of what was begun are here.",
                          report["warnings"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
