#!/usr/bin/env python3
"""Files that gguf-py writes, and what the tool says of them.

    gguf_test.py TOOL [--files N] [--seed SEED]

Names, types, shapes, the place and every byte of each tensor, and the metadata, as gguf.GGUFReader
has them: of single files in both byte orders and at several alignments, and of splits, opened by
any of their files and by their folder. The seed is printed; give it again to repeat a run. Exit 77:
there is no gguf.
"""

import json
import math
import pathlib
import random
import sys
import tempfile

import numpy
from case import random_run
from tool import Tool, contiguous_entry, difference

try:
    import gguf
except ImportError:
    print("SKIPPED: this Python has no gguf")
    sys.exit(77)

Type = gguf.GGMLQuantizationType
Value = gguf.GGUFValueType
# What numpy has by the same elements, as the tool calls it; all other types are blocks.
PLAIN = {
    Type.F32: "float32", Type.F16: "float16", Type.F64: "float64", Type.I8: "int8",
    Type.I16: "int16", Type.I32: "int32", Type.I64: "int64", Type.BF16: "bfloat16",
}
# gguf-py takes blocks of q8_1 for 40 bytes, and ggml for 36.
BLOCKS = [kind for kind in Type if kind not in PLAIN and kind.name != "Q8_1"]
NUMBERS = {
    Value.UINT8: (0, 2**8), Value.INT8: (-2**7, 2**7), Value.UINT16: (0, 2**16),
    Value.INT16: (-2**15, 2**15), Value.UINT32: (0, 2**32), Value.INT32: (-2**31, 2**31),
    Value.UINT64: (0, 2**64), Value.INT64: (-2**63, 2**63),
}


def name_of(kind):
    if kind in PLAIN:
        return PLAIN[kind]
    return kind.name.lower().replace("_k", "_K") if kind.name.endswith("_K") else kind.name.lower()


class Maker:
    def __init__(self, source):
        self.source = source

    def text(self, longest=30):
        letters = "abcxyz._-0189 \u00e9\u4e2d\U0001f600\n\"\\\x1b"
        return "".join(self.source.choices(letters, k=self.source.randrange(longest)))

    def number(self, kind):
        if kind == Value.FLOAT32:
            return float(numpy.float32(self.source.uniform(-1e30, 1e30)))
        if kind == Value.FLOAT64:
            return self.source.uniform(-1e300, 1e300)
        low, end = NUMBERS[kind]
        return self.source.choice((low, end - 1, self.source.randrange(low, end)))

    def value(self, kind):
        if kind == Value.STRING:
            return self.text()
        if kind == Value.BOOL:
            return self.source.random() < 0.5
        return self.number(kind)

    def add_metadata(self, writer):
        kinds = [*NUMBERS, Value.FLOAT32, Value.FLOAT64, Value.BOOL, Value.STRING]
        for number in range(self.source.choice((0, 1, 5, 40))):
            key = f"test.{number}." + self.text(8)
            kind = self.source.choice(kinds)
            if self.source.random() < 0.5:
                writer.add_key_value(key, self.value(kind), kind)
                continue
            count = self.source.choice((1, 2, 30, 1000))
            writer.add_key_value(key, [self.value(kind) for _ in range(count)], Value.ARRAY, kind)

    def shape(self):
        rank = self.source.choice((0, 1, 1, 2, 2, 3, 4))
        shape = [self.source.choice((1, 2, 3, 5)) for _ in range(rank)]
        if rank and self.source.random() < 0.08:
            shape[self.source.randrange(rank)] = 0
        return shape

    def add_tensor(self, writer, name):
        kind = self.source.choice([*PLAIN, *BLOCKS] if self.source.random() < 0.5 else [*PLAIN])
        shape = self.shape()
        if kind in PLAIN and kind != Type.BF16:
            dtype = numpy.dtype(PLAIN[kind])
            data = self.source.randbytes(math.prod(shape) * dtype.itemsize)
            return writer.add_tensor(name, numpy.frombuffer(data, dtype).reshape(shape))
        elements, size = gguf.GGML_QUANT_SIZES[kind]
        rows = [*shape[:-1], shape[-1] * size if shape else size]
        data = numpy.frombuffer(self.source.randbytes(math.prod(rows)), numpy.uint8)
        return writer.add_tensor(name, data.reshape(rows), raw_dtype=kind)

    def write(self, path, is_big=False, **split):
        order = gguf.GGUFEndian.BIG if is_big else gguf.GGUFEndian.LITTLE
        writer = gguf.GGUFWriter(path, "test", endianess=order, **split)
        self.add_metadata(writer)
        if not split and self.source.random() < 0.4:
            writer.add_custom_alignment(2 ** self.source.randrange(3, 13))
        for number in range(self.source.choice((1, 2, 10, 60))):
            self.add_tensor(writer, f"blk.{number}.{self.text(12)}")
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()


