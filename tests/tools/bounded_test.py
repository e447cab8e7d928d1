#!/usr/bin/env python3
"""Tensors whose strides repeat what a small file stores: whatever their dimensions are, a command
takes no more memory than 64 MiB and eight times the file, and ends or refuses.

    bounded_test.py ROOT WEIGHTMAP
"""

import json
import math
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest
import zipfile

from tool_case import ENVIRONMENT, ROOT, TOOL

sys.path.insert(0, str(ROOT / "tests" / "hostile"))
import pickle_builder as p  # noqa: E402
import torch_files  # noqa: E402

REFUSAL = ("has {} elements in a storage of {}, and its strides may repeat each 1024 times; the "
           "option repeats=any (WEIGHTMAP_REPEATS) lifts this bound")


def write(path, shape, strides, stored, kind="FloatStorage"):
    """A checkpoint whose tensor "w" has so many numbers: 0, 1, 2 ..."""
    storage = struct.pack(f"<{stored}{'f' if kind == 'FloatStorage' else 'B'}", *range(stored))
    tensor = p.tensor(shape=shape, strides=strides, numel=stored, kind=kind)
    torch_files.pickle_file(p.one(tensor), {"0": storage}).write(path)


# Name: shape, strides, elements in the storage. The tests take each as it is in the review.
FILES = {
    "cube_26": ((2,) * 26, (1,) * 26, 64),
    "cube_45": ((2,) * 45, (1,) * 45, 64),
    "square": ((120000, 120000), (1, 1), 240000),
    "windows": ((2000,) * 4, (1, 2, 3, 4), 20000),
}
# What may be gone through, and what may be if that is asked for.
GIVEN_OUT = {"cube_24": ((2,) * 24, (1,) * 24, 64)}
SMALLEST = {"bytes_25": ((2,) * 25, (1,) * 25, 64, "ByteStorage")}


