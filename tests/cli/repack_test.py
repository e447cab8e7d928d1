#!/usr/bin/env python3
"""The command `weightmap repack`.

    repack_test.py FOLDER WEIGHTMAP MAKE_CHECKPOINT
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

FOLDER, TOOL, MAKER = (pathlib.Path(argument).resolve() for argument in sys.argv[1:4])
ENVIRONMENT = {key: text for key, text in os.environ.items() if not key.startswith("WEIGHTMAP_")}


def run(*arguments):
    return subprocess.run([TOOL, *map(str, arguments)], env=ENVIRONMENT, capture_output=True,
                          text=True)


class Repack(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir=FOLDER)
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.file = self.folder / "model.pt"
        self.copy = self.folder / "copy.pt"
        subprocess.run([MAKER, self.file, "--count", "3", "--shape", "64x64", "--dtype",
                        "float32"], check=True)

    def tensors(self, path):
        return json.loads(run("ls", "--json", path).stdout)["tensors"]

    def test_says_what_was_done(self):
        result = run("repack", self.file, self.copy, "--align", "4096")
        self.assertEqual(result.stderr, "")
        self.assertRegex(result.stdout,
                         r"copy\.pt: \d+\.\d KiB, was \d+\.\d KiB; 3 storages aligned to 4\.0 KiB\n$")
        for tensor in self.tensors(self.copy):
            self.assertEqual(tensor["file_offset"] % 4096, 0)
        self.assertEqual(run("verify", "--crc", self.copy).returncode, 0)

    def test_json_has_the_stable_fields(self):
        report = json.loads(run("repack", self.file, self.copy, "--json").stdout)
        self.assertEqual(report, {"file": str(self.file), "target": str(self.copy),
                                  "old_bytes": self.file.stat().st_size,
                                  "new_bytes": self.copy.stat().st_size, "alignment": 64,
                                  "storages": 3})

    def test_an_order_file_puts_storages_in_front(self):
        order = self.folder / "order"
        order.write_text("# first\ntensor.2\n*.1\n")
        self.assertEqual(run("repack", self.file, self.file, "--order", order).returncode, 0)
        at = {tensor["name"]: tensor["file_offset"] for tensor in self.tensors(self.file)}
        self.assertLess(at["tensor.2"], at["tensor.1"])
        self.assertLess(at["tensor.1"], at["tensor.0"])

    def test_the_order_of_the_file_is_the_default(self):
        self.assertEqual(run("repack", self.file, self.copy, "--order", "file").returncode, 0)
        names = [tensor["name"] for tensor in self.tensors(self.copy)]
        self.assertEqual(names, ["tensor.0", "tensor.1", "tensor.2"])

    def test_crcs_can_be_left_out(self):
        self.assertEqual(run("repack", self.file, self.copy, "--crc", "off").returncode, 0)
        self.assertIn("3 storages had no CRC", run("verify", "--crc", self.copy).stdout)

    def test_wrong_words_are_wrong_usage(self):
        for option, word, message in (("--crc", "maybe", "--crc"),
                                      ("--align", "many", "must be a size")):
            result = run("repack", self.file, self.copy, option, word)
            self.assertEqual(result.returncode, 2, (option, word))
            self.assertIn(message, result.stderr)

    def test_what_fails_leaves_nothing_behind(self):
        before = self.file.read_bytes()
        for options, message in ((("--align", "100000"), "it must be a power of two"),
                                 (("--order", self.folder / "nowhere"), "No such file")):
            result = run("repack", self.file, self.file, *options)
            self.assertEqual(result.returncode, 1)
            self.assertIn(message, result.stderr)
        self.assertEqual(self.file.read_bytes(), before)
        self.assertEqual(os.listdir(self.folder), ["model.pt"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
