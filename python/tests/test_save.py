"""weightmap.save(): what it takes beyond torch.save, and what it answers. Works without torch."""

from __future__ import annotations

import collections
import contextlib
import gc
import importlib
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


def test_saves_over_the_checkpoint_that_is_open(copy_of):
    path = copy_of("training.pt")
    before = path.read_bytes()
    with weightmap.open(path) as checkpoint:
        weightmap.save(checkpoint, path)
        assert checkpoint.state() == "replaced"
        assert root_of(path).keys() == checkpoint.root().keys()
    assert path.read_bytes() == before


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


@pytest.mark.parametrize("alignment", [64, 1, 96, 4096, 2 << 20])
def test_storages_are_aligned(alignment, float_archive, tmp_path):
    contents = {str(number): bytes(4 << 20 if number == 1 else 40) for number in range(3)}
    with weightmap.open(float_archive(contents)) as source:
        report = weightmap.save(dict(source), tmp_path / "model.pt", alignment=alignment)
    aligned = [s for s in report.storages if alignment < 65536 or s.nbytes >= alignment]
    assert aligned and all(storage.offset % alignment == 0 for storage in aligned)
    with weightmap.open(tmp_path / "model.pt") as written:
        assert [tensor.nbytes for tensor in written.values()] == [40, 4 << 20, 40]


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


def test_a_checkpoint_can_be_reserved_as_a_whole(data, tmp_path):
    with weightmap.open(data / "training.pt") as checkpoint:
        report = weightmap.save(checkpoint, tmp_path / "training.pt", reserve=True)
        places = {storage.key: storage.offset for storage in report.storages}
        for tensor in checkpoint.values():
            start = tensor.file_offset - tensor.storage_offset * tensor.itemsize
            assert places[tensor.storage] == start
    assert all(storage.reserved for storage in report.storages)


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


def test_progress_is_told(float_archive, tmp_path):
    told = []
    with weightmap.open(float_archive({"a": bytes(1 << 20)})) as source:
        for target in (tmp_path / "model.pt", io.BytesIO()):
            report = weightmap.save({"a": source["a"]}, target,
                                    progress=lambda done, all: told.append((done, all)))
            assert told[-1] == (report.bytes, report.bytes)
            assert told == sorted(told)
            told.clear()


@pytest.mark.parametrize("to_file", [True, False])
def test_what_progress_raises_ends_the_save(to_file, float_archive, tmp_path):
    def stop(done, all):
        raise Full("enough")

    path = tmp_path / "folder" / "model.pt"
    path.parent.mkdir()
    with weightmap.open(float_archive({"a": bytes(1 << 20)})) as source:
        with pytest.raises(Full, match="^enough$"):
            weightmap.save({"a": source["a"]}, path if to_file else io.BytesIO(), progress=stop)


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


@pytest.mark.parametrize("ending, way", [
    (".safetensors", "weightmap.save_safetensors() writes safetensors"),
    (".SafeTensors", "weightmap.save_safetensors() writes safetensors"),
    (".gguf", "the package gguf writes GGUF"),
    (".npz", "numpy.savez() writes that"),
    (".npy", "numpy.save() writes that"),
])
def test_refuses_the_name_of_another_format(tmp_path, ending, way):
    functions = [weightmap.save]
    with contextlib.suppress(ImportError):
        functions.append(importlib.import_module("weightmap.torch").save)
    for path in (tmp_path / f"a{ending}", str(tmp_path / f"a{ending}"), os.fsencode(tmp_path / f"a{ending}")):
        for save in functions:
            with pytest.raises(weightmap.InvalidArgumentError) as refused:
                save({"a": 1}, path)
            assert refused.value.message == (
                f"would be a file of torch.save under a name for another format: {way}, and a file "
                "of torch.save is called .pt"
            )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("option, words", [
    ({"alignment": 100000}, "an alignment of 100000 cannot be had"),
    ({"reserve": "model"}, "reserve is 'model', expected True, \"meta\", names, or a function"),
])
def test_refuses_an_option(tmp_path, option, words):
    assert words in refusal([], tmp_path, **option)


def test_refuses_a_tensor_of_the_other_byte_order(data, tmp_path):
    with weightmap.open(data / "big_endian.pt") as checkpoint:
        name = next(iter(checkpoint))
        assert "['a'] its elements have the other byte order" in refusal(
            {"a": checkpoint[name]}, tmp_path
        )
        assert refusal([checkpoint], tmp_path) == (
            "[0] is a checkpoint of big-endian elements, in a file of little-endian ones"
        )


def test_refuses_a_quantized_tensor_without_its_scales(data, tmp_path):
    with weightmap.open(data / "quantized.pt") as checkpoint:
        tensor = next(t for t in checkpoint.values() if t.dtype == "qint8")
        assert refusal([tensor], tmp_path).startswith("[0] is a qint8 tensor without its scales")


