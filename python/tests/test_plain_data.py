"""What root() makes of the plain data in a training checkpoint, and what stays an Object."""

import argparse
import collections
import datetime
import decimal
import fractions
import pathlib
import pickle
import types
import uuid

import pytest

import weightmap
from weightmap import Global, Object


@pytest.fixture
def root_of(archive):
    """What root() makes of the pickle of a value, or of the bytes of a pickle."""

    def root(value, protocol=2):
        pickled = value if type(value) is bytes else pickle.dumps(value, protocol)
        with weightmap.open(archive(pickled)) as checkpoint:
            return checkpoint.root()

    return root


def defaultdict_of_lists():
    made = collections.defaultdict(list)
    made["a"].append(1)
    return made


UTC = datetime.timezone.utc
CET = datetime.timezone(datetime.timedelta(hours=1), "CET")
VALUES = [
    argparse.Namespace(lr=0.5, layers=[1, 2], name="run"),
    argparse.Namespace(),
    types.SimpleNamespace(a=1, b=(2, 3)),
    defaultdict_of_lists(),
    collections.defaultdict(None, {1: 2}),
    collections.Counter("abca"),
    collections.deque([1, "two", [3]]),
    collections.deque([1, 2, 3], maxlen=2),
    collections.OrderedDict(a=1, b=2),
    {1, 2, 3},
    frozenset([(1, 2), "x"]),
    pathlib.PosixPath("/data/run/model.pt"),
    pathlib.PurePosixPath("a/b"),
    pathlib.PureWindowsPath("C:/a/b"),
    datetime.datetime(2026, 11, 22, 12, 30, 5, 123456),
    datetime.datetime(2026, 11, 22, 12, 30, tzinfo=UTC),
    datetime.datetime(2026, 11, 22, 12, 30, tzinfo=CET, fold=1),
    datetime.date(2026, 11, 22),
    datetime.time(12, 30, 59, 7),
    datetime.time(1, 2, tzinfo=UTC),
    datetime.timedelta(days=-1, seconds=5, microseconds=7),
    UTC,
    CET,
    decimal.Decimal("1.50"),
    decimal.Decimal("-Infinity"),
    fractions.Fraction(-3, 4),
    fractions.Fraction(7),
    uuid.UUID("12345678-1234-5678-1234-567812345678"),
    3 + 4j,
    slice(1, None, 2),
    range(2, 10, 3),
    range(5),
    bytearray(b"abc"),
    b"",
]


@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_plain_data_is_itself_again(root_of, value, protocol):
    made = root_of({"value": value, "again": value}, protocol)
    assert type(made["value"]) is type(value)
    assert made["value"] == value
    assert getattr(made["value"], "maxlen", None) == getattr(value, "maxlen", None)
    assert getattr(made["value"], "default_factory", None) is getattr(
        value, "default_factory", None
    )
    # What was one object in the file still is.
    assert made["value"] is made["again"]


def test_a_path_of_windows_is_one_that_can_be_made_here(root_of):
    made = root_of(b"\x80\x02cpathlib\nWindowsPath\nX\x03\x00\x00\x00C:\\X\x01\x00\x00\x00a\x86R.")
    assert made == pathlib.PureWindowsPath("C:\\a")


def test_plain_data_may_hold_tensors(tmp_path):
    torch = pytest.importorskip("torch", reason="saves with torch")
    torch.save({"args": argparse.Namespace(w=torch.arange(3))}, tmp_path / "m.pt")
    with weightmap.open(tmp_path / "m.pt") as checkpoint:
        assert checkpoint.root()["args"].w.tobytes() == torch.arange(3).numpy().tobytes()


# --- numpy


DTYPES = ["f8", "f4", "f2", "i8", "i4", "i2", "i1", "u8", "u1", "b1", "c8", "c16", ">f4", "U5", "S3"]


