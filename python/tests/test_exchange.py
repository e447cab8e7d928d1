"""Giving the bytes to others: numpy, the buffer protocol, DLPack, torch."""

import ctypes
import struct
import sys

import pytest
from conftest import torch_since
from dlpack_structs import DLTensor

import weightmap

numpy = pytest.importorskip("numpy", reason="exchanging arrays needs numpy")


@pytest.fixture
def ml_dtypes():
    return pytest.importorskip("ml_dtypes", reason="numpy has no bfloat16 or float8 of its own")


def shares_memory_with(array, tensor):
    """Whether an array lies where the tensor's buffer does."""
    return array.ctypes.data == tensor.__array_interface__["data"][0]


# --- numpy() ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name, strides, values", [
    ("transposed", (4, 24), [[6 * i + j for i in range(4)] for j in range(6)]),
    ("every_second_column", (24, 8), [[6 * i + j for j in (0, 2, 4)] for i in range(4)]),
    ("diagonal", (28,), [0, 7, 14, 21]),
    ("overlapping", (8, 4), [[1, 2, 3, 4], [3, 4, 5, 6], [5, 6, 7, 8]]),
    ("expanded", (0, 4), [[0, 1, 2, 3, 4, 5]] * 3),
    ("scalar_expanded", (0, 0), [[0, 0], [0, 0]]),
])
def test_numpy_keeps_strides(checkpoint, name, strides, values):
    array = checkpoint("views.pt")[name].numpy()
    assert array.strides == strides
    assert array.tolist() == values


def test_numpy_does_not_copy(checkpoint):
    tensor = checkpoint("views.pt")["base"]
    assert shares_memory_with(tensor.numpy(), tensor)
    assert numpy.shares_memory(tensor.numpy(), tensor[2:].numpy())
    assert not tensor.numpy().flags.owndata


KEYS = (1, -1, (1, 2), slice(1, 3), (slice(None, None, 2), slice(1, None, 3)), (..., 2),
        slice(4, 9))


def test_numpy_of_slices(checkpoint):
    base = checkpoint("views.pt")["base"]
    for key in KEYS:
        part, expected = base[key].numpy(), base.numpy()[key]
        assert (part.tolist(), part.shape) == (expected.tolist(), expected.shape)


def test_torch_of_slices(checkpoint, torch):
    base = checkpoint("views.pt")["base"]
    for key in KEYS:
        part, expected = base[key].torch(), base.torch()[key]
        assert torch.equal(part, expected)
        assert (part.stride(), part.data_ptr()) == (expected.stride(), expected.data_ptr())


def test_scalars_and_empty_tensors(checkpoint):
    tensors = {tensor.name: tensor for tensor in checkpoint("scalars_and_empty.pt").values()}
    scalar = tensors["scalar"].numpy()
    assert (type(scalar), scalar.shape, scalar.tolist()) == (numpy.ndarray, (), 2.5)
    assert tensors["scalar_int"].numpy().tolist() == -7
    view = tensors["scalar"].buffer()
    assert (view.shape, view.ndim, view.tolist()) == ((), 0, 2.5)
    view = tensors["empty_rows"].buffer()
    assert (view.shape, view.nbytes, view.tolist()) == ((0, 5), 0, [])
    assert bytes(tensors["empty"]) == b""
    assert tensors["empty_columns"].numpy().dtype == "int64"
    assert not tensors["empty"].numpy().flags.writeable
    for take in (weightmap.Tensor.numpy, numpy.from_dlpack):
        assert take(tensors["scalar"]).tolist() == 2.5
        assert take(tensors["empty_rows"]).shape == (0, 5)
        assert take(tensors["empty_columns"]).shape == (5, 0)
        assert take(tensors["rank_eight"]).shape == (1, 1, 1, 2, 1, 1, 1, 1)


