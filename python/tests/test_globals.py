"""Which classes and functions a file names, and who allows them."""

from __future__ import annotations

import argparse
import collections
import datetime
import os
import pickle
import zoneinfo
from pathlib import Path

import pytest
from conftest import NO_LONGER_SAFE, torch_since, torch_version

import weightmap

torch = pytest.importorskip("torch", reason="compares with torch, which is not installed")
import weightmap.torch
from torch import _weights_only_unpickler as unpickler
from torch import serialization
from torch.testing._internal.two_tensor import TwoTensor

from weightmap import _core
from weightmap._torch import plain_calls

DATA = Path(__file__).resolve().parents[2] / "tests" / "data"
EVIL = b"\x80\x02cposix\nsystem\nX\x02\x00\x00\x00id\x85R."


@pytest.fixture(autouse=True)
def nothing_registered():
    registered = serialization.get_safe_globals()
    yield
    serialization.clear_safe_globals()
    serialization.add_safe_globals(registered)


class Unknown:
    pass


class Point(collections.namedtuple("Point", "x y")):
    pass


def save(value, tmp_path, **options):
    path = tmp_path / "saved.pt"
    torch.save(value, path, **options)
    return path


def refusal(path, **options):
    with pytest.raises(pickle.UnpicklingError) as caught:
        weightmap.torch.load(path, **options)
    return caught.value


# --- the list that torch has ------------------------------------------------------------------


@torch_since((2, 8), "float4_e2m1fn_x2")
def test_the_list_of_safe_globals_is_the_one_of_torch():
    new = {"torch.bcomplex32"} if torch_version() >= (2, 15) else set()  # a dtype unknown here
    ours, theirs = {*_core.torch_safe_globals()}, {*unpickler._get_allowed_globals()}
    assert (ours - theirs, theirs - ours) == (NO_LONGER_SAFE, new)


def test_names_of_python_2_are_renamed_as_torch_renames_them(archive):
    before = [*torch._utils.NAME_MAPPING, *((name, "a") for name in torch._utils.IMPORT_MAPPING)]
    lines = b"".join(f"c{module}\n{name}\n0".encode() for module, name in before)
    names = weightmap.unsafe_globals(archive(b"\x80\x02" + lines + b"N."))
    expected = []
    for module, name in before:
        module, name = torch._utils.NAME_MAPPING.get(
            (module, name), (torch._utils.IMPORT_MAPPING.get(module, module), name)
        )
        expected.append(f"{module}.{name}")
    assert names == list(dict.fromkeys(expected))


def test_plain_data_is_what_load_reads_of_numpy(archive):
    """And no other name of numpy's is."""
    names = {*plain_calls._NAMES, ("numpy", "load"), ("numpy.core.multiarray", "fromfile"),
             ("numpy.lib.npyio", "load"), ("numpy", "memmap")}
    lines = b"".join(f"c{module}\n{name}\n0".encode() for module, name in sorted(names))
    listed = _core.list_globals(os.fsencode(archive(b"\x80\x02" + lines + b"N.")), {})
    plain = {(module, name) for module, name, verdict in listed if verdict == "plain_data"}
    assert plain == set(plain_calls._NAMES)


# --- unsafe_globals ---------------------------------------------------------------------------


@pytest.mark.parametrize("value", [
    {"w": torch.ones(2)},
    {"x": Unknown(), "y": argparse.Namespace(a=Unknown()), "z": collections.deque()},
    [Point(1, 2), torch.nn.Linear(2, 3), {1, 2}, os.system, print],
    torch.optim.Adam(torch.nn.Linear(2, 3).parameters()).state_dict(),
    datetime.datetime(2026, 1, 1, tzinfo=zoneinfo.ZoneInfo("UTC")),
    TwoTensor(torch.ones(2), torch.ones(2)),
])
def test_lists_what_torch_lists(value, tmp_path):
    path = save(value, tmp_path)
    expected = serialization.get_unsafe_globals_in_checkpoint(path)
    assert sorted(weightmap.unsafe_globals(path)) == sorted(expected)


