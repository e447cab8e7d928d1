#!/usr/bin/env python3
"""What cat prints and writes.

    cat_command_test.py FOLDER WEIGHTMAP MAKE_CHECKPOINT
"""

import math
import os
import pathlib
import pickle
import struct
import sys
import unittest

from fixture_case import Case, Terminal, numpy_array, numpy_scalar, pickled
from tool_case import DATA


class Cat(Case):

    def test_shortens_more_than_a_thousand_elements(self):
        path = self.make("--count", 1, "--shape", "40x30", "--dtype", "uint8")
        values = self.raw(path, "tensor.0")
        rows = [values[30 * i : 30 * i + 30] for i in range(40)]
        lines = [
            " ".join([*(f"{v:3}" for v in row[:3]), "...", *(f"{v:3}" for v in row[-3:])])
            for row in rows[:3] + rows[-3:]
        ]
        expected = (
            f"tensor.0: uint8 [40, 30]\n[[{lines[0]}]\n [{lines[1]}]\n [{lines[2]}]\n ...\n"
            f" [{lines[3]}]\n [{lines[4]}]\n [{lines[5]}]]\n"
        )
        self.prints(expected, "cat", path, "tensor.0")

    def test_breaks_long_lines_at_75_columns(self):
        path = self.make("--count", 1, "--shape", "1000", "--dtype", "uint8")
        lines = self.run_tool("cat", path, "tensor.0").stdout.splitlines()[1:]
        self.assertEqual({len(line) for line in lines[:-1]}, {72})  # 18 numbers of 3 digits
        self.assertEqual(sum(len(line.strip("[] ").split()) for line in lines), 1000)

    def test_json_holds_all_values(self):
        self.assertEqual(
            self.document("cat", "--json", "big_endian.pt", "complex64")["values"],
            [[1.0, 2.0], [3.0, -4.0]],
        )
        special = self.document("cat", "--json", "dtypes.pt", "float8_e8m0fnu")["values"]
        self.assertEqual(special[2:], [1.0, 2.0, 2e38, "nan"])

    def test_writes_raw_elements_row_major(self):
        column_major = [6 * j + i for i in range(6) for j in range(4)]
        self.assertEqual(self.raw("views.pt", "transposed"), struct.pack("=24f", *column_major))
        self.assertEqual(self.raw("big_endian.pt", "int64"), struct.pack("=2q", 0, 1))
        path = self.folder / "bits"
        self.prints("", "cat", "state_dict.pt", "layers.0.weight", "--raw", "-o", path)
        self.assertEqual(path.read_bytes()[:8], struct.pack("<4H", 0, 0x3F80, 0x4000, 0x4040))

    def test_writes_npy(self):
        path = self.folder / "a.npy"
        self.prints("", "cat", "views.pt", "permuted", "-o", path)
        content = path.read_bytes()
        header = "{'descr': '<i2', 'fortran_order': False, 'shape': (4, 2, 3), }"
        self.assertEqual(content[:10], b"\x93NUMPY\x01\x00\x76\x00")
        self.assertEqual(content[10:128].decode(), header.ljust(117) + "\n")
        self.assertEqual(struct.unpack("<24h", content[128:])[:6], (0, 4, 8, 12, 16, 20))

    def test_npy_shapes_are_python_tuples(self):
        for tensor, descr, shape in (("steps", "<i8", "()"), ("layers.0.bias", "<f2", "(4,)")):
            path = self.folder / "a.npy"
            self.prints("", "cat", "state_dict.pt", tensor, "-o", path)
            header = path.read_bytes()[10:128].decode()
            self.assertEqual(
                header.rstrip(), f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"
            )

    def test_replaces_a_file_only_by_a_whole_one(self):
        path = self.write("a.npy", b"before")
        self.assertEqual(self.run_tool("cat", "conjugate.pt", "conjugate", "-o", path).returncode, 1)
        self.assertEqual(path.read_bytes(), b"before")
        self.assertEqual(os.listdir(self.folder), ["a.npy"])
        self.prints("", "cat", "state_dict.pt", "steps", "-o", path)
        self.assertTrue(path.read_bytes().startswith(b"\x93NUMPY"))
        self.assertEqual(os.listdir(self.folder), ["a.npy"])

    def test_never_replaces_the_checkpoint_it_reads(self):
        content = (DATA / "state_dict.pt").read_bytes()
        path = self.write("model.pt", content)
        link = self.folder / "link"
        link.symlink_to(path)
        for output in (path, link):
            self.fails(
                f"{output}: would replace the checkpoint that is being read",
                "cat", path, "steps", "--raw", "-o", output,
            )
        self.assertEqual(path.read_bytes(), content)

    def test_writes_devices_in_place(self):
        self.prints("", "cat", "state_dict.pt", "steps", "--raw", "-o", "/dev/null")
        self.assertTrue(pathlib.Path("/dev/null").is_char_device())

    def test_writes_small_floats_as_float32(self):
        whole = self.raw("state_dict.pt", "layers.0.weight", "--as", "float32")
        stored = self.raw("state_dict.pt", "layers.0.weight")
        # A bfloat16 is the upper half of a float32.
        self.assertEqual(whole, b"".join(b"\0\0" + stored[i : i + 2] for i in range(0, 32, 2)))
        path = self.folder / "w.npy"
        self.prints("", "cat", "state_dict.pt", "layers.0.weight", "--as", "float32", "-o", path)
        self.assertIn(b"'descr': '<f4', 'fortran_order': False, 'shape': (4, 4)", path.read_bytes())
        self.assertEqual(path.read_bytes()[128:], whole)

    def test_paths_tell_tensors_of_one_name_apart(self):
        done = self.ends(1, "cat", "colliding_names.pt", "a.b")
        self.assertIn('["a", "b"]', done.stderr)
        self.assertIn("TENSOR may be one of these paths", done.stderr)

    def test_refuses_raw_bytes_on_a_terminal(self):
        with Terminal() as terminal:
            done = self.ends(2, "cat", "state_dict.pt", "steps", "--raw", stdout=terminal.theirs)
        self.assertEqual(done.stderr, "weightmap: --raw: does not write to a terminal; add -o FILE or a "
                                      "pipe (see weightmap --help)\n")


