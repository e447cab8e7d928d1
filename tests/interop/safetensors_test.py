#!/usr/bin/env python3
"""Files that safetensors and torch.distributed.checkpoint write, and what the tool says of them.

    safetensors_test.py TOOL [--files N] [--seed SEED]

Names in the order of the file, dtypes, shapes, the place of each tensor, every byte, and the
metadata, as safetensors.safe_open has them: of single files, of files that are laid out by hand in
ways that are allowed and that no writer of safetensors takes, and of sets of shards with an index.
The seed is printed; give it again to repeat a run. Exit 77: there is no safetensors.
"""

import json
import pathlib
import random
import struct
import sys
import tempfile
import warnings

import torch
from case import random_run
from describe import element_bytes
from random_objects import LETTERS, WORDS, numel
from tool import Tool, contiguous_entry, difference

try:
    import safetensors
    import safetensors.numpy
    import safetensors.torch
except ImportError:
    print("SKIPPED: this Python has no safetensors")
    sys.exit(77)

# As the header calls them, and as the tool does. F6 has no type of torch, and F4 two elements in
# each of its type.
TYPES = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "F8_E5M2": "float8_e5m2",
    "F8_E4M3": "float8_e4m3fn", "F8_E8M0": "float8_e8m0fnu", "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz", "I16": "int16", "U16": "uint16", "F16": "float16",
    "BF16": "bfloat16", "I32": "int32", "U32": "uint32", "F32": "float32", "C64": "complex64",
    "F64": "float64", "I64": "int64", "U64": "uint64", "F4": "float4_e2m1fn_x2",
}
NUMPY_TYPES = ("bool uint8 int8 int16 uint16 float16 int32 uint32 float32 complex64 float64 int64 "
               "uint64").split()


class Maker:
    """Random tensors, by name, as a format without strides or sharing can have them."""

    def __init__(self, source, dtypes):
        self.source = source
        self.dtypes = dtypes

    def name(self):
        kind = self.source.random()
        if kind < 0.6:
            words = self.source.choices(WORDS, k=self.source.randint(1, 4))
            return ".".join([*words, str(self.source.randrange(100))])
        if kind < 0.65:
            return self.source.choice(
                ("", "\0", "a\0b", "__metadata", "dtype", "\\u0041", "\x1b[0m"))
        return "".join(self.source.choices(LETTERS, k=self.source.choice((1, 5, 20, 300))))

    def shape(self, dtype):
        rank = self.source.choice((0, 1, 1, 2, 2, 2, 3, 4, 5, 8))
        # Few shapes, so that many of them come again.
        shape = [self.source.choice((1, 2, 3, 4, 7)) for _ in range(rank)]
        while numel(shape) > 4096:
            shape[self.source.randrange(rank)] = 1
        if rank and self.source.random() < 0.08:
            shape[self.source.randrange(rank)] = 0
        return shape or ([1] if dtype == "float4_e2m1fn_x2" else [])

    def tensor(self):
        dtype = self.source.choice(self.dtypes)
        shape = self.shape(dtype)
        size = getattr(torch, dtype).itemsize
        if dtype == "bool":
            data = bytes(self.source.getrandbits(1) for _ in range(numel(shape)))
        else:
            data = self.source.randbytes(numel(shape) * size)
        if not data:
            return torch.empty(shape, dtype=getattr(torch, dtype))
        flat = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        return flat.view(getattr(torch, dtype)).reshape(shape)

    def tensors(self, count):
        return {self.name(): self.tensor() for _ in range(count)}

    def metadata(self):
        if self.source.random() < 0.3:
            return None
        return {self.name(): self.name() for _ in range(self.source.choice((0, 1, 2, 30)))}


def header_shape(dtype, shape):
    return [*shape[:-1], shape[-1] * 2] if dtype == "F4" else list(shape)


def by_hand(path, tensors, metadata, source):
    """In any order and any layout of JSON, so that few tensors lie at a multiple of their size."""
    names = {name: kind for kind, name in TYPES.items()}
    items, data = [], b""
    order = list(tensors)
    source.shuffle(order)
    for name in order:
        content = element_bytes(tensors[name])
        kind = names[str(tensors[name].dtype).removeprefix("torch.")]
        info = {"dtype": kind, "shape": header_shape(kind, tensors[name].shape),
                "data_offsets": [len(data), len(data) + len(content)]}
        fields = list(info.items())
        if source.random() < 0.3:
            source.shuffle(fields)
        items.append((name, dict(fields)))
        data += content
    if metadata is not None:
        items.append(("__metadata__", metadata))
    if source.random() < 0.5:
        source.shuffle(items)
    separators = source.choice(((", ", ": "), (",", ":"), (" ,\n", "\t:  ")))
    text = json.dumps(dict(items), separators=separators, ensure_ascii=source.random() < 0.5,
                      indent=source.choice((None, None, 0, 2)))
    header = (" " * source.randrange(3) + text + " " * source.randrange(9)).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + data)


