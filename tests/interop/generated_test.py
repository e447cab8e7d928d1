#!/usr/bin/env python3
"""What bench/make_checkpoint writes opens in torch, and torch and the tool agree about it.

    generated_test.py TOOL MAKE_CHECKPOINT
"""

import pathlib
import subprocess
import sys
import tempfile
import unittest

import torch
from describe import Storages, describe, element_bytes, walk
from tool import Tool, difference

TOOL = MAKE_CHECKPOINT = ""
SHAPES = {
    "model": ("--layers", "2", "--hidden", "64", "--vocab", "100"),
    "bfloat16": ("--layers", "1", "--hidden", "64", "--vocab", "100", "--dtype", "bfloat16"),
    "uniform": ("--count", "300", "--shape", "3x5", "--dtype", "float64"),
}


class GeneratedTest(unittest.TestCase):
    def test_torch_loads_it_and_agrees(self):
        for name, arguments in SHAPES.items():
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                path = pathlib.Path(folder) / f"{name}.pt"
                subprocess.run([MAKE_CHECKPOINT, path, *arguments], check=True, capture_output=True)
                value = torch.load(path, weights_only=True)
                tensors = list(walk(value))
                self.assertGreater(len(tensors), 10)
                reader = torch._C.PyTorchFileReader(str(path))
                tool = Tool(TOOL, "crc")
                expected = describe(tensors, reader, Storages().key)
                self.assertIsNone(difference(expected, tool.tensors(path)))
                part, tensor = tensors[-1]
                self.assertEqual(tool.raw(path, part), element_bytes(tensor))


if __name__ == "__main__":
    TOOL, MAKE_CHECKPOINT = sys.argv[1:3]
    print("torch", torch.__version__)
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