class Values(Case):
    """cat of what is not a tensor."""

    def test_prints_bytes(self):
        for protocol in (2, 4):
            long = bytes(range(256)) * 2
            path = self.archive(pickle.dumps({"key": b"a'\\\0\xff", "long": long}, protocol))
            self.prints("b'a\\'\\\\\\x00\\xff'\n", "cat", path, "key")
            shown = self.run_tool("cat", path, "long").stdout
            self.assertTrue(shown.startswith("b'\\x00\\x01\\x02"), shown)
            self.assertTrue(shown.endswith("LMNO'... (512 bytes)\n"), shown)
            self.assertEqual(self.raw(path, "long"), long)
            self.assertEqual(self.document("cat", "--json", path, "key")["value"],
                             {"$bytes": "b'a\\'\\\\\\x00\\xff'"})
            self.prints("", "cat", path, "key", "--raw", "-o", self.folder / "bytes")
            self.assertEqual((self.folder / "bytes").read_bytes(), b"a'\\\0\xff")
        self.prints("bytearray(b'xy')\n", "cat", self.archive(pickle.dumps([bytearray(b"xy")], 5)), "0")

    def test_prints_numbers_of_numpy(self):
        path = self.archive(
            b"\x80\x03}(" + pickled("loss") + numpy_scalar("f8", "<", struct.pack("<d", 0.8125))
            + pickled("nan") + numpy_scalar("f4", ">", struct.pack(">f", math.nan)) + b"u."
        )
        self.prints("0.8125\n", "cat", path, "loss")
        self.prints("nan\n", "cat", path, "nan")
        self.assertEqual(self.document("cat", "--json", path, "loss"),
                         {"file": str(path), "name": "loss", "type": "numpy.float64", "value": 0.8125})
        self.assertEqual(self.document("cat", "--json", path, "nan")["value"], "nan")
        self.assertEqual(self.raw(path, "loss"), struct.pack("=d", 0.8125))

    def test_prints_arrays_of_numpy_as_tensors(self):
        counted = struct.pack(">6h", *range(6))
        path = self.archive(
            b"\x80\x02}(" + pickled("rows") + numpy_array("i2", ">", (2, 3), counted)
            + pickled("columns") + numpy_array("i2", ">", (2, 3), counted, is_fortran=True)
            + pickled("empty") + numpy_array("f4", "<", (0, 3), b"")
            + pickled("scalar") + numpy_array("f4", "<", (), struct.pack("<f", 3.5)) + b"u."
        )
        self.prints("rows: int16 [2, 3]\n[[0 1 2]\n [3 4 5]]\n", "cat", path, "rows")
        self.prints("columns: int16 [2, 3]\n[[0 2 4]\n [1 3 5]]\n", "cat", path, "columns")
        self.prints("empty: float32 [0, 3]\n[]\n", "cat", path, "empty")
        self.prints("scalar: float32 []\n3.5\n", "cat", path, "scalar")
        self.prints("rows[1,1:]: int16 [2]\n[4 5]\n", "cat", path, "rows", "--slice", "1,1:")
        self.assertEqual(self.document("cat", "--json", path, "columns")["values"], [0, 2, 4, 1, 3, 5])
        self.assertEqual(self.raw(path, "rows"), struct.pack("=6h", *range(6)))

    def test_an_array_of_numpy_that_lies_of_its_size_is_no_array(self):
        for shape, content in (((2, 3), bytes(11)), ((2, 3), bytes(10)), ((0, 3), bytes(2))):
            path = self.archive(b"\x80\x02(" + numpy_array("i2", "<", shape, content) + b"l.")
            self.prints(f"numpy.ndarray int16 {shape}\n", "cat", path, "0")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
