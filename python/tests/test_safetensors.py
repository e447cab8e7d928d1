"""safetensors files, sets of shards, folders: what Python has of them."""

import json
import os
import pickle
import shutil
import struct
import sys

import pytest
from safetensors_files import file_of, floats

import weightmap


@pytest.fixture
def one(tmp_path):
    path = tmp_path / "one.safetensors"
    tensors = {
        "w": ("F32", [2, 3], struct.pack("<6f", *range(6))),
        "a": ("I64", [], struct.pack("<q", -7)),
        "h": ("BF16", [2], b"\x80\x3f\x00\xc0"),
        "empty": ("F32", [0, 4], b""),
        "b": ("BOOL", [3], b"\1\0\1"),
    }
    path.write_bytes(file_of(tensors, {"format": "pt", "made by": "hand"}))
    return path


@pytest.fixture
def model(tmp_path):
    """Two shards, an index, and a tensor that it does not name."""
    folder = tmp_path / "model"
    folder.mkdir()
    shards = {
        "model-00001-of-00002.safetensors": {"l.0": floats(1, 2), "l.1": floats(3)},
        "model-00002-of-00002.safetensors": {"l.2": floats(4, 5, 6), "stale": floats(9)},
    }
    weight_map = {}
    for name, tensors in shards.items():
        (folder / name).write_bytes(file_of(tensors, {"format": "pt"}))
        weight_map |= {tensor: name for tensor in tensors if tensor != "stale"}
    index = {"metadata": {"total_size": 24}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


# --- one file ---------------------------------------------------------------------------------


def test_tensors_are_those_of_the_file(one):
    opened = weightmap.open(one)
    assert list(opened) == ["w", "a", "h", "empty", "b"]
    assert opened["w"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert opened["a"].item() == -7
    assert opened["h"].tolist() == [1, -2]
    assert (opened["empty"].shape, opened["empty"].tolist()) == ((0, 4), [])
    assert opened["b"].tolist() == [True, False, True]
    assert (opened["h"].dtype, opened["h"].storage) == ("bfloat16", "h")
    assert opened.info.format == "safetensors"
    assert opened.root() == {"format": "pt", "made by": "hand"}
    assert opened.files == [str(one)]


def test_arrays_by_name_are_views_of_the_file(one, numpy):
    pytest.importorskip("ml_dtypes", reason="numpy has no bfloat16 of its own")
    arrays = weightmap.open(one).numpy()
    assert list(arrays) == ["w", "a", "h", "empty", "b"]
    assert arrays["w"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert not arrays["w"].flags.writeable
    assert not arrays["w"].flags.owndata
    assert str(arrays["h"].dtype) == "bfloat16"


def test_arrays_below_a_prefix(model, numpy):
    arrays = weightmap.open(model).numpy("l")
    assert {name: array.tolist() for name, array in arrays.items()} == {
        "0": [1, 2], "1": [3], "2": [4, 5, 6],
    }


def test_unaligned_tensors_are_read_all_the_same(tmp_path, numpy, torch):
    path = tmp_path / "unaligned.safetensors"
    path.write_bytes(file_of({"a": ("U8", [1], b"\7"), "b": floats(1.5, -2.5)}, align=1))
    opened = weightmap.open(path)
    assert opened["b"].file_offset % 4 != 0
    assert opened["b"].numpy().tolist() == [1.5, -2.5]
    assert opened["b"].torch().tolist() == [1.5, -2.5]
    assert opened.torch()["b"].tolist() == [1.5, -2.5]


def test_each_torch_tensor_has_a_storage_of_its_own(one, torch):
    with weightmap.safe_open(one) as opened:
        for name, nbytes in (("w", 24), ("a", 8), ("h", 4), ("b", 3)):
            tensor = opened.get_tensor(name)
            assert tensor.storage_offset() == 0
            assert tensor.untyped_storage().nbytes() == nbytes
        assert opened.get_tensor("w").data_ptr() == opened.get_tensor("w").data_ptr()


def test_torch_load_gives_a_dict_of_tensors(one, torch):
    state = weightmap.torch.load(one)
    assert type(state) is dict
    assert list(state) == ["w", "a", "h", "empty", "b"]
    assert state["w"].tolist() == [[0, 1, 2], [3, 4, 5]]
    state["w"].fill_(1)  # stays in this process
    assert weightmap.open(one)["w"].tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize("place", ["cpu", {"cpu": "cpu"}, lambda storage, location: storage])
def test_torch_load_follows_map_location(one, torch, place):
    assert weightmap.torch.load(one, map_location=place)["h"].tolist() == [1, -2]


def test_torch_load_of_meta_has_no_bytes(one, torch):
    state = weightmap.torch.load(one, map_location="meta")
    assert {tensor.device.type for tensor in state.values()} == {"meta"}
    assert state["w"].shape == (2, 3)


def test_torch_load_has_no_part_of_a_flat_file(one, torch):
    with pytest.raises(weightmap.UnsupportedError, match="no tree"):
        weightmap.torch.load(one, only="w")


# --- sets -------------------------------------------------------------------------------------


def test_a_folder_an_index_and_a_list_are_one_checkpoint(model):
    index = model / "model.safetensors.index.json"
    shards = sorted(model.glob("*.safetensors"))
    for path in (model, index):
        opened = weightmap.open(path)
        assert {name: tensor.tolist() for name, tensor in opened.items()} == {
            "l.0": [1, 2], "l.1": [3], "l.2": [4, 5, 6],
        }
        assert opened.info.tensors_not_indexed == 1
        assert opened.root() == {"total_size": 24}
        assert opened.files == [str(file) for file in (index, *shards)]
        assert [opened.files[tensor.file_index] for tensor in opened.values()] == [
            str(shards[0]), str(shards[0]), str(shards[1]),
        ]
    opened = weightmap.open(shards)
    assert list(opened) == ["l.0", "l.1", "l.2", "stale"]
    assert (opened.files, opened.info.tensors_not_indexed) == ([str(file) for file in shards], 0)


def test_an_empty_list_is_refused():
    with pytest.raises(TypeError, match="empty"):
        weightmap.open([])


def test_storages_of_shards_are_told_apart_by_more_than_their_keys(tmp_path, torch):
    tied = torch.tensor([1.0, 2.0])
    torch.save({"a": tied, "again": tied}, tmp_path / "pytorch_model-00001-of-00002.bin")
    torch.save({"b": torch.tensor([3.0, 4.0])}, tmp_path / "pytorch_model-00002-of-00002.bin")
    opened = weightmap.open(tmp_path)
    assert {name: opened[name].storage for name in opened} == {"a": "0", "again": "0", "b": "0"}
    state = opened.torch()
    assert {name: tensor.tolist() for name, tensor in state.items()} == {
        "a": [1, 2], "again": [1, 2], "b": [3, 4],
    }
    assert state["a"].untyped_storage()._cdata == state["again"].untyped_storage()._cdata
    assert state["a"].untyped_storage()._cdata != state["b"].untyped_storage()._cdata


def test_files_are_told_apart_where_offsets_and_keys_are_the_same(tmp_path, torch):
    paths = [tmp_path / f"{name}.bin" for name in "ab"]
    for number, path in enumerate(paths):
        torch.save({path.stem: torch.full((3,), float(number))}, path)
    opened = weightmap.open(paths)
    assert opened["a"].file_offset == opened["b"].file_offset
    summary = opened.summary()
    assert (summary.all.bytes, summary.ties) == (24, ())
    storages = opened.residency().storages
    assert {name: range.extent_bytes for name, range in storages.items()} == {
        "a.bin/0": 12, "b.bin/0": 12,
    }
    assert list(weightmap.open(paths[0]).residency().storages) == ["0"]


def test_a_set_is_pickled_as_its_path(model):
    opened = weightmap.open(model)
    again = pickle.loads(pickle.dumps(opened))
    assert again.files == opened.files
    assert pickle.loads(pickle.dumps(opened["l.2"])).tolist() == [4, 5, 6]
    shard = model / "model-00002-of-00002.safetensors"
    pickled = pickle.dumps(opened)
    os.utime(shard, ns=(0, 0))
    with pytest.raises(weightmap.FileError, match="is not the file that was pickled"):
        pickle.loads(pickled)


def test_eviction_and_processes_look_at_all_files(model):
    size = sum(file.stat().st_size for file in model.iterdir())
    assert weightmap.evict(model).file_bytes == size
    opened = weightmap.open(model)
    mine = [mapped for mapped in weightmap.processes(model).mapped if mapped.process == os.getpid()]
    assert sorted(mapped.file for mapped in mine) == sorted(opened.files)


def test_a_model_of_the_hub_cache_is_opened_by_its_name(model, tmp_path, monkeypatch):
    repository = tmp_path / "hub" / "models--org--name"
    shutil.copytree(model, repository / "snapshots" / "c0ffee")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("c0ffee")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    opened = weightmap.open("org/name")
    assert opened["l.2"].tolist() == [4, 5, 6]
    assert opened.files[0] == str(
        repository / "snapshots" / "c0ffee" / "model.safetensors.index.json"
    )
    assert list(pickle.loads(pickle.dumps(opened))) == list(opened)
    (repository / "refs" / "main").write_text("beef")
    assert not opened.is_current()
    with pytest.raises(FileNotFoundError, match='no revision "main"'):
        opened.reopen()
    with pytest.raises(FileNotFoundError, match='no model "org/other"'):
        weightmap.open("org/other")


# --- in the words of safetensors --------------------------------------------------------------


def test_names_are_sorted_or_by_where_they_lie(one, model):
    with weightmap.safe_open(one) as opened:
        assert opened.keys() == ["a", "b", "empty", "h", "w"]
        assert opened.offset_keys()[:3] == ["w", "a", "h"]
    with weightmap.safe_open(model) as opened:
        assert opened.offset_keys() == ["l.0", "l.1", "l.2"]


def test_metadata_is_that_of_the_file(one, model, tmp_path, data):
    bare = tmp_path / "bare.safetensors"
    bare.write_bytes(file_of({"w": floats(1)}))
    for path, expected in (
        (one, {"format": "pt", "made by": "hand"}), (bare, None), (model, {"format": "pt"}),
        (data / "state_dict.pt", {"format": "pt"}),
    ):
        with weightmap.safe_open(path) as opened:
            assert opened.metadata() == expected


@pytest.mark.parametrize("framework", ["pt", "np"])
def test_slices_of_F4_count_pairs_as_their_shape_does(tmp_path, framework):
    if framework == "pt":
        torch = pytest.importorskip("torch", reason="F4 is a dtype of torch")
        if not hasattr(torch, "float4_e2m1fn_x2"):
            pytest.skip("this torch has no float4_e2m1fn_x2")
    else:
        pytest.importorskip("numpy", reason="makes arrays")
    path = tmp_path / "packed.safetensors"
    path.write_bytes(file_of({"p": ("F4", [2, 8], bytes(range(8)))}))
    with weightmap.safe_open(path, framework) as opened:
        part = opened.get_slice("p")
        assert part.get_shape() == [2, 4] == list(opened.get_tensor("p").shape)
        halves = part[:, :2], part[:, 2:]
    stored = [half.view(torch.uint8) if framework == "pt" else half for half in halves]
    assert [half.tolist() for half in stored] == [[[0, 1], [4, 5]], [[2, 3], [6, 7]]]


@pytest.mark.parametrize("backend", ["mmap", "pread"])
def test_takes_the_backends_of_safetensors(one, numpy, backend):
    with weightmap.safe_open(one, "np", backend=backend) as opened:
        assert opened.get_tensor("a").tolist() == -7


def test_refuses_other_backends(one):
    with pytest.raises(weightmap.InvalidArgumentError, match="backend is 'rdma'"):
        weightmap.safe_open(one, "np", backend="rdma")


def test_errors_are_those_of_safetensors_too(one, tmp_path):
    safetensors = pytest.importorskip("safetensors", reason="compares with the package safetensors")
    with weightmap.safe_open(one) as opened:
        part = opened.get_slice("w")
        with pytest.raises(safetensors.SafetensorError, match="nosuch") as caught:
            opened.get_tensor("nosuch")
        assert isinstance(caught.value, weightmap.TensorNotFoundError)
        assert isinstance(caught.value, KeyError)
        again = pickle.loads(pickle.dumps(caught.value))
        assert (type(again), str(again)) == (weightmap.TensorNotFoundError, str(caught.value))
        with pytest.raises(safetensors.SafetensorError):
            opened.get_slice("nosuch")
    with pytest.raises(safetensors.SafetensorError, match="closed"):
        opened.keys()
    assert part.get_shape() == [2, 3]
    with pytest.raises(safetensors.SafetensorError, match="framework is 'xx'"):
        weightmap.safe_open(one, "xx")
    broken = tmp_path / "broken.safetensors"
    broken.write_bytes(one.read_bytes()[:-1])
    with pytest.raises(safetensors.SafetensorError, match="truncated"):
        weightmap.safe_open(broken)
    with pytest.raises(FileNotFoundError):
        weightmap.safe_open(tmp_path / "nosuch.safetensors")


def test_errors_do_not_import_safetensors(one, monkeypatch):
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with weightmap.safe_open(one) as opened:
        with pytest.raises(weightmap.TensorNotFoundError):
            opened.get_tensor("nosuch")
