"""Files that are pickles, of pickle.dump and joblib.dump: the object and the arrays in it."""

import collections
import datetime
import json
import pickle
import sys

import pytest

import weightmap

numpy = pytest.importorskip("numpy")

from conftest import DATA  # noqa: E402

sys.path.insert(0, str(DATA))
from make_pickle_fixtures import tree, with_objects  # noqa: E402

FILES = sorted(path.name for path in (DATA / "pickles").iterdir())
TREES = [name for name in FILES if "objects" not in name and "zlib" not in name]
# The elements are raw in the file; else they are copied.
RAW = [name for name in TREES if not name.endswith("pickle_0.pkl")]
ARRAYS = {f"model.{name}": array for name, array in tree()["model"].items()}


def check_array(found, expected):
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert numpy.array_equal(found, expected)


def check_tree(found):
    expected = tree()
    assert sorted(found) == sorted(expected)
    assert (found["epoch"], found["names"]) == (3, ["a", (1, None)])
    assert found["number"] == numpy.float32(1.5) and found["number"].dtype == "f4"
    assert list(found["texts"]) == ["a", "b\u00e4"]
    # numpy swaps what it unpickles, unless protocol 5 has it.
    assert found["big"].dtype.newbyteorder("=") == "i4" and list(found["big"]) == [0, 1, 2]
    assert sorted(found["model"]) == sorted(expected["model"])
    for name, array in expected["model"].items():
        check_array(found["model"][name], array)


def check_tensors(path):
    with weightmap.open(path) as opened:
        assert opened.info.format == "pickle"
        assert sorted(opened) == sorted(ARRAYS)
        for name, expected in ARRAYS.items():
            check_array(opened[name].numpy(), expected)


@pytest.fixture(params=range(6))
def today(request, tmp_path):
    """What this pickle writes."""
    path = tmp_path / "today.pkl"
    path.write_bytes(pickle.dumps(tree(), request.param))
    return request.param, path


def test_the_files_are_there():
    assert len(FILES) == 15 and len(TREES) == 9 and len(RAW) == 7


@pytest.mark.parametrize("name", TREES)
def test_values_are_those_that_were_written(name):
    with weightmap.open(DATA / "pickles" / name) as opened:
        check_tree(opened.root())


@pytest.mark.parametrize("name", TREES)
def test_arrays_are_tensors(name):
    check_tensors(DATA / "pickles" / name)


@pytest.mark.parametrize("name", RAW)
def test_arrays_in_the_file_are_used_in_place(name):
    content = (DATA / "pickles" / name).read_bytes()
    with weightmap.open(DATA / "pickles" / name) as opened:
        for tensor in opened.values():
            assert content[tensor.file_offset:][: tensor.nbytes] == tensor.numpy().tobytes("A")


def test_values_and_arrays_of_each_protocol(today):
    protocol, path = today
    with weightmap.open(path) as opened:
        check_tree(opened.root())
    check_tensors(path)
    with weightmap.open(path) as opened:
        assert opened.stats.storages_copied == (0 if protocol >= 3 else len(ARRAYS))


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith("objects.pkl")])
def test_an_array_of_objects_is_one_more_pickle_in_the_stream(name):
    with weightmap.open(DATA / "pickles" / name) as opened:
        assert sorted(opened) == ["bias", "weight"]
        for key in opened:
            check_array(opened[key].numpy(), with_objects()[key])
        assert opened.root()["classes"].state[4] == [1, "a"]


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith("zlib.pkl")])
def test_a_compressed_file_is_named(name):
    with pytest.raises(weightmap.NotACheckpointError, match="save it with compress=0"):
        weightmap.open(DATA / "pickles" / name)


@pytest.mark.parametrize("name", RAW)
def test_what_is_cut_off_is_refused(name, tmp_path):
    content = (DATA / "pickles" / name).read_bytes()
    for length in range(0, len(content), 13):
        (tmp_path / "cut.pkl").write_bytes(content[:length])
        with pytest.raises(weightmap.Error):
            weightmap.open(tmp_path / "cut.pkl")


def test_torch_load_gives_what_pickle_gives(today):
    pytest.importorskip("torch")
    import weightmap.torch

    check_tree(weightmap.torch.load(today[1]))


@pytest.mark.parametrize("name", TREES)
def test_torch_load_of_other_picklers(name):
    pytest.importorskip("torch")
    import weightmap.torch

    check_tree(weightmap.torch.load(DATA / "pickles" / name))