def contiguous(shape):
    strides = []
    for size in reversed(shape):
        strides.insert(0, strides[0] * max(1, below) if strides else 1)
        below = size
    return strides


def expected_of(path):
    """What gguf-py says of a file, in the words of `weightmap ls --json`, the bytes, the metadata,
    and the byte order."""
    reader = gguf.GGUFReader(path)
    content = path.read_bytes()
    entries, contents = [], {}
    for tensor in reader.tensors:
        shape = [int(size) for size in reversed(tensor.shape)]
        begin, size = int(tensor.data_offset), int(tensor.n_bytes)
        contents[tensor.name] = content[begin : begin + size]
        entries.append(contiguous_entry(
            tensor.name, name_of(tensor.tensor_type), shape, contiguous(shape), begin, size))
    metadata = {name: field.contents() for name, field in reader.fields.items()
                if not name.startswith("GGUF.")}
    assert len(reader.tensors) == len(contents), path
    return entries, contents, metadata


def in_json(value):
    """As `weightmap tree --json` has it, which has large integers as text."""
    if isinstance(value, list):
        return [in_json(item) for item in value]
    value = value.item() if isinstance(value, numpy.generic) else value
    return {"$int": str(value)} if isinstance(value, int) and value >= 2**63 else value


class Comparison:
    def __init__(self, tool, source):
        self.tool = tool
        self.source = source
        self.files = self.tensors = self.read = 0
        self.types = set()

    def check(self, opened, expected, contents, metadata, is_big=False):
        fault = difference(expected, self.tool.tensors(opened))
        assert not fault, f"{opened}: {fault}"
        info = self.tool.info(opened)
        assert info["format"] == "gguf" and info["version"] == 3, info
        assert info["byteorder"] == ("big" if is_big else "little"), info
        assert info["tensor_bytes"] == sum(len(data) for data in contents.values()), info
        assert info["unread_bytes"] == 0, info
        found = json.loads(self.tool.output("tree", "--all", "--json", opened))["value"]
        wanted = {name: in_json(value) for name, value in metadata.items()}
        assert list(found) == list(wanted), (opened, list(found), list(wanted))
        for name, value in wanted.items():
            assert found[name] == value, (opened, name, str(found[name])[:200], str(value)[:200])
        for entry in self.source.sample(expected, min(3, len(expected))):
            if not is_big:  # whose elements cat swaps
                data = self.tool.raw(opened, entry["path"])
                assert data == contents[entry["name"]], (opened, entry["name"])
                self.read += 1
        self.types.update(entry["dtype"] for entry in expected)
        self.files += 1
        self.tensors += len(expected)

    def file(self, path, is_big):
        self.check(path, *expected_of(path), is_big)

    def split(self, folder):
        """By one of its files, and by its folder; the metadata are those of the first."""
        files = sorted(folder.iterdir())
        whole, all_contents = [], {}
        for path in files:
            entries, contents, metadata = expected_of(path)
            if path == files[0]:
                first = metadata
            whole += entries
            all_contents.update(contents)
        for opened in (self.source.choice(files), folder):
            self.check(opened, whole, all_contents, first)


def main():
    tool, files, seed = random_run(0.15)
    source = random.Random(seed)
    maker = Maker(source)
    compare = Comparison(Tool(tool), source)
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        for number in range(files):
            path = folder / f"{number}.{source.choice(('gguf', 'bin', 'pt'))}"
            is_big = number % 4 == 3
            maker.write(path, is_big)
            compare.file(path, is_big)
            path.unlink()
        singles = compare.files
        for number in range(files // 3):
            place = folder / f"split-{number}"
            place.mkdir()
            maker.write(place / "model.gguf", split_max_tensors=source.choice((1, 2, 7)),
                        small_first_shard=source.random() < 0.5)
            compare.split(place)
    print(f"{singles} files and {compare.files - singles} openings of splits: {compare.tensors} "
          f"tensors of {len(compare.types)} types are the same, {compare.read} read with cat")
    assert singles and compare.files > singles and compare.read, "nothing was compared"


if __name__ == "__main__":
    main()