def test_without_ml_dtypes_the_error_says_what_to_do(checkpoint, monkeypatch):
    from weightmap import _numpy

    opened = checkpoint("state_dict.pt")
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)  # as if it were not installed
    _numpy.numpy_dtype.cache_clear()
    with pytest.raises(weightmap.MissingPackageError) as caught:
        opened["layers.0.weight"].numpy()
    text = str(caught.value)
    assert "bfloat16" in text and "pip install ml_dtypes" in text and ".bits()" in text
    assert isinstance(caught.value, ImportError)
    assert opened["layers.0.weight"].bits().numpy()[0].tolist() == [0, 0x3F80, 0x4000, 0x4040]
    assert opened["layers.0.bias"].numpy().tolist() == [0, 1, 2, 3]
    monkeypatch.undo()
    # Installed meanwhile, it is found.
    pytest.importorskip("ml_dtypes", reason="the rest needs ml_dtypes")
    assert opened["layers.0.weight"].numpy()[0].astype("float32").tolist() == [0, 1, 2, 3]


# --- __array__ and __array_interface__ --------------------------------------------------------


def test_asarray_takes_it_without_copying(checkpoint):
    tensor = checkpoint("views.pt")["base"]
    array = numpy.asarray(tensor)
    assert array.tolist()[1] == [6.0, 7.0, 8.0, 9.0, 10.0, 11.0]
    assert shares_memory_with(array, tensor)
    assert not array.flags.writeable
    assert shares_memory_with(numpy.asarray(tensor, copy=False), tensor)


def test_array_copies_when_asked(checkpoint):
    tensor = checkpoint("views.pt")["base"]
    copies = numpy.array(tensor), numpy.asarray(tensor, copy=True), tensor.__array__(copy=True)
    for copied in copies:
        assert not shares_memory_with(copied, tensor)
        copied[0, 0] = 99
        assert copied[0, 0] == 99
    assert tensor.numpy()[0, 0] == 0


def test_array_converts_when_asked(checkpoint):
    tensor = checkpoint("views.pt")["base"]
    for dtype in ("float64", numpy.float64, numpy.dtype("f8")):
        array = tensor.__array__(dtype)
        assert array.dtype == "float64"
        assert array[3].tolist() == [18, 19, 20, 21, 22, 23]
    assert numpy.asarray(tensor, dtype="int16")[3].tolist() == [18, 19, 20, 21, 22, 23]
    assert shares_memory_with(tensor.__array__("float32"), tensor)
    assert shares_memory_with(tensor.__array__(numpy.float32, copy=False), tensor)


def test_array_refuses_to_convert_without_a_copy(checkpoint):
    tensor = checkpoint("views.pt")["base"]
    with pytest.raises(ValueError, match="copy"):
        tensor.__array__("float64", copy=False)
    with pytest.raises(ValueError):
        numpy.asarray(tensor, dtype="float64", copy=False)


def test_array_interface_describes_the_memory(checkpoint):
    tensor = checkpoint("views.pt")["every_second_column"]
    described = tensor.__array_interface__
    assert described == {
        "version": 3,
        "typestr": "<f4",
        "shape": (4, 3),
        "strides": (24, 8),
        "data": (tensor.numpy().ctypes.data, True),
    }


@pytest.mark.parametrize(
    ("name", "typestr"),
    [("float32", ">f4"), ("int16", ">i2"), ("complex64", ">c8"), ("uint8", "|u1"), ("bool", "|b1")],
)
def test_array_interface_knows_the_other_byte_order(checkpoint, name, typestr):
    assert checkpoint("big_endian.pt")[name].__array_interface__["typestr"] == typestr


class OnlyInterface:
    """What numpy sees of a library that has no other protocol."""

    def __init__(self, tensor):
        self.__array_interface__ = tensor.__array_interface__
        self.kept = tensor


def test_numpy_reads_through_the_array_interface(checkpoint):
    tensor = checkpoint("views.pt")["transposed"]
    array = numpy.asarray(OnlyInterface(tensor))
    assert array.tolist() == tensor.numpy().tolist()
    assert not array.flags.writeable
    scalar = numpy.asarray(OnlyInterface(tensor[1, 2]))
    assert (scalar.shape, scalar.tolist()) == ((), 13.0)


# --- the buffer protocol ----------------------------------------------------------------------


def test_memoryview_has_shape_strides_and_format(checkpoint):
    view = checkpoint("views.pt")["transposed"].buffer()
    assert (view.shape, view.strides, view.format) == ((6, 4), (4, 24), "f")
    assert (view.itemsize, view.nbytes, view.ndim, view.readonly) == (4, 96, 2, True)
    assert view.tolist() == [[6.0 * i + j for i in range(4)] for j in range(6)]


