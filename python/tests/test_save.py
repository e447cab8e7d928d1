"""weightmap.save(): what it takes beyond torch.save, and what it answers. Works without torch."""

from __future__ import annotations

import collections
import gc
import io
import os
import sys
import threading
import weakref
import zipfile

import pytest
from conftest import NO_LONGER_SAFE, torch_since

import weightmap

# What torch.save wrote in the way in which it writes today: a copy is the same file.
SAME_AGAIN = (
    "attributes.pt", "bare_storages.pt", "conjugate.pt", "dtypes.pt", "nested_tensor.pt",
    "parameters.pt", "quantized.pt", "sparse.pt", "training.pt", "views.pt",
)


def root_of(path):
    with weightmap.open(path) as checkpoint:
        return checkpoint.root()


@pytest.mark.parametrize("name", SAME_AGAIN)
def test_an_opened_checkpoint_is_written_as_it_is(name, data, tmp_path):
    with weightmap.open(data / name) as checkpoint:
        weightmap.save(checkpoint, tmp_path / name)
    assert (tmp_path / name).read_bytes() == (data / name).read_bytes()


def all_checkpoints(data):
    for path in sorted(data.glob("*.pt")):
        checkpoint = weightmap.open(path)
        if checkpoint.info.format != "torchscript":
            yield path, checkpoint


def test_writing_what_was_written_changes_nothing(data, tmp_path):
    # Whoever wrote the first file: another protocol, other keys, another byte order.
    (tmp_path / "again").mkdir()
    for path, checkpoint in all_checkpoints(data):
        weightmap.save(checkpoint, tmp_path / path.name, durable=False)
        with weightmap.open(tmp_path / path.name) as written:
            assert list(written) == list(checkpoint)
            assert written.info.byteorder == checkpoint.info.byteorder
            weightmap.save(written, tmp_path / "again" / path.name, durable=False)
        again = (tmp_path / "again" / path.name).read_bytes()
        assert again == (tmp_path / path.name).read_bytes(), path.name
        checkpoint.close()


def test_a_subtree_is_what_is_below_the_key(checkpoint, tmp_path):
    training = checkpoint("training.pt")
    weightmap.save(training.subtree("model"), tmp_path / "model.pt")
    with weightmap.open(tmp_path / "model.pt") as model:
        assert list(model) == list(training.subtree("model"))
    weightmap.save({"a": training.subtree("model"), "b": 3}, tmp_path / "part.pt")
    with weightmap.open(tmp_path / "part.pt") as part:
        assert list(part) == ["a." + name for name in training.subtree("model")]


def test_tensors_of_a_checkpoint_keep_their_storages(checkpoint, tmp_path):
    views = checkpoint("views.pt")
    weightmap.save({name: tensor for name, tensor in views.items()}, tmp_path / "views.pt")
    with weightmap.open(tmp_path / "views.pt") as written:
        assert list(written) == list(views)
        for name, tensor in views.items():
            same = written[name]
            assert (same.storage, same.storage_offset) == (tensor.storage, tensor.storage_offset)
            assert (same.shape, same.strides) == (tensor.shape, tensor.strides)
            assert same.requires_grad == tensor.requires_grad
            assert same.is_parameter == tensor.is_parameter


def test_a_slice_of_a_tensor_is_a_view_of_its_storage(checkpoint, tmp_path, float_archive):
    path = float_archive({"a": bytes(range(48))})
    with weightmap.open(path) as source:
        weightmap.save([source["a"][2:5], source["a"]], tmp_path / "part.pt")
    with weightmap.open(tmp_path / "part.pt") as written:
        part = written["0"]
        assert (part.storage, part.storage_offset, part.shape) == ("0", 2, (3,))
        assert bytes(part.bits().buffer()) == bytes(range(8, 20))
        assert written["1"].storage == "0"


