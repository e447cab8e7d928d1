#!/usr/bin/env python3
"""What bench/make_checkpoint writes opens in torch, and torch and the tool agree about it.

    generated_test.py TOOL MAKE_CHECKPOINT
"""

import subprocess
import sys

import torch
from case import ToolCase, main
from describe import Storages, describe, element_bytes, walk
from tool import difference

SHAPES = {
    "model": ("--layers", "2", "--hidden", "64", "--vocab", "100"),
    "bfloat16": ("--layers", "1", "--hidden", "64", "--vocab", "100", "--dtype", "bfloat16"),
    "uniform": ("--count", "300", "--shape", "3x5", "--dtype", "float64"),
}


class GeneratedTest(ToolCase):
    verify = "crc"

    def test_torch_loads_it_and_agrees(self):
        for name, arguments in SHAPES.items():
            with self.subTest(name):
                path = self.folder / f"{name}.pt"
                subprocess.run([sys.argv[2], path, *arguments], check=True, capture_output=True)
                value = torch.load(path, weights_only=True)
                tensors = list(walk(value))
                self.assertGreater(len(tensors), 10)
                reader = torch._C.PyTorchFileReader(str(path))
                expected = describe(tensors, reader, Storages().key)
                self.assertIsNone(difference(expected, self.tool.tensors(path)))
                part, tensor = tensors[-1]
                self.assertEqual(self.tool.raw(path, part), element_bytes(tensor))


if __name__ == "__main__":
    main(arguments=2)