def test_a_read_only_buffer_cannot_be_written_to(checkpoint):
    view = checkpoint("views.pt")["base"].buffer()
    with pytest.raises(TypeError, match="read-only"):
        view[0, 0] = 1.0
    with pytest.raises(TypeError):
        (ctypes.c_char * 96).from_buffer(checkpoint("views.pt")["base"].buffer())


def test_a_writable_buffer_can_be_written_to(checkpoint):
    tensor = checkpoint("views.pt", sharing="private", writable=True)["base"]
    view = tensor.buffer()
    assert not view.readonly
    view[1, 2] = 42.0
    assert tensor.numpy()[1, 2] == 42.0
    (ctypes.c_float * 24).from_buffer(view)[0] = 7.0
    assert view[0, 0] == 7.0


def test_a_foreign_buffer_says_its_byte_order(checkpoint):
    opened = checkpoint("big_endian.pt")
    view = opened["int16"].buffer()
    assert view.format == ">h"
    assert bytes(view) == b"\x00\x00\x00\x01\x00\x02"
    assert numpy.asarray(opened["int16"]).tolist() == [0, 1, 2]
    assert opened["uint8"].buffer().format == "B"


# What a consumer in C may ask for; object.h and buffer.h of CPython.
SIMPLE, WRITABLE, FORMAT, ND, STRIDES = 0, 1, 4, 8, 0x18
C_CONTIGUOUS, F_CONTIGUOUS, ANY_CONTIGUOUS, INDIRECT = 0x38, 0x58, 0x98, 0x118


class Buffer(ctypes.Structure):
    _fields_ = [
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.c_void_p),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.POINTER(ctypes.c_ssize_t)),
        ("strides", ctypes.POINTER(ctypes.c_ssize_t)),
        ("suboffsets", ctypes.POINTER(ctypes.c_ssize_t)),
        ("internal", ctypes.c_void_p),
    ]


def requested(tensor, flags):
    """What a consumer gets that asks with these flags: shape, strides and format, or None."""
    exporter = tensor.buffer().obj
    view = Buffer()
    get = ctypes.pythonapi.PyObject_GetBuffer
    get.argtypes = [ctypes.py_object, ctypes.POINTER(Buffer), ctypes.c_int]
    release = ctypes.pythonapi.PyBuffer_Release
    release.argtypes = [ctypes.POINTER(Buffer)]
    get(exporter, ctypes.byref(view), flags)
    try:
        shape = view.shape[: view.ndim] if view.shape else None
        strides = view.strides[: view.ndim] if view.strides else None
        return shape, strides, view.format
    finally:
        release(ctypes.byref(view))


@pytest.mark.parametrize("name, flags, answer", [
    ("base", SIMPLE, (None, None, None)),
    ("base", FORMAT, (None, None, b"f")),
    ("base", ND, ([4, 6], None, None)),
    ("base", STRIDES, ([4, 6], [24, 4], None)),
    ("base", C_CONTIGUOUS | FORMAT, ([4, 6], [24, 4], b"f")),
    ("base", INDIRECT, ([4, 6], [24, 4], None)),
    ("base", ANY_CONTIGUOUS, ([4, 6], [24, 4], None)),
    ("base", F_CONTIGUOUS, "contiguous"),
    ("base", WRITABLE, "read-only"),
    ("every_second_column", STRIDES, ([4, 3], [24, 8], None)),
    *(("every_second_column", flags, "contiguous")
      for flags in (SIMPLE, FORMAT, ND, C_CONTIGUOUS, F_CONTIGUOUS, ANY_CONTIGUOUS)),
    ("transposed", F_CONTIGUOUS, ([6, 4], [4, 24], None)),
    ("transposed", ANY_CONTIGUOUS, ([6, 4], [4, 24], None)),
    ("transposed", C_CONTIGUOUS, "contiguous"),
])
def test_answers_what_a_buffer_request_asks_for(checkpoint, name, flags, answer):
    tensor = checkpoint("views.pt")[name]
    if isinstance(answer, str):
        with pytest.raises(BufferError, match=answer):
            requested(tensor, flags)
    else:
        assert requested(tensor, flags) == answer


