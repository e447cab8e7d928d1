"""weightmap.Tensor by itself: what it says, and slicing. Needs neither numpy nor torch."""

import operator
import signal
import struct
import sys
import zipfile

import pytest

import weightmap


def floats(tensor):
    content = tensor.tobytes()
    return list(struct.unpack(f"<{len(content) // 4}f", content))


# --- what it says -----------------------------------------------------------------------------


def test_file_offset_is_where_the_bytes_are(checkpoint, data):
    content = (data / "state_dict.pt").read_bytes()
    for tensor in checkpoint("state_dict.pt").values():
        assert tensor.tobytes() == content[tensor.file_offset :][: tensor.nbytes]
        assert tensor.nbytes > 0


def test_says_where_a_tensor_was_and_what_it_was(checkpoint):
    assert checkpoint("from_cuda.pt")["layer1"].location == "cuda:1"
    parameters = checkpoint("parameters.pt")
    assert (parameters["leaf"].requires_grad, parameters["leaf"].is_parameter) == (True, False)
    assert (parameters["bias"].requires_grad, parameters["bias"].is_parameter) == (False, True)


def test_shows_name_dtype_and_shape(checkpoint):
    opened = checkpoint("views.pt")
    assert repr(opened["base"]) == "<weightmap.Tensor 'base' float32 [4, 6]>"
    assert repr(opened["base"][0, 0]) == "<weightmap.Tensor 'base' float32 []>"
    assert repr(opened["permuted"]) == "<weightmap.Tensor 'permuted' int16 [4, 2, 3]>"


def test_shows_hostile_names_on_one_line_of_plain_text(float_archive):
    name = "a\n\x1b[31mred\x07'\\"
    [tensor] = weightmap.open(float_archive({name: bytes(4)})).values()
    assert tensor.name == name
    shown = repr(tensor)
    assert shown.startswith("<weightmap.Tensor ") and shown.endswith(" float32 [1]>")
    assert shown.isprintable()


def test_has_the_length_of_its_first_dimension(checkpoint):
    opened = checkpoint("views.pt")
    assert len(opened["base"]) == 4
    assert len(opened["transposed"]) == 6
    empty = {tensor.name: tensor for tensor in checkpoint("scalars_and_empty.pt").values()}
    assert len(empty["empty_rows"]) == 0
    assert len(empty["empty_columns"]) == 5
    with pytest.raises(TypeError, match="no len"):
        len(empty["scalar"])


@pytest.mark.parametrize("use, message", [
    (bool, "neither true nor false"),  # a len() of 0, or a value of 0, is not "there is none"
    (lambda tensor: 0.0 in tensor, "does not search"),
    (lambda tensor: operator.setitem(tensor, 0, 1), ""),
    (lambda tensor: weightmap.Tensor(), ""),
], ids=["bool", "in", "assignment", "constructor"])
def test_what_a_tensor_is_not(checkpoint, use, message):
    for tensor in checkpoint("scalars_and_empty.pt", sharing="private", writable=True).values():
        with pytest.raises(TypeError, match=message):
            use(tensor)


def test_goes_through_its_first_dimension(checkpoint):
    rows = list(checkpoint("views.pt")["base"])
    assert [floats(row)[0] for row in rows] == [0, 6, 12, 18]
    assert [row.file_offset for row in rows] == [1408, 1432, 1456, 1480]
    assert list(checkpoint("scalars_and_empty.pt")["empty"]) == []


def test_one_made_behind_the_back_of_its_class_does_not_crash(python):
    program = """
import weightmap, warnings
warnings.simplefilter("ignore")
core = weightmap._core
kinds = [core.Tensor, core.TensorBuffer, core.MappedBytes, core.Checkpoint]
uses = [memoryview, bytes, len, repr, lambda o: o.__dlpack__(), lambda o: o.numpy(),
        lambda o: o.torch(), lambda o: o[0], lambda o: o.shape, lambda o: o.find("a"),
        lambda o: o.buffer(), lambda o: o.item(), int, iter, lambda o: o == 1]
for kind in kinds:
    for use in uses:
        try:
            made = kind.__new__(kind)
            use(made)
        except Exception as error:
            # What reads memory that was never written may say anything.
            assert type(error) in (TypeError, AttributeError, BufferError), (kind, error)
print("alive")
"""
    ran = python(program)
    assert (ran.returncode, ran.stdout) == (0, "alive\n"), ran.stderr


