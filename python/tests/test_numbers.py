"""No wrong number: what Python, numpy and torch make of a Tensor is right, or raises and says why."""

import array
import math
import operator
import struct

import pytest
from conftest import dtype_params, torch_since

import weightmap

INTEGERS = ("int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8")
REALS = (
    *("float64", "float32", "float16", "bfloat16"),
    *("float8_e5m2", "float8_e4m3fn", "float8_e5m2fnuz", "float8_e4m3fnuz"),
)
COMPLEX = ("complex128", "complex64", "complex32")
PACKED = ("float4_e2m1fn_x2", "bits8", "bits1x8", "bits2x4", "bits4x2", "bits16")


@pytest.fixture
def dtypes(checkpoint):
    return checkpoint("dtypes.pt")


def scalars(checkpoint):
    return {tensor.name: tensor for tensor in checkpoint("scalars_and_empty.pt").values()}


# --- item() and tolist() ----------------------------------------------------------------------


KINDS = {**dict.fromkeys(INTEGERS, int), **dict.fromkeys(REALS, float),
         **dict.fromkeys(COMPLEX, complex)}


@pytest.mark.parametrize("name", KINDS)
def test_tolist_is_of_the_numbers_of_python(dtypes, name):
    values = dtypes[name].tolist()
    assert values == [1, 2, 3, 4, 5]
    assert {type(value) for value in values} == {KINDS[name]}


def test_tolist_of_bools_is_bools(dtypes):
    assert dtypes["bool"].tolist() == [True, False, True]
    assert dtypes["bool"][0].item() is True
    assert dtypes["bool"][1].item() is False


@pytest.mark.parametrize("name", PACKED)
def test_packed_elements_are_refused(dtypes, name):
    for ask in (lambda t: t.tolist(), lambda t: t[0].item(), lambda t: float(t[0])):
        with pytest.raises(weightmap.UnsupportedError, match=rf"{name}.*\.bits\(\)"):
            ask(dtypes[name])


@pytest.mark.parametrize("name", ["qint8", "quint8", "qint32"])
def test_quantized_elements_are_refused(checkpoint, name):
    tensor = checkpoint("quantized.pt")[name]
    with pytest.raises(weightmap.UnsupportedError, match=rf"{name}.*\.bits\(\)"):
        tensor.tolist()
    assert tensor.bits().tolist()[0] == [3, 5, 7, 9]


@pytest.mark.parametrize("name", dtype_params([*REALS[2:], "float8_e8m0fnu"]))
def test_every_pattern_of_a_small_float_is_its_value(tmp_path, torch, name):
    dtype = getattr(torch, name)
    patterns = torch.arange(256**dtype.itemsize).to(
        torch.uint8 if dtype.itemsize == 1 else torch.uint16
    )
    torch.save({"all": patterns.view(dtype)}, tmp_path / "all.pt")
    values = weightmap.open(tmp_path / "all.pt")["all"].tolist()
    # As text, since -0.0 equals 0.0 and no NaN another.
    expected = patterns.view(dtype).double().tolist()
    assert [str(value) for value in values] == [str(value) for value in expected]


def test_every_dtype_of_the_fixture_is_here(dtypes):
    known = {*INTEGERS, *REALS, *COMPLEX, *PACKED, "bool", "float8_e8m0fnu"}
    assert {name.split(".")[0] for name in dtypes} - known == set()


def test_tolist_is_as_deep_as_the_shape(checkpoint):
    opened = checkpoint("views.pt")
    assert opened["base"][:2, :3].tolist() == [[0.0, 1.0, 2.0], [6.0, 7.0, 8.0]]
    assert opened["transposed"][:2, :2].tolist() == [[0.0, 6.0], [1.0, 7.0]]
    assert opened["expanded"].tolist() == [[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]] * 3
    assert opened["permuted"][:2, :1, :2].tolist() == [[[0, 4]], [[1, 5]]]


def test_tolist_of_scalars_and_empty_tensors(checkpoint):
    tensors = scalars(checkpoint)
    assert tensors["scalar"].tolist() == 2.5
    assert tensors["scalar_int"].tolist() == -7
    assert tensors["empty"].tolist() == []
    assert tensors["empty_rows"].tolist() == []
    assert tensors["empty_columns"].tolist() == [[], [], [], [], []]


def test_item_is_the_only_element(checkpoint):
    tensors = scalars(checkpoint)
    assert tensors["scalar"].item() == 2.5
    assert tensors["scalar_int"].item() == -7
    assert checkpoint("views.pt")["base"][1:2, 3:4].item() == 9.0


