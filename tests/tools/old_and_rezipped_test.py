#!/usr/bin/env python3
"""The commands on a legacy stream and on a file that another program compressed.

    old_and_rezipped_test.py FOLDER WEIGHTMAP DATA
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

FOLDER, TOOL, DATA = (pathlib.Path(argument).resolve() for argument in sys.argv[1:4])
ENVIRONMENT = {key: text for key, text in os.environ.items() if not key.startswith("WEIGHTMAP_")}
LEGACY = DATA / "legacy" / "dict.pt"
REZIPPED = DATA / "rezipped_deflated.pt"


class OldAndRezipped(unittest.TestCase):
    def run_tool(self, *arguments, status=0, environment=()):
        done = subprocess.run([TOOL, *map(str, arguments)], env={**ENVIRONMENT, **dict(environment)},
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, status, done.stderr)
        return done

    def text(self, *arguments):
        done = self.run_tool(*arguments)
        self.assertEqual(done.stderr, "")
        return done.stdout

    def document(self, *arguments):
        return json.loads(self.text(*arguments))

    def test_info_tells_what_they_are(self):
        info = self.document("ls", "--info", "--json", LEGACY)
        self.assertEqual((info["format"], info["version"]), ("torch_legacy", 1001))
        self.assertEqual((info["unread_bytes"], info["copied"]), (0, {"storages": 0, "bytes": 0}))
        self.assertIn("torch_legacy, version 1001", self.text("ls", "--info", LEGACY))
        info = self.document("ls", "--info", "--json", REZIPPED)
        self.assertEqual(info["copied"], {"storages": 7, "bytes": 300})
        self.assertEqual(info["file_bytes"], REZIPPED.stat().st_size)
        self.assertIn("7 compressed storages, 300 B in memory: not zero-copy",
                      self.text("ls", "--info", REZIPPED))

    def test_info_tells_of_a_second_stream(self):
        with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
            two = pathlib.Path(folder) / "two.pt"
            two.write_bytes(2 * LEGACY.read_bytes())
            self.assertEqual(self.document("ls", "--info", "--json", two)["unread_bytes"],
                             LEGACY.stat().st_size)
            self.assertIn("behind the stream: only the first one of a file is read",
                          self.text("ls", "--info", two))

    def test_ls_marks_what_is_copied(self):
        for tensor in self.document("ls", "--json", LEGACY)["tensors"]:
            self.assertTrue(tensor["zero_copy"])
        for tensor in self.document("ls", "--json", REZIPPED)["tensors"]:
            self.assertFalse(tensor["zero_copy"])
        self.assertIn("COPIED", self.text("ls", "--long", REZIPPED).splitlines()[0])
        self.assertIn("  inflated", self.text("ls", "--long", REZIPPED))
        self.assertIn("  byte order", self.text("ls", "--long", DATA / "big_endian.pt"))
        self.assertNotIn("COPIED", self.text("ls", "--long", LEGACY))

    def test_cat_prints_the_values(self):
        self.assertEqual(self.text("cat", LEGACY, "w"), "w: float32 [3]\n[0. 1. 2.]\n")
        self.assertEqual(self.text("cat", LEGACY, "row"), "row: float32 [4]\n[4. 5. 6. 7.]\n")
        self.assertEqual(self.text("cat", REZIPPED, "layers.0.bias"),
                         self.text("cat", DATA / "state_dict.pt", "layers.0.bias"))

    def test_commands_work_on_what_is_compressed(self):
        for command in ("verify", "stats", "tree", "ls --sum", "residency", "warm",
                        "residency --evict"):
            with self.subTest(command):
                self.run_tool(*command.split(), REZIPPED)

    def test_strict_refuses_copies(self):
        for arguments, environment in (
            (("ls", "--strict"), {}), (("ls",), {"WEIGHTMAP_ZERO_COPY_ONLY": "1"}),
        ):
            refused = self.run_tool(*arguments, REZIPPED, status=1, environment=environment)
            self.assertIn('record "state_dict/data/0" is compressed', refused.stderr)
        self.run_tool("ls", "--strict", LEGACY)
        self.assertIn("is big-endian",
                      self.run_tool("ls", "--strict", DATA / "big_endian.pt", status=1).stderr)

    def test_convert_makes_archives_of_both(self):
        with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
            for path in (LEGACY, REZIPPED):
                copy = pathlib.Path(folder) / "copy.pt"
                self.run_tool("convert", path, copy)
                self.run_tool("verify", "--crc", "--strict", copy)
                self.assertEqual(self.text("stats", "--tsv", copy), self.text("stats", "--tsv", path))
                copy.unlink()


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