@pytest.mark.parametrize("method", ["__dlpack__", "numpy", "torch", "__getitem__", "__array__"])
def test_methods_called_on_something_else_do_not_crash(python, method):
    program = f"""
import weightmap
for other in (3, None, "text", object()):
    try:
        weightmap.Tensor.{method}(other)
    except TypeError:
        pass
print("alive")
"""
    ran = python(program)
    assert (ran.returncode, ran.stdout) == (0, "alive\n"), ran.stderr


# --- slicing ----------------------------------------------------------------------------------

BASE = [[6.0 * row + column for column in range(6)] for row in range(4)]


def flat(rows):
    return [value for row in rows for value in row]


@pytest.mark.parametrize("key, shape, values", [
    (0, (6,), BASE[0]),
    (3, (6,), BASE[3]),
    (-1, (6,), BASE[-1]),
    (-4, (6,), BASE[0]),
    ((1, 2), (), [BASE[1][2]]),
    ((-1, -1), (), [23.0]),
    ((1,), (6,), BASE[1]),
    (slice(None), (4, 6), flat(BASE)),
    (slice(1, 3), (2, 6), flat(BASE[1:3])),
    (slice(None, -1), (3, 6), flat(BASE[:-1])),
    (slice(-2, None), (2, 6), flat(BASE[-2:])),
    (slice(None, None, 2), (2, 6), flat(BASE[::2])),
    (slice(1, None, 2), (2, 6), flat(BASE[1::2])),
    (slice(None, None, 3), (2, 6), flat(BASE[::3])),
    (slice(0, 4, 100), (1, 6), BASE[0]),
    (slice(2, 100), (2, 6), flat(BASE[2:])),
    (slice(-100, 1), (1, 6), BASE[0]),
    (slice(0, 2**70), (4, 6), flat(BASE)),
    (slice(-(2**70), None, 2**70), (1, 6), BASE[0]),
    (slice(3, 1), (0, 6), []),
    (slice(4, None), (0, 6), []),
    (slice(100, 200), (0, 6), []),
    ((slice(None), 2), (4,), [row[2] for row in BASE]),
    ((slice(None), -1), (4,), [row[-1] for row in BASE]),
    ((slice(1, 3), slice(0, 6, 3)), (2, 2), flat(row[::3] for row in BASE[1:3])),
    ((slice(None, None, 2), slice(1, None, 2)), (2, 3), flat(r[1::2] for r in BASE[::2])),
    ((0, slice(2, 4)), (2,), BASE[0][2:4]),
    ((slice(None), slice(6, None)), (4, 0), []),
    (..., (4, 6), flat(BASE)),
    ((), (4, 6), flat(BASE)),
    ((..., 1), (4,), [row[1] for row in BASE]),
    ((1, ...), (6,), BASE[1]),
    ((1, ..., 2), (), [8.0]),
    ((1, 2, ...), (), [8.0]),
    ((..., 1, 2), (), [8.0]),
    ((..., slice(4, None)), (4, 2), flat(row[4:] for row in BASE)),
])
def test_slices_as_numpy_does(checkpoint, key, shape, values):
    part = checkpoint("views.pt")["base"][key]
    assert part.shape == shape
    assert floats(part) == values


class Two:
    def __index__(self):
        return 2


def test_indexes_by_what_has_an_index(checkpoint):
    base = checkpoint("views.pt")["base"]
    assert floats(base[Two()]) == BASE[2]
    assert floats(base[Two() : 3]) == BASE[2]
    assert floats(base[0, Two()]) == [2.0]


def test_a_slice_says_where_it_lies(checkpoint):
    part = checkpoint("views.pt")["base"][1:3, ::3]
    assert (part.name, part.storage, part.dtype) == ("base", "0", "float32")
    assert (part.storage_offset, part.file_offset) == (6, 1408 + 4 * 6)
    assert part.strides == (6, 3)
    assert (part.numel, part.nbytes, part.ndim) == (4, 16, 2)
    assert part.is_contiguous is False
    assert checkpoint("views.pt")["base"][1:3].is_contiguous is True


