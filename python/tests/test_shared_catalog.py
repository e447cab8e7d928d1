"""Catalogs that one process publishes and others take over."""

import json
import multiprocessing
import os
import shutil
import struct
import time

import pytest

import weightmap


@pytest.fixture(autouse=True)
def shared(tmp_path, monkeypatch):
    """A runtime directory of one's own."""
    monkeypatch.setenv("WEIGHTMAP_RUNTIME_DIR", str(tmp_path / "shared"))
    return tmp_path / "shared"


@pytest.fixture
def path(data, tmp_path):
    copied = shutil.copy(data / "training.pt", tmp_path)
    time.sleep(0.03)  # so that its times would show another change
    return copied


def described(opened):
    return [
        (name, tensor.dtype, tensor.shape, tensor.strides, tensor.file_offset)
        for name, tensor in opened.items()
    ] + opened.paths()


def test_a_second_open_attaches_and_says_the_same(path):
    first = weightmap.open(path, shared_catalog=True)
    assert (first.info.catalog, first.info.catalog_reason) == ("published", "")
    second = weightmap.open(path, shared_catalog=True, verify="chain")
    assert (second.info.catalog, second.info.catalog_reason) == ("attached", "")
    assert second.stats.reads == 0
    assert not second.stats.catalog_damaged
    assert described(second) == described(weightmap.open(path))
    assert second.root()["epoch"] == first.root()["epoch"]
    assert [repr(key) for key in second.root()] == [repr(key) for key in first.root()]


def test_nothing_is_shared_unless_it_is_asked_for(path, shared):
    assert weightmap.open(path).info.catalog == "parsed"
    assert not shared.exists()
    with weightmap.config.patch("load.shared_catalog", True):
        assert weightmap.open(path).info.catalog == "published"
        assert weightmap.open(path, shared_catalog=False).info.catalog == "parsed"


def test_a_damaged_catalog_is_left_for_one_of_ones_own(path, shared):
    weightmap.open(path, shared_catalog=True)
    (block,) = shared.iterdir()
    with open(block, "r+b") as file:
        file.write(b"x")
    opened = weightmap.open(path, shared_catalog=True)
    assert opened.info.catalog == "published"
    assert opened.info.catalog_reason == "the shared catalog is something else"


def test_root_says_that_the_file_changed(path):
    weightmap.open(path, shared_catalog=True)
    opened = weightmap.open(path, shared_catalog=True)
    os.utime(path, (1, 1))
    with pytest.raises(weightmap.FileError, match="changed since it was opened"):
        opened.root()
    assert len(list(opened.values())) == len(opened)


def _of_child(path, queue):
    opened = weightmap.open(path, shared_catalog=True)
    queue.put((opened.info.catalog, described(opened) == described(weightmap.open(path))))


def test_other_processes_attach(path):
    weightmap.open(path, shared_catalog=True)
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    child = context.Process(target=_of_child, args=(path, queue))
    child.start()
    assert queue.get(timeout=60) == ("attached", True)
    child.join()


def test_torch_load_takes_the_option(path):
    torch = pytest.importorskip("torch")
    from weightmap.torch import load

    expected = load(path)
    for _ in range(2):
        loaded = load(path, shared_catalog=True)
        assert loaded.keys() == expected.keys()
        for name, tensor in expected["model"].items():
            assert torch.equal(loaded["model"][name], tensor)


def shard(name, data):
    fields = {"dtype": "U8", "shape": [len(data)], "data_offsets": [0, len(data)]}
    header = json.dumps({name: fields})
    return struct.pack("<Q", len(header)) + header.encode() + data


def test_an_index_of_shards_is_attached_until_a_shard_changes(tmp_path):
    (tmp_path / "one.safetensors").write_bytes(shard("a", b"aa"))
    (tmp_path / "two.safetensors").write_bytes(shard("b", b"bbb"))
    index = tmp_path / "model.safetensors.index.json"
    weight_map = {"a": "one.safetensors", "b": "two.safetensors"}
    index.write_text(json.dumps({"metadata": {"total_size": 5}, "weight_map": weight_map}))
    time.sleep(0.03)
    expected = described(weightmap.open(index))
    assert weightmap.open(tmp_path, shared_catalog=True).info.catalog == "published"
    attached = weightmap.open(index, shared_catalog=True, verify="chain")
    assert (attached.info.catalog, attached.info.catalog_reason) == ("attached", "")
    assert attached.info.format == "safetensors"
    assert attached.stats.reads == 0
    assert described(attached) == expected
    assert attached["b"].tobytes() == b"bbb"
    assert attached.root()["total_size"] == 5

    os.utime(tmp_path / "two.safetensors", (1, 2))
    changed = weightmap.open(index, shared_catalog=True)
    assert changed.info.catalog != "attached"
    assert "two.safetensors" in changed.info.catalog_reason
    assert changed["b"].tobytes() == b"bbb"