def test_tensors_of_two_checkpoints_in_one_file(float_archive, tmp_path):
    first = weightmap.open(float_archive({"x": b"\0\0\x80?" * 3}, "first.pt"))
    second = weightmap.open(float_archive({"y": b"\0\0\0@" * 2}, "second.pt"))
    report = weightmap.save({**first, **second}, tmp_path / "both.pt")
    first.close()
    second.close()
    assert [(s.key, s.nbytes, s.reserved) for s in report.storages] == [
        ("0", 12, False), ("1", 8, False),
    ]
    with weightmap.open(tmp_path / "both.pt") as both:
        assert both["x"].tolist() == [1.0, 1.0, 1.0]
        assert both["y"].tolist() == [2.0, 2.0]


def test_plain_data_comes_back(tmp_path):
    shared = [1]
    value = collections.OrderedDict(
        numbers=[0, -1, 2**31, 2**63, -(2**64), 1.5, 2j, True, None],
        texts=("a", "ä", "\ud800", ""),
        bytes=[b"", b"a", bytearray(b"b")],
        sets=[{1, 2}, set()],
        counter=collections.Counter("aab"),
        shared=[shared, shared],
    )
    value._metadata = {"version": 2}
    weightmap.save(value, tmp_path / "plain.pt")
    read = root_of(tmp_path / "plain.pt")
    assert read == value and type(read) is collections.OrderedDict
    assert read._metadata == {"version": 2}
    assert read["shared"][0] is read["shared"][1]
    assert type(read["bytes"][2]) is bytearray


def test_the_report_says_where_everything_is(float_archive, tmp_path):
    with weightmap.open(float_archive({"a": bytes(100), "b": bytes(8)})) as source:
        report = weightmap.save(dict(source), tmp_path / "model.pt")
    assert report.path == str(tmp_path / "model.pt")
    assert report.bytes == os.path.getsize(tmp_path / "model.pt")
    with weightmap.open(tmp_path / "model.pt") as written:
        assert [s.offset for s in report.storages] == [
            written["a"].file_offset, written["b"].file_offset,
        ]
    assert repr(report) == f"<weightmap.SaveReport {report.path!r}, {report.bytes} bytes>"


def test_a_checkpoint_keeps_its_alignment(float_archive, tmp_path):
    with weightmap.open(float_archive({"a": bytes(40)})) as source:
        weightmap.save(dict(source), tmp_path / "model.pt", alignment=4096)
    with weightmap.open(tmp_path / "model.pt") as written:
        report = weightmap.save(written, tmp_path / "copy.pt")
    assert report.storages[0].offset % 4096 == 0


def test_sums_can_be_left_out(float_archive, tmp_path):
    with weightmap.open(float_archive({"a": bytes(range(40))})) as source:
        weightmap.save(dict(source), tmp_path / "model.pt", crc=False)
    with zipfile.ZipFile(tmp_path / "model.pt") as archive:
        assert {record.CRC for record in archive.infolist()} == {0}


# Room that is filled later.


def test_shapes_get_room(tmp_path):
    report = weightmap.save(
        {"a": weightmap.empty((1000, 1000), "bfloat16"), "b": weightmap.empty(3), "c": 1},
        tmp_path / "model.pt",
    )
    assert [(s.nbytes, s.reserved) for s in report.storages] == [(2000000, True), (12, True)]
    with weightmap.open(tmp_path / "model.pt") as written:
        assert (written["a"].dtype, written["a"].shape) == ("bfloat16", (1000, 1000))
        assert written["b"].tolist() == [0.0, 0.0, 0.0]
    assert os.stat(tmp_path / "model.pt").st_blocks * 512 < 1000000  # the rest is a hole


