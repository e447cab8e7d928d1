"""Files that are pickles, of pickle.dump and joblib.dump: the object and the arrays in it."""

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
# The elements are raw in the file; else they are among the values only.
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


@pytest.mark.parametrize("name", RAW)
def test_arrays_are_tensors_in_place(name):
    check_tensors(DATA / "pickles" / name)
    content = (DATA / "pickles" / name).read_bytes()
    with weightmap.open(DATA / "pickles" / name) as opened:
        for tensor in opened.values():
            assert content[tensor.file_offset:][: tensor.nbytes] == tensor.numpy().tobytes("A")


def test_values_and_arrays_of_each_protocol(today):
    protocol, path = today
    with weightmap.open(path) as opened:
        check_tree(opened.root())
    if protocol >= 3:
        check_tensors(path)


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


@pytest.mark.parametrize("name", TREES)
def test_saved_back_it_is_the_same_object(name, tmp_path):
    with weightmap.open(DATA / "pickles" / name) as opened:
        weightmap.save(opened, tmp_path / "saved.pt")
    with weightmap.open(tmp_path / "saved.pt") as saved:
        check_tree(saved.root())
        assert saved.info.format == "torch_zip"


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


class Attack:
    def __reduce__(self):
        import os

        return os.system, ("false",)


@pytest.mark.parametrize("protocol", range(6))
def test_nothing_is_called(protocol, tmp_path):
    (tmp_path / "attack.pkl").write_bytes(pickle.dumps({"w": Attack()}, protocol))
    with pytest.raises(weightmap.UnsafePickleError, match="nothing was run"):
        weightmap.open(tmp_path / "attack.pkl")


def test_several_pickles_are_not_one(tmp_path):
    (tmp_path / "two.pkl").write_bytes(pickle.dumps(1) + pickle.dumps({"w": 2}))
    with pytest.raises(weightmap.UnsupportedError, match="behind the pickle, such as another one"):
        weightmap.open(tmp_path / "two.pkl")