def in_order(names, places):
    """offset_keys() has tensors without bytes that lie at one place in an order that changes from
    call to call. The tool has them in that of the header."""
    place = lambda name: places[name]["data_offsets"]
    header = [name for name in places if name != "__metadata__"]
    ordered = sorted(header, key=place)
    assert [place(name) for name in names] == [place(name) for name in ordered]
    assert sorted(names) == sorted(ordered)
    return ordered


def expected_of(path):
    """What safetensors says of a file, in the words of `weightmap ls --json`, and the bytes."""
    data = path.read_bytes()
    begin = 8 + struct.unpack_from("<Q", data)[0]
    places = json.loads(data[8:begin])
    entries, contents = [], {}
    with safetensors.safe_open(path, "pt") as file:
        for name in in_order(file.offset_keys(), places):
            tensor = file.get_tensor(name)
            first, end = places[name]["data_offsets"]
            contents[name] = data[begin + first : begin + end]
            assert contents[name] == element_bytes(tensor), (path, name)
            entries.append(contiguous_entry(
                name, TYPES[places[name]["dtype"]], list(tensor.shape),
                list(torch.empty(tensor.shape, device="meta").stride()), begin + first, end - first))
        return entries, contents, file.metadata() or {}


class Comparison:
    def __init__(self, tool, source):
        self.tool = tool
        self.source = source
        self.files = self.tensors = self.unaligned = self.read = 0

    def check(self, opened, expected, contents):
        found = self.tool.tensors(opened)
        fault = difference(expected, found)
        assert not fault, f"{opened}: {fault}"
        names = [entry["name"] for entry in expected]
        for name in self.source.sample(names, min(3, len(names))):
            assert self.tool.raw(opened, [name]) == contents[name], (opened, name)
            self.read += 1
        info = self.tool.info(opened)
        assert info["format"] == "safetensors", info
        assert info["tensors"] == len(expected), info
        assert info["tensor_bytes"] == sum(len(data) for data in contents.values()), info
        self.files += 1
        self.tensors += len(expected)
        self.unaligned += sum(
            entry["file_offset"] % getattr(torch, entry["dtype"]).itemsize != 0
            for entry in expected)

    def metadata(self, opened, expected):
        found = json.loads(self.tool.output("tree", "--all", "--json", opened))["value"]
        assert json.dumps(found, sort_keys=True) == json.dumps(expected, sort_keys=True), opened
        plain = self.tool.output("tree", opened).decode()
        head = f"dict, {len(expected)} item" if expected else ("{}", *"0123456789")
        assert plain.startswith(head), plain

    def file(self, path, tensors):
        expected, contents, metadata = expected_of(path)
        assert {name: element_bytes(tensor) for name, tensor in tensors.items()} == contents, path
        self.check(path, expected, contents)
        self.metadata(path, metadata)

    def index(self, path, weight_map, metadata):
        """A set: the files in the order of their names, of each what the index says it has."""
        expected, contents = [], {}
        for shard in sorted(set(weight_map.values())):
            entries, of_shard, _ = expected_of(path.parent / shard)
            chosen = {name for name, file in weight_map.items() if file == shard}
            expected += [entry for entry in entries if entry["name"] in chosen]
            contents.update((name, of_shard[name]) for name in chosen)
        assert len(expected) == len(weight_map), path
        self.check(path, expected, contents)
        self.check(path.parent, expected, contents)
        self.metadata(path, metadata)


def write_file(path, number, source):
    """A single file, by one of the writers; returns its tensors."""
    writer = ("torch", "numpy", "by hand")[number % 3]
    maker = Maker(source, NUMPY_TYPES if writer == "numpy" else list(TYPES.values()))
    tensors = maker.tensors(source.choice((0, 1, 2, 10, 60, 300) if number % 20 else (3000,)))
    # Of no tensors and an empty dict safetensors 0.8.0 makes `{},"__metadata__":{}}`.
    metadata = maker.metadata() or None if not tensors else maker.metadata()
    if writer == "torch":
        safetensors.torch.save_file(tensors, path, metadata)
    elif writer == "numpy":
        arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
        safetensors.numpy.save_file(arrays, path, metadata)
    else:
        by_hand(path, tensors, metadata, source)
    return tensors