@pytest.mark.parametrize(("name", "count"), [("base", 24), ("one_column", 4)])
def test_item_of_more_or_of_nothing_is_a_value_error(checkpoint, name, count):
    with pytest.raises(ValueError, match=rf"has {count}; take \.tolist\(\) or \.numpy\(\)"):
        checkpoint("views.pt")[name].item()
    with pytest.raises(ValueError, match="has 0"):
        scalars(checkpoint)["empty"].item()


@pytest.mark.parametrize("name, values", [
    ("float32", [0.0, 1.0, 2.0]), ("float64", [0.0, 1.0]), ("bfloat16", [0.0, 1.0, 2.0]),
    ("int64", [0, 1]), ("int16", [0, 1, 2]), ("uint8", [0, 1, 2]), ("bool", [True, False]),
    ("complex64", [1 + 2j, 3 - 4j]), ("transposed", [[0, 3], [1, 4], [2, 5]]),
])
def test_tolist_of_the_other_byte_order(checkpoint, name, values):
    assert checkpoint("big_endian.pt")[name].tolist() == values


@pytest.mark.parametrize(
    ("file", "name"), [("conjugate.pt", "conjugate"), ("negative.pt", "negative")]
)
def test_lazy_values_are_refused(checkpoint, file, name):
    tensor = checkpoint(file)[name]
    for ask in (lambda: tensor.tolist(), lambda: tensor[0].item(), lambda: complex(tensor[0])):
        with pytest.raises(weightmap.UnsupportedError, match="lazy"):
            ask()


# --- the conversions of Python ----------------------------------------------------------------


def test_int_of_digits_in_memory_is_no_text(float_archive):
    # Its bytes are the text "12.5", which int() and float() read from whatever has a buffer.
    tensor = weightmap.open(float_archive({"a": b"12.5"}))["a"]
    assert float(tensor) == struct.unpack("<f", b"12.5")[0]
    assert int(tensor.bits()) == 0x352E3231


@pytest.mark.parametrize("name", INTEGERS)
def test_int_of_an_integer(dtypes, name):
    assert int(dtypes[name][4]) == 5
    assert operator.index(dtypes[name][2]) == 3
    assert ["a", "b", "c"][dtypes[name][1]] == "c"
    assert float(dtypes[name][4]) == 5.0
    assert complex(dtypes[name][4]) == 5 + 0j


@pytest.mark.parametrize("name", REALS)
def test_float_of_a_real(dtypes, name):
    assert float(dtypes[name][4]) == 5.0
    assert int(dtypes[name][4:]) == 5
    assert complex(dtypes[name][3]) == 4 + 0j
    with pytest.raises(TypeError, match="integer tensor without dimensions"):
        operator.index(dtypes[name][4])


@pytest.mark.parametrize("name", COMPLEX)
def test_complex_of_a_complex_number(dtypes, name):
    assert complex(dtypes[name][4]) == 5 + 0j
    for convert in (int, float, operator.index):
        with pytest.raises(TypeError):
            convert(dtypes[name][4])


def test_a_bool_is_a_number_and_no_index(dtypes):
    assert int(dtypes["bool"][0]) == 1
    assert float(dtypes["bool"][1]) == 0.0
    with pytest.raises(TypeError, match="integer tensor without dimensions"):
        operator.index(dtypes["bool"][0])


def test_a_step_that_was_saved_as_a_float_is_a_float(checkpoint):
    scalar = scalars(checkpoint)["scalar"]
    assert float(scalar) == 2.5
    assert int(scalar) == 2
    assert math.sqrt(scalar) == math.sqrt(2.5)


@pytest.mark.parametrize("convert", [int, float, complex])
def test_more_than_one_element_has_no_number(checkpoint, convert):
    with pytest.raises(TypeError, match=r"one element.*\.tolist\(\)"):
        convert(checkpoint("views.pt")["base"])


def test_an_index_has_no_dimensions(dtypes):
    with pytest.raises(TypeError, match="integer tensor without dimensions"):
        operator.index(dtypes["int64"][:1])


def test_bytes_are_the_elements_and_never_a_count_of_zeros(dtypes):
    assert bytes(dtypes["int32"][4]) == b"\x05\x00\x00\x00"
    assert bytes(dtypes["int16"]) == b"\x01\x00\x02\x00\x03\x00\x04\x00\x05\x00"
    assert bytes(dtypes["bfloat16"][:2]) == b"\x80\x3f\x00\x40"
    assert bytes(dtypes["uint8"][:0]) == b""