def test_refuses_one_storage_as_two_types(float_archive, tmp_path):
    with weightmap.open(float_archive({"a": bytes(8)})) as source:
        message = refusal([source["a"], source["a"].bits()], tmp_path)
    assert message.startswith("[1] tensors of two types, float32 and ")


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


def test_arrays_of_ml_dtypes(numpy, tmp_path):
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="has bfloat16")
    array = numpy.arange(5).astype(ml_dtypes.bfloat16)
    weightmap.save([array], tmp_path / "array.pt")
    with weightmap.open(tmp_path / "array.pt") as written:
        assert written["0"].dtype == "bfloat16"
        assert written["0"].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_a_mapped_array_is_an_array(numpy, tmp_path):
    numpy.save(tmp_path / "a.npy", numpy.arange(5))
    weightmap.save([numpy.load(tmp_path / "a.npy", mmap_mode="r")], tmp_path / "array.pt")
    with weightmap.open(tmp_path / "array.pt") as written:
        assert written["0"].tolist() == [0, 1, 2, 3, 4]


def test_numbers_of_numpy_become_numbers(numpy, tmp_path):
    value = [numpy.float32(0.5), numpy.int8(-3), numpy.bool_(True), numpy.complex64(2j),
             numpy.str_("a")]
    weightmap.save(value, tmp_path / "numbers.pt")
    read = root_of(tmp_path / "numbers.pt")
    assert read == [0.5, -3, True, 2j, "a"]
    assert [type(number) for number in read] == [float, int, bool, complex, str]


@pytest.mark.parametrize("name, make", [
    ("text", lambda numpy: numpy.array(["a"])),
    ("objects", lambda numpy: numpy.array([None])),
    ("dates", lambda numpy: numpy.array(["2020-01-01"], "M8[D]")),
    ("structures", lambda numpy: numpy.zeros(1, "i4,f4")),
    ("long doubles", lambda numpy: numpy.zeros(1, "g")),
])
def test_refuses_arrays_without_a_type_of_torch(name, make, numpy, tmp_path):
    message = refusal([make(numpy)], tmp_path)
    assert message.startswith("[0] is an array of ") and message.endswith("torch has no type")


def test_refuses_an_array_with_a_mask(numpy, tmp_path):
    masked = numpy.ma.masked_array([1, 2], [True, False])
    assert refusal([masked], tmp_path).startswith("[0] is of type numpy.ma.MaskedArray, for which")


def test_refuses_a_number_that_python_does_not_have(numpy, tmp_path):
    assert refusal([numpy.longdouble(1)], tmp_path).endswith("for which Python has no number")
    assert refusal([numpy.datetime64("2020-01-01")], tmp_path).endswith("has no number")


class Lent:
    """Speaks DLPack, and nothing else."""

    def __init__(self, array, device=(1, 0)):
        self._array = array
        self._device = device

    def __dlpack__(self, **arguments):
        return self._array.__dlpack__(**arguments)

    def __dlpack_device__(self):
        return self._device


def test_takes_what_speaks_dlpack(numpy, tmp_path):
    weightmap.save({"a": Lent(numpy.arange(6.0).reshape(2, 3))}, tmp_path / "lent.pt")
    with weightmap.open(tmp_path / "lent.pt") as written:
        assert written["a"].numpy().tolist() == [[0, 1, 2], [3, 4, 5]]


def test_refuses_another_device(numpy, tmp_path):
    assert refusal([Lent(numpy.arange(6.0), (2, 1))], tmp_path) == (
        "[0] is on the DLPack device (2, 1), not on the CPU"
    )


def test_refuses_what_is_not_handed_over(tmp_path):
    pytest.importorskip("numpy")

    class Broken:
        def __dlpack__(self, **arguments):
            raise BufferError("not today")

        def __dlpack_device__(self):
            return (1, 0)

    assert refusal([Broken()], tmp_path) == "[0] is not handed over by DLPack: not today"


# With torch.


def test_torch_reads_it(torch, numpy, data, tmp_path):
    path = tmp_path / "model.pt"
    with weightmap.open(data / "views.pt") as views:
        weightmap.save({"array": numpy.arange(3), "views": dict(views), "empty": b"",
                        "shape": weightmap.empty((2, 2), torch.float16), "tensor": torch.ones(2)}, path)
        for mmap in (False, True):
            read = torch.load(path, weights_only=True, mmap=mmap)
            assert read["array"].tolist() == [0, 1, 2]
            assert read["empty"] == b""
            assert read["shape"].dtype == torch.float16 and read["shape"].tolist() == [[0, 0], [0, 0]]
            assert {name: tensor.tolist() for name, tensor in read["views"].items()} == {
                name: tensor.tolist() for name, tensor in views.items()
            }


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
