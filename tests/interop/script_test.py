#!/usr/bin/env python3
"""TorchScript archives: what the tool lists, against what torch.jit.load() has.

    script_test.py TOOL
"""

import io
import json
import warnings
import zipfile
from typing import Dict, List

import torch
import torch.ao.quantization as quantization
from case import ToolCase, main
from describe import element_bytes, same_tensor
from records import write_again
from torch import nn

warnings.simplefilter("ignore")


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 4)
        self.register_buffer("window", torch.arange(10.0)[2:5])
        self.register_buffer("scratch", torch.ones(2), persistent=False)
        self.plain = torch.tensor([7, 8])

    def forward(self, x):
        return self.linear(x) + self.plain.sum()


class Model(nn.Module):
    pieces: List[torch.Tensor]
    named: Dict[str, torch.Tensor]

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])
        self.tied = self.blocks[0].linear.weight
        self.pieces = [torch.ones(2), torch.zeros(3)]
        self.named = {"a": torch.ones(1), "b": torch.full((2,), 5.0)}
        self.register_buffer("small", torch.ones(4).to(torch.float8_e4m3fn))
        self.register_buffer("unsigned", torch.ones(3, dtype=torch.uint16))
        self.register_buffer("half_complex", torch.ones(3, dtype=torch.complex32))
        self.register_buffer("empty", torch.empty(0))
        self.register_buffer("turned", torch.arange(6.0).reshape(2, 3).t())

    def forward(self, x):
        for block in self.blocks:
            x = block(x)[:, :3]
        return x + self.pieces[0].sum() + self.named["a"]


class Common(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(5, 2)
        self.norm = nn.BatchNorm1d(3)
        self.lstm = nn.LSTM(2, 3)

    def forward(self, x):
        return self.embedding(x)


def scripted():
    return torch.jit.script(Model())


def frozen():
    layers = nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 2)).eval()
    return torch.jit.freeze(torch.jit.script(layers))