def test_slices_of_slices_add_up(checkpoint):
    base = checkpoint("views.pt")["base"]
    part = base[1:][::2][:, 1:][1, 2:]
    assert floats(part) == BASE[3][3:]
    assert (part.storage_offset, part.file_offset) == (21, 1408 + 4 * 21)
    assert base[:, 1:5][:, 1:3][1].strides == (1,)


def test_slices_of_views_keep_their_strides(checkpoint):
    opened = checkpoint("views.pt")
    assert floats(opened["transposed"][1:3, -1]) == [19.0, 20.0]
    assert opened["transposed"][2].strides == (6,)
    assert floats(opened["expanded"][2, 4:]) == [4.0, 5.0]
    assert floats(opened["overlapping"][1]) == [3.0, 4.0, 5.0, 6.0]
    assert floats(opened["one_column"][::2]) == [5.0, 17.0]
    part = opened["permuted"][3, :, ::2]
    assert struct.unpack("<4h", part.tobytes()) == (3, 11, 15, 23)


def test_an_empty_slice_has_no_place_of_its_own(checkpoint):
    base = checkpoint("views.pt")["base"]
    for part in (base[4:], base[3:1], base[:, 6:], base[2:2, 3:]):
        assert part.tobytes() == b""
        # No pointer behind the storage is ever made.
        assert 1408 <= part.file_offset <= 1408 + 96


class Raises:
    def __index__(self):
        raise ZeroDivisionError("from __index__")

    def __repr__(self):  # of tests' names, which are the same in each process
        return "Raises()"


BEYOND = "is out of bounds for a dimension of size"
BACKWARD = r"goes forward; \.numpy\(\)\[\.\.\.\] takes a step"
COPIES = r"integers, slices and one ellipsis.*\.numpy\(\)"
WRONG_KEYS = [
    (IndexError, f"index -5 {BEYOND} 4", [-5]),
    (IndexError, "", [4, 2**40, -(2**40), 2**70, (0, 6), (0, -7), (slice(None), 9)]),
    (IndexError, "too many indices",
     [(0, 0, 0), (..., 0, 0, 0), (slice(None),) * 3, (0, ..., 0, 0)]),
    (IndexError, "ellipsis", [(..., 0, ...)]),
    (ValueError, BACKWARD, [slice(None, None, step) for step in (-1, -2, -(2**70))]),
    (ValueError, "", [slice(None, None, 0)]),
    (TypeError, COPIES,
     [None, True, False, 1.0, "0", b"0", [0, 1], (0, None), (0, [1]), (True, 0), {}, 1j]),
    (TypeError, "", [slice("a", "b")]),
    (ZeroDivisionError, "from __index__", [Raises(), slice(Raises(), None), (0, Raises())]),
]


@pytest.mark.parametrize("error, message, key", [
    pytest.param(error, message, key, id=str(key))
    for error, message, keys in WRONG_KEYS for key in keys
])
def test_a_wrong_key_is_the_error_of_numpy(checkpoint, error, message, key):
    with pytest.raises(error, match=message):
        checkpoint("views.pt")["base"][key]


@pytest.mark.parametrize("key", [0, -1, slice(None), (0,), (..., 0)])
def test_a_scalar_has_nothing_to_index(checkpoint, key):
    scalar = checkpoint("views.pt")["base"][1, 2]
    with pytest.raises(IndexError):
        scalar[key]
    assert floats(scalar[...]) == floats(scalar[()]) == [8.0]


# --- bits -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name, bits", [
    ("float64", "uint64"), ("float32", "uint32"), ("bfloat16", "uint16"), ("int8", "uint8"),
    ("bool", "uint8"), ("complex64", "uint64"), ("complex32", "uint32"),
    ("float8_e4m3fn", "uint8"), ("bits16", "uint16"), ("uint16", "uint16"),
])
def test_bits_are_integers_of_the_same_size(checkpoint, name, bits):
    tensor = checkpoint("dtypes.pt")[name]
    assert tensor.bits().dtype == bits
    assert tensor.bits().shape == tensor.shape
    assert tensor.bits().tobytes() == tensor.tobytes()
    assert tensor.bits().file_offset == tensor.file_offset


def test_complex128_is_wider_than_any_integer(checkpoint):
    with pytest.raises(weightmap.InvalidArgumentError, match="complex128"):
        checkpoint("dtypes.pt")["complex128"].bits()


