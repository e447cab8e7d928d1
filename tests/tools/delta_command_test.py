#!/usr/bin/env python3
"""weightmap delta and weightmap apply, from outside.

    delta_command_test.py FOLDER WEIGHTMAP MAKE_CHECKPOINT
"""

import mmap
import os
import random
import shutil
import signal
import time
import unittest

from mounts import need_leases
from tool_case import ToolCase

from safetensors_files import file_of


def changed(content, every):
    new = bytearray(content)
    for at in range(0, len(new), every):
        new[at] ^= 1
    return bytes(new)


def model(folder, contents):
    """A set of two files, and what lies beside it."""
    folder.mkdir(parents=True)
    names = list(contents)
    weight_map = {}
    for number, part in enumerate((names[:1], names[1:]), 1):
        file = f"model-{number:05}-of-00002.safetensors"
        tensors = {name: ("U8", [len(contents[name])], contents[name]) for name in part}
        (folder / file).write_bytes(file_of(tensors))
        weight_map |= dict.fromkeys(part, file)
    index = {"metadata": {}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(str(index).replace("'", '"'))
    (folder / "config.json").write_text('{"model_type": "test"}')
    (folder / "notes.bin").write_text("no file that servers read")


class Case(ToolCase):
    size = 300_000

    def setUp(self):
        super().setUp()
        self.old = {name: random.Random(name).randbytes(self.size) for name in "abc"}
        self.new = {"a": changed(self.old["a"], 100), "b": self.old["b"],
                    "c": changed(self.old["c"], 7)}
        model(self.folder / "one", self.old)
        model(self.folder / "two", self.new)

    def bytes_of(self, folder):
        return {path.name: path.read_bytes() for path in (self.folder / folder).iterdir()
                if path.name.endswith(".safetensors")}

    def names(self):
        return sorted(path.name for path in self.folder.iterdir())


class Deltas(Case):
    def test_what_changed_is_written_and_applied_and_published(self):
        os.symlink("one", self.folder / "now")
        said = self.text("delta", "now", "two", "weight_v000001")
        self.assertRegex(said, r"^weight_v000001: version 000001 from 000000, 2 of 3 tensors changed, "
                               r"5\.1 % of their bytes; [0-9.]+ KiB, [0-9.]+ % of 878\.9 KiB\n$")
        said = self.text("apply", "now", "weight_v000001", "--to", "v1", "--publish", "now")
        self.assertRegex(said, r"^v1: version 000001 from 000000 by 1 delta, 2 of 3 tensors changed; "
                               r"879\.3 KiB[^;]*; now leads to it\n$")
        self.assertEqual(self.bytes_of("v1"), self.bytes_of("two"))
        self.assertEqual(os.readlink(self.folder / "now"), "v1")
        self.assertEqual(sorted(path.name for path in (self.folder / "v1").iterdir()),
                         ["config.json", "model-00001-of-00002.safetensors",
                          "model-00002-of-00002.safetensors", "model.safetensors.index.json",
                          "weightmap_version.json"])
        self.assertEqual(self.names(), ["now", "one", "two", "v1", "weight_v000001"])

    def test_documents(self):
        delta = self.document("delta", "--json", "one", "two", "d", "--encoding", "overwrite",
                              "--sums", "adler32", "--version", "7", "--base-version", "6")
        self.assertEqual((delta["version"], delta["base_version"], delta["tensors"],
                          delta["changed_tensors"], delta["tensor_bytes"], delta["changed_bytes"]),
                         ("7", "6", 3, 2, 3 * self.size, 3000 + 42858))
        self.assertEqual(delta["files"], ["d/model-00001-of-00001.safetensors",
                                          "d/model.safetensors.index.json"])
        self.assertEqual(delta["bytes"],
                         sum(path.stat().st_size for path in (self.folder / "d").iterdir()))
        applied = self.document("apply", "--json", "one", "d", "--to", "new", "--base-version", "6",
                                "--threads", "2")
        self.assertEqual((applied["version"], applied["deltas"], applied["changed_tensors"],
                          applied["published"], applied["delta_bytes"]),
                         ("7", 1, 2, None, delta["bytes"]))
        self.assertEqual(self.bytes_of("new"), self.bytes_of("two"))

    def test_a_chain_is_applied_at_once(self):
        model(self.folder / "three", self.old | {"b": changed(self.old["b"], 10)})
        self.text("delta", "one", "two", "weight_v000001")
        self.text("delta", "two", "three", "weight_v000002", "--base-version", "000001")
        self.text("apply", "one", "weight_v000001", "weight_v000002", "--to", "new")
        self.assertEqual(self.bytes_of("new"), self.bytes_of("three"))
        self.assertNotIn("weight_v000003", self.names())

    def test_refusals_leave_nothing(self):
        self.text("delta", "one", "two", "d")
        before = self.names()
        self.fails('d/model.safetensors.index.json: is for version "000000", and the base is version '
                   '"000004"', "apply", "one", "d", "--to", "new", "--base-version", "000004")
        self.fails("two: is there already; remove it first", "apply", "one", "d", "--to", "two")
        self.fails("two/model.safetensors.index.json: is no delta: its metadata has no delta_encoding; a "
                   "whole version is opened as any checkpoint", "apply", "one", "two", "--to", "new")
        shard = next((self.folder / "d").glob("*.safetensors"))
        content = bytearray(shard.read_bytes())
        content[-100] ^= 1
        shard.write_bytes(content)
        done = self.ends(1, "apply", "one", "d", "--to", "new")
        self.assertRegex(done.stderr, r'^weightmap: d/model-00001-of-00001\.safetensors: the tensor '
                                      r'"c": .*\n$')
        shard.write_bytes(content[:-1])
        self.assertIn("d/model-00001-of-00001.safetensors:",
                      self.ends(1, "apply", "one", "d", "--to", "new").stderr)
        shard.unlink()
        self.assertIn("d/model-00001-of-00001.safetensors:",
                      self.ends(1, "apply", "one", "d", "--to", "new").stderr)
        self.assertEqual(self.names(), before)

    def test_links_that_cannot_be_are_refused_before_the_work(self):
        self.text("delta", "one", "two", "d")
        before = self.names()
        for link, why in (("two", "two is there already, and is no symbolic link"),
                          ("none/now", "none/now would be in no folder"),
                          ("./new", "./new is to be the new folder")):
            done = self.ends(1, "apply", "one", "d", "--to", "new", "--publish", link)
            self.assertIn(why, done.stderr)
            self.assertEqual(self.names(), before)

    def test_in_place_changes_the_files_unless_they_are_mapped(self):
        need_leases(self)
        self.text("delta", "one", "two", "d")
        with open(self.folder / "one" / "model-00001-of-00002.safetensors", "rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        refused = self.ends(1, "apply", "one", "d", "--in-place")
        self.assertIn("one/model-00001-of-00002.safetensors: is open or mapped elsewhere",
                      refused.stderr)
        mapped.close()
        said = self.text("apply", "one", "d", "--in-place")
        self.assertRegex(said, r"^one: version 000001 from 000000 by 1 delta, 2 of 3 tensors changed; ")
        self.assertEqual(self.bytes_of("one"), self.bytes_of("two"))
        self.assertEqual(self.names(), ["d", "one", "two"])

    def test_wrong_usage(self):
        for words in (("delta", "one", "two"), ("apply", "one", "--to", "new"),
                      ("apply", "one", "d"), ("apply", "one", "d", "--to", "x", "--in-place"),
                      ("delta", "one", "two", "d", "--level", "20"),
                      ("delta", "one", "two", "d", "--threads", "0"),
                      ("apply", "one", "d", "--to", "x", "--threads", "-1"),
                      ("delta", "one", "two", "d", "--sums", "md5")):
            self.ends(2, *words)

    def test_who_has_the_base_mapped_keeps_it(self):
        path = self.folder / "one" / "model-00001-of-00002.safetensors"
        with open(path, "rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        before = mapped[:]
        self.text("delta", "one", "two", "d")
        self.text("apply", "one", "d", "--to", "new")
        self.assertEqual(mapped[:], before)


class Kills(Case):
    size = 8 << 20
    place = "/dev/shm"
    kills = 20

    def test_a_killed_one_leaves_the_old_version_or_the_new_one_and_the_next_makes_it(self):
        os.symlink("one", self.folder / "now")
        self.text("delta", "one", "two", "d")
        # How long one takes.
        began = time.monotonic()
        self.text("apply", "one", "d", "--to", "new", "--publish", "now")
        taken = time.monotonic() - began
        versions = {name: self.bytes_of(name) for name in ("one", "two")}
        seen = set()
        chance = random.Random(46)
        for number in range(self.kills):
            shutil.rmtree(self.folder / "new", ignore_errors=True)
            (self.folder / "now").unlink(missing_ok=True)
            os.symlink("one", self.folder / "now")
            process = self.start("apply", "one", "d", "--to", "new", "--publish", "now")
            time.sleep(chance.uniform(0, 1.1 * taken))
            process.send_signal(signal.SIGKILL)
            process.wait()
            led_to = os.readlink(self.folder / "now")
            seen.add(led_to)
            self.assertEqual(self.bytes_of("now"), versions[{"one": "one", "new": "two"}[led_to]])
            if (self.folder / "new").exists():
                self.assertEqual(self.bytes_of("new"), versions["two"])
            else:
                self.text("apply", "one", "d", "--to", "new", "--publish", "now")
            self.assertEqual(self.bytes_of("new"), versions["two"], number)
            self.assertNotIn(".new.weightmap-new", self.names())
        self.assertIn("one", seen)


if __name__ == "__main__":
    unittest.main(argv=["delta_command_test"])