class Quantizable(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter = quantization.QuantStub()
        self.conv = nn.Conv2d(1, 2, 3)
        self.linear = nn.Linear(8, 3)
        self.leave = quantization.DeQuantStub()

    def forward(self, x):
        return self.leave(self.linear(self.conv(self.enter(x)).flatten(1)))


def quantized(module, config):
    """As torch's eager quantization makes it, after one batch for the ranges."""
    module.eval().qconfig = config
    prepared = quantization.prepare(module)
    if isinstance(module, Quantizable):
        prepared(torch.randn(4, 1, 4, 4))
    return quantization.convert(prepared)


QUANTIZED = {
    "dynamic": lambda: quantization.quantize_dynamic(nn.Sequential(nn.Linear(6, 5)), {nn.Linear}),
    "static": lambda: quantized(Quantizable(), quantization.get_default_qconfig("fbgemm")),
    "embedding": lambda: quantized(nn.Sequential(nn.EmbeddingBag(6, 16)),
                                   quantization.float_qparams_weight_only_qconfig),
}
UNPACK = ("linear_unpack", "conv2d_unpack", "embedding_bag_unpack")


def unpacked(packed):
    """The tensors of one of torch's objects with packed parameters, by torch's own operators."""
    for name in UNPACK:
        try:
            parts = getattr(torch.ops.quantized, name)(packed)
        except RuntimeError:
            continue
        return [parts] if isinstance(parts, torch.Tensor) else [each for each in parts if each is not None]
    raise AssertionError(packed)


def stored(tensor):
    """What a file holds of a tensor: (dtype, shape, bytes) of its integers, scales and zero points."""
    name = str(tensor.dtype).removeprefix("torch.")
    if not tensor.is_quantized:
        return {(name, tuple(tensor.shape), element_bytes(tensor.detach()))}
    found = {(name, tuple(tensor.shape), element_bytes(tensor.int_repr()))}
    if tensor.qscheme() != torch.per_tensor_affine:
        found |= stored(tensor.q_per_channel_scales()) | stored(tensor.q_per_channel_zero_points())
    return found


MODULES = {
    "scripted": scripted,
    "traced": lambda: torch.jit.trace(nn.Sequential(nn.Linear(2, 3), nn.ReLU()), torch.ones(1, 2)),
    "common": lambda: torch.jit.script(Common()),
    "frozen": frozen,
}


class ScriptTest(ToolCase):
    verify = "crc"

    def saved(self, name, **options):
        path = self.folder / f"{name}.pt"
        MODULES[name]().save(str(path), **options)
        return path

    def test_has_every_tensor_of_the_state_dict(self):
        for name in MODULES:
            with self.subTest(name):
                path = self.saved(name)
                listed = self.listed(path)
                for key, tensor in torch.jit.load(str(path)).state_dict().items():
                    same_tensor(self.tool, path, listed[key], tensor)

    def test_lists_lists_and_dicts_and_plain_attributes_by_their_names(self):
        names = list(self.listed(self.saved("scripted")))
        for name in ("pieces.0", "pieces.1", "named.a", "named.b", "blocks.0.plain", "tied"):
            self.assertIn(name, names)

    def test_tied_tensors_have_one_storage(self):
        listed = self.listed(self.saved("scripted"))
        self.assertEqual(listed["tied"]["storage"], listed["blocks.0.linear.weight"]["storage"])

    def test_lists_the_weights_of_a_frozen_module_as_constants(self):
        path = self.saved("frozen")
        listed = self.listed(path)
        self.assertEqual(list(listed), [f"constants.{i}" for i in range(4)])
        weight = dict(enumerate(torch.jit.load(str(path)).code_with_constants[1].const_mapping.values()))
        found = {self.tool.raw(path, ["constants", i]) for i in range(4)}
        self.assertEqual(found, {element_bytes(tensor) for tensor in weight.values()})

    def test_has_what_torch_unpacks_of_quantized_modules_frozen_or_not(self):
        counted = 0
        for name, make in QUANTIZED.items():
            module = torch.jit.script(make())
            for kind, made in {"": module, "frozen ": torch.jit.freeze(module.eval())}.items():
                path = self.folder / f"{kind}{name}.pt"
                made.save(str(path))
                found = {(entry["dtype"], tuple(entry["shape"]), self.tool.raw(path, entry["path"]))
                         for entry in self.tool.tensors(path)}
                # What packs the parameters is frozen, too, and has no name then but in the constants.
                frozen = path if kind else self.frozen_copy(path)
                packed = torch.jit.load(str(frozen)).code_with_constants[1].const_mapping
                for each in packed.values():
                    for tensor in unpacked(each):
                        with self.subTest(kind + name):
                            self.assertLessEqual(stored(tensor), found)
                            counted += 1
        self.assertEqual(counted, 2 * (2 + 4 + 1))

    def frozen_copy(self, path):
        copy = path.with_suffix(".frozen")
        torch.jit.freeze(torch.jit.load(str(path)).eval()).save(str(copy))
        return copy

    def test_lists_all_records(self):
        path = self.saved("scripted", _extra_files={"notes.json": "{}"})
        records = json.loads(self.tool.output("ls", "--records", "--json", path))["records"]
        with zipfile.ZipFile(path) as archive:
            names = [name.split("/", 1)[1] for name in archive.namelist()]
        self.assertEqual([record["name"] for record in records], names)
        self.assertIn("extra/notes.json", names)

    def test_reads_each_version(self):
        path = self.saved("traced")
        for version in range(3, 11):
            changed = self.folder / f"version{version}.pt"
            write_again(path, changed, version=version)
            with self.subTest(version):
                self.assertEqual(self.tool.info(changed)["version"], version)
                self.assertEqual(list(self.listed(changed)), list(self.listed(path)))

    def test_two_saves_of_one_module_read_equal(self):
        module = scripted()
        paths = [self.folder / "first.pt", self.folder / "second.pt"]
        for path in paths:
            module.save(str(path))
        self.tool.output("diff", *paths)

    def test_a_lite_interpreter_archive_reads_as_the_module_it_was_made_of(self):
        module = scripted()
        path = self.folder / "lite.ptl"
        module._save_for_lite_interpreter(str(path))
        whole = self.folder / "whole.pt"
        module.save(str(whole))
        self.assertEqual(list(self.listed(path)), list(self.listed(whole)))

    def test_an_archive_that_is_written_again_still_loads(self):
        path = self.saved("scripted")
        copy = self.folder / "copy.pt"
        self.tool.output("convert", path, copy)
        before = torch.jit.load(str(path)).state_dict()
        after = torch.jit.load(str(copy)).state_dict()
        self.assertEqual(list(before), list(after))
        for name, tensor in before.items():
            self.assertEqual(element_bytes(tensor), element_bytes(after[name]), name)
        self.tool.output("diff", path, copy)

    def test_says_what_sparse_and_quantized_attributes_are(self):
        class Sparse(nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("coo", torch.eye(3).to_sparse())
                self.register_buffer("csr", torch.eye(3).to_sparse_csr())
                self.register_buffer(
                    "quantized",
                    torch.quantize_per_tensor(torch.ones(4), 0.5, 3, torch.qint8),
                )

            def forward(self, x):
                return x

        stream = io.BytesIO()
        torch.jit.save(torch.jit.script(Sparse()), stream)
        path = self.folder / "sparse.pt"
        path.write_bytes(stream.getvalue())
        composed = json.loads(self.tool.output("ls", "--json", path))["composed"]
        found = {each["name"]: (each["form"], each["shape"]) for each in composed}
        self.assertEqual(found["coo"], ("sparse_coo", [3, 3]))
        self.assertEqual(found["csr"], ("sparse_csr", [3, 3]))
        self.assertEqual(found["quantized"], ("quantized", [4]))


if __name__ == "__main__":
    main()
