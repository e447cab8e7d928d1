#!/usr/bin/env python3
"""Saves random objects as legacy streams and compares what the tool says with what torch says.

    legacy_test.py TOOL [--files N] [--seed SEED]

Names, dtypes, shapes, strides, storage offsets, which tensors share a storage, and every byte; then
the archive that `weightmap convert` makes of the stream, as torch loads it.
"""

import collections
import pathlib
import random
import tempfile
import warnings

import torch
from case import random_run
from describe import element_bytes, properties, walk
from random_objects import RandomObject
from tool import Tool


def say(tensor):
    return {**properties(tensor), "strides": list(tensor.stride()),
            "storage_offset": tensor.storage_offset(), "requires_grad": tensor.requires_grad}


def compare(tool, path, tensors):
    entries = tool.tensors(path)
    assert len(entries) == len(tensors), path
    storages = {}
    # By path where two keys look alike it cannot be asked.
    alike = collections.Counter(str([str(key) for key in keys]) for keys, _ in tensors)
    for entry, (keys, tensor) in zip(entries, tensors):
        expected = say(tensor)
        assert entry["path"] == list(keys), (path, entry)
        assert {name: entry[name] for name in expected} == expected, (path, entry, expected)
        address = tensor.untyped_storage()._cdata
        assert storages.setdefault(address, entry["storage"]) == entry["storage"], (path, entry)
        if alike[str([str(key) for key in keys])] == 1:
            assert tool.raw(path, entry["path"]) == element_bytes(tensor), (path, entry)


def main():
    tool, files, seed = random_run(0.1)
    warnings.simplefilter("ignore")
    source = random.Random(seed)
    tool = Tool(tool)
    compared = 0
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "legacy.pt"
        archive = pathlib.Path(folder) / "archive.pt"
        for number in range(files):
            maker = RandomObject(source, legacy=True)
            value = maker.container((20, 5, 1, 0)[number % 4], depth=3)
            protocol = source.choice((2, 2, 3, 4, 5))
            torch.save(value, path, pickle_protocol=protocol, _use_new_zipfile_serialization=False)
            tensors = list(walk(torch.load(path, weights_only=False)))
            compare(tool, path, tensors)
            archive.unlink(missing_ok=True)
            tool.output("convert", path, archive)
            compare(tool, archive, list(walk(torch.load(archive, weights_only=False))))
            compared += len(tensors)
    assert compared, "no stream held a tensor"
    print(f"{files} streams, {compared} tensors are the same")


if __name__ == "__main__":
    main()
