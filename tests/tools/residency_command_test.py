#!/usr/bin/env python3
"""What residency shows, evicts and repairs.

    residency_command_test.py FOLDER WEIGHTMAP MAKE_CHECKPOINT
"""

import json
import os
import struct
import sys
import tempfile
import unittest

from fixture_case import FLOATS, Caching, on_disk, pickled, read_pages
from tool_case import DATA

from held_pages import cached, keep_cached


class ExpertsPicture(Caching):
    """--experts: a line for each layer, a character for each expert."""

    def model(self):
        header = json.dumps({
            f"layers.{layer}.experts.up": {"dtype": "U8", "shape": [4, 2],
                                           "data_offsets": [8 * layer, 8 * layer + 8]}
            for layer in range(2)
        }).encode()
        return self.write("moe.safetensors", struct.pack("<Q", len(header)) + header + bytes(16))

    def test_draws_uses_by_their_logarithm(self):
        profile = self.write(
            "profile", b"# head\n1 layers.0.experts.0\n9 layers.0.experts.2\n5 of.no.layer\n")
        self.prints(
            "LAYER             EXPERTS  USED  USES  EACH EXPERT, FROM \" \" TO \"@\"\n"
            "layers.0.experts        4     2    10  [- @ ]\n"
            "layers.1.experts        4     0     0  [    ]\n",
            "residency", "--experts", profile, self.model())
        document = self.document("residency", "--json", "--experts", profile, self.model())
        self.assertEqual(document["layers"], [
            {"name": "layers.0.experts", "uses": [1, 0, 9, 0]},
            {"name": "layers.1.experts", "uses": [0, 0, 0, 0]},
        ])

    def test_says_what_is_no_profile_and_what_has_no_experts(self):
        wrong = self.write("wrong", b"# head\nmany layers.0.experts.0\n")
        for profile, model, why in (
            (wrong, self.model(), f"{wrong}: a line of the profile is \"many"),
            ("none", self.model(), "none: cannot open the file: No such file or directory"),
            (wrong, DATA / "state_dict.pt", "is one of experts by its name"),
        ):
            done = self.run_tool("residency", "--experts", profile, model)
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertIn(why, done.stderr)


class Evict(Caching):
    def test_prints_before_and_after(self):
        path = self.evicted(self.write("notes.txt", b"x" * 5000))
        read_pages(path, 0, 1)
        done = self.run_tool("residency", "--evict", path)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        # What was read may be gone again; how much is counted where it stays.
        self.assertRegex(
            done.stdout.removeprefix(str(path)),
            r"^: (4\.0 KiB|0 B) of 4\.9 KiB in the page cache before, 0 B after\n$",
        )
        self.prints(f"{path}: 0 B of 4.9 KiB in the page cache before, 0 B after\n", "residency",
                    "--evict", path)

    def test_json_has_the_stable_fields_in_order(self):
        path = self.write("notes.txt", b"x" * 5000)
        report = self.evict_report(path)
        if report["reason"] is not None:
            self.skipTest(f"not evicted: {report['reason']}")
        self.assertEqual(
            list(report.items()),
            [
                ("file", str(path)), ("file_bytes", 5000),
                ("cached_before", report["cached_before"]), ("cached_after", 0), ("reason", None),
                ("unwritten_bytes", 0),
            ],
        )
        with cached(path):
            report = self.evict_report(path)
        self.assertEqual((report["cached_before"], report["cached_after"]), (5000, 5000))

    def test_says_what_stays_and_why(self):
        path = self.evicted(self.write("notes.txt", b"x" * 5000))
        with cached(path, 0, 1):
            done = self.run_tool("residency", "--evict", path)
            self.assertEqual((done.returncode, done.stderr), (1, ""))
            self.assertEqual(
                done.stdout,
                f"{path}: 4.0 KiB of 4.9 KiB in the page cache before, 4.0 KiB after: "
                "a process has them mapped or locked\n",
            )
            self.assertEqual(self.evict_report(path)["reason"], "in_use")
        self.evicted(path)

    def test_says_that_a_file_lives_in_memory(self):
        try:
            file = tempfile.NamedTemporaryFile(dir="/dev/shm")
        except OSError as error:
            self.skipTest(f"no file in memory: {error}")
        with file:
            file.write(b"x" * 10)
            file.flush()
            done = self.run_tool("residency", "--evict", file.name)
        self.assertEqual(
            done.stdout,
            f"{file.name}: 10 B of 10 B in the page cache before, 10 B after: "
            "the file system keeps its files in memory\n",
        )
        self.assertEqual(done.returncode, 1)

    def test_goes_on_after_a_file_that_fails(self):
        path = on_disk(self.write("notes.txt", b"x" * 10))
        missing = self.folder / "missing.pt"
        (empty := self.folder / "empty").mkdir()
        done = self.run_tool("residency", "--evict", missing, empty, path)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(
            done.stderr,
            f"weightmap: {missing}: cannot open the file: No such file or directory\n"
            f"weightmap: {empty}: is a folder in which there is no checkpoint: expected an index of "
            "shards, *.safetensors, *.bin, *.gguf, or one file of another format\n",
        )
        self.assertRegex(done.stdout.removeprefix(str(path)), r"^: \d+ B of 10 B in the ")
        files = self.document("residency", "--evict", "--json", missing, path, code=1)["files"]
        self.assertEqual(list(files[0]), ["file", "error"])
        self.assertEqual(files[0]["error"]["code"], "io")
        self.assertEqual(files[1]["file_bytes"], 10)


