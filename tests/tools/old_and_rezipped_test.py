#!/usr/bin/env python3
"""The commands on a legacy stream and on a file that another program compressed.

    old_and_rezipped_test.py FOLDER WEIGHTMAP DATA
"""

import sys
import unittest

from tool_case import DATA, FOLDER, ToolCase

LEGACY = DATA / "legacy" / "dict.pt"
REZIPPED = DATA / "rezipped_deflated.pt"


class OldAndRezipped(ToolCase):
    place = FOLDER

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
        two = self.write("two.pt", 2 * LEGACY.read_bytes())
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
                self.ends(0, *command.split(), REZIPPED)

    def test_strict_refuses_copies(self):
        for arguments, environment in (
            (("ls", "--strict"), {}), (("ls",), {"WEIGHTMAP_ZERO_COPY_ONLY": "1"}),
        ):
            refused = self.ends(1, *arguments, REZIPPED, environment=environment)
            self.assertIn('record "state_dict/data/0" is compressed', refused.stderr)
        self.ends(0, "ls", "--strict", LEGACY)
        self.assertIn("is big-endian", self.ends(1, "ls", "--strict", DATA / "big_endian.pt").stderr)

    def test_convert_makes_archives_of_both(self):
        for path in (LEGACY, REZIPPED):
            self.ends(0, "convert", path, "copy.pt")
            self.ends(0, "verify", "--crc", "--strict", "copy.pt")
            self.prints(self.text("stats", "--tsv", path), "stats", "--tsv", "copy.pt")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
