#!/usr/bin/env python3
"""Files that the tool writes, read by torch: repack, split, merge, update.

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
FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


def run(*arguments):
    subprocess.run([TOOL, *map(str, arguments)], env=ENVIRONMENT, check=True,
                   stdout=subprocess.DEVNULL)


def name_of(dtype):
    return str(dtype).removeprefix("torch.")


def every_float(dtype):
    """All bit patterns of the small types; of the others such near halves of these, and random."""
    if dtype in (torch.float16, torch.bfloat16):
        return torch.arange(-(1 << 15), 1 << 15, dtype=torch.int16).view(dtype)
    halves = [every_float(small).to(torch.float64) for small in (torch.float16, torch.bfloat16)]
    halves = torch.cat([half[half.isfinite()].sort().values for half in halves])
    middles = ((halves[1:] + halves[:-1]) / 2).to(dtype)
    bits = torch.int32 if dtype == torch.float32 else torch.int64
    random = torch.randint(torch.iinfo(bits).min, torch.iinfo(bits).max, (200_000,), dtype=bits)
    near = [(middles.view(bits) + step).view(dtype) for step in (-1, 0, 1)]
    return torch.cat([*near, random.view(dtype)])


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

    def test_conversions_are_those_of_torch(self):
        for old in FLOATS:
            values = every_float(old)
            torch.save({"x": values, "i": torch.arange(3)}, self.file)
            for new in FLOATS:
                run("repack", self.file, self.copy, "--dtype", f"{name_of(old)}={name_of(new)}")
                self.same(self.loaded(self.copy), {"x": values.to(new), "i": torch.arange(3)})

    def test_compact_and_converted_views_keep_what_they_share(self):
        base = torch.randn(100, 100)
        saved = {"rows": base[3:9], "cell": base[5, 7], "transposed": base[4:6].t(),
                 "none": base[50:50], "alone": torch.randn(5)[1:3]}
        torch.save(saved, self.file)
        for options in (["--compact"], ["--compact", "--dtype", "float32=bfloat16"],
                        ["--compact", "--align", "2MiB"], ["--dtype", "float32=float64"]):
            run("repack", self.file, self.copy, *options)
            loaded = self.loaded(self.copy)
            dtype = loaded["rows"].dtype
            self.same(loaded, {name: tensor.to(dtype) for name, tensor in saved.items()})
            storages = {name: t.untyped_storage().data_ptr() for name, t in loaded.items()}
            self.assertEqual(len({storages[name] for name in ("rows", "cell", "transposed")}), 1)
            if "--compact" in options:
                self.assertEqual(loaded["rows"].untyped_storage().nbytes(),
                                 600 * loaded["rows"].element_size())

    def test_kinds_of_tensors_are_converted(self):
        sparse = torch.eye(3).to_sparse()
        parameter = torch.nn.Parameter(torch.randn(3))
        torch.save({"sparse": sparse, "parameter": parameter, "n": {"epoch": 3}}, self.file)
        run("repack", self.file, self.copy, "--dtype", "float32=float16")
        loaded = torch.load(self.copy, weights_only=True)
        self.assertEqual(loaded["sparse"].dtype, torch.float16)
        self.assertTrue(torch.equal(loaded["sparse"].to_dense(), torch.eye(3, dtype=torch.float16)))
        self.assertIsInstance(loaded["parameter"], torch.nn.Parameter)
        self.assertTrue(torch.equal(loaded["parameter"], parameter.to(torch.float16)))
        self.assertEqual(loaded["n"], {"epoch": 3})

    def test_orders_and_alignments(self):
        saved = {f"t{i}": torch.randn(1 << 19 if i % 3 == 0 else 100) for i in range(12)}
        torch.save(saved, self.file)
        order = self.folder / "order"
        order.write_text("t9\nt1\n")
        for options in (["--order", order], ["--align", "4096"], ["--align", "2MiB"],
                        ["--align", "2MiB", "--order", order], ["--crc", "off"]):
            run("repack", self.file, self.copy, *options)
            self.same(self.loaded(self.copy), saved)

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

    def test_update(self):
        saved = {"a": torch.randn(4, 5), "b": torch.arange(6), "c": torch.ones(3).bool(),
                 "s": torch.tensor(1.5)}
        torch.save(saved, self.file)
        changed = {"a": torch.randn(4, 5), "b": torch.arange(6) * 2, "c": torch.zeros(3).bool(),
                   "s": torch.tensor(-1.0)}
        for name, tensor in changed.items():
            numpy.save(self.folder / "x.npy", tensor.numpy())
            run("update", self.file, name, self.folder / "x.npy")
        self.same(self.loaded(self.file), changed)
        updated = self.file.read_bytes()
        torch.save(changed, self.file)
        self.assertEqual(self.file.read_bytes(), updated)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
