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


@pytest.mark.parametrize(
    ("name", "strides", "values"),
    [
        ("transposed", (4, 24), [[6 * i + j for i in range(4)] for j in range(6)]),
        ("every_second_column", (24, 8), [[6 * i + j for j in (0, 2, 4)] for i in range(4)]),
        ("diagonal", (28,), [0, 7, 14, 21]),
        ("overlapping", (8, 4), [[1, 2, 3, 4], [3, 4, 5, 6], [5, 6, 7, 8]]),
        ("expanded", (0, 4), [[0, 1, 2, 3, 4, 5]] * 3),
        ("scalar_expanded", (0, 0), [[0, 0], [0, 0]]),
    ],
)
def test_numpy_keeps_strides(checkpoint, name, strides, values):
    array = checkpoint("views.pt")[name].numpy()
    assert array.strides == strides
    assert array.tolist() == values


def test_numpy_does_not_copy(checkpoint):
    tensor = checkpoint("views.pt")["base"]
    assert shares_memory_with(tensor.numpy(), tensor)
    assert numpy.shares_memory(tensor.numpy(), tensor[2:].numpy())
    assert not tensor.numpy().flags.owndata


def test_numpy_of_slices(checkpoint):
    base = checkpoint("views.pt")["base"]
    whole = base.numpy()
    for key in (1, -1, (1, 2), slice(1, 3), (slice(None, None, 2), slice(1, None, 3)), (..., 2)):
        part = base[key].numpy()
        assert part.tolist() == whole[key].tolist()
        assert part.shape == whole[key].shape


def test_numpy_of_scalars_and_empty_tensors(checkpoint):
    tensors = {tensor.name: tensor for tensor in checkpoint("scalars_and_empty.pt").values()}
    scalar = tensors["scalar"].numpy()
    assert (type(scalar), scalar.shape, scalar.tolist()) == (numpy.ndarray, (), 2.5)
    assert tensors["scalar_int"].numpy().tolist() == -7
    assert tensors["empty_rows"].numpy().shape == (0, 5)
    assert tensors["empty_columns"].numpy().shape == (5, 0)
    assert tensors["empty_columns"].numpy().dtype == "int64"
    assert tensors["rank_eight"].numpy().shape == (1, 1, 1, 2, 1, 1, 1, 1)
    assert not tensors["empty"].numpy().flags.writeable


@pytest.mark.parametrize(
    ("name", "dtype", "values"),
    [
        ("qint8", "int8", [3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25]),
        ("quint8", "uint8", [3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25]),
        ("qint32", "int32", [3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25]),
        # arange / scale + zero point, one of each a row: (0.5, 0), (1, 1), (2, 2)
        ("channels", "int8", [0, 2, 4, 6, 5, 6, 7, 8, 6, 6, 7, 8]),
    ],
)
def test_numpy_of_quantized_tensors_shows_stored_integers(checkpoint, name, dtype, values):
    array = checkpoint("quantized.pt")[name].numpy()
    assert array.dtype == dtype
    assert array.ravel().tolist() == values


@pytest.mark.parametrize(
    ("name", "stored"),
    [
        ("bfloat16", [0x3F80, 0x4000, 0x4040, 0x4080, 0x40A0]),
        ("float8_e5m2", [0x3C, 0x40, 0x42, 0x44, 0x45]),
        ("float8_e4m3fn", [0x38, 0x40, 0x44, 0x48, 0x4A]),
        ("float8_e5m2fnuz", [0x40, 0x44, 0x46, 0x48, 0x49]),
        ("float8_e4m3fnuz", [0x40, 0x48, 0x4C, 0x50, 0x52]),
    ],
)
def test_ml_dtypes_have_the_values_that_torch_stored(checkpoint, ml_dtypes, name, stored):
    tensor = checkpoint("dtypes.pt")[name]
    array = tensor.numpy()
    assert array.dtype == numpy.dtype(getattr(ml_dtypes, name))
    assert array.astype("float32").tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert tensor.bits().numpy().tolist() == stored
    assert array.view(f"u{tensor.itemsize}").tolist() == stored
    assert not array.flags.writeable


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


def test_functions_of_numpy_take_tensors(checkpoint):
    opened = checkpoint("views.pt")
    assert numpy.sum(opened["base"]) == 276
    assert numpy.concatenate([opened["one_column"], opened["diagonal"]]).shape == (8,)
    assert numpy.array_equal(opened["base"], opened["transposed"].numpy().T)


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
    [
        ("float64", "<f8"), ("float32", "<f4"), ("float16", "<f2"), ("int64", "<i8"),
        ("int32", "<i4"), ("int16", "<i2"), ("int8", "|i1"), ("uint64", "<u8"), ("uint32", "<u4"),
        ("uint16", "<u2"), ("uint8", "|u1"), ("complex128", "<c16"), ("complex64", "<c8"),
        ("bool", "|b1"),
    ],
)
def test_array_interface_names_each_type(checkpoint, name, typestr):
    assert checkpoint("dtypes.pt")[name].__array_interface__["typestr"] == typestr


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