@pytest.mark.parametrize("protocol", [2, 5])
@pytest.mark.parametrize("name", DTYPES)
def test_arrays_scalars_and_dtypes_of_numpy(root_of, numpy, name, protocol):
    array = numpy.array([[1, 0, 3], [4, 5, 1]]).astype(name)
    made = root_of([array, array[0, 2], array.dtype, numpy.asfortranarray(array)], protocol)
    assert [type(one) for one in made] == [
        numpy.ndarray, type(array[0, 2]), type(array.dtype), numpy.ndarray
    ]
    assert made[0].dtype == made[2] == array.dtype
    assert made[0].tolist() == made[3].tolist() == array.tolist()
    assert made[1] == array[0, 2]


def test_empty_and_zero_dimensional_arrays(root_of, numpy):
    made = root_of([numpy.zeros((0, 3)), numpy.array(7)])
    assert (made[0].shape, made[1].shape, made[1].item()) == ((0, 3), (), 7)


def test_the_state_of_the_random_numbers_of_numpy(root_of, numpy):
    numpy.random.seed(3)
    state = numpy.random.get_state()
    expected = numpy.random.random(4).tolist()
    made = root_of({"rng": state})["rng"]
    numpy.random.set_state(made)
    assert numpy.random.random(4).tolist() == expected


def test_arrays_of_objects_stay_as_they_are(root_of, numpy):
    made = root_of(numpy.array([1, "a", None], dtype=object))
    assert type(made) is Object
    assert made.callable.name == "_reconstruct"


def test_without_numpy_its_data_is_an_object(archive, numpy, python):
    path = archive(pickle.dumps(numpy.float64(0.5), 2))
    ran = python(
        "import sys; sys.modules['numpy'] = None\n"
        "import weightmap; print(type(weightmap.open(sys.argv[1]).root()).__name__)",
        path,
    )
    assert ran.stdout == "Object\n", ran.stderr


def test_nothing_is_imported_for_what_is_not_there(archive, python):
    path = archive(pickle.dumps({"a": [1, 2.5], "c": collections.Counter("ab")}, 2))
    ran = python(
        "import sys, weightmap\nbefore = set(sys.modules)\n"
        "weightmap.open(sys.argv[1]).root()\n"
        "print(sorted({'numpy', 'argparse', 'pathlib', 'datetime', 'decimal', 'fractions', 'uuid'}"
        " & (set(sys.modules) - before)))",
        path,
    )
    assert ran.stdout == "[]\n", ran.stderr


# --- what is not as its pickler writes it

INTEGER = b"K\x05"


def text(value):
    return b"X" + len(value).to_bytes(4, "little") + value.encode()


def call(name, *arguments, state=b""):
    module, _, name = name.rpartition(".")
    built = state + b"b" if state else b""
    return f"c{module}\n{name}\n(".encode() + b"".join(arguments) + b"tR" + built