def test_a_writable_checkpoint_may_be_asked_to_be_written_to(checkpoint):
    writable = checkpoint("views.pt", sharing="private", writable=True)["base"]
    assert requested(writable, WRITABLE) == (None, None, None)


def test_a_refused_request_leaves_no_reference_behind(checkpoint):
    tensor = checkpoint("views.pt")["base"]
    before = sys.getrefcount(tensor)
    for _ in range(100):
        with pytest.raises(BufferError):
            requested(tensor, WRITABLE)
        requested(tensor, SIMPLE)
        tensor.buffer().release()
    assert sys.getrefcount(tensor) == before


# --- lazy bits and the other byte order -------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "name"), [("conjugate.pt", "conjugate"), ("negative.pt", "negative")]
)
def test_lazy_tensors_are_not_handed_out_as_what_is_stored(checkpoint, file, name):
    tensor = checkpoint(file)[name]
    with pytest.raises(weightmap.UnsupportedError, match=r"\.torch\(\)"):
        tensor.numpy()
    with pytest.raises(weightmap.UnsupportedError):
        numpy.asarray(tensor)
    with pytest.raises(BufferError):
        tensor.buffer()
    with pytest.raises(BufferError):
        tensor.__dlpack__(max_version=(1, 0))
    # hasattr() asks a question and must not raise.
    assert not hasattr(tensor, "__array_interface__")


def test_torch_carries_lazy_bits_out(checkpoint, torch):
    conjugate = checkpoint("conjugate.pt")["conjugate"].torch()
    assert conjugate.is_conj()
    assert conjugate.tolist() == [1 - 2j, 3 + 4j]
    negative = checkpoint("negative.pt")["negative"].torch()
    assert negative.is_neg()
    assert negative.tolist() == [-2.0, 4.0]


def test_numpy_reads_the_other_byte_order_in_place(checkpoint):
    opened = checkpoint("big_endian.pt")
    array = opened["float32"].numpy()
    assert array.dtype == numpy.dtype(">f4")
    assert array.tolist() == [0, 1, 2]
    assert opened["transposed"].numpy().tolist() == [[0, 3], [1, 4], [2, 5]]
    assert opened["complex64"].numpy().tolist() == [1 + 2j, 3 - 4j]
    assert opened["bool"].numpy().dtype == "bool"
    assert shares_memory_with(array, opened["float32"])


def test_bfloat16_of_the_other_byte_order_is_refused(checkpoint, ml_dtypes):
    tensor = checkpoint("big_endian.pt")["bfloat16"]
    with pytest.raises(weightmap.UnsupportedError, match="byte order"):
        tensor.numpy()
    assert tensor.bits().numpy().tolist() == [0, 0x3F80, 0x4000]


def test_dlpack_has_no_word_for_the_other_byte_order(checkpoint):
    opened = checkpoint("big_endian.pt")
    with pytest.raises(BufferError, match="byte order"):
        numpy.from_dlpack(opened["int16"])
    assert numpy.from_dlpack(opened["uint8"]).tolist() == [0, 1, 2]


# --- DLPack -----------------------------------------------------------------------------------


def test_numpy_takes_it_by_dlpack_as_read_only(checkpoint):
    opened = checkpoint("views.pt")
    array = numpy.from_dlpack(opened["transposed"])
    assert array.tolist() == [[6.0 * i + j for i in range(4)] for j in range(6)]
    assert array.strides == (4, 24)
    assert not array.flags.writeable
    with pytest.raises(ValueError):
        array[0, 0] = 1


def test_numpy_takes_a_writable_checkpoint_by_dlpack_as_writable(checkpoint):
    tensor = checkpoint("views.pt", sharing="private", writable=True)["base"]
    array = numpy.from_dlpack(tensor)
    assert array.flags.writeable
    array[0, 0] = 5
    assert numpy.from_dlpack(tensor)[0, 0] == 5


def capsule_name(capsule):
    name_of = ctypes.pythonapi.PyCapsule_GetName
    name_of.argtypes, name_of.restype = [ctypes.py_object], ctypes.c_char_p
    return name_of(capsule)


class Version(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32)]


class Versioned(ctypes.Structure):
    """DLManagedTensorVersioned."""

    _anonymous_ = ("tensor",)
    _fields_ = [
        ("version", Version),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", DLTensor),
    ]


