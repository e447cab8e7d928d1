#!/usr/bin/env python3
"""Files that the tool writes, read by torch: repack, split, merge.

    repack_test.py WEIGHTMAP
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import numpy
import torch
from torch.utils.serialization import config

TOOL = pathlib.Path(sys.argv[1]).resolve()
ENVIRONMENT = {key: text for key, text in os.environ.items() if not key.startswith("WEIGHTMAP_")}


def run(*arguments):
    subprocess.run([TOOL, *map(str, arguments)], env=ENVIRONMENT, check=True,
                   stdout=subprocess.DEVNULL)


class Three(torch.nn.Module):
    def __init__(self):
        super().__init__()
        for i, name in enumerate("abc"):
            setattr(self, name, torch.nn.Parameter(torch.randn(40 + i)))

    def forward(self, x):
        return x + self.a.sum() + self.b.sum() + self.c.sum()


class Repack(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(13)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.file = self.folder / "model.pt"
        self.copy = self.folder / "copy.pt"

    def loaded(self, path):
        """The same by each way of torch.load, which is checked."""
        first = torch.load(path, weights_only=True)
        config.load.calculate_storage_offsets = True
        try:
            mapped = torch.load(path, weights_only=True, mmap=True)
        finally:
            config.load.calculate_storage_offsets = False
        self.same(first, mapped)
        self.same(first, torch.load(path, weights_only=True, mmap=True))
        return first

    def same(self, a, b):
        self.assertEqual(list(a), list(b))
        for name, tensor in a.items():
            self.assertEqual(tensor.dtype, b[name].dtype, name)
            self.assertEqual(tensor.stride(), b[name].stride(), name)
            torch.testing.assert_close(tensor, b[name], rtol=0, atol=0, equal_nan=True)

    def test_orders_and_alignments(self):
        saved = {f"t{i}": torch.randn(1 << 19 if i % 3 == 0 else 100) for i in range(12)}
        torch.save(saved, self.file)
        order = self.folder / "order"
        order.write_text("t9\nt1\n")
        for options in (["--order", order], ["--align", "4096"], ["--align", "2MiB"],
                        ["--align", "2MiB", "--order", order], ["--crc", "off"]):
            run("repack", self.file, self.copy, *options)
            self.same(self.loaded(self.copy), saved)

    def repacked(self, source, *options):
        """The report, and the names of the tensors in the order of the file."""
        done = subprocess.run([TOOL, "repack", "--json", source, self.copy, *options],
                              env=ENVIRONMENT, check=True, capture_output=True)
        listed = subprocess.run([TOOL, "ls", "--json", self.copy], env=ENVIRONMENT, check=True,
                                capture_output=True)
        tensors = json.loads(listed.stdout)["tensors"]
        tensors.sort(key=lambda tensor: tensor["file_offset"])
        return json.loads(done.stdout), [tensor["name"] for tensor in tensors]

    def test_an_archive_of_torch_export(self):
        source = self.folder / "three.pt2"
        torch.export.save(torch.export.export(Three(), (torch.ones(3),)), source)
        saved = torch.export.load(source).state_dict
        order = self.folder / "order"
        order.write_text("c\nb\na\n")
        for options, names in ((["--order", order], "cba"), (["--align", "4096"], "abc"),
                               (["--align", "2MiB", "--order", order], "cba")):
            report, found = self.repacked(source, *options)
            self.assertEqual((report["storages"], "".join(found)), (3, names))
            self.same(torch.export.load(self.copy).state_dict, saved)

    def test_arrays_stay_in_the_pickle(self):
        saved = {"a": torch.randn(5), "array": numpy.arange(6.0), "b": torch.randn(7)}
        torch.save(saved, self.file, pickle_protocol=4)
        order = self.folder / "order"
        order.write_text("b\narray\na\n")
        report, found = self.repacked(self.file, "--order", order)
        self.assertEqual((report["storages"], found), (2, ["array", "b", "a"]))
        loaded = torch.load(self.copy, weights_only=False)
        self.same({name: loaded[name] for name in "ab"}, {name: saved[name] for name in "ab"})
        self.assertTrue(numpy.array_equal(loaded["array"], saved["array"]))

    def test_split_and_merge(self):
        saved = {f"t{i}": torch.randn(10 * i, 10) for i in range(20)}
        saved["view"] = saved["t7"][3:5]
        torch.save(saved, self.file)
        run("split", self.file, self.folder / "shards", "--max-size", "9KiB")
        index = json.loads((self.folder / "shards/pytorch_model.bin.index.json").read_text())
        self.assertEqual(index["metadata"]["total_size"],
                         sum(saved[f"t{i}"].nbytes for i in range(20)))
        loaded = {}
        for shard in sorted(set(index["weight_map"].values())):
            content = self.loaded(self.folder / "shards" / shard)
            self.assertEqual({index["weight_map"][name] for name in content}, {shard})
            loaded.update(content)
        self.same({name: loaded[name] for name in saved}, saved)
        run("merge", self.copy, self.folder / "shards/pytorch_model.bin.index.json")
        merged = self.loaded(self.copy)
        self.same({name: merged[name] for name in saved}, saved)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
