#!/usr/bin/env python3
"""Saves random objects with torch.save and compares what the tool says with what torch says.

    random_test.py TOOL [--files N] [--seed SEED]

Every name, path, dtype, shape, stride, storage, offset and byte. The seed is printed; give it again
to repeat a run. Half of the files are opened with each calculated offset compared with the record's
local header, half without.
"""

import pathlib
import random
import sys
import tempfile
import types
import warnings

import torch
from case import random_run
from describe import Storages, bytes_in_file, describe, element_bytes, walk
from random_objects import RandomObject, many_storages
from tool import Tool, difference

try:
    from torch.utils.serialization import config
except ImportError:  # before torch 2.7, which has no settings
    config = types.SimpleNamespace(save=types.SimpleNamespace())

MANY = {7: 5000, 23: 1000, 41: 1001, 42: 101}  # file number -> storages


def make_object(number, source):
    if number in MANY:
        return many_storages(MANY[number], source)
    maker = RandomObject(source)
    chance = source.random()
    if chance < 0.05:
        return maker.tensor()
    return maker.container(source.choice((0, 1, 5, 20, 60)), depth=4)


def save(value, folder, number, source):
    """Writes the file; returns its path and what the options say of it."""
    stem = source.choice(("m", "model", "checkpoint-of-a-long-name", "a" * 120, "model.tar"))
    path = folder / f"{stem}{number}.pt"
    alignment = source.choice((64, 64, 64, 64, 4096, 4096, 32, 256, 1, 1000, 32768))
    config.save.storage_alignment = alignment
    config.save.compute_crc32 = source.random() < 0.7
    protocol = source.choice((2, 2, 2, 2, 2, 3, 4, 5))
    disabled = source.random() < 0.1
    try:
        if source.random() < 0.1:
            with open(path, "wb") as stream:  # the archive is then called `archive`
                torch.save(value, stream, pickle_protocol=protocol)
        else:
            torch.save(value, path, pickle_protocol=protocol, _disable_byteorder_record=disabled)
    finally:
        config.save.storage_alignment = 64
        config.save.compute_crc32 = True
    return path, alignment


def compare(tool, path, value, alignment, source):
    """The first thing that differs, or None."""
    tensors = list(walk(value))
    storages = Storages()
    reader = torch._C.PyTorchFileReader(str(path))
    expected = describe(tensors, reader, storages.key)
    found = tool.tensors(path)
    fault = difference(expected, found)
    if fault:
        return fault
    data = path.read_bytes()
    for entry, (_, tensor) in zip(found, tensors):
        if bytes_in_file(data, entry, tensor.element_size()) != element_bytes(tensor):
            return f"{entry['path']}: other bytes at file_offset {entry['file_offset']}"
    return compare_info(tool, path, expected, storages, alignment) or compare_bytes(
        tool, path, tensors, source
    )


def compare_info(tool, path, expected, storages, alignment):
    info = tool.info(path)
    wanted = {
        "format": "torch_zip",
        "version": 3,
        "format_version": "1",
        "byteorder": "little",
        "storage_alignment": alignment,
        "tensors": len(expected),
        "storages": len(storages.keys),
        "tensor_bytes": sum(entry["nbytes"] for entry in expected),
        "file_bytes": path.stat().st_size,
    }
    for field, value in wanted.items():
        if info[field] != value:
            return f"info: {field} is {info[field]!r}, expected {value!r}"
    headers = info["offsets"]["local_headers_read"]
    if headers != (1 if storages.keys else 0):
        return f"info: {headers} local headers read for {len(storages.keys)} storages"
    return None


def compare_bytes(tool, path, tensors, source):
    """Through `cat --raw`, for a sample; by path where two keys look alike it cannot be asked."""
    askable = {}
    for part, tensor in tensors:
        askable.setdefault(repr([str(key) for key in part]), []).append((part, tensor))
    single = [pairs[0] for pairs in askable.values() if len(pairs) == 1 and pairs[0][0]]
    for part, tensor in source.sample(single, min(2, len(single))):
        if tool.raw(path, part) != element_bytes(tensor):
            return f"cat --raw {part}: other bytes"
    return None


def main():
    tool, files, seed = random_run()
    warnings.simplefilter("ignore")
    tools = [Tool(tool, verify) for verify in ("headers", "chain")]
    faults = tensors = 0
    with tempfile.TemporaryDirectory() as folder:
        for number in range(files):
            source = random.Random(f"{seed}/{number}")
            value = make_object(number, source)
            path, alignment = save(value, pathlib.Path(folder), number, source)
            try:
                fault = compare(tools[number % 2], path, value, alignment, source)
            except AssertionError as error:
                fault = str(error)
            tensors += sum(1 for _ in walk(value))
            if fault:
                faults += 1
                print(f"file {number}: {fault}", flush=True)
            path.unlink()
    print(f"{files} files, {tensors} tensors, {faults} files differ")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
