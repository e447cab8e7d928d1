#!/usr/bin/env python3
"""Compares what the tool says of tests/data with what torch said when the files were made.

    fixtures_test.py TOOL DATA

Needs no torch: the manifest holds torch's answers.
"""

import hashlib
import json
import pathlib
import sys

from case import ToolCase, main
from tool import Tool, difference

DATA = pathlib.Path(sys.argv[2])
# What the manifest adds to the fields of `ls --json`.
BESIDE_FIELDS = ("sha256", "hex")


def fields(entry):
    return {name: value for name, value in entry.items() if name not in BESIDE_FIELDS}


class FixturesTest(ToolCase):
    @classmethod
    def setUpClass(cls):
        cls.files = json.loads((DATA / "manifest.json").read_text())["files"]

    def checkpoints(self):
        for name, facts in self.files.items():
            if "tensors" in facts:
                yield name, DATA / name, facts

    def test_lists_the_tensors_that_torch_saved(self):
        for verify in ("chain", "headers", "crc"):
            tool = Tool(sys.argv[1], verify)
            for name, path, facts in self.checkpoints():
                with self.subTest(name, verify=verify):
                    found = tool.tensors(path)
                    expected = [fields(entry) for entry in facts["tensors"]]
                    self.assertIsNone(difference(expected, found))

    def test_writes_the_bytes_that_torch_saved(self):
        for name, path, facts in self.checkpoints():
            for entry in facts["tensors"]:
                with self.subTest(name, tensor=entry["name"]):
                    if name in ("conjugate.pt", "negative.pt") and entry["name"] == name[:-3]:
                        status, _, errors = self.tool.run("cat", "--raw", path, entry["name"])
                        self.assertEqual(status, 1)
                        self.assertIn(name[:-3], errors)
                        continue
                    data = self.tool.raw(path, entry["path"])
                    self.assertEqual(hashlib.sha256(data).hexdigest(), entry["sha256"])

    def test_reads_one_local_header_where_torch_wrote_the_file(self):
        for name, path, facts in self.checkpoints():
            if name.startswith(("rezipped", "legacy/")):
                continue
            with self.subTest(name):
                offsets = self.tool.info(path)["offsets"]
                self.assertEqual(offsets["local_headers_read"], 1 if facts["storages"] else 0)

    def test_verifies_every_file_that_torch_wrote(self):
        for name, path, _ in self.checkpoints():
            with self.subTest(name):
                self.tool.output("verify", path)
                self.tool.output("verify", "--crc", path)


if __name__ == "__main__":
    main(arguments=2)