def test_bits_of_a_slice_and_a_slice_of_bits(checkpoint):
    base = checkpoint("views.pt")["base"]
    assert base[1, ::2].bits().tobytes() == base.bits()[1, ::2].tobytes()
    assert struct.unpack("<3I", base.bits()[0, :3].tobytes()) == (0, 0x3F800000, 0x40000000)


# --- the other byte order, and lazy bits ------------------------------------------------------


def test_a_big_endian_file_says_so(checkpoint):
    tensors = checkpoint("big_endian.pt").values()
    assert {tensor.byteorder for tensor in tensors} == {"foreign", "native"}
    # One byte has no order.
    assert [tensor.name for tensor in tensors if tensor.byteorder == "native"] == ["uint8", "bool"]


def test_slices_and_bits_of_a_big_endian_file(checkpoint):
    opened = checkpoint("big_endian.pt")
    assert struct.unpack("<2h", opened["int16"][1:].tobytes()) == (1, 2)
    assert struct.unpack("<2i", opened["transposed"][2].tobytes()) == (2, 5)
    bits = opened["float32"].bits()
    assert (bits.dtype, bits.byteorder) == ("uint32", "foreign")
    assert struct.unpack("<3I", bits.tobytes()) == (0, 0x3F800000, 0x40000000)


def test_lazy_bits_are_shown_and_never_mistaken_for_values(checkpoint):
    conjugate = checkpoint("conjugate.pt")["conjugate"]
    assert (conjugate.is_conjugate, conjugate.is_negative) == (True, False)
    negative = checkpoint("negative.pt")["negative"]
    assert (negative.is_conjugate, negative.is_negative) == (False, True)
    for tensor in (conjugate, negative, conjugate[1:], negative[:1]):
        with pytest.raises(weightmap.UnsupportedError, match="lazy"):
            tensor.tobytes()


def test_bits_of_lazy_tensors_are_what_is_stored(checkpoint):
    opened = checkpoint("conjugate.pt")
    bits = opened["conjugate"].bits()
    assert bits.is_conjugate is False
    assert struct.unpack("<4f", bits.tobytes()) == (1, 2, 3, -4)
    assert opened["base"].tobytes() == bits.tobytes()
    bits = checkpoint("negative.pt")["negative"].bits()
    assert (bits.is_negative, bits.strides) == (False, (2,))
    assert struct.unpack("<2f", bits.tobytes()) == (2, -4)


def test_a_stride_that_no_element_uses_need_not_fit(archive, float_archive):
    with zipfile.ZipFile(float_archive({"w": bytes(4)})) as source:
        pickled = source.read("archive/data.pkl")
    stride = b"(\x8a\x08" + (2**61).to_bytes(8, "little") + b"t"
    before, _, after = pickled.rpartition(b"(J\x01\0\0\0t")  # behind the shape, which is the same
    path = archive(before + stride + after, {"0": bytes(4)}, "wide.pt")
    with weightmap.open(path) as opened:
        assert opened["w"].strides == (2**61,)
        assert opened["w"].buffer().strides == (0,)
        assert floats(opened["w"]) == [0.0]


@pytest.mark.parametrize("method", ["tobytes", "tolist", "__bytes__"])
@pytest.mark.parametrize("rank", [25, 45])
def test_elements_that_repeat_without_a_bound_are_not_copied(cube, method, rank):
    opened = weightmap.open(cube(rank))
    with pytest.raises(weightmap.LimitExceededError, match=f"{2**rank} elements in a storage of"):
        getattr(opened["w"], method)()


def test_a_bound_on_repeats_may_be_lifted(cube):
    opened = weightmap.open(cube(25), repeats="any")
    assert len(opened["w"].tobytes()) == 4 << 25


def test_a_long_list_is_ended_by_a_signal(cube):
    class Stopped(Exception):
        pass

    def stop(*_):
        made.append(sys.getallocatedblocks() - before)
        raise Stopped

    tensor = weightmap.open(cube(24))["w"]
    made = []
    before = sys.getallocatedblocks()
    handler = signal.signal(signal.SIGALRM, stop)
    try:
        with pytest.raises(Stopped):
            # And again: Python ignores what is raised in a finalizer.
            signal.setitimer(signal.ITIMER_REAL, 0.01, 10)
            tensor.tolist()
            signal.pause()  # where it was too fast
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
    assert made[0] < 1 << 24