def test_array_interface_of_a_writable_checkpoint_says_so(checkpoint):
    tensor = checkpoint("views.pt", sharing="private", writable=True)["base"]
    assert tensor.__array_interface__["data"][1] is False


@pytest.mark.parametrize(
    "name", ["bfloat16", "complex32", "float8_e4m3fn", "float8_e8m0fnu", "bits16"]
)
def test_types_that_numpy_lacks_have_no_array_interface(checkpoint, name):
    assert not hasattr(checkpoint("dtypes.pt")[name], "__array_interface__")


# --- the buffer protocol ----------------------------------------------------------------------


def test_memoryview_has_shape_strides_and_format(checkpoint):
    view = checkpoint("views.pt")["transposed"].buffer()
    assert (view.shape, view.strides, view.format) == ((6, 4), (4, 24), "f")
    assert (view.itemsize, view.nbytes, view.ndim, view.readonly) == (4, 96, 2, True)
    assert view.tolist() == [[6.0 * i + j for i in range(4)] for j in range(6)]


@pytest.mark.parametrize(
    ("name", "format"),
    [
        ("float64", "d"), ("float32", "f"), ("float16", "e"), ("int64", "q"), ("int32", "i"),
        ("int16", "h"), ("int8", "b"), ("uint64", "Q"), ("uint32", "I"), ("uint16", "H"),
        ("uint8", "B"), ("bool", "?"), ("complex64", "Zf"), ("complex128", "Zd"),
    ],
)
def test_buffers_name_their_elements(checkpoint, name, format):
    tensor = checkpoint("dtypes.pt")[name]
    view = tensor.buffer()
    assert (view.format, view.itemsize) == (format, tensor.itemsize)
    assert bytes(view) == tensor.tobytes()
    assert numpy.asarray(view).dtype == name


@pytest.mark.parametrize("name", ["bfloat16", "complex32", "float8_e5m2", "float8_e8m0fnu"])
def test_types_without_a_word_in_the_buffer_protocol_are_refused(checkpoint, name):
    tensor = checkpoint("dtypes.pt")[name]
    with pytest.raises(BufferError, match=rf"{name}.*\.bits\(\)\.buffer\(\)"):
        tensor.buffer()
    assert tensor.bits().buffer().nbytes == tensor.nbytes


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


def test_scalars_and_empty_tensors_have_buffers(checkpoint):
    tensors = {tensor.name: tensor for tensor in checkpoint("scalars_and_empty.pt").values()}
    view = tensors["scalar"].buffer()
    assert (view.shape, view.ndim, view.tolist()) == ((), 0, 2.5)
    view = tensors["empty_rows"].buffer()
    assert (view.shape, view.nbytes, view.tolist()) == ((0, 5), 0, [])
    assert bytes(tensors["empty"]) == b""


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


def test_answers_what_a_buffer_request_asks_for(checkpoint):
    base = checkpoint("views.pt")["base"]
    assert requested(base, SIMPLE) == (None, None, None)
    assert requested(base, FORMAT) == (None, None, b"f")
    assert requested(base, ND) == ([4, 6], None, None)
    assert requested(base, STRIDES) == ([4, 6], [24, 4], None)
    assert requested(base, C_CONTIGUOUS | FORMAT) == ([4, 6], [24, 4], b"f")
    assert requested(base, INDIRECT) == ([4, 6], [24, 4], None)
    assert requested(base, ANY_CONTIGUOUS) == ([4, 6], [24, 4], None)


def test_refuses_requests_that_the_layout_cannot_meet(checkpoint):
    opened = checkpoint("views.pt")
    for flags in (SIMPLE, FORMAT, ND, C_CONTIGUOUS):
        with pytest.raises(BufferError, match="contiguous"):
            requested(opened["every_second_column"], flags)
    for flags in (F_CONTIGUOUS, ANY_CONTIGUOUS):
        with pytest.raises(BufferError, match="contiguous"):
            requested(opened["every_second_column"], flags)
    with pytest.raises(BufferError, match="contiguous"):
        requested(opened["base"], F_CONTIGUOUS)
    assert requested(opened["every_second_column"], STRIDES)[1] == [24, 8]


def test_a_transposed_matrix_is_contiguous_by_columns(checkpoint):
    transposed = checkpoint("views.pt")["transposed"]
    for flags in (F_CONTIGUOUS, ANY_CONTIGUOUS):
        assert requested(transposed, flags) == ([6, 4], [4, 24], None)
    with pytest.raises(BufferError, match="contiguous"):
        requested(transposed, C_CONTIGUOUS)


def test_a_request_to_write_needs_a_writable_checkpoint(checkpoint):
    with pytest.raises(BufferError, match="read-only"):
        requested(checkpoint("views.pt")["base"], WRITABLE)
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


def test_torch_swaps_the_other_byte_order(checkpoint, torch):
    opened = checkpoint("big_endian.pt")
    assert opened["float32"].torch().tolist() == [0, 1, 2]
    assert opened["bfloat16"].torch().tolist() == [0, 1, 2]
    assert opened["complex64"].torch().tolist() == [1 + 2j, 3 - 4j]
    assert opened["transposed"].torch().tolist() == [[0, 3], [1, 4], [2, 5]]
    assert opened["transposed"][1].torch().tolist() == [1, 4]
    assert opened["bool"].torch().tolist() == [True, False]