@pytest.mark.parametrize("reserve, reserved", [
    (False, []), (True, ["0", "1", "2"]), (["x"], ["0"]), ({"part.y", "z"}, ["1", "2"]),
    (lambda name: name.endswith("y"), ["1"]),
])
def test_storages_are_reserved_by_name(reserve, reserved, float_archive, tmp_path):
    contents = {name: b"\0\0\x80?" * 4 for name in "xyz"}
    with weightmap.open(float_archive(contents)) as source:
        value = {"x": source["x"], "part": {"y": source["y"]}, "z": source["z"]}
        normal = weightmap.save(value, tmp_path / "complete.pt")
        report = weightmap.save(value, tmp_path / "reserved.pt", reserve=reserve)
    assert [s.key for s in report.storages if s.reserved] == reserved
    assert [s.offset for s in report.storages] == [s.offset for s in normal.storages]
    with weightmap.open(tmp_path / "reserved.pt") as written:
        for tensor in written.values():
            expected = [0.0] * 4 if tensor.storage in reserved else [1.0] * 4
            assert tensor.tolist() == expected


def test_what_is_not_filled_in_stays_room_in_a_copy(tmp_path):
    path = tmp_path / "model.pt"
    weightmap.save({"a": weightmap.empty(3), "b": weightmap.empty(5)}, path)
    with weightmap.open_for_filling(path) as fill:
        fill.mark_written("a")
    with weightmap.open(path) as checkpoint:
        for value in (checkpoint, dict(checkpoint)):
            report = weightmap.save(value, tmp_path / "copy.pt")
            assert [storage.reserved for storage in report.storages] == [False, True]
            with weightmap.open_for_filling(tmp_path / "copy.pt") as fill:
                assert fill.unwritten() == ["b"]


def test_names_are_those_of_the_file(data, tmp_path):
    with weightmap.open(data / "parameters.pt") as checkpoint:
        for name, tensor in checkpoint.items():
            report = weightmap.save(checkpoint, tmp_path / "part.pt", reserve=[name])
            assert [s.key for s in report.storages if s.reserved] == [tensor.storage]


# Where it is written to.


def test_a_write_function_gets_the_same_bytes(float_archive, tmp_path):
    with weightmap.open(float_archive({"a": bytes(range(200))})) as source:
        value = {"a": source["a"]}
        weightmap.save(value, tmp_path / "archive.pt")
        buffer = io.BytesIO()
        report = weightmap.save(value, buffer)
        with open(tmp_path / "file.pt", "wb") as file:
            weightmap.save(value, file)
    assert report.path is None and report.bytes == len(buffer.getvalue())
    assert buffer.getvalue() == (tmp_path / "archive.pt").read_bytes()
    assert buffer.getvalue() == (tmp_path / "file.pt").read_bytes()


class Slow(io.RawIOBase):
    """Takes a few bytes at a time, as a pipe may."""

    def __init__(self):
        self.taken = bytearray()

    def write(self, content):
        self.taken += content[:7]
        return min(7, len(content))


def test_a_write_function_may_take_less(float_archive):
    with weightmap.open(float_archive({"a": bytes(range(200))})) as source:
        slow, whole = Slow(), io.BytesIO()
        weightmap.save({"a": source["a"]}, slow)
        weightmap.save({"a": source["a"]}, whole)
    assert slow.taken == whole.getvalue()


class Full(Exception):
    pass


def test_what_a_write_function_raises_comes_out(float_archive):
    class Target:
        def write(self, content):
            raise Full("no more")

    with weightmap.open(float_archive({"a": bytes(40)})) as source:
        with pytest.raises(Full, match="^no more$"):
            weightmap.save({"a": source["a"]}, Target())


def test_a_write_function_is_called_by_the_thread_that_saves(float_archive):
    threads = set()

    class Target:
        def write(self, content):
            threads.add(threading.get_ident())

    with weightmap.open(float_archive({"a": bytes(40)})) as source:
        weightmap.save({"a": source["a"]}, Target())
    assert threads == {threading.get_ident()}


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(weightmap.MissingFileError, match="nowhere/model.pt"):
        weightmap.save({}, tmp_path / "nowhere" / "model.pt")