def versioned(tensor):
    capsule = tensor.__dlpack__(max_version=(1, 0))
    assert capsule_name(capsule) == b"dltensor_versioned"
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.argtypes, get.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p
    # The capsule owns what the answer points to.
    return capsule, Versioned.from_address(get(capsule, b"dltensor_versioned"))


READ_ONLY = 1


def test_a_versioned_capsule_says_that_it_is_read_only(checkpoint):
    capsule, described = versioned(checkpoint("views.pt")["base"])
    assert described.version.major == 1
    assert described.flags == READ_ONLY
    assert (described.device_type, described.device_id) == (1, 0)
    assert (described.code, described.bits, described.lanes) == (2, 32, 1)
    assert described.shape[: described.ndim] == [4, 6]
    assert described.strides[: described.ndim] == [6, 1]
    del capsule


@pytest.mark.parametrize("sharing", ["private", "shared"])
def test_a_versioned_capsule_of_a_writable_checkpoint_has_no_such_flag(copy_of, sharing):
    with weightmap.open(copy_of("views.pt"), sharing=sharing, writable=True) as opened:
        capsule, described = versioned(opened["base"])
    assert described.flags == 0
    del capsule


# Its word in __array_interface__ and in the buffer protocol; its code and bits in DLPack.
WORDS = {
    "float64": ("<f8", "d", (2, 64)), "float32": ("<f4", "f", (2, 32)),
    "float16": ("<f2", "e", (2, 16)), "bfloat16": (None, None, (4, 16)),
    "int64": ("<i8", "q", (0, 64)), "int32": ("<i4", "i", (0, 32)),
    "int16": ("<i2", "h", (0, 16)), "int8": ("|i1", "b", (0, 8)),
    "uint64": ("<u8", "Q", (1, 64)), "uint32": ("<u4", "I", (1, 32)),
    "uint16": ("<u2", "H", (1, 16)), "uint8": ("|u1", "B", (1, 8)),
    "bool": ("|b1", "?", (6, 8)), "complex128": ("<c16", "Zd", (5, 128)),
    "complex64": ("<c8", "Zf", (5, 64)), "complex32": (None, None, (5, 32)),
    "float8_e4m3fn": (None, None, (10, 8)), "float8_e4m3fnuz": (None, None, (11, 8)),
    "float8_e5m2": (None, None, (12, 8)), "float8_e5m2fnuz": (None, None, (13, 8)),
    "float8_e8m0fnu": (None, None, (14, 8)), "bits8": (None, "B", None),
    "bits16": (None, "H", None), "float4_e2m1fn_x2": (None, "B", None),
}


@pytest.mark.parametrize("name", WORDS)
def test_each_dtype_has_its_word_or_is_refused(checkpoint, name):
    tensor = checkpoint("dtypes.pt")[name]
    typestr, format, in_dlpack = WORDS[name]
    assert getattr(tensor, "__array_interface__", {"typestr": None})["typestr"] == typestr
    if format:
        view = tensor.buffer()
        assert (view.format, view.itemsize) == (format, tensor.itemsize)
        assert bytes(view) == tensor.tobytes()
        assert numpy.asarray(view).dtype == (name if typestr else f"uint{8 * tensor.itemsize}")
    else:
        with pytest.raises(BufferError, match=rf"{name}.*\.bits\(\)\.buffer\(\)"):
            tensor.buffer()
        assert tensor.bits().buffer().nbytes == tensor.nbytes
    if in_dlpack:
        _, described = versioned(tensor)
        assert (described.code, described.bits, described.lanes) == (*in_dlpack, 1)
    else:
        with pytest.raises(BufferError, match=r"\.bits\(\)"):
            tensor.__dlpack__(max_version=(1, 0))
        assert numpy.from_dlpack(tensor.bits()).shape == tensor.shape


@pytest.mark.parametrize("asked", [{}, {"max_version": None}, {"max_version": (0, 8)}])
def test_a_read_only_tensor_has_no_unversioned_capsule(checkpoint, asked):
    # That form cannot say "read-only".
    with pytest.raises(BufferError, match="read-only"):
        checkpoint("views.pt")["base"].__dlpack__(**asked)