@pytest.mark.parametrize("name", TREES)
def test_scan_says_plain_data_but_of_joblib(name, python):
    run = python(None, "-m", "weightmap", "scan", "--json", DATA / "pickles" / name)
    (file,) = json.loads(run.stdout)["files"]
    verdict = "unsafe" if name.startswith("joblib") else "plain data"
    assert (file["verdict"], file["format"]) == (verdict, "pickle")


def test_several_pickles_are_not_one(tmp_path):
    (tmp_path / "two.pkl").write_bytes(pickle.dumps(1) + pickle.dumps({"w": 2}))
    with pytest.raises(weightmap.UnsupportedError, match="behind the pickle, such as another one"):
        weightmap.open(tmp_path / "two.pkl")


def test_what_cannot_be_copied_is_refused_with_what_to_do(tmp_path):
    path = tmp_path / "old.pkl"
    path.write_bytes(pickle.dumps(tree(), 2))
    with pytest.raises(weightmap.UnsupportedError, match="is spelled as text, so it would have to "
                       "be copied, which zero_copy_only forbids; pickle it again with protocol 3"):
        weightmap.open(path, zero_copy_only=True)
    with pytest.raises(weightmap.UnsupportedError, match="writes to them would not"):
        weightmap.open(path, writable=True)


class Plain:
    """An object with attributes."""


def everything():
    plain = Plain()
    plain.a, plain.b = 1, b"x\x80"
    shared = bytearray(b"\xff")
    return {
        "bytes": [b"", b"ab", b"\x00\xff\n\\"], "keys": {b"\xff": 1, (1, b"\x80"): 2}, "plain": plain,
        "arrays": [bytearray(), bytearray(b"\xe4"), shared, shared], "sets": [{1, 2}, frozenset([3])],
        "range": range(3), "slice": slice(1, 2), "complex": 1 + 2j, "large": 2**80, "text": "\u1234\n",
        "factory": collections.defaultdict(float, a=1.0), "counter": collections.Counter("aab"),
        "date": datetime.datetime(2020, 1, 2), "numbers": [numpy.float32(1), numpy.int64(-2)],
        "w": numpy.arange(200, dtype="u1"), "nan": numpy.array([float("nan"), 1]),
        "columns": numpy.asfortranarray(numpy.arange(6.0).reshape(2, 3)), "none": numpy.zeros((0, 3)),
        "other": [numpy.arange(3, dtype=">i4"), numpy.array(["a", "b\xe4"]), numpy.array([1, "x"], "O"),
                  numpy.array(["2020-01-01"], "M8[D]"), numpy.zeros(2, [("a", "f4")])],
    }


def written(folder, value, name):
    """The files in which picklers of today have the same value, the first of the newest protocol."""
    files = [folder / f"{name}{protocol}.pkl" for protocol in (5, 4, 3, 2, 1, 0)]
    for protocol, path in zip((5, 4, 3, 2, 1, 0), files):
        path.write_bytes(pickle.dumps(value, protocol))
    torch = pytest.importorskip("torch")
    for protocol in (2, 5):
        files.append(folder / f"{name}{protocol}.pt")
        torch.save(value, files[-1], pickle_protocol=protocol)
    for protocol in (0, 1, 2, 5):
        joblib = pytest.importorskip("joblib")
        files.append(folder / f"{name}{protocol}.joblib")
        joblib.dump(value, files[-1], protocol=protocol)
    return files


def diff(python, *files):
    run = python(None, "-m", "weightmap", "diff", "--json", "--exit-code", *files)
    assert run.stderr == ""
    found = json.loads(run.stdout)
    assert run.returncode == (not found["equal"])
    return found


def test_diff_compares_what_files_hold_not_how_it_is_pickled(tmp_path, python):
    first, *others = written(tmp_path, everything(), "same")
    for other in others:
        for pair in ((first, other), (other, first)):
            found = diff(python, *pair)
            assert (found["values"], found["tensors"]) == ([], []), pair


def test_diff_tells_of_an_array_once(tmp_path, python):
    changed = everything()
    changed["w"][7] += 1
    first, *others = written(tmp_path, everything(), "old")
    for new in written(tmp_path, changed, "new"):
        found = diff(python, first, new)
        assert found["values"] == []
        assert [(pair["change"], pair["old"]["name"], pair["differing"])
                for pair in found["tensors"]] == [("changed", "w", 1)]