def test_a_path_may_be_bytes(tmp_path):
    path = os.fsencode(tmp_path) + b"/\xff.pt"
    assert os.fsencode(weightmap.save({"a": 1}, path).path) == path
    assert root_of(path) == {"a": 1}


@pytest.mark.parametrize("part", [1, object()])
def test_nothing_of_what_was_saved_is_kept(part, tmp_path):
    value = collections.OrderedDict(a=part)
    kept = weakref.ref(value)
    gc.disable()
    try:
        weightmap.save(value, tmp_path / "model.pt")
    except weightmap.UnsupportedError:
        pass
    del value
    if sys.version_info[:2] in ((3, 12), (3, 13)):
        gc.collect()  # these versions leave it to the collector
    try:
        assert kept() is None
    finally:
        gc.enable()


# Refusals, before anything is written.


def refusal(value, folder, **options):
    path = folder / "refused.pt"
    path.write_bytes(b"what was there")
    with pytest.raises(weightmap.Error) as refused:
        weightmap.save(value, path, **options)
    assert path.read_bytes() == b"what was there"
    assert refused.value.file == str(path)
    return refused.value.message


def holding_itself():
    """A tuple, which torch's reader would have to throw away and fetch."""
    held = []
    held.append((held,))
    return held[0]


def nested(levels):
    value = []
    for _ in range(levels):
        value = [value]
    return value


BY_TORCH = "; weightmap.torch.save() writes whatever torch.save writes"
SYSTEM = weightmap.Global("posix", "system")
COUNTER = weightmap.Object(weightmap.Global("collections", "Counter"), (), elements=[1])
# Each with how the refusal begins, or all of it where it ends here, too.
REFUSED = [
    ({"a": [object()]},
     "['a'][0] is of type object, for which the file would need builtins.object,", ...),
    ([frozenset()], "[0] is of type frozenset, for which", ...),
    (holding_itself(), f"[0][0] is a tuple that holds itself in what it is made of{BY_TORCH}"),
    (nested(1001), "[0]" * 10 + "..." + "[0]" * 10 + " is nested deeper than 1000 levels"),
    (collections.defaultdict(list),
     "what is to be saved is of type collections.defaultdict, for which the file would need "
     f"collections.defaultdict, which torch.load(weights_only=True) does not read{BY_TORCH}"),
    ([1 << 2039], f"[0] is an int of 2040 bits, and torch reads no more than 255 bytes{BY_TORCH}"),
    ({"a": SYSTEM}, "['a'] is the name posix.system, which torch", ...),
    ({"a": weightmap.Object(SYSTEM, ("ls",))}, "['a'] is the name posix.system, which torch", ...),
    ({"a": COUNTER}, "['a'] is collections.Counter with elements", ...),
    ([weightmap.empty(3, "float31")], "[0] torch has no dtype float31"),
    ([weightmap.empty((2, -1))], "[0] no tensor has this shape"),
    ([weightmap.empty((1 << 40, 1 << 40))], "[0] no tensor has this shape"),
]


@pytest.mark.parametrize("value, words, goes_on", [(*row, None)[:3] for row in REFUSED])
def test_refuses(tmp_path, value, words, goes_on):
    message = refusal(value, tmp_path)
    assert message.startswith(words) if goes_on else message == words


BY_SAVE = "weightmap.save() writes what torch reads"
ELSEWHERE = {".gguf": "the package gguf writes GGUF", ".npz": "numpy.savez() writes that",
             ".npy": "numpy.save() writes that"}
WRITERS = {
    "weightmap.save": (
        "a file of torch.save under a name for another format: {}, and a file of torch.save is "
        "called .pt",
        dict.fromkeys([".safetensors", ".SafeTensors"],
                      "weightmap.save_safetensors() writes safetensors"),
    ),
    "weightmap.save_safetensors": (
        "safetensors under a name for another format: {}, and safetensors is called .safetensors",
        dict.fromkeys([".pt", ".PTH", ".ckpt", ".bin"], BY_SAVE),
    ),
}
WRITERS["weightmap.torch.save"] = WRITERS["weightmap.save"]


