#!/usr/bin/env python3
"""Files that `weightmap convert` writes, read by torch.

    conversion_test.py WEIGHTMAP
"""

import json

import numpy
import torch
from case import ToolCase, main
from safetensors.torch import load_file
from torch.utils.serialization import config


class Three(torch.nn.Module):
    def __init__(self):
        super().__init__()
        for i, name in enumerate("abc"):
            setattr(self, name, torch.nn.Parameter(torch.randn(40 + i)))

    def forward(self, x):
        return x + self.a.sum() + self.b.sum() + self.c.sum()


class Convert(ToolCase):
    def setUp(self):
        super().setUp()
        torch.manual_seed(13)
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
            for more in ((), ("--tensors-only",)):
                self.tool.output("convert", self.file, self.copy, *options, *more)
                loaded = self.loaded(self.copy)
                self.same({name: loaded[name] for name in saved}, saved)

    def converted(self, source, copy, *options):
        """The report, and the names of the tensors in the order of the file."""
        report = json.loads(self.tool.output("convert", "--json", source, copy, *options))
        tensors = sorted(self.tool.tensors(copy), key=lambda tensor: tensor["file_offset"])
        return report, [tensor["name"] for tensor in tensors]

    def test_an_archive_of_torch_export(self):
        source = self.folder / "three.pt2"
        torch.export.save(torch.export.export(Three(), (torch.ones(3),)), source)
        saved = torch.export.load(source).state_dict
        order = self.folder / "order"
        order.write_text("c\nb\na\n")
        for options, names in ((["--order", order], "cba"), (["--align", "4096"], "abc"),
                               (["--align", "2MiB", "--order", order], "cba")):
            copy = self.folder / "copy.pt2"
            report, found = self.converted(source, copy, *options)
            self.assertEqual((report["storages"], "".join(found), report["left_out"]),
                             (3, names, []))
            self.same(torch.export.load(copy).state_dict, saved)
        report, found = self.converted(source, self.copy)
        self.same(self.loaded(self.copy), saved)
        self.assertTrue(any(name.startswith("models/") for name in report["left_out"]), report)

    def test_arrays_stay_in_the_pickle(self):
        saved = {"a": torch.randn(5), "array": numpy.arange(6.0), "b": torch.randn(7)}
        order = self.folder / "order"
        order.write_text("b\na\n")
        for protocol, listed in ((2, []), (4, ["array"])):
            torch.save(saved, self.file, pickle_protocol=protocol)
            report, found = self.converted(self.file, self.copy, "--order", order)
            self.assertEqual((report["storages"], found, report["left_out"]),
                             (2, [*listed, "b", "a"], []))
            loaded = torch.load(self.copy, weights_only=False)
            self.same({name: loaded[name] for name in "ab"}, {name: saved[name] for name in "ab"})
            self.assertTrue(numpy.array_equal(loaded["array"], saved["array"]))

    def test_what_safetensors_cannot_have_is_named(self):
        """Arrays of protocol 2 are text in the pickle; later ones are tensors to weightmap."""
        saved = {"a": torch.randn(5), "array": numpy.arange(6.0), "lr": 0.5,
                 "arrays": [numpy.arange(3), {"deep": numpy.ones(2)}], "date": numpy.float64(1.5)}
        made = self.folder / "model.safetensors"
        for protocol, left_out in ((2, ["array", "lr", "arrays", "date"]), (4, ["lr", "date"])):
            torch.save(saved, self.file, pickle_protocol=protocol)
            report, found = self.converted(self.file, made)
            self.assertEqual(report["left_out"], left_out)
            arrays = {"array": saved["array"], "arrays.0": saved["arrays"][0],
                      "arrays.1.deep": saved["arrays"][1]["deep"]} if protocol == 4 else {}
            loaded = load_file(made)
            self.assertEqual(sorted(loaded), sorted(["a", *arrays]))
            self.assertEqual(sorted(found), sorted(loaded))
            for name, array in arrays.items():
                self.assertTrue(numpy.array_equal(loaded[name].numpy(), array), name)
            report, _ = self.converted(self.file, self.copy)
            self.assertEqual((report["left_out"], self.copy.read_bytes()),
                             ([], self.file.read_bytes()))

    def test_a_dict_keeps_how_tensors_lie(self):
        """Strides, shared storages, parameters; but not what no tensor reaches."""
        big = torch.randn(1 << 20)
        image = torch.randn(2, 3, 8, 8).contiguous(memory_format=torch.channels_last)
        saved = {"part": big[1000:1010], "from_end": big[2000:3000:7], "image": image,
                 "swapped": image.transpose(0, 1),
                 "wide": torch.ones(1).expand(100000), "empty": torch.zeros(0, 3),
                 "grad": torch.nn.Parameter(torch.randn(3)), "scalar": torch.tensor(1.5)}
        torch.save({"model": saved}, self.file)
        self.tool.output("convert", self.file, self.copy, "--tensors-only")
        loaded = {name.removeprefix("model."): tensor
                  for name, tensor in self.loaded(self.copy).items()}
        self.same(loaded, saved)
        self.assertLess(self.copy.stat().st_size, 32 << 10)
        self.assertIsInstance(loaded["grad"], torch.nn.Parameter)
        loaded["image"][0, 1, 2, 3] = 77
        self.assertEqual(loaded["swapped"][1, 0, 2, 3], 77)


if __name__ == "__main__":
    main()
