#!/usr/bin/env python3
"""Compares what the tool says of tests/data with what torch said when the files were made.

    fixtures_test.py TOOL DATA

Needs no torch: the manifest holds torch's answers.
"""

import hashlib
import json
import pathlib
import sys
import unittest

from tool import Tool, difference

TOOL = ""
DATA = pathlib.Path()
# What the manifest adds to the fields of `ls --json`.
BESIDE_FIELDS = ("sha256", "hex")


def fields(entry):
    return {name: value for name, value in entry.items() if name not in BESIDE_FIELDS}


class FixturesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.files = json.loads((DATA / "manifest.json").read_text())["files"]

    def checkpoints(self):
        for name, facts in self.files.items():
            if "tensors" in facts:
                yield name, DATA / name, facts

    def test_lists_the_tensors_that_torch_saved(self):
        for verify in ("chain", "headers", "crc"):
            tool = Tool(TOOL, verify)
            for name, path, facts in self.checkpoints():
                with self.subTest(name, verify=verify):
                    found = tool.tensors(path)
                    expected = [fields(entry) for entry in facts["tensors"]]
                    self.assertIsNone(difference(expected, found))

    def test_writes_the_bytes_that_torch_saved(self):
        tool = Tool(TOOL)
        for name, path, facts in self.checkpoints():
            for entry in facts["tensors"]:
                with self.subTest(name, tensor=entry["name"]):
                    if name in ("conjugate.pt", "negative.pt") and entry["name"] == name[:-3]:
                        status, _, errors = tool.run("cat", "--raw", path, entry["name"])
                        self.assertEqual(status, 1)
                        self.assertIn(name[:-3], errors)
                        continue
                    data = tool.raw(path, entry["path"])
                    self.assertEqual(hashlib.sha256(data).hexdigest(), entry["sha256"])

    def test_reads_one_local_header_where_torch_wrote_the_file(self):
        tool = Tool(TOOL)
        for name, path, facts in self.checkpoints():
            if name.startswith(("rezipped", "legacy/")):
                continue
            with self.subTest(name):
                offsets = tool.info(path)["offsets"]
                self.assertEqual(offsets["local_headers_read"], 1 if facts["storages"] else 0)

    def test_says_what_the_file_is(self):
        tool = Tool(TOOL)
        info = tool.info(DATA / "state_dict.pt")
        self.assertEqual(info["format"], "torch_zip")
        self.assertEqual((info["version"], info["format_version"]), (3, "1"))
        self.assertEqual((info["tensors"], info["storages"]), (7, 7))
        self.assertEqual(info["file_bytes"], (DATA / "state_dict.pt").stat().st_size)
        self.assertEqual(info["byteorder"], "little")
        self.assertEqual(info["storage_alignment"], 64)
        self.assertEqual(tool.info(DATA / "aligned_4096.pt")["storage_alignment"], 4096)
        self.assertEqual(tool.info(DATA / "big_endian.pt")["byteorder"], "big")
        self.assertIsNone(tool.info(DATA / "old_order.pt")["format_version"])

    def test_verifies_every_file_that_torch_wrote(self):
        tool = Tool(TOOL)
        for name, path, _ in self.checkpoints():
            with self.subTest(name):
                tool.output("verify", path)
                tool.output("verify", "--crc", path)

    def test_refuses_what_is_no_checkpoint_and_says_what_it_is(self):
        tool = Tool(TOOL)
        words = {
            "lfs_pointer.pt": "LFS",
            "page.pt": "HTML",
            "compressed.pt.gz": "gzip",
            "archive.7z": "7z",
            "archive.tar": "tar",
            "empty.pt": "empty",
        }
        for name, facts in self.files.items():
            if "error" not in facts:
                continue
            with self.subTest(name):
                status, output, errors = tool.run("ls", "--json", DATA / name)
                self.assertEqual(status, 1)
                self.assertEqual(json.loads(output)["error"]["code"], facts["error"])
                self.assertIn(words.get(pathlib.Path(name).name, ""), errors)
                self.assertEqual(len(errors.splitlines()), 1)


if __name__ == "__main__":
    TOOL, DATA = sys.argv[1], pathlib.Path(sys.argv[2])
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