DTYPE = call("numpy.dtype", text("f8"), b"\x89", b"\x88",
             state=b"(K\x03" + text("<") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00t")
NDARRAY = b"cnumpy\nndarray\n"


def array_of(shape, content, dtype=DTYPE, first=NDARRAY, order=b"\x89"):
    data = call("_codecs.encode", text(content), text("latin1"))
    state = b"(K\x01" + shape + dtype + order + data + b"t"
    return call("numpy.core.multiarray._reconstruct", first, b"K\x00\x85", b"C\x01b", state=state)


MALFORMED = {
    "a date of too few bytes": call("datetime.date", b"C\x01a"),
    "a date of an integer": call("datetime.date", INTEGER),
    "a month of 200": call("datetime.datetime", b"C\x0a\x07\xd0\xc8\x01\x00\x00\x00\x00\x00\x00"),
    "a datetime in a zone of text": call(
        "datetime.datetime", b"C\x0a\x07\xd0\x01\x01\x00\x00\x00\x00\x00\x00", text("UTC")
    ),
    "a time of nothing": call("datetime.time"),
    "a timedelta of text": call("datetime.timedelta", text("1")),
    "a timezone of a day": call("datetime.timezone", call("datetime.timedelta", b"K\x01")),
    "a decimal of words": call("decimal.Decimal", text("one")),
    "a decimal of very many digits": call("decimal.Decimal", text("1" * 5000)),
    "a fraction that would be computed": call("fractions.Fraction", text("1e999999999")),
    "a fraction of nothing": call("fractions.Fraction", text("1/0")),
    "a uuid of text": call("uuid.UUID", state=b"}" + text("int") + text("x") + b"s"),
    "a uuid that is too large": call(
        "uuid.UUID", state=b"}" + text("int") + b"\x8a\x11" + b"\xff" * 16 + b"\x01" + b"s"
    ),
    "a range of text": call("builtins.range", text("1")),
    "a range without a step": call("builtins.range", b"K\x00", b"K\x05", b"K\x00"),
    "a slice of a list": call("builtins.slice", b"]"),
    "a path of a number": call("pathlib.PosixPath", INTEGER),
    "a namespace with a key of a number": call("argparse.Namespace", state=b"}K\x01K\x02s"),
    "a namespace with a list for a state": call("argparse.Namespace", state=b"]"),
    "a namespace with arguments": call("types.SimpleNamespace", INTEGER),
    "a deque of a size that is text": call("collections.deque", b"]", text("x")),
    "a deque of a negative size": call("collections.deque", b"]", b"J\xff\xff\xff\xff"),
    "a defaultdict with an unknown factory": call("collections.defaultdict", b"cmodule\nmake\n"),
    "a dtype of objects": call("numpy.dtype", text("O8"), b"\x89", b"\x88",
                               state=b"(K\x03" + text("|") + b"NNNK\x00K\x00K\x00t"),
    "a dtype of no size": call("numpy.dtype", text("f"), b"\x89", b"\x88"),
    "an array of a shape that is larger": array_of(b"K\x02\x85", "x" * 8),
    "an array of a negative shape": array_of(b"J\xff\xff\xff\xff\x85", "x" * 8),
    "an array of a huge shape": array_of(b"\x8a\x08" + b"\xff" * 7 + b"\x7f\x85", "x" * 8),
    "an array that is empty and huge": array_of(b"(\x8a\x08" + b"\xff" * 7 + b"\x7fK\x00t", ""),
    "an array of an unknown dtype": array_of(b"K\x01\x85", "x" * 8, dtype=text("f8")),
    "an array of another class": array_of(b"K\x01\x85", "x" * 8, first=b"cnumpy\nmatrix\n"),
    "a scalar of too few bytes": call("numpy.core.multiarray.scalar", DTYPE, b"C\x01a"),
    "a scalar of text": call("numpy.core.multiarray.scalar", DTYPE, text("abcdefgh")),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_data_stays_an_object(root_of, name):
    made = root_of(b"\x80\x03" + MALFORMED[name] + b".")
    assert type(made) is Object, made
    assert type(made.callable) is Global


def test_what_a_namespace_is_given_is_no_attribute_of_its_class(root_of):
    state = b"}" + text("__class__") + text("x") + b"s"
    made = root_of(b"\x80\x02" + call("argparse.Namespace", state=state) + b".")
    assert type(made) is argparse.Namespace


@pytest.mark.parametrize("of", ["collections.defaultdict", "collections.Counter"])
def test_a_key_that_cannot_be_one_is_corrupt(root_of, of):
    with pytest.raises(weightmap.CorruptError, match="a key that cannot be one") as caught:
        root_of(b"\x80\x02" + call(of) + b"]K\x01s.")
    assert caught.value.file is not None


def test_a_callable_of_data_is_not_looked_into(root_of):
    # The callable is itself a namespace, whose `module` is a list.
    inner = call("argparse.Namespace", state=b"}" + text("module") + b"]s")
    try:
        made = root_of(b"\x80\x02" + inner + b")R.")
    except weightmap.Error:
        return
    assert type(made) is Object