def test_an_array_of_the_standard_library_takes_values(dtypes):
    assert array.array("d", dtypes["bfloat16"]).tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]


# --- iterating, comparing ---------------------------------------------------------------------


def test_a_tensor_without_dimensions_is_not_iterable(checkpoint):
    for use in (iter, list, tuple, len):
        with pytest.raises(TypeError, match=r"without dimensions.*\.item\(\)"):
            use(scalars(checkpoint)["scalar"])


@pytest.mark.parametrize("other", [0, 1.0, "text", [1, 2], object()])
@pytest.mark.parametrize("compare", [operator.eq, operator.ne])
def test_elements_are_not_compared(checkpoint, compare, other):
    tensor = checkpoint("views.pt")["base"]
    for one, two in ((tensor, other), (other, tensor), (tensor, tensor)):
        with pytest.raises(TypeError, match=r"does not compare.*\.numpy\(\)"):
            compare(one, two)


def test_a_tensor_is_not_none(checkpoint):
    tensor = checkpoint("views.pt")["base"]
    assert (tensor == None) is False  # noqa: E711
    assert (tensor != None) is True  # noqa: E711
    assert (None == tensor) is False  # noqa: E711


def test_hash_is_of_the_object(checkpoint):
    opened = checkpoint("views.pt")
    base, again = opened["base"], opened["base"]
    assert base is not again and hash(base) == hash(base) != hash(again)
    assert {base: 1}[base] == 1
    assert len({base, again}) == 2
    assert base in [base]


def test_asking_whether_a_tensor_is_in_a_list_raises(checkpoint):
    opened = checkpoint("views.pt")
    with pytest.raises(TypeError, match="does not compare"):
        opened["base"] in [opened["base"]]


# --- no buffer unless it is asked for ---------------------------------------------------------


def test_a_tensor_has_no_buffer_of_its_own(dtypes):
    for name in ("float32", "int64", "uint8", "bfloat16"):
        with pytest.raises(TypeError, match="bytes-like"):
            memoryview(dtypes[name])
        with pytest.raises(TypeError):
            struct.unpack_from("<B", dtypes[name])


# --- numpy ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*INTEGERS, "float64", "float32", "float16"])
def test_asarray_of_numpy_has_the_values(dtypes, numpy, name):
    made = numpy.asarray(dtypes[name])
    assert (made.dtype, made.tolist()) == (name, [1, 2, 3, 4, 5])
    assert (numpy.array([dtypes[name][3], dtypes[name][1]]) == [4, 2]).all()
    assert numpy.asarray(dtypes[name][4]).item() == 5


@pytest.mark.parametrize("file, name", [
    *(("dtypes.pt", name) for name in PACKED),
    *(("quantized.pt", name) for name in ("qint8", "quint8", "qint32", "channels")),
])
def test_asarray_of_packed_or_quantized_elements_raises(checkpoint, numpy, file, name):
    with pytest.raises(weightmap.UnsupportedError, match=r"\.numpy\(\)") as refused:
        numpy.asarray(checkpoint(file)[name])
    assert file != "dtypes.pt" or name in str(refused.value)


def test_numpy_compares_elements(checkpoint, numpy):
    base = checkpoint("views.pt")["base"]
    assert (base.numpy() == base).all()
    with pytest.raises(TypeError, match="does not compare"):
        base == base.numpy()


# --- torch ------------------------------------------------------------------------------------


def makers(torch):
    return [torch.asarray, torch.as_tensor, torch.tensor, torch.from_dlpack]


@torch_since((2, 9), "torch.from_dlpack() of read-only tensors")
@pytest.mark.parametrize(
    "name",
    [*INTEGERS, *("float64", "float32", "float16", "bfloat16", "complex128", "complex64")],
)
def test_torch_makes_the_same_tensor(dtypes, torch, name):
    for make in makers(torch):
        made = make(dtypes[name])
        assert (made.dtype, made.shape) == (getattr(torch, name), (5,))
        assert made.tolist() == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("name", [*REALS[4:], "float8_e8m0fnu", "complex32", "bool"])
def test_torch_makes_the_same_tensor_or_raises(dtypes, torch, name):
    for make in makers(torch):
        try:
            made = make(dtypes[name])
        except (BufferError, RuntimeError, TypeError, ValueError):
            continue
        assert made.dtype is getattr(torch, name)
        expected = dtypes[name].bits().tolist()
        integer = {1: torch.uint8, 4: torch.uint32}[made.element_size()]
        assert made.view(integer).tolist() == expected


