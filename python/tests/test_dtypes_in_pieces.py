"""Every dtype, in one piece and divided along each dimension, through every way that Python and the
tool have to its elements: the right bytes, or a refusal that names the reason. No format divides
blocks of ggml, which are in one piece.

tests/formats/dcp/dtypes_in_pieces_test.cpp does so with the ways of the library.
"""

import io
import json
import pickle
import re
import struct
import subprocess
from collections import Counter, OrderedDict
from pathlib import Path

import pytest
from conftest import torch_since
from safetensors_files import file_of

import weightmap

numpy = pytest.importorskip("numpy", reason="arrays are one of the ways")
torch = pytest.importorskip("torch", reason="torch's tensors are one of the ways")
filesystem = pytest.importorskip("torch.distributed.checkpoint.filesystem")
metadata = pytest.importorskip("torch.distributed.checkpoint.metadata")
pytest.importorskip("ml_dtypes", reason="numpy has no bfloat16 or float8 of its own")

# The names of safetensors, of weightmap, and the bits of an element.
SAFETENSORS = """
F64 float64 64, F32 float32 32, F16 float16 16, BF16 bfloat16 16, I64 int64 64, I32 int32 32,
I16 int16 16, I8 int8 8, U64 uint64 64, U32 uint32 32, U16 uint16 16, U8 uint8 8, BOOL bool 8,
C64 complex64 64, F8_E5M2 float8_e5m2 8, F8_E4M3 float8_e4m3fn 8, F8_E5M2FNUZ float8_e5m2fnuz 8,
F8_E4M3FNUZ float8_e4m3fnuz 8, F8_E8M0 float8_e8m0fnu 8, F4 float4_e2m1fn_x2 4,
F6_E2M3 float6_e2m3 6, F6_E3M2 float6_e3m2 6
"""
# ggml's number, weightmap's name, elements and bytes of a block.
GGML = """
2 q4_0 32 18, 3 q4_1 32 20, 6 q5_0 32 22, 7 q5_1 32 24, 8 q8_0 32 34, 9 q8_1 32 36, 10 q2_K 256 84,
11 q3_K 256 110, 12 q4_K 256 144, 13 q5_K 256 176, 14 q6_K 256 210, 15 q8_K 256 292,
16 iq2_xxs 256 66, 17 iq2_xs 256 74, 18 iq3_xxs 256 98, 19 iq1_s 256 50, 20 iq4_nl 32 18,
21 iq3_s 256 110, 22 iq2_s 256 82, 23 iq4_xs 256 136, 29 iq1_m 256 56, 34 tq1_0 256 54,
35 tq2_0 256 66, 39 mxfp4 32 17, 40 nvfp4 64 36, 41 q1_0 128 18, 42 q2_0 64 18
"""
# What numpy has another name for, beside the blocked ones.
NUMPY = {"bits8": "uint8", "bits1x8": "uint8", "bits2x4": "uint8", "bits4x2": "uint8",
         "bits16": "uint16", "float4_e2m1fn_x2": "uint8", "qint8": "int8", "quint8": "uint8",
         "qint32": "int32", "quint4x2": "uint8", "quint2x4": "uint8"}
# What torch has and no other format.
TORCH = """
complex128 complex32 bits8 bits1x8 bits2x4 bits4x2 bits16 qint8 quint8 qint32 quint4x2 quint2x4
uint1 uint2 uint3 uint4 uint5 uint6 uint7 int1 int2 int3 int4 int5 int6 int7
""".split()


def rows_of(table):
    return [row.split() for row in table.replace("\n", " ").split(",")]