@pytest.mark.parametrize("change", [
    lambda value: value["bytes"].__setitem__(2, b"\x00\xff\n/"),
    lambda value: value["arrays"].__setitem__(1, bytearray(b"\xe5")),
    lambda value: value["sets"].__setitem__(0, {1, 3}),
    lambda value: value["sets"].__setitem__(0, frozenset({1, 2})),
    lambda value: value.__setitem__("range", range(4)),
    lambda value: setattr(value["plain"], "b", b"x\x81"),
    lambda value: value["other"].__setitem__(0, numpy.arange(1, 4, dtype=">i4")),
    lambda value: value["other"].__setitem__(1, numpy.array(["a", "b\xe5"])),
])
@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_diff_still_finds_what_changed(change, protocol, tmp_path, python):
    changed = everything()
    change(changed)
    (tmp_path / "a.pkl").write_bytes(pickle.dumps(everything(), 5))
    (tmp_path / "b.pkl").write_bytes(pickle.dumps(changed, protocol))
    found = diff(python, tmp_path / "a.pkl", tmp_path / "b.pkl")
    assert [value["change"] for value in found["values"]] == ["changed"]


@pytest.mark.parametrize("protocol", range(6))
def test_one_bytearray_in_two_places_stays_one(protocol, tmp_path):
    (tmp_path / "a.pkl").write_bytes(pickle.dumps(everything(), protocol))
    with weightmap.open(tmp_path / "a.pkl") as opened:
        root = opened.root()
    assert root["bytes"] == everything()["bytes"] and root["arrays"] == everything()["arrays"]
    assert root["arrays"][2] is root["arrays"][3] and root["arrays"][1] is not root["arrays"][2]


ML_DTYPES = ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz",
             "float8_e8m0fnu"]


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("writer", ["pickle", "joblib"])
def test_types_of_ml_dtypes_are_those_of_torch(writer, protocol, tmp_path):
    types = pytest.importorskip("ml_dtypes")
    arrays = {name: numpy.arange(1, 7, dtype="f4").astype(getattr(types, name)).reshape(2, 3)
              for name in ML_DTYPES}
    others = {"w": numpy.arange(4, dtype="f4"), "int4": numpy.ones(3, types.int4)}
    dump = pytest.importorskip(writer).dump
    with open(tmp_path / "a.pkl", "wb") as target:
        dump({**arrays, **others}, target, protocol=protocol)
    with weightmap.open(tmp_path / "a.pkl") as opened:
        assert sorted(opened) == sorted([*ML_DTYPES, "w"])  # int4 has a byte each there
        check_array(opened["w"].numpy(), others["w"])
        for name, array in arrays.items():
            assert (opened[name].dtype, opened[name].shape) == (name, (2, 3))
            assert opened[name].numpy().tobytes() == array.tobytes()


@pytest.mark.parametrize("protocol", range(6))
def test_joblib_of_each_protocol(protocol, tmp_path):
    pytest.importorskip("joblib").dump(tree(), tmp_path / "a.joblib", protocol=protocol)
    check_tensors(tmp_path / "a.joblib")
    with weightmap.open(tmp_path / "a.joblib") as opened:
        check_tree(opened.root())


FACTORIES = [float, int, list, dict, set, str, bool, tuple, None]


@pytest.mark.parametrize("factory", FACTORIES)
@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_a_dict_with_a_default_is_plain_data(factory, protocol, tmp_path, python):
    torch = pytest.importorskip("torch")
    import weightmap.torch

    written = collections.defaultdict(factory, {"a": 1, "w": numpy.arange(3)})
    (tmp_path / "a.pkl").write_bytes(pickle.dumps(written, protocol))
    torch.save(written, tmp_path / "a.pt")
    run = python(None, "-m", "weightmap", "scan", "--json", tmp_path)
    assert [file["verdict"] for file in json.loads(run.stdout)["files"]] == ["plain data"] * 2
    assert run.returncode == 0
    for name in ("a.pkl", "a.pt"):
        found = weightmap.torch.load(tmp_path / name)
        assert type(found) is collections.defaultdict and found.default_factory is factory
        assert found["a"] == 1 and list(found["w"]) == [0, 1, 2]


def test_other_defaults_are_refused(tmp_path, python):
    pytest.importorskip("torch")
    import weightmap.torch

    (tmp_path / "a.pkl").write_bytes(pickle.dumps(collections.defaultdict(Plain, {"a": 1})))
    with pytest.raises(weightmap.UnsafePickleError):
        weightmap.torch.load(tmp_path / "a.pkl")
    # A name that is plain data as a default, called.
    (tmp_path / "b.pkl").write_bytes(b"\x80\x02c__builtin__\nlist\n(K\x01ltR.")
    with pytest.raises(weightmap.Error):
        weightmap.torch.load(tmp_path / "b.pkl")
    run = python(None, "-m", "weightmap", "scan", "--json", tmp_path / "a.pkl")
    assert json.loads(run.stdout)["files"][0]["verdict"] == "unsafe"