# --- DLPack -----------------------------------------------------------------------------------


def test_dlpack_lies_on_the_cpu(checkpoint):
    assert checkpoint("views.pt")["base"].__dlpack_device__() == (1, 0)


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


def test_dlpack_of_scalars_and_empty_tensors(checkpoint):
    tensors = {tensor.name: tensor for tensor in checkpoint("scalars_and_empty.pt").values()}
    assert numpy.from_dlpack(tensors["scalar"]).tolist() == 2.5
    assert numpy.from_dlpack(tensors["empty_rows"]).shape == (0, 5)
    assert numpy.from_dlpack(tensors["rank_eight"]).shape == (1, 1, 1, 2, 1, 1, 1, 1)


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


@pytest.mark.parametrize(
    ("name", "code", "bits"),
    [
        ("float64", 2, 64), ("float16", 2, 16), ("bfloat16", 4, 16), ("int8", 0, 8),
        ("int64", 0, 64), ("uint16", 1, 16), ("bool", 6, 8), ("complex64", 5, 64),
        ("complex32", 5, 32), ("float8_e4m3fn", 10, 8), ("float8_e4m3fnuz", 11, 8),
        ("float8_e5m2", 12, 8), ("float8_e5m2fnuz", 13, 8), ("float8_e8m0fnu", 14, 8),
    ],
)
def test_dlpack_names_each_type(checkpoint, name, code, bits):
    _, described = versioned(checkpoint("dtypes.pt")[name])
    assert (described.code, described.bits, described.lanes) == (code, bits, 1)


@pytest.mark.parametrize("name", ["bits8", "bits16", "float4_e2m1fn_x2"])
def test_dlpack_refuses_types_that_it_has_no_word_for(checkpoint, name):
    tensor = checkpoint("dtypes.pt")[name]
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


def test_capsules_that_nobody_takes_are_freed(copy_of, mappings_of):
    path = copy_of("views.pt")
    capsules = [weightmap.open(path)["base"].__dlpack__(max_version=(1, 0)) for _ in range(10)]
    assert mappings_of(path) >= 10
    capsules.clear()
    assert mappings_of(path) == 0


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


@pytest.mark.parametrize("sharing", ["shared", "private"])
def test_a_read_only_checkpoint_has_read_only_tensors(checkpoint, sharing):
    opened = checkpoint("views.pt", sharing=sharing)
    assert not opened["base"].is_writable
    assert not opened["base"].numpy().flags.writeable
    assert not checkpoint("dtypes.pt")["float16"].numpy().flags.writeable


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


def test_writes_to_a_shared_checkpoint_reach_the_file(copy_of):
    path = copy_of("views.pt")
    before = path.read_bytes()
    with weightmap.open(path, sharing="shared", writable=True) as opened:
        opened["base"].numpy()[1, 2] = 42
        reader = weightmap.open(path)
        assert reader["base"].numpy()[1, 2] == 42
    expected = bytearray(before)
    struct.pack_into("<f", expected, 1408 + 4 * 8, 42)
    assert path.read_bytes() == expected


def test_writable_alone_is_shared(copy_of):
    path = copy_of("views.pt")
    with weightmap.open(path, writable=True) as opened:
        assert opened.info.sharing == "shared"
        opened["base"].numpy()[0, 0] = 9
    assert path.read_bytes()[1408:1412] == struct.pack("<f", 9)


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


def test_writing_through_torch_does_not_crash(data, python, torch):
    program = """
import sys, torch, weightmap
for sharing in ("shared", "private"):
    opened = weightmap.open(sys.argv[1], sharing=sharing)
    for tensor in opened.values():
        # Overlapping memory cannot be filled in one go; the rest can.
        made = tensor.torch()
        made.untyped_storage().fill_(1)
    assert opened["base"].tobytes()[4:8] == b"\\x00\\x00\\x80\\x3f"
print("alive")
"""
    ran = python(program, data / "views.pt")
    assert (ran.returncode, ran.stdout) == (0, "alive\n"), ran.stderr


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


def test_torch_of_slices(checkpoint, torch):
    base = checkpoint("views.pt")["base"]
    whole = base.torch()
    for key in (1, -1, (1, 2), slice(1, 3), (slice(None, None, 2), slice(1, None, 3)), (..., 2)):
        part = base[key].torch()
        assert torch.equal(part, whole[key])
        assert part.stride() == whole[key].stride()
        assert part.data_ptr() == whole[key].data_ptr()
    assert base[4:].torch().shape == (0, 6)


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


def test_torch_storage_is_that_of_the_file(checkpoint, torch):
    opened = checkpoint("views.pt")
    assert opened["one_column"].torch().untyped_storage().nbytes() == 96
    storage = checkpoint("odd_storage.pt")["odd10"].torch().untyped_storage()
    assert storage.nbytes() == 10


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