class Bounded(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        for name, tensor in {**FILES, **GIVEN_OUT, **SMALLEST}.items():
            write(cls.folder / f"{name}.pt", *tensor)
            write(cls.folder / f"{name}_too.pt", *tensor)

    def run_tool(self, *arguments, file, status=0):
        """Its output and errors. At most as much memory as is promised for `file`."""
        out = open(self.folder / "out", "w+")
        err = open(self.folder / "err", "w+")
        with out, err:
            child = subprocess.Popen([TOOL, *map(str, arguments)], cwd=self.folder,
                                     env=ENVIRONMENT, stdout=out, stderr=err)
            _, ended, used = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(ended)
            out.seek(0)
            err.seek(0)
            said = out.read(), err.read()
        self.assertEqual(child.returncode, status, said)
        most = (64 << 20) + 8 * (self.folder / file).stat().st_size
        self.assertLessEqual(used.ru_maxrss * 1024, most, arguments)
        return said

    def test_statistics_are_of_each_stored_element_as_often_as_it_is_there(self):
        means = {"cube_26": 13, "cube_45": 22.5, "square": 119999, "windows": 9995}
        for name, (shape, _, _) in FILES.items():
            with self.subTest(name):
                out, _ = self.run_tool("stats", f"{name}.pt", "--json", file=f"{name}.pt")
                [found] = json.loads(out)["tensors"]
                self.assertEqual((found["count"], found["min"], found["zeros"]), (math.prod(shape), 0, 1))
                self.assertAlmostEqual(found["mean"], means[name])

    def test_what_goes_through_all_elements_refuses(self):
        commands = {
            "cat --raw": lambda name: ("cat", f"{name}.pt", "w", "--raw", "-o", "raw"),
            "cat -o": lambda name: ("cat", f"{name}.pt", "w", "-o", "array.npy"),
            "cat --as": lambda name: ("cat", f"{name}.pt", "w", "--as", "float32", "--raw", "-o",
                                      "raw"),
            "to safetensors": lambda name: ("convert", f"{name}.pt", "new.safetensors"),
        }
        for name, (shape, _, _) in FILES.items():
            reached = 1 + sum((n - 1) * stride for n, stride in zip(shape, FILES[name][1]))
            for label, command in commands.items():
                with self.subTest(label, name=name):
                    _, err = self.run_tool(*command(name), file=f"{name}.pt", status=1)
                    self.assertIn(REFUSAL.format(math.prod(shape), reached), err)
            for left in ("raw", "array.npy", "new.safetensors"):
                self.assertFalse((self.folder / left).exists())

    def test_diff_says_of_which_tensors_it_compares_nothing(self):
        for name in FILES:
            with self.subTest(name):
                changed = self.change_a_byte(name)
                out, _ = self.run_tool("diff", f"{name}.pt", changed, "--json", file=f"{name}.pt",
                                       status=1)
                found = json.loads(out)
                [pair] = found["tensors"]
                self.assertEqual((found["equal"], pair["change"], pair["error"]["code"]),
                                 (False, "not_compared", "limit_exceeded"))
                self.assertEqual(found["counts"]["tensors"]["not_compared"], 1)
                out, err = self.run_tool("diff", f"{name}.pt", changed, file=f"{name}.pt", status=1)
                self.assertIn("1 tensor: 1 not compared", out)
                self.assertIn("weightmap: w: not compared: the tensor has ", err)

    def change_a_byte(self, name):
        """A copy in which the first element of the storage is another."""
        content = bytearray((self.folder / f"{name}.pt").read_bytes())
        with zipfile.ZipFile(self.folder / f"{name}.pt") as archive:
            [storage] = [entry for entry in archive.infolist() if "/data/0" in entry.filename]
        length = struct.unpack("<HH", content[storage.header_offset + 26:][:4])
        content[storage.header_offset + 30 + sum(length)] ^= 1
        (self.folder / "changed.pt").write_bytes(content)
        return "changed.pt"

    def test_diff_of_equal_strides_over_equal_bytes_compares_what_is_stored(self):
        for name in FILES:
            with self.subTest(name):
                out, _ = self.run_tool("diff", f"{name}.pt", f"{name}_too.pt", "--exit-code",
                                       file=f"{name}.pt")
                self.assertIn("1 tensor: 1 equal", out)

    def test_what_repeats_less_is_given_out_in_bounded_memory(self):
        commands = {
            "diff": (("diff", "cube_24.pt", "cube_24_too.pt", "--exit-code"), None),
            "cat": (("cat", "cube_24.pt", "w", "--raw", "-o", "raw"), "raw"),
            "to safetensors": (("convert", "cube_24.pt", "whole.safetensors"), "whole.safetensors"),
        }
        for label, (command, made) in commands.items():
            with self.subTest(label):
                self.run_tool(*command, file="cube_24.pt")
                if made is None:
                    continue
                self.assertGreaterEqual((self.folder / made).stat().st_size, 4 << 24)
                with open(self.folder / made, "rb") as content:
                    content.seek(-4096, os.SEEK_END)
                    # All indices but the last two are 1.
                    self.assertIn(struct.pack("<4f", 22, 23, 23, 24), content.read())

    def test_a_torch_file_keeps_strides_and_stays_small(self):
        for name in FILES:
            for options in ((), ("--tensors-only",)):
                with self.subTest(name, options=options):
                    path = self.folder / f"{name}.pt"
                    self.run_tool("convert", path.name, "kept.pt", *options, file=path.name)
                    self.assertLessEqual((self.folder / "kept.pt").stat().st_size,
                                         path.stat().st_size + 1024)
                    [kept] = json.loads(self.run_tool("ls", "--json", "kept.pt",
                                                      file=path.name)[0])["tensors"]
                    self.assertEqual((kept["shape"], kept["strides"]),
                                     tuple(map(list, FILES[name][:2])))

    def test_the_bound_is_lifted_by_an_option(self):
        self.run_tool("convert", "bytes_25.pt", "large.safetensors", file="bytes_25.pt", status=1)
        out, _ = self.run_tool("diff", "bytes_25.pt", "bytes_25_too.pt", "--repeats", "any",
                               file="bytes_25.pt")
        self.assertIn("1 equal", out)
        for command in (("cat", "bytes_25.pt", "w", "--raw", "-o", "large"),
                        ("convert", "bytes_25.pt", "large.safetensors")):
            with self.subTest(command[0]):
                self.run_tool(*command, "--repeats", "any", file="bytes_25.pt")
                self.assertGreaterEqual((self.folder / command[-1]).stat().st_size, 1 << 25)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