@torch_since((2, 9), "torch.from_dlpack() of read-only tensors")
def test_asarray_of_torch_keeps_shape_and_strides(checkpoint, torch):
    transposed = torch.asarray(checkpoint("views.pt")["transposed"])
    assert (transposed.dtype, transposed.shape) == (torch.float32, (6, 4))
    assert transposed[2].tolist() == [2.0, 8.0, 14.0, 20.0]
    assert torch.asarray(scalars(checkpoint)["scalar_int"]).item() == -7


def test_torch_refuses_what_is_not_the_value(checkpoint, torch):
    lazy = checkpoint("conjugate.pt")["conjugate"], checkpoint("negative.pt")["negative"]
    packed = checkpoint("quantized.pt")["qint8"], checkpoint("dtypes.pt")["bits8"]
    for tensor in (*lazy, *packed):
        for make in makers(torch):
            with pytest.raises((BufferError, ValueError)):
                make(tensor)


def test_a_list_of_rows_is_refused_by_torch(checkpoint, torch):
    with pytest.raises((TypeError, ValueError)):
        torch.tensor([checkpoint("views.pt")["base"][0], checkpoint("views.pt")["base"][1]])


# --- subscripts that would select elements ----------------------------------------------------


SELECTIONS = r"integers, slices and one ellipsis.*\.numpy\(\)\[\.\.\.\] or \.torch\(\)\[\.\.\.\]"


def test_masks_and_index_arrays_of_numpy_are_refused(checkpoint, numpy):
    base = checkpoint("views.pt")["base"]
    keys = [numpy.array([1]), numpy.array([True]), numpy.array(True), numpy.bool_(True)]
    keys += [numpy.ones((4, 6), bool), numpy.array([0, 2]), (0, numpy.array([1]))]
    for key in keys:
        with pytest.raises(TypeError, match=SELECTIONS):
            base[key]
    assert base[numpy.int32(1), numpy.array(2)].item() == 8.0


def test_masks_and_index_tensors_of_torch_are_refused(checkpoint, torch):
    base = checkpoint("views.pt")["base"]
    keys = [torch.tensor([1]), torch.tensor([True]), torch.tensor(True), torch.tensor([[1]])]
    keys += [torch.ones(4, dtype=torch.bool), torch.tensor([0, 2]), (0, torch.tensor([1]))]
    for key in keys:
        with pytest.raises(TypeError, match=SELECTIONS):
            base[key]
    assert base[torch.tensor(1), torch.tensor(2)].item() == 8.0


def test_masks_and_index_tensors_of_ours_are_refused(checkpoint, dtypes):
    base = checkpoint("views.pt")["base"]
    for key in (dtypes["int64"][:1], dtypes["bool"], dtypes["bool"][0], dtypes["int64"]):
        with pytest.raises(TypeError, match=SELECTIONS):
            base[key]
    assert base[dtypes["int64"][0], dtypes["uint8"][1]].item() == 8.0


# --- stats() ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*INTEGERS, *REALS])
def test_stats_of_each_dtype(dtypes, name):
    kind = int if name in INTEGERS else float
    found = dtypes[name].stats()
    assert found == weightmap.reports.TensorStats(5, 1, 5, 3.0, math.sqrt(2), 0, 0, 0)
    assert (type(found.min), type(found.max), type(found.mean)) == (kind, kind, float)


def test_stats_of_nothing(checkpoint):
    assert scalars(checkpoint)["empty"].stats() == weightmap.reports.TensorStats(
        0, None, None, None, None, 0, 0, 0
    )


@pytest.mark.parametrize("name", [*COMPLEX, *PACKED])
def test_stats_refuse_what_has_none(dtypes, name):
    with pytest.raises(weightmap.UnsupportedError, match=f"{name} tensors have no statistics"):
        dtypes[name].stats()


def test_an_interrupt_ends_stats(python, float_archive):
    path = float_archive({"a": bytes(3 << 20)})
    program = """
import signal, sys, weightmap
tensor = weightmap.open(sys.argv[1])["a"]
def noted(*_):
    signal.setitimer(signal.ITIMER_REAL, 0)
    raise KeyboardInterrupt
signal.signal(signal.SIGALRM, noted)
signal.setitimer(signal.ITIMER_REAL, 0.02)
try:
    while True:
        tensor.stats()
except KeyboardInterrupt:
    print("interrupted")
print(tensor.stats().zeros)
"""
    ran = python(program, path)
    assert ran.stdout == "interrupted\n786432\n", ran.stderr