def test_a_writable_tensor_has_an_unversioned_capsule(checkpoint, torch):
    tensor = checkpoint("views.pt", sharing="private", writable=True)["base"]
    capsule = tensor.__dlpack__()
    assert capsule_name(capsule) == b"dltensor"
    assert torch.utils.dlpack.from_dlpack(capsule)[1].tolist() == [6, 7, 8, 9, 10, 11]


def test_dlpack_arguments_are_checked(checkpoint):
    tensor = checkpoint("views.pt")["base"]
    assert capsule_name(tensor.__dlpack__(max_version=(2, 0))) == b"dltensor_versioned"
    assert tensor.__dlpack__(max_version=(1, 0), dl_device=(1, 0), copy=False, stream=None)
    with pytest.raises(BufferError):
        tensor.__dlpack__(max_version=(1, 0), dl_device=(2, 0))
    with pytest.raises(TypeError):
        tensor.__dlpack__(max_version=(1, 0), other=1)
    with pytest.raises(TypeError):
        tensor.__dlpack__((1, 0))


# --- writing ----------------------------------------------------------------------------------


def test_a_read_only_array_refuses_to_be_written_to(checkpoint, data):
    before = (data / "views.pt").read_bytes()
    array = checkpoint("views.pt")["base"].numpy()
    assert not array.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        array[0, 0] = 1
    with pytest.raises(ValueError):
        array += 1
    with pytest.raises(ValueError):
        array.flags.writeable = True
    with pytest.raises(ValueError):
        array.sort()
    with pytest.raises(ValueError):
        array.T[0, 0] = 1
    assert (data / "views.pt").read_bytes() == before


def test_writes_to_a_private_checkpoint_stay_in_this_process(copy_of):
    path = copy_of("views.pt")
    before = path.read_bytes()
    with weightmap.open(path, sharing="private", writable=True) as opened:
        assert opened["base"].is_writable
        array = opened["base"].numpy()
        assert array.flags.writeable
        array[:] = -1
        assert opened["tied"].numpy()[3, 5] == -1  # one storage
        assert opened["base"].tobytes() == struct.pack("<24f", *[-1] * 24)
    assert path.read_bytes() == before
    assert weightmap.open(path)["base"].numpy()[0].tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("options", [{"sharing": "shared"}, {}], ids=["shared", "writable alone"])
def test_writes_to_a_shared_checkpoint_reach_the_file(copy_of, options):
    path = copy_of("views.pt")
    before = path.read_bytes()
    with weightmap.open(path, writable=True, **options) as opened:
        assert opened.info.sharing == "shared"
        assert opened["base"].__array_interface__["data"][1] is False
        opened["base"].numpy()[1, 2] = 42
        reader = weightmap.open(path)
        assert reader["base"].numpy()[1, 2] == 42
    expected = bytearray(before)
    struct.pack_into("<f", expected, 1408 + 4 * 8, 42)
    assert path.read_bytes() == expected


def test_torch_writes_to_a_read_only_checkpoint_touch_nobody_else(copy_of, torch):
    path = copy_of("views.pt")
    before = path.read_bytes()
    opened = weightmap.open(path)
    array = opened["base"].numpy()
    tensor = opened["base"].torch()
    tensor.fill_(7)
    assert tensor.sum().item() == 7 * 24
    assert array[0].tolist() == [0, 1, 2, 3, 4, 5]
    assert opened["base"].numpy()[3].tolist() == [18, 19, 20, 21, 22, 23]
    assert opened["base"].tobytes() == struct.pack("<24f", *range(24))
    assert path.read_bytes() == before
    assert weightmap.open(path)["base"].torch()[1, 2].item() == 8


def test_torch_tensors_of_one_storage_see_one_anothers_writes(checkpoint, torch):
    opened = checkpoint("views.pt")
    base, tied, row = (opened[name].torch() for name in ("base", "tied", "middle_rows"))
    assert base.data_ptr() == tied.data_ptr()
    assert base.untyped_storage().data_ptr() == row.untyped_storage().data_ptr()
    tied[1, 0] = 99
    assert (base[1, 0].item(), row[0, 0].item()) == (99, 99)


