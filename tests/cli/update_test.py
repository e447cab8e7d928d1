#!/usr/bin/env python3
"""The command `weightmap update`.

    update_test.py FOLDER WEIGHTMAP MAKE_CHECKPOINT
"""

import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

FOLDER, TOOL, MAKER = (pathlib.Path(argument).resolve() for argument in sys.argv[1:4])
ENVIRONMENT = {key: text for key, text in os.environ.items() if not key.startswith("WEIGHTMAP_")}


def run(*arguments):
    return subprocess.run([TOOL, *map(str, arguments)], env=ENVIRONMENT, capture_output=True,
                          text=True)


def npy(descr="<f4", shape=(2, 3), order="False", elements=struct.pack("<6f", *range(6)),
        header=None, version=1):
    text = header or f"{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}\n"
    size = struct.pack("<H" if version == 1 else "<I", len(text))
    return b"\x93NUMPY" + bytes((version, 0)) + size + text.encode() + elements


class Update(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir=FOLDER)
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.file = self.make("float32")
        self.array = self.folder / "x.npy"

    def make(self, dtype):
        path = self.folder / "model.pt"
        subprocess.run([MAKER, path, "--count", "2", "--shape", "2x3", "--dtype", dtype],
                       check=True)
        return path

    def values(self, name):
        return json.loads(run("cat", "--json", self.file, name).stdout)["values"]

    def update(self, content, *options):
        self.array.write_bytes(content)
        return run("update", self.file, "tensor.1", self.array, *options)

    def refused(self, content, message):
        before = self.file.read_bytes()
        result = self.update(content)
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertIn(message, result.stderr)
        self.assertEqual(self.file.read_bytes(), before)
        self.assertEqual(sorted(os.listdir(self.folder)), ["model.pt", "x.npy"])

    def test_replaces_the_values_of_one_tensor(self):
        other = self.values("tensor.0")
        result = self.update(npy())
        self.assertRegex(result.stdout, r"model\.pt: 24 B of tensor\.1 replaced in a new copy of "
                                        r"\d+\.\d KiB; who has the old file open keeps it\n$")
        self.assertEqual(self.values("tensor.1"), [0, 1, 2, 3, 4, 5])
        self.assertEqual(self.values("tensor.0"), other)
        self.assertEqual(run("verify", "--crc", self.file).returncode, 0)

    def test_json_has_the_stable_fields(self):
        self.assertEqual(json.loads(self.update(npy(), "--json").stdout),
                         {"file": str(self.file), "tensor": "tensor.1", "tensor_bytes": 24,
                          "file_bytes": self.file.stat().st_size, "also_changed": []})

    def test_versions_2_and_3_and_keys_in_another_order(self):
        header = '{"shape":(2,3),"fortran_order":False,"descr":"<f4"}'
        for version in (2, 3):
            self.make("float32")
            self.assertEqual(self.update(npy(header=header, version=version)).returncode, 0)
            self.assertEqual(self.values("tensor.1"), [0, 1, 2, 3, 4, 5])

    def test_bits_of_a_type_that_numpy_does_not_have(self):
        self.make("bfloat16")
        bits = struct.pack("<6H", 0x3F80, 0, 0, 0, 0, 0xC000)
        for descr in ("<u2", "<V2"):
            self.assertEqual(self.update(npy(descr=descr, elements=bits)).returncode, 0, descr)
            self.assertEqual(self.values("tensor.1"), [1, 0, 0, 0, 0, -2])
        self.refused(npy(descr="<f2", elements=bits), "has elements of type <f2, the tensor is "
                     "bfloat16, of which the bits may come as integers of that size")

    def test_raw_takes_bytes_as_they_are(self):
        self.array.write_bytes(struct.pack("<6f", *range(6)))
        self.assertEqual(run("update", "--raw", self.file, "tensor.1", self.array).returncode, 0)
        self.assertEqual(self.values("tensor.1"), [0, 1, 2, 3, 4, 5])

    def test_raw_bytes_of_another_length_are_refused(self):
        self.array.write_bytes(bytes(23))
        result = run("update", "--raw", self.file, "tensor.1", self.array)
        self.assertIn("has 24 bytes, the new elements have 23", result.stderr)

    def test_another_type_is_refused(self):
        self.refused(npy(descr="<f8"), "has elements of type <f8, the tensor is float32 (<f4)")

    def test_the_other_byte_order_is_refused(self):
        self.refused(npy(descr=">f4"), "has elements of type >f4, the tensor is float32 (<f4)")

    def test_another_shape_is_refused(self):
        self.refused(npy(shape=(3, 2)), "has shape [3, 2], the tensor has [2, 3]")

    def test_column_order_is_refused(self):
        self.refused(npy(order="True"), "has its elements column by column")

    def test_too_few_and_too_many_elements_are_refused(self):
        self.refused(npy(elements=bytes(20)), "has 20 bytes of elements, expected 24")
        self.refused(npy(elements=bytes(28)), "has 28 bytes of elements, expected 24")

    def test_what_is_no_npy_file_is_refused(self):
        self.refused(b"", "is not a .npy file")
        self.refused(b"PK\x03\x04 and so on", "is not a .npy file")
        self.refused(npy(version=4), "is a .npy file of version 4.0")
        self.refused(npy()[:40], "ends in its header")
        self.refused(b"\x93NUMPY\x02\x00\xff\xff\xff\xff{}", "has a header of 4294967295 bytes")

    def test_headers_that_say_something_else_are_refused(self):
        descr, order, shape = "'descr': '<f4'", "'fortran_order': False", "'shape': (2, 3)"
        for header in ("", "{}", f"{{{descr}, {order}}}", f"{{{descr}, {order}, {shape}, 'x': 1}}",
                       f"{{{descr}, {descr}, {order}, {shape}}}",
                       f"{{'descr': [('a', '<f4')], {order}, {shape}}}",
                       f"{{{descr}, 'fortran_order': 0, {shape}}}",
                       f"{{{descr}, {order}, 'shape': (2, -3)}}",
                       f"{{{descr}, {order}, 'shape': (2 3)}}",
                       f"{{{descr}, {order}, 'shape': 6}}",
                       f"{{{descr}, {order}, 'shape': (99999999999999999999,)}}",
                       f"{{{descr}, {order}, {shape}}} x", f"{{{descr}, {order}, {shape}"):
            self.refused(npy(header=header or " "), "is not a dict of one descr, fortran_order and")

    def test_a_tensor_that_there_is_not_is_refused(self):
        self.array.write_bytes(npy())
        result = run("update", self.file, "tensor.9", self.array)
        self.assertEqual(result.returncode, 1)
        self.assertIn("tensor.9", result.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