def pattern(nbytes):
    return bytes((i * 7 + i // 251) % 251 for i in range(nbytes))


def booleans(nbytes):
    return bytes(i % 3 == 0 for i in range(nbytes))


def write_shards(folder, dtype, bits, content, divided):
    """[4, 2, 8] elements, or two halves along the dimension `divided`, as DCP writes them for HF."""
    whole = numpy.frombuffer(content, numpy.uint8).reshape(4, 2, bits)  # 8 elements a row
    for half in range(1 if divided is None else 2):
        part, shape, offsets = whole, [4, 2, 8], [0, 0, 0]
        if divided is not None:
            part = numpy.split(whole, 2, divided)[half]
            shape[divided] //= 2
            offsets[divided] = shape[divided] * half
        if bits == 4:
            offsets[2] //= 2  # of torch's pairs
        name = f"shard-0000{half + 1}-model-00001-of-00001.safetensors"
        info = json.dumps({"w": {"saved_offsets": offsets}})
        (folder / name).write_bytes(file_of(
            {"w": (dtype, shape, part.tobytes())},
            {"DCP_SHARDING_INFO": info, "DCP_VERSION": "1.0"}, align=1))
    return folder


def write_gguf(path, number, row, content):
    text = struct.pack("<Q", 1) + b"w"
    header = b"GGUF" + struct.pack("<IQQ", 3, 1, 0)
    header += text + struct.pack("<IQQQIQ", 3, row, 2, 4, number, 0)
    path.write_bytes(header.ljust(-(-len(header) // 32) * 32, b"\0") + content)
    return path


class Elements:
    """Is pickled as a tensor, of dtypes too of which torch itself makes none without a quantizer."""

    def __init__(self, dtype, sizes, content):
        self.dtype, self.sizes, self.content = dtype, sizes, content

    def __reduce__(self):
        strides = (self.sizes[1] * self.sizes[2], self.sizes[2], 1)
        return torch._utils._rebuild_tensor_v3, (
            memoryview(self.content), 0, self.sizes, strides, False, OrderedDict(), self.dtype)

    def saved(self):
        """As torch.save lays it out."""
        pickled, archive = io.BytesIO(), io.BytesIO()
        pickler = pickle.Pickler(pickled, 2)
        pickler.persistent_id = lambda value: (
            ("storage", torch.UntypedStorage, "0", "cpu", value.nbytes)
            if isinstance(value, memoryview) else None)
        pickler.dump(self)
        writer = torch._C.PyTorchFileWriter(archive)
        for name, record in (("data.pkl", pickled.getvalue()), ("data/0", self.content)):
            writer.write_record(name, record, len(record))
        writer.write_end_of_file()
        return archive.getvalue()


def write_distcp(folder, dtype, content, divided):
    """[4, 2, 8] elements, or two halves along the dimension `divided`, as DCP writes them."""
    dtype = getattr(torch, dtype)
    whole = numpy.frombuffer(content, numpy.uint8).reshape(4, 2, 8, dtype.itemsize)
    file, chunks, places = b"", [], {}
    for part in [whole] if divided is None else numpy.split(whole, 2, divided):
        offsets = torch.Size(len(chunks) * part.shape[dim] * (dim == divided) for dim in range(3))
        sizes = torch.Size(part.shape[:3])
        item = Elements(dtype, tuple(sizes), part.tobytes()).saved()
        chunks.append(metadata.ChunkStorageMetadata(offsets, sizes))
        places[metadata.MetadataIndex("w", offsets)] = filesystem._StorageInfo(
            "__0_0.distcp", len(file), len(item))
        file += item
    of = metadata.TensorStorageMetadata(
        metadata.TensorProperties(dtype), torch.Size((4, 2, 8)), chunks)
    (folder / "__0_0.distcp").write_bytes(file)
    (folder / ".metadata").write_bytes(
        pickle.dumps(metadata.Metadata({"w": of}, {"w": ("w",)}, places)))
    return folder


def rows(folder):
    """For each: what it is called, its dtype, pieces, bytes, and what to open."""
    for name, dtype, bits in rows_of(SAFETENSORS):
        content = (booleans if dtype == "bool" else pattern)(8 * int(bits))
        for divided in (None, 0, 1, 2):
            made = folder / f"{dtype}-{divided}"
            made.mkdir()
            yield dtype, divided, content, write_shards(made, name, int(bits), content, divided)
    for number, dtype, elements, nbytes in rows_of(GGML):
        content = pattern(8 * 2 * int(nbytes))
        path = folder / f"{dtype}.gguf"
        yield dtype, None, content, write_gguf(path, int(number), 2 * int(elements), content)
    for dtype in TORCH:
        content = pattern(64 * getattr(torch, dtype).itemsize)
        for divided in (None, 0, 1, 2):
            made = folder / f"{dtype}-{divided}"
            made.mkdir()
            yield dtype, divided, content, write_distcp(made, dtype, content, divided)


class Refused(Exception):
    pass


def tool(*arguments):
    program = Path(weightmap.__file__).parent / "bin" / "weightmap"
    ran = subprocess.run([program, *arguments], capture_output=True)
    if ran.returncode:
        raise Refused(ran.stderr.decode())
    return ran.stdout


def bytes_of_torch(tensor):
    return bytes(tensor.contiguous().untyped_storage())


def read_safetensors(path, dtype):
    """Read without weightmap."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    info = json.loads(content[8 : 8 + length])["w"]
    assert [name for name, known, _ in rows_of(SAFETENSORS) if known == dtype] == [info["dtype"]]
    assert info["shape"] == [4, 2, 8]
    begin, end = info["data_offsets"]
    return content[8 + length + begin : 8 + length + end]


def read_torch(path, dtype):
    tensor = torch.load(path, weights_only=False)["w"]
    assert str(tensor.dtype) == f"torch.{dtype}"
    return bytes_of_torch(tensor)


def by_convert_safetensors(tensor, dtype, path, folder):
    tool("convert", path, folder / "converted.safetensors")
    return read_safetensors(folder / "converted.safetensors", dtype)


def by_convert_pt(tensor, dtype, path, folder):
    tool("convert", path, folder / "converted.pt")
    return read_torch(folder / "converted.pt", dtype)


def by_save_safetensors(tensor, dtype, path, folder):
    weightmap.save_safetensors({"w": tensor}, folder / "saved.safetensors")
    return read_safetensors(folder / "saved.safetensors", dtype)


def by_save(tensor, dtype, path, folder):
    weightmap.save({"w": tensor}, folder / "saved.pt")
    return read_torch(folder / "saved.pt", dtype)


def by_numpy(tensor, dtype, path, folder):
    array = tensor.numpy()
    assert array.dtype.name == NUMPY.get(dtype, dtype)
    return array.tobytes()


def by_torch(tensor, dtype, path, folder):
    made = tensor.torch()
    assert made.dtype is getattr(torch, "uint8" if dtype in BLOCKED else dtype)
    return bytes_of_torch(made)


WAYS = {
    "cat": lambda tensor, dtype, path, folder: tool("cat", path, "w", "--raw"),
    "convert to safetensors": by_convert_safetensors,
    "convert to pt": by_convert_pt,
    "save_safetensors": by_save_safetensors,
    "save": by_save,
    "numpy": by_numpy,
    "torch": by_torch,
    "DLPack": lambda tensor, *_: bytes_of_torch(torch.from_dlpack(tensor)),
    "tobytes": lambda tensor, *_: tensor.tobytes(),
}
OF_SAFETENSORS = {dtype for _, dtype, _ in rows_of(SAFETENSORS)}
NOT_SAVED = {dtype for dtype in TORCH if re.fullmatch(r"u?int\d", dtype)}
QUANTIZED = {dtype for dtype in TORCH if dtype.startswith("q")}
OF_GGML = {dtype for _, dtype, _, _ in rows_of(GGML)}
BLOCKED = {"float6_e2m3", "float6_e3m2"} | OF_GGML
NUMPY |= dict.fromkeys(BLOCKED, "uint8")
NUMPY |= {dtype: dtype.rstrip("1234567") + "8" for dtype in NOT_SAVED
          if dtype[-1] not in "24"}  # those ml_dtypes has


def refusal(way, dtype, divided):
    """Why there is no answer; None where there must be one."""
    if "safetensors" in way and dtype not in OF_SAFETENSORS:
        return f'the tensor "w" is of {dtype}, which safetensors has not'
    if way == "convert to pt" and dtype in BLOCKED:
        return f"is of {dtype}, which torch does not have"
    if way == "save" and dtype in BLOCKED:
        return f"torch has no dtype {dtype}; save tensor."
    if way == "convert to pt" and dtype in QUANTIZED:
        return f"is of {dtype}, whose scales are not in a dict of tensors"
    if way == "save" and dtype in QUANTIZED and divided is None:
        return f"is a {dtype} tensor without its scales; save the Checkpoint that it is of"
    if way in ("save", "torch") and dtype in QUANTIZED:
        return f"a {dtype} tensor needs its scales, which weightmap.torch.load() puts together"
    if way == "save" and dtype in NOT_SAVED and divided is not None:
        return f"dtype torch.{dtype} is not recognized"  # a KeyError of torch.save's own
    if way == "numpy" and dtype == "complex32":
        how = ".bits() gives its elements as integers" if divided is None else ".tobytes() gives"
        return f"numpy has no type for complex32; {how}"
    if way == "DLPack" and divided is not None:
        return "'w' lies in 2 pieces, and DLPack shares one; take .torch() or .numpy(), which copy"
    is_packed = dtype == "float4_e2m1fn_x2" or (dtype in TORCH and not dtype.startswith("complex"))
    if way == "DLPack" and (is_packed or dtype in BLOCKED):
        return f"DLPack has no word for {dtype}; .bits() gives "
    return None


def test_the_tables_have_every_dtype_of_the_library():
    header = Path(__file__).parents[2] / "include" / "weightmap" / "dtype.hpp"
    [names] = re.findall(r"enum class DType : std::uint8_t \{(.*?)\};", header.read_text(), re.DOTALL)
    listed = re.sub("//.*", "", names).replace("boolean", "bool").replace(",", " ").split()
    of_numpy = ["opaque8", "opaque16"]  # which no file in pieces has
    assert sorted([*OF_SAFETENSORS, *OF_GGML, *TORCH, *of_numpy]) == sorted(listed)


@torch_since((2, 10), "torch.from_dlpack() of float8, or of read-only tensors")
def test_each_way_gives_the_bytes_or_says_why_not(tmp_path):
    given, refused = Counter(), Counter()
    for number, (dtype, divided, content, path) in enumerate(rows(tmp_path)):
        for way, answer in WAYS.items():
            where = f"{way} of {dtype} divided along {divided}"
            folder = tmp_path / f"{number} {way}"
            folder.mkdir()
            tensor = weightmap.open(path)["w"]
            why = refusal(way, dtype, divided)
            if why is None:
                assert answer(tensor, dtype, path, folder) == content, where
                given[way] += 1
            else:
                with pytest.raises((Refused, weightmap.Error, BufferError, KeyError)) as caught:
                    answer(tensor, dtype, path, folder)
                assert why in str(caught.value), where
                refused[way] += 1
    # docs/reliability.md has the sums.
    assert {way: (given[way], refused[way]) for way in WAYS} == {
        "cat": (219, 0),
        "convert to safetensors": (88, 131),
        "convert to pt": (164, 55),
        "save_safetensors": (88, 131),
        "save": (122, 97),
        "numpy": (215, 4),
        "torch": (199, 20),
        "DLPack": (21, 198),
        "tobytes": (219, 0),
    }