class Residency(Caching):
    def residency(self, *arguments, code=0):
        return self.document("residency", "--json", *arguments, code=code)

    def test_looking_reads_only_metadata(self):
        path = self.model()
        for environment in ({}, {"WEIGHTMAP_POPULATE": "1", "WEIGHTMAP_VERIFY": "crc"}):
            self.ends(0, "residency", path, environment=environment)
            report = self.document("residency", "--json", path, environment=environment)
            self.assertLess(report["cached_bytes"], 256 << 10)
            self.assertEqual(report["file_bytes"], path.stat().st_size)

    def test_puts_tensors_together_by_their_names(self):
        path = self.make("--layers", 2, "--hidden", 64, "--vocab", 100)
        whole = self.residency(path)
        names = [g["name"] for g in whole["groups"]]
        self.assertEqual(
            names,
            ["model.embed_tokens.weight", "model.layers.0", "model.layers.1", "model.norm.weight",
             "lm_head.weight"],
        )
        self.assertEqual([g["tensors"] for g in whole["groups"]], [1, 9, 9, 1, 1])
        tensors = self.document("ls", "--json", path)["tensors"]
        self.assertEqual(sum(g["bytes"] for g in whole["groups"]), sum(t["nbytes"] for t in tensors))
        by_two = self.residency("--depth", 2, path, "model.*")["groups"]
        self.assertEqual(
            [g["name"] for g in by_two], ["model.embed_tokens", "model.layers", "model.norm"]
        )

    def test_several_files_are_shown_and_the_rest_are_patterns(self):
        path = self.model()
        other = self.write("other.pt", path.read_bytes())
        files = self.residency("--by-tensor", path, "tensor.1", other)["files"]
        self.assertEqual([file["file"] for file in files], [str(path), str(other)])
        self.assertEqual([[group["name"] for group in file["groups"]] for file in files],
                         [["tensor.1"]] * 2)
        files = self.residency(path, "nowhere.pt", "state_dict.pt", code=1)["files"]
        self.assertEqual([sorted(file) for file in files], [["error", "file"]] * 2)  # a pattern
        done = self.run_tool("residency", path, "strangers/truncated.pt")
        lines = done.stdout.splitlines()
        self.assertEqual((done.returncode, lines[0]), (1, f"{path}:"))
        self.assertIn("weightmap: strangers/truncated.pt: ", done.stderr)
        (dangling := self.folder / "dangling.pt").symlink_to("nowhere.pt")
        os.mkfifo(pipe := self.folder / "pipe.pt")
        for bad in (dangling, pipe, "/dev/zero"):
            files = self.residency(path, bad, other, code=1)["files"]
            self.assertEqual([(file["file"], "error" in file) for file in files],
                             [(str(path), False), (str(bad), True), (str(other), False)])

    def tied(self):
        return self.archive(b"\x80\x02}(" + pickled("a.x") + FLOATS + pickled("a.y") + FLOATS + b"u.")

    def test_counts_tensors_of_the_same_bytes_once(self):
        path = self.tied()
        keep_cached(self, path)
        together = {"name": "a", "tensors": 2, "bytes": 16, "cached_bytes": 16}
        self.assertEqual(self.residency("--depth", 1, path)["groups"], [together])
        alone = [(g["name"], g["bytes"]) for g in self.residency("--by-tensor", path)["groups"]]
        self.assertEqual(alone, [("a.x", 16), ("a.y", 16)])
        self.assertEqual([s["bytes"] for s in self.residency(path)["storages"]], [16])

    def test_prints_a_bar_for_each_group_and_one_for_the_file(self):
        path = self.model()
        self.keep_tensor_cached(path, 0)
        keep_cached(self, path, *self.half_of(path, 1))
        lines = self.run_tool("residency", "--by-tensor", path, "tensor.[0-2]").stdout.splitlines()
        self.assertEqual(lines[0].split(), ["TENSOR", "SIZE", "CACHED", "%", "IN", "THE", "PAGE", "CACHE"])
        self.assertRegex(lines[1], r"^tensor\.0 +4\.0 MiB +4\.0 MiB  100%  \[#{36}\]$")
        self.assertRegex(lines[2], r"^tensor\.1 +4\.0 MiB +2\.0 MiB   50%  \[#{18}\.{18}\]$")
        self.assertRegex(lines[3], r"^tensor\.2 +4\.0 MiB +[\d.]+ K?i?B   *(0|<1)%  \[\.{36}\]$")
        self.assertRegex(lines[4], r"^whole file +24\.0 MiB +6\.\d MiB   2\d%  \[#{9}\.{27}\]$")
        self.assertTrue(all(line.startswith("fragmented: ") for line in lines[5:]), lines[5:])

    def test_shows_little_as_little(self):
        path = self.make("--count", 1, "--shape", "8192x4096")
        page = self.document("ls", "--json", path)["tensors"][0]["file_offset"] + (16 << 20)
        self.run_tool("residency", "--evict", path)
        keep_cached(self, path, page, 1)
        whole = self.run_tool("residency", "--bytes", path).stdout.splitlines()[2].split()
        size, cached = int(whole[2]), int(whole[3])
        self.assertGreater(cached, 0)
        part = cached / size
        self.assertEqual(whole[4], "<1%" if part < 0.01 else "100%" if part == 1 else f"{int(100 * part)}%")
        self.assertEqual(whole[5].count("#"), int(part * (len(whole[5]) - 2)))

    def test_takes_several_patterns_and_writes_fields_for_programs(self):
        keep_cached(self, DATA / "state_dict.pt")
        self.prints(
            "TENSOR\tSIZE\tCACHED\nsteps\t8\t8\nlayers.0.bias\t8\t8\n",
            "residency", "--tsv", "--by-tensor", "state_dict.pt", "steps", "*.bias",
        )

    def test_shows_as_many_parts_of_names_as_stay_few_lines(self):
        few = self.make("--layers", 12, "--hidden", 64, "--vocab", 100)
        self.assertEqual(len(self.residency(few)["groups"]), 12 + 3)
        many = self.make("--layers", 60, "--hidden", 64, "--vocab", 100)
        names = [group["name"] for group in self.residency(many)["groups"]]
        self.assertEqual(names, ["model.embed_tokens", "model.layers", "model.norm", "lm_head.weight"])

    def half_of(self, path, index):
        tensor = self.document("ls", "--json", path)["tensors"][index]
        return tensor["file_offset"], tensor["nbytes"] // 2

    def test_names_a_fragmented_cache_and_repairs_it(self):
        path = self.model()
        with cached(path):
            before = self.residency(path)
            last = self.run_tool("residency", path).stdout.splitlines()[-1]
        self.assertEqual(before["cached_bytes"], path.stat().st_size)
        if before["fragmented"] is None:
            self.skipTest("it is not known whether this system could do better")
        self.assertTrue(before["fragmented"])
        self.assertEqual((before["sampled_bytes"] > 0, before["sampled_huge_bytes"]), (True, 0))
        self.assertRegex(
            last,
            r"^fragmented: 0 B of \d+\.0 MiB sampled in huge pages, so that mapping costs a page "
            r"fault for each small one; --repair evicts the file and reads it again$",
        )
        done = self.run_tool("residency", "--json", "--repair", path)
        after = json.loads(done.stdout)
        repair = after["repair"]
        # All of it is cached, unless somebody evicted some; what is left is read again.
        cached_before, read = repair.pop("cached_before"), repair.pop("read_bytes")
        self.assertLessEqual(cached_before, read)
        self.assertLessEqual(read, path.stat().st_size)
        if after["fragmented"] is not False or not repair["fragmented_before"]:
            self.assertEqual(done.returncode, 1 if after["fragmented"] else 0)
            self.skipTest("the system gave no large pages to this file, or took it away meanwhile")
        self.assertEqual(done.returncode, 0)
        self.assertGreater(repair.pop("huge_bytes"), 0)
        self.assertEqual(
            list(repair.items()),
            [("fragmented_before", True), ("stayed_bytes", 0), ("reason", None)],
        )

    def test_repairs_only_what_was_cached(self):
        path = self.model()
        offset, _ = self.half_of(path, 3)
        read_pages(path, offset, 1)
        done = self.run_tool("residency", "--repair", path)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        after = self.residency(path)
        # 2 MiB around that page and around the metadata at both ends of the file, and after each of
        # the three perhaps as much, which the system read ahead.
        self.assertLessEqual(after["cached_bytes"], 12 << 20)
        repair = self.residency("--repair", path)["repair"]
        self.assertLessEqual(repair["cached_before"], repair["read_bytes"])
        self.assertLessEqual(repair["read_bytes"], 12 << 20)
        self.assertEqual(after["groups"][0]["tensors"], 6)
        self.assertRegex(done.stdout.splitlines()[-1], r"^repaired: read [\d.]+ MiB again, ")

    def test_repair_says_what_it_could_not_evict(self):
        path = self.model()
        offset, _ = self.half_of(path, 3)
        with cached(path, offset, 1):
            repair = self.residency("--repair", path)["repair"]
            self.assertEqual(repair["reason"], "in_use")
            self.assertGreater(repair["stayed_bytes"], 0)

    def test_json_has_the_stable_fields_in_order(self):
        keep_cached(self, DATA / "state_dict.pt")
        document = self.residency("state_dict.pt", "layers.1.*")
        self.assertEqual(
            list(document.items()),
            [
                ("file", "state_dict.pt"), ("file_bytes", 3576), ("cached_bytes", 3576),
                ("fragmented", None), ("sampled_bytes", 0), ("sampled_huge_bytes", 0),
                ("groups", [{"name": "layers.1", "tensors": 2, "bytes": 132, "cached_bytes": 132}]),
                ("storages", [
                    {"key": "3", "file_offset": 1792, "bytes": 128, "cached_bytes": 128},
                    {"key": "4", "file_offset": 2048, "bytes": 4, "cached_bytes": 4},
                ]),
            ],
        )

    def test_prints_empty_tensors_and_files_without_any(self):
        text = self.run_tool("residency", "--by-tensor", "scalars_and_empty.pt", "empty_rows").stdout
        self.assertRegex(text.splitlines()[1], r"^empty_rows      0 B      0 B     -  \[\.+\]$")
        lines = self.run_tool("residency", "no_tensors.pt").stdout.splitlines()
        self.assertEqual([line.split()[0] for line in lines], ["GROUP", "whole"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