def test_torch_sees_the_writes_of_numpy_where_both_may_write(copy_of, torch):
    for sharing in ("private", "shared"):
        opened = weightmap.open(copy_of("views.pt"), sharing=sharing, writable=True)
        array, tensor = opened["base"].numpy(), opened["base"].torch()
        array[0, 0] = 11
        assert tensor[0, 0].item() == 11
        tensor[0, 1] = 12
        assert array[0, 1] == 12
        assert opened["base"].tobytes()[:8] == struct.pack("<2f", 11, 12)


@torch_since((2, 9), "torch.from_dlpack() of read-only tensors")
def test_writing_through_a_dlpack_import_does_not_crash(data, python, torch):
    # torch 2.13 does not know the read-only flag.
    program = """
import sys, torch, weightmap
opened = weightmap.open(sys.argv[1])
before = opened["base"].tobytes()
imported = torch.from_dlpack(opened["base"])
try:
    imported.fill_(3)
    assert imported.sum().item() == 72
except RuntimeError:
    pass  # a torch that knows the flag refuses
assert opened["base"].tobytes() == before
print("alive")
"""
    before = (data / "views.pt").read_bytes()
    ran = python(program, data / "views.pt")
    assert (ran.returncode, ran.stdout) == (0, "alive\n"), ran.stderr
    assert (data / "views.pt").read_bytes() == before


# --- torch() ----------------------------------------------------------------------------------


def test_torch_has_shape_strides_and_values(checkpoint, torch):
    opened = checkpoint("views.pt")
    tensor = opened["every_second_column"].torch()
    assert tensor.dtype is torch.float32
    assert (tuple(tensor.shape), tensor.stride()) == ((4, 3), (6, 2))
    assert tensor.tolist() == [[6 * i + j for j in (0, 2, 4)] for i in range(4)]
    assert opened["overlapping"].torch().storage_offset() == 1
    assert opened["permuted"].torch().stride() == (1, 12, 4)
    assert type(tensor) is torch.Tensor


def test_torch_of_unaligned_bytes(checkpoint, torch):
    # zipfile does not pad, so elements begin anywhere.
    opened = checkpoint("rezipped_stored.pt")
    assert any(tensor.file_offset % tensor.itemsize for tensor in opened.values())
    for tensor in opened.values():
        if tensor.dtype != "bfloat16":
            assert tensor.torch().tolist() == tensor.numpy().tolist()
    assert opened["layers.1.weight"].numpy().tolist()[1] == [4, 5, 6, 7]


def test_torch_does_not_carry_requires_grad_over(checkpoint, torch):
    tensor = checkpoint("parameters.pt")["weight"].torch()
    assert not tensor.requires_grad
    assert not isinstance(tensor, torch.nn.Parameter)
    tensor.requires_grad_()
    (tensor * 2).sum().backward()
    assert tensor.grad.tolist() == [[2, 2]] * 3


def test_torch_of_a_quantized_tensor_names_the_way(checkpoint, torch):
    tensor = checkpoint("quantized.pt")["qint8"]
    with pytest.raises(weightmap.UnsupportedError, match=r"weightmap\.torch\.load\(\)"):
        tensor.torch()
    assert tensor.bits().torch()[0].tolist() == [3, 5, 7, 9]


def test_a_copy_by_dlpack_is_a_tensor_of_its_own(checkpoint):
    numpy = pytest.importorskip("numpy", reason="imports by DLPack with numpy")
    transposed = checkpoint("views.pt")["transposed"]
    copy = numpy.from_dlpack(transposed, copy=True)
    assert copy.tolist() == [[float(row + 6 * column) for column in range(4)] for row in range(6)]
    assert copy.flags.writeable and copy.flags.c_contiguous
    copy[:] = -1
    assert transposed.numpy()[0, 0] == 0.0


def test_a_copy_by_dlpack_is_in_this_machines_byte_order(checkpoint):
    numpy = pytest.importorskip("numpy", reason="imports by DLPack with numpy")
    opened = checkpoint("big_endian.pt")
    tensor = next(tensor for tensor in opened.values() if tensor.dtype == "float32")
    with pytest.raises(BufferError, match="byte order"):
        numpy.from_dlpack(tensor)
    assert numpy.from_dlpack(tensor, copy=True).tobytes() == tensor.tobytes()