@pytest.mark.parametrize("writer, ending", [
    (writer, ending) for writer, (_, endings) in WRITERS.items() for ending in endings | ELSEWHERE
])
def test_refuses_the_name_of_another_format(tmp_path, writer, ending):
    said, endings = WRITERS[writer]
    module, _, function = writer.rpartition(".")
    save = getattr(pytest.importorskip(module), function)
    name = tmp_path / f"a{ending}"
    for path in (name, str(name), os.fsencode(name)):
        with pytest.raises(weightmap.InvalidArgumentError) as refused:
            save({"a": weightmap.empty(1)}, path)
        way = (endings | ELSEWHERE)[ending]
        assert refused.value.message == f"would be {said.format(way)}"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("option, words", [
    ({"alignment": 100000}, "an alignment of 100000 cannot be had"),
    ({"reserve": "model"}, "reserve is 'model', expected True, \"meta\", names, or a function"),
])
def test_refuses_an_option(tmp_path, option, words):
    assert words in refusal([], tmp_path, **option)


@pytest.mark.parametrize("file, take, words", [
    ("big_endian.pt", lambda opened: {"a": opened["float32"]},
     "['a'] its elements have the other byte order"),
    ("big_endian.pt", lambda opened: [opened],
     "[0] is a checkpoint of big-endian elements, in a file of little-endian ones"),
    ("quantized.pt", lambda opened: [opened["qint8"]], "[0] is a qint8 tensor without its scales"),
    ("views.pt", lambda opened: [opened["base"], opened["base"].bits()],
     "[1] tensors of two types, float32 and "),
], ids=["byte order", "checkpoint", "no scales", "two types"])
def test_refuses_of_a_checkpoint(checkpoint, tmp_path, file, take, words):
    assert refusal(take(checkpoint(file)), tmp_path).startswith(words)


def test_refuses_a_checkpoint_that_is_closed(data, tmp_path):
    checkpoint = weightmap.open(data / "views.pt")
    checkpoint.close()
    with pytest.raises(weightmap.InvalidArgumentError, match="the checkpoint is closed"):
        weightmap.save(checkpoint, tmp_path / "closed.pt")


def test_refuses_a_target_that_is_neither_a_path_nor_a_file():
    with pytest.raises(TypeError, match="expected str, bytes or os.PathLike object, not int"):
        weightmap.save({}, 3)


# Arrays.


def test_arrays_become_tensors(numpy, tmp_path):
    array = numpy.arange(12, dtype="f4").reshape(3, 4)
    weightmap.save({"a": array, "b": array, "t": array.T, "s": numpy.array(3, "i8"),
                    "e": numpy.empty((0, 3), "u2")}, tmp_path / "arrays.pt")
    with weightmap.open(tmp_path / "arrays.pt") as written:
        assert written["a"].numpy().tolist() == array.tolist()
        assert written["a"].storage == written["b"].storage == "0"
        assert (written["t"].shape, written["t"].strides) == ((4, 3), (1, 4))
        assert written["t"].numpy().tolist() == array.T.tolist()
        assert (written["s"].shape, written["s"].dtype) == ((), "int64")
        assert (written["e"].shape, written["e"].dtype) == ((0, 3), "uint16")


@pytest.mark.parametrize("dtype", ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4",
                                   "f8", "c8", "c16", ">f4", ">i8"])
def test_arrays_of_every_dtype(dtype, numpy, tmp_path):
    array = numpy.arange(5).astype(dtype)
    weightmap.save([array], tmp_path / "array.pt")
    with weightmap.open(tmp_path / "array.pt") as written:
        read = written["0"].numpy()
    assert read.dtype == array.dtype.newbyteorder("=") and read.tolist() == array.tolist()