def write_set(folder, source):
    """As transformers and huggingface_hub write it: split by size, an index beside the shards. Some
    shards have more tensors than the index names. Returns the index, its map and its metadata."""
    maker = Maker(source, list(TYPES.values()))
    tensors = maker.tensors(source.choice((1, 5, 40, 400)))
    shards, most = [{}], source.choice((100, 1000, 20_000))
    for name, tensor in tensors.items():
        if sum(each.nbytes for each in shards[-1].values()) + tensor.nbytes > most and shards[-1]:
            shards.append({})
        shards[-1][name] = tensor
    weight_map = {}
    for number, shard in enumerate(shards, 1):
        file = f"model-{number:05}-of-{len(shards):05}.safetensors"
        weight_map.update(dict.fromkeys(shard, file))
        stale = source.sample(sorted(tensors), min(len(tensors), source.choice((0, 0, 2))))
        more = {name: maker.tensor() for name in stale if name not in shard}
        if source.random() < 0.3:
            more["not in the index"] = maker.tensor()
        safetensors.torch.save_file({**more, **shard}, folder / file, {"format": "pt"})
    metadata = {"total_size": sum(tensor.nbytes for tensor in tensors.values())}
    index = {"metadata": metadata, "weight_map": weight_map}
    name = source.choice(("model.safetensors.index.json", "model.safetensors.index.fp16.json",
                          "diffusion_pytorch_model.safetensors.index.json"))
    text = json.dumps(index, indent=2, sort_keys=source.random() < 0.5,
                      ensure_ascii=source.random() < 0.5)
    (folder / name).write_text(text + "\n", encoding="utf-8")
    return folder / name, weight_map, metadata


def write_distributed(folder, source):
    """What torch.distributed.checkpoint writes for Hugging Face's loaders, consolidated."""
    from torch.distributed.checkpoint import HuggingFaceStorageWriter, save

    # Of other types it makes nothing, and of scalars zeros.
    maker = Maker(source, ["float64", "float32", "float16", "bfloat16"])
    tensors = {name: tensor for name, tensor in maker.tensors(30).items()
               if "\0" not in name and tensor.dim() != 0 and tensor.numel() != 0}
    # Planned to lie in these files.
    numbers = {name: 1 + i % 3 for i, name in enumerate(tensors)}
    writer = HuggingFaceStorageWriter(
        path=str(folder), save_distributed=True, enable_consolidation=True,
        fqn_to_index_mapping=numbers)
    save(tensors, storage_writer=writer, no_dist=True)
    return tensors


def add_dtypes(compare, folder):
    """Each type that there is, at once."""
    source = random.Random(0)
    tensors = {}
    for kind, dtype in TYPES.items():
        tensors[kind] = Maker(source, [dtype]).tensor()
    for path, write in (
            (folder / "saved", lambda path: safetensors.torch.save_file(tensors, path)),
            (folder / "made", lambda path: by_hand(path, tensors, None, source))):
        write(path)
        compare.file(path, tensors)


def main():
    tool, files, seed = random_run(0.15)
    warnings.simplefilter("ignore")
    source = random.Random(seed)
    compare = Comparison(Tool(tool), source)
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        add_dtypes(compare, folder)
        for number in range(files):
            path = folder / f"{number}.{source.choice(('safetensors', 'st', 'pt'))}"
            compare.file(path, write_file(path, number, source))
            path.unlink()
        singles = compare.files
        for number in range(files // 3):
            place = folder / f"set-{number}"
            place.mkdir()
            compare.index(*write_set(place, source))
        sets = compare.files - singles
        distributed = compare_distributed(compare, folder / "distributed", source)
    print(f"{singles} files, {sets} openings of sets and {distributed} of torch.distributed: "
          f"{compare.tensors} tensors are the same, {compare.unaligned} of them unaligned, "
          f"{compare.read} read with cat")
    assert singles and sets and distributed and compare.tensors and compare.unaligned, "nothing"
    assert compare.read, "nothing was read"


def compare_distributed(compare, folder, source):
    folder.mkdir()
    tensors = write_distributed(folder, source)
    before = compare.files
    index = folder / "model.safetensors.index.json"
    weight_map = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
    assert sorted(weight_map) == sorted(tensors)
    compare.index(index, weight_map, json.loads(index.read_text(encoding="utf-8"))["metadata"])
    for shard in sorted(set(weight_map.values())):
        compare.file(folder / shard, {name: tensor for name, tensor in tensors.items()
                                      if weight_map[name] == shard})
    return compare.files - before


if __name__ == "__main__":
    main()