@torch_since((2, 8), "float4_e2m1fn_x2")
@pytest.mark.parametrize("path", sorted(DATA.glob("*.pt")), ids=lambda path: path.name)
def test_lists_what_torch_lists_of_every_fixture(path):
    try:
        expected = serialization.get_unsafe_globals_in_checkpoint(path)
    except (ValueError, pickle.UnpicklingError):  # TorchScript; protocols 3 to 5
        return
    assert sorted(weightmap.unsafe_globals(path)) == sorted({*expected} - NO_LONGER_SAFE)


def test_what_is_registered_is_not_unsafe(tmp_path):
    path = save([Unknown(), argparse.Namespace()], tmp_path)
    name = f"{__name__}.Unknown"
    assert weightmap.unsafe_globals(path) == [name, "argparse.Namespace"]
    with weightmap.torch.safe_globals([Unknown]):
        assert weightmap.unsafe_globals(path) == ["argparse.Namespace"]
        assert weightmap.unsafe_globals(path, safe_globals=["argparse.Namespace"]) == []


@pytest.mark.parametrize("protocol", range(6))
def test_lists_the_names_of_every_protocol(protocol, tmp_path):
    path = tmp_path / "bare.pkl"
    path.write_bytes(pickle.dumps([os.system, Unknown()], protocol))
    assert {"posix.system", f"{__name__}.Unknown"} <= {*weightmap.unsafe_globals(path)}


def test_lists_the_names_of_a_file_that_is_refused(archive):
    path = archive(EVIL)
    with pytest.raises(weightmap.UnsafePickleError):
        weightmap.open(path)
    assert weightmap.unsafe_globals(path) == ["posix.system"]


def test_torchscript_has_no_names_that_only_python_could_answer():
    assert weightmap.unsafe_globals(DATA / "torchscript.pt") == []


def test_a_damaged_pickle_is_an_error(archive):
    with pytest.raises(weightmap.CorruptError, match="where an opcode should be"):
        weightmap.unsafe_globals(archive(b"\x80\x02N\xff"))


# --- open(globals="torch_safe") ---------------------------------------------------------------


def test_open_refuses_what_torch_would_refuse(tmp_path):
    path = save({"x": argparse.Namespace(), "w": torch.ones(2)}, tmp_path)
    assert len(weightmap.open(path)) == 1
    with pytest.raises(weightmap.UnsafePickleError, match="names argparse.Namespace") as caught:
        weightmap.open(path, globals="torch_safe")
    assert path.read_bytes()[caught.value.file_offset :].startswith(b"cargparse\nNamespace")
    opened = weightmap.open(path, globals="torch_safe", safe_globals=["argparse.Namespace"])
    again = pickle.loads(pickle.dumps(opened))
    assert len(again) == 1


def test_safe_globals_of_open_are_names():
    for wrong in ("argparse.Namespace", [argparse.Namespace]):
        with pytest.raises(weightmap.InvalidArgumentError, match="safe_globals"):
            weightmap.open(DATA / "state_dict.pt", safe_globals=wrong)


# --- weightmap.torch.load() and its list ------------------------------------------------------


def test_the_registered_list_is_the_one_of_torch(tmp_path):
    path = save(Unknown(), tmp_path)
    weightmap.torch.add_safe_globals([Unknown])
    assert Unknown in serialization.get_safe_globals()
    assert Unknown in weightmap.torch.get_safe_globals()
    assert type(weightmap.torch.load(path)) is Unknown
    weightmap.torch.clear_safe_globals()
    assert serialization.get_safe_globals() == []
    refusal(path)
    with weightmap.torch.safe_globals([Unknown]):
        assert type(weightmap.torch.load(path)) is Unknown
    refusal(path)


def test_a_call_has_a_list_of_its_own(tmp_path):
    path = save(Unknown(), tmp_path)
    assert type(weightmap.torch.load(path, safe_globals=[Unknown])) is Unknown
    made = weightmap.torch.load(path, safe_globals=[(argparse.Namespace, f"{__name__}.Unknown")])
    assert type(made) is argparse.Namespace
    refusal(path)
    assert Unknown not in serialization.get_safe_globals()


@pytest.mark.parametrize("wrong", ["Unknown", (Unknown,), (Unknown, 1), 7], ids=str)
def test_a_list_of_a_call_holds_things_and_their_names(wrong):
    with pytest.raises(weightmap.InvalidArgumentError, match="safe_globals has"):
        weightmap.torch.load(DATA / "state_dict.pt", safe_globals=[wrong])