def test_arrays_that_no_storage_has_are_copied(numpy, tmp_path):
    array = numpy.arange(100, dtype="i4")
    values = [array[::-1], array[::10], numpy.broadcast_to(array, (3, 100)),
              array.view("i1")[1:-3].view("i4")]
    weightmap.save(values, tmp_path / "arrays.pt")
    with weightmap.open(tmp_path / "arrays.pt") as written:
        for number, value in enumerate(values):
            assert written[str(number)].numpy().tolist() == value.tolist()
        assert written["1"].numpy().strides == (4,)


class Lent:
    """Speaks DLPack, and nothing else."""

    def __init__(self, array, device=(1, 0), error=None):
        self._array, self._device, self._error = array, device, error

    def __dlpack__(self, **arguments):
        if self._error:
            raise self._error
        return self._array.__dlpack__(**arguments)

    def __dlpack_device__(self):
        return self._device


def bfloat16(numpy, folder):
    types = pytest.importorskip("ml_dtypes", reason="has bfloat16")
    return numpy.arange(5).astype(types.bfloat16)


def mapped(numpy, folder):
    numpy.save(folder / "a.npy", numpy.arange(5))
    return numpy.load(folder / "a.npy", mmap_mode="r")


@pytest.mark.parametrize("make, dtype", [
    (bfloat16, "bfloat16"), (mapped, "int64"),
    (lambda numpy, folder: Lent(numpy.arange(5.0)), "float64"),
], ids=["ml_dtypes", "mapped", "DLPack"])
def test_what_is_like_an_array_becomes_a_tensor(make, dtype, numpy, tmp_path):
    weightmap.save([make(numpy, tmp_path)], tmp_path / "array.pt")
    with weightmap.open(tmp_path / "array.pt") as written:
        assert (written["0"].dtype, written["0"].tolist()) == (dtype, [0, 1, 2, 3, 4])


def test_numbers_of_numpy_become_numbers(numpy, tmp_path):
    value = [numpy.float32(0.5), numpy.int8(-3), numpy.bool_(True), numpy.complex64(2j),
             numpy.str_("a")]
    weightmap.save(value, tmp_path / "numbers.pt")
    read = root_of(tmp_path / "numbers.pt")
    assert read == [0.5, -3, True, 2j, "a"]
    assert [type(number) for number in read] == [float, int, bool, complex, str]


ARRAY, NO_TYPE, NO_NUMBER = "[0] is an array of ", "torch has no type", "has no number"


@pytest.mark.parametrize("make, begin, end", [
    (lambda numpy: numpy.array(["a"]), ARRAY, NO_TYPE),
    (lambda numpy: numpy.array([None]), ARRAY, NO_TYPE),
    (lambda numpy: numpy.array(["2020-01-01"], "M8[D]"), ARRAY, NO_TYPE),
    (lambda numpy: numpy.zeros(1, "i4,f4"), ARRAY, NO_TYPE),
    (lambda numpy: numpy.zeros(1, "g"), ARRAY, NO_TYPE),
    (lambda numpy: numpy.ma.masked_array([1, 2], [True, False]),
     "[0] is of type numpy.ma.MaskedArray, for which", ""),
    (lambda numpy: numpy.longdouble(1), "", f"for which Python {NO_NUMBER}"),
    (lambda numpy: numpy.datetime64("2020-01-01"), "", NO_NUMBER),
    (lambda numpy: Lent(numpy.arange(6.0), (2, 1)),
     "[0] is on the DLPack device (2, 1), not on the CPU", "not on the CPU"),
    (lambda numpy: Lent(None, error=BufferError("not today")),
     "[0] is not handed over by DLPack: not today", "not today"),
], ids=["text", "objects", "dates", "structures", "long doubles", "mask", "long double", "date",
        "device", "not handed over"])
