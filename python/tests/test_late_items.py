"""The items of a folder of torch.distributed.checkpoint are proven when their tensors are first used;
tests/formats/dcp/late_items_test.cpp goes through the ways of the library."""

import shutil

import pytest

import weightmap

BAD, PIECE, GOOD = "model.short", "model.columns", "model.replicated"


@pytest.fixture
def folder(data, tmp_path):
    """One of torch's, with another storage's name in the pickles of one tensor and one piece."""
    folder = tmp_path / "dcp"
    shutil.copytree(data / "dcp" / "default", folder)
    with weightmap.open(folder) as whole:
        damaged = [(tensor.file_offset, tensor.tobytes())
                   for tensor in (whole[BAD], whole[f"{PIECE}[0:5, 3:6]"])]
    for file in folder.glob("*.distcp"):
        content = bytearray(file.read_bytes())
        for offset, elements in damaged:
            if content[offset:].startswith(elements):
                at = content.rindex(b"FloatStorage", 0, offset)
                content[at:at + 5] = b"Short"
        file.write_bytes(content)
    return folder


@pytest.fixture
def late(folder):
    with weightmap.open(folder, verify="chain") as opened:
        yield opened


def fault_of(folder, **options):
    with pytest.raises(weightmap.CorruptError) as refused:
        weightmap.open(folder, **options)
    return str(refused.value)


DOORS = {
    "[]": lambda opened, name: opened[name],
    "get": lambda opened, name: opened.get(name),
    "demand": lambda opened, name: opened.demand(opened[name]),
    "warm": lambda opened, name: opened.warm([name]),
    "rows": lambda opened, name: opened.rows(name),
    "advise": lambda opened, name: opened.advise(name, "random"),
}
DOORS_TO_ALL = {
    "values": lambda opened: list(opened.values()),
    "items": lambda opened: dict(opened.items()),
    "root": lambda opened: opened.root(),
    "subtree": lambda opened: opened.subtree("model"),
    "torch": lambda opened: opened.torch(),
    "numpy": lambda opened: opened.numpy(),
    "verify_headers": lambda opened: opened.verify_headers(),
    "verify_crc": lambda opened: opened.verify_crc(),
    "residency": lambda opened: opened.residency(),
    "save": lambda opened: weightmap.save_safetensors(dict(opened), "out.safetensors"),
}


@pytest.mark.parametrize("door", DOORS)
def test_a_damaged_item_is_refused_by_each_door_to_a_tensor(folder, late, door):
    DOORS[door](late, GOOD)
    with pytest.raises(weightmap.CorruptError) as refused:
        DOORS[door](late, BAD)
    assert str(refused.value) == fault_of(folder, verify="headers")
    assert f'tensor "{BAD}", chunk at [0, 0]' in str(refused.value)


@pytest.mark.parametrize("door", DOORS_TO_ALL)
def test_a_damaged_item_is_refused_by_each_door_to_all_tensors(late, tmp_path, monkeypatch, door):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(weightmap.CorruptError, match="chunk at"):
        DOORS_TO_ALL[door](late)


def test_an_open_that_asks_for_what_items_tell_refuses_the_folder(folder):
    refused = {fault_of(folder, **options) for options in (
        {"verify": "headers"}, {"verify": "crc"}, {"verify": "chain", "zero_copy_only": True})}
    assert len(refused) == 1


def test_other_tensors_and_all_names_are_there(folder, late):
    whole = set(late)
    assert {BAD, PIECE, GOOD} < whole
    assert len(late) == len(whole)
    assert BAD in late
    assert late.find("model.s*") == [BAD]
    assert late[GOOD].shape == (5, 6)
    chunked = late[PIECE]
    assert (chunked.shape, chunked.dtype) == ((5, 6), "float32")
    assert chunked[:, :2].tobytes() == bytes(late[f"{PIECE}[0:5, 0:3]"][:, :2].tobytes())
    with pytest.raises(weightmap.CorruptError, match=r"chunk at \[0, 3\]"):
        chunked.tobytes()