def test_what_is_registered_passes_torch_safe(tmp_path, monkeypatch):
    path = save({"x": Unknown(), "w": torch.ones(2)}, tmp_path)
    monkeypatch.setenv("WEIGHTMAP_GLOBALS", "torch_safe")
    error = refusal(path, on_unknown="object")
    name = f"{__name__}.Unknown"
    assert f"use `torch.serialization.add_safe_globals([{name}])` or" in str(error)
    assert error.file_offset is not None
    assert type(weightmap.torch.load(path, safe_globals=[Unknown])["x"]) is Unknown
    with serialization.safe_globals([Unknown]):
        assert type(weightmap.torch.load(path)["x"]) is Unknown


# --- the words of torch -----------------------------------------------------------------------


def both_refuse(path, pattern):
    """The message, which torch has, too."""
    for load in (torch.load, weightmap.torch.load):
        with pytest.raises(pickle.UnpicklingError, match=pattern):
            load(path)


def test_a_blocked_module_is_named_registered_or_not(tmp_path):
    path = save(os.execv, tmp_path)
    blocked = "unsupported GLOBAL posix.execv whose module posix is blocked"
    both_refuse(path, blocked)
    with serialization.safe_globals([os.execv]):
        both_refuse(path, blocked)
    with open(path, "rb") as file, pytest.raises(weightmap.UnsafePickleError, match=blocked):
        weightmap.torch.load(file)


def test_a_harmful_name_of_another_module_is_named_without_advice_to_allow_it(archive):
    error = refusal(archive(b"\x80\x02cbuiltins\neval\n."))
    assert "Unsupported global: GLOBAL eval was not an allowed global by default" in str(error)
    assert "add_safe_globals" not in str(error)
    assert "Nothing was run" in str(error)


@torch_since((2, 7), "full name in the refusal")
def test_an_unknown_global_is_named_with_the_way_to_allow_it(tmp_path):
    path = save({"t": TwoTensor(torch.ones(2), torch.ones(2))}, tmp_path)
    name = r"torch.testing._internal.two_tensor.TwoTensor"
    advice = rf"use `torch.serialization.add_safe_globals\(\[{name}\]\)` or .* to allowlist"
    both_refuse(path, advice)
    both_refuse(path, rf"Unsupported global: GLOBAL {name} was not an allowed global by default")
    both_refuse(save(Point(1, 2), tmp_path), "GLOBAL test_globals.Point was not an allowed global")


@torch_since((2, 7), "full name in the refusal")
def test_a_builtin_is_named_without_its_module(tmp_path):
    both_refuse(save(print, tmp_path), "Unsupported global: GLOBAL print")


@torch_since((2, 9), "class in the refusal")
def test_a_method_that_is_not_allowed_is_named_with_its_class(tmp_path):
    value = datetime.datetime(2025, 1, 1, tzinfo=zoneinfo.ZoneInfo("UTC"))
    path = save(value, tmp_path)
    allowed = [datetime.datetime, getattr, zoneinfo.ZoneInfo]
    with serialization.safe_globals(allowed):
        both_refuse(path, ".*_unpickle.*zoneinfo.ZoneInfo.*")
    with serialization.safe_globals([*allowed, zoneinfo.ZoneInfo._unpickle]):
        assert weightmap.torch.load(path) == torch.load(path) == value


def test_what_torch_wants_to_be_told_of_is_said_in_its_words(tmp_path):
    path = save(collections.deque([1]), tmp_path)
    with serialization.safe_globals([collections.deque]):
        both_refuse(path, "file an issue with the following so that we can make `weights_only=True`")


def test_what_must_be_imported_is_said_in_the_words_of_torch(archive):
    nested = archive(b"\x80\x02ctorch.nested._internal.nested_tensor\nNestedTensor\n.")
    serialization.clear_safe_globals()
    both_refuse(nested, "``torch.nested`` and ``torch._dynamo`` must be imported to load nested"
                if torch_version() < (2, 15) else r"nested_tensor\.NestedTensor")
    tensor = archive(b"\x80\x02ctorch.distributed.tensor\nDTensor\n.", name="d.pt")
    both_refuse(tensor, "``torch.distributed.tensor`` must be imported to load DTensors")