def test_refuses_of_numpy(make, begin, end, numpy, tmp_path):
    message = refusal([make(numpy)], tmp_path)
    assert message.startswith(begin) and message.endswith(end)


# With torch.


@torch_since((2, 7), ".format_version in what torch.save writes")
def test_writes_torch_s_objects_as_torch_does(torch, tmp_path):
    value = {"a": torch.nn.Parameter(torch.ones(3)), "b": [torch.ones(2), torch.float8_e5m2]}
    torch.save(value, tmp_path / "model.pt")
    expected = (tmp_path / "model.pt").read_bytes()
    weightmap.save(value, tmp_path / "model.pt")
    assert (tmp_path / "model.pt").read_bytes() == expected


def test_meta_tensors_stay_meta_tensors(torch, tmp_path):
    with torch.device("meta"):
        state = torch.nn.Linear(3, 4).state_dict()
    report = weightmap.save(state, tmp_path / "model.pt")
    assert report.storages == ()
    assert torch.load(tmp_path / "model.pt", weights_only=True)["weight"].device.type == "meta"


@pytest.mark.parametrize("reserve", ["meta", True, ["weight", "bias", "tied"]])
def test_meta_tensors_get_room(reserve, torch, tmp_path):
    with torch.device("meta"):
        state = dict(torch.nn.Linear(3, 4).state_dict())
    state["tied"] = state["weight"][1:]
    report = weightmap.save({**state, "real": torch.ones(2)}, tmp_path / "model.pt", reserve=reserve)
    assert [s.nbytes for s in report.storages if s.reserved][:2] == [48, 16]
    read = torch.load(tmp_path / "model.pt", weights_only=True)
    assert read["weight"].shape == (4, 3) and read["weight"].device.type == "cpu"
    assert read["tied"].untyped_storage()._cdata == read["weight"].untyped_storage()._cdata
    assert read["real"].tolist() == ([0, 0] if reserve is True else [1, 1])


@torch_since((2, 7), "float8_e8m0fnu")
def test_the_names_without_torch_are_names_with_it(torch):
    from torch._weights_only_unpickler import _get_allowed_globals

    from weightmap._saving.names import BUILT_IN

    assert BUILT_IN - set(_get_allowed_globals()) == NO_LONGER_SAFE


def test_imports_neither_torch_nor_numpy(python, tmp_path):
    program = (
        "import sys, weightmap\n"
        "weightmap.save({'a': weightmap.empty(3), 'b': [1, {2}, b'', 1j]}, sys.argv[1])\n"
        "print(sorted({'torch', 'numpy'} & set(sys.modules)))\n"
    )
    ran = python(program, tmp_path / "model.pt")
    assert (ran.stdout, ran.stderr) == ("[]\n", "")


def test_what_a_checkpoint_does_not_list_is_said_to_be_left_out(data, torch, tmp_path, caplog):
    opened = weightmap.open(data / "dcp" / "default")
    said = ("2 names left out, of what is no array, pickled, compressed, of no dtype of a tensor or "
            "without elements of whole bytes: 'rank', ...")
    assert weightmap.save_safetensors(opened, tmp_path / "new").left_out == ("rank", "lr")
    assert [record.getMessage() for record in caplog.records] == [f"{tmp_path / 'new'}: {said}"]
    caplog.clear()
    assert weightmap.save(opened, tmp_path / "new").left_out == ()
    state = torch.load(tmp_path / "new")
    assert (state["rank"], state["lr"]) == (1, 0.1)
    caplog.clear()
    assert weightmap.save(weightmap.open(data / "training.pt"), tmp_path / "new").left_out == ()
    assert not caplog.records


def test_a_load_leaves_no_plain_values_out(data, torch, caplog):
    state = weightmap.torch.load(data / "dcp" / "default")
    assert (state["rank"], state["lr"]) == (1, 0.1)
    assert not caplog.records
