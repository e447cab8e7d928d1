"""weightmap.torch.save() against torch.save(): the same bytes, or a refusal that says where."""

from __future__ import annotations

import argparse
import collections
import dataclasses
import datetime
import enum
import io
import os
import pathlib
import pickle
import random
import subprocess
import sys
import threading
import zipfile

import pytest

torch = pytest.importorskip("torch", reason="compares with torch, which is not installed")

import weightmap  # noqa: E402
import weightmap.torch  # noqa: E402
from conftest import torch_since, torch_version  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data"
sys.path.insert(0, str(ROOT / "tests" / "interop"))
import random_test  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def both(value, folder, name="model.pt"):
    """The bytes that torch writes, and those that weightmap writes, to files of one name."""
    (folder / "torch").mkdir(exist_ok=True)
    (folder / "weightmap").mkdir(exist_ok=True)
    torch.save(value, folder / "torch" / name)
    weightmap.torch.save(value, folder / "weightmap" / name, durable=False)
    return (folder / "torch" / name).read_bytes(), (folder / "weightmap" / name).read_bytes()


def assert_same_file(value, folder, name="model.pt"):
    assert_same_bytes(*both(value, folder, name))


def assert_same_bytes(expected, written):
    """Or, where torch orders records in another way and leaves some out, the same records."""
    if torch_version() >= (2, 7):
        assert written == expected
    else:
        assert records(written) == records(expected)


def records(file):
    with zipfile.ZipFile(io.BytesIO(file)) as archive:
        found = {}
        for name in archive.namelist():
            with archive.open(name) as record:
                record._expected_crc = None  # there may be none
                found[name.partition("/")[2]] = record.read()
    # The last is calculated from the others.
    for name in (".format_version", ".storage_alignment", ".data/serialization_id"):
        found.pop(name, None)
    return found


def loaded(name):
    try:
        return torch.load(DATA / name, weights_only=True)
    except (RuntimeError, pickle.UnpicklingError):
        return None


FIXTURES = sorted(path.name for path in DATA.glob("*.pt") if loaded(path.name) is not None)


@pytest.mark.parametrize("name", FIXTURES)
def test_writes_what_torch_writes_for_every_fixture(name, tmp_path):
    assert_same_file(loaded(name), tmp_path, name)


def test_the_fixtures_are_of_every_kind():
    for name in ("quantized.pt", "sparse.pt", "nested_tensor.pt", "parameters.pt", "views.pt",
                 "conjugate.pt", "attributes.pt", "bare_storages.pt", "training.pt"):
        if name != "nested_tensor.pt" or torch_version() < (2, 15):  # which refuses it
            assert name in FIXTURES


def test_writes_what_torch_writes_for_random_objects(tmp_path):
    # Among them are four with 101 to 5,000 storages.
    for number in range(60):
        value = random_test.make_object(number, random.Random(f"save {number}"))
        assert_same_file(value, tmp_path)


PLAIN = {
    "numbers": [0, 1, -1, 255, 256, 65535, 65536, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**63,
                -(2**63), -(2**63) - 1, 2**64, -(2**71), 2**2039 - 1, -(2**2039), 0.1, 1j],
    "words of the format": {"storage": "cpu", "latin1": b"x", "latin-1": bytearray(b"y"),
                            "0": torch.ones(1), "cpu": torch.ones(1), "1": "0"},
    "texts": ["", "a", "a" * 70000, "\ud800", "ä🙂", "\n"],
    "bytes": [b"", b"", b"a", b"abc", b"\xff\x00", bytearray(), bytearray(b"abc"), bytearray(b"a")],
    "tuples": [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), ((), ((),))],
    "sets": [set(), {1}, {"a", "b", "c"}],
    "counter": collections.Counter("abracadabra"),
    "classes": [torch.Size([1, 2]), torch.float8_e5m2, torch.device("cuda:1"), torch.strided,
                torch.per_channel_affine, torch.Tensor, torch.FloatStorage, torch.nn.Parameter],
    "1000 elements": [list(range(1000)), {n: n for n in range(1000)}],
    "1001 elements": [list(range(1001)), {n: n for n in range(1001)}],
    "ordered": collections.OrderedDict((n, n) for n in range(1001)),
    "1 item": [[1], {1: 1}, collections.OrderedDict({1: 1})],
    "300 texts": [str(n) for n in range(300)] * 2,
}


@pytest.mark.parametrize("name", PLAIN)
def test_writes_what_torch_writes_for_plain_data(name, tmp_path):
    assert_same_file(PLAIN[name], tmp_path)


def sharing():
    part, text, tensor = [1], "".join(["te", "xt"]), torch.ones(3)
    return {"a": part, "b": part, "c": [text, text, "".join(["te", "xt"])], "d": tensor, "e": tensor,
            "f": tensor[1:], "g": (text, part), "h": tensor.detach()}


def with_attributes():
    parameter, tensor = torch.nn.Parameter(torch.ones(2)), torch.ones(2)
    parameter.tag, tensor.tag = "tied", parameter
    return [parameter, tensor, torch.nn.Parameter(torch.ones(1), requires_grad=False)]


def layouts():
    dense = torch.eye(4)
    return [
        dense.to_sparse(), dense.to_sparse_csr(), dense.to_sparse_csc(), dense.to_sparse_bsr((2, 2)),
        torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), torch.empty(2, 3, device="meta"),
        torch.ones(2, dtype=torch.complex64).conj(), torch.ones(2, dtype=torch.complex64).conj().imag,
        torch.quantize_per_tensor(torch.ones(3), 0.5, 1, torch.quint8), torch.tensor(3.0),
        torch.empty(0, 3), torch.ones(2, 3).t(), torch.ones(1).expand(4, 5)]


def storages():
    storage = torch.UntypedStorage([1, 2, 3])
    return [storage, torch.ones(3).untyped_storage(), storage, torch.ones(2).storage()]


def module_state():
    state = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3)).state_dict()
    assert state._metadata["1"] == {"version": 2}
    return {"model": state}


@pytest.mark.parametrize("make", [sharing, with_attributes, layouts, storages, module_state,
                                  lambda: training_state(pytest.importorskip("numpy"))])
def test_writes_what_torch_writes_of(make, tmp_path):
    assert_same_file(make(), tmp_path)


@pytest.mark.parametrize("name", ["model.pt", "no_ending", "two.dots.pt", "ä.pt"])
def test_the_archive_is_called_as_torch_calls_it(name, tmp_path):
    assert_same_file({"a": torch.ones(3)}, tmp_path, name)


def training_state(numpy):
    model = torch.nn.Linear(3, 4)
    optimizer = torch.optim.AdamW(model.parameters())
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, 100)
    model(torch.ones(3)).sum().backward()
    optimizer.step()
    return {
        "model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3,
        "scheduler": scheduler.state_dict(), "parameters": list(model.parameters()),
        "args": argparse.Namespace(out=pathlib.PosixPath("runs/1"), settings=Settings([0.5])),
        "torch": torch.get_rng_state(), "numpy": numpy.random.get_state(),
        "generator": numpy.random.default_rng(3), "python": random.getstate(),
        "losses": collections.defaultdict(list, train=[numpy.float32(0.5), numpy.float64(2)]),
        "recent": collections.deque([1, 2], 5), "tags": collections.OrderedDict(a=frozenset({1})),
        "arrays": [numpy.arange(6).reshape(2, 3).T, numpy.array([None, "x"], dtype=object)],
        "when": datetime.datetime(2026, 1, 2, tzinfo=datetime.timezone.utc),
    }


def test_a_training_checkpoint_over_the_file_that_is_mapped(tmp_path):
    numpy = pytest.importorskip("numpy")
    path = tmp_path / "train.pt"
    torch.save({"model": {"w": torch.arange(100000.0)}}, path)
    state = training_state(numpy)
    state["model"] = weightmap.torch.load(path)["model"]
    with weightmap.open(path) as other:
        weightmap.torch.save(state, path)
        assert other["model.w"].torch()[-1] == 99999
    assert torch.equal(state["model"]["w"], torch.arange(100000.0))
    back = torch.load(path, weights_only=False)
    assert back["args"] == state["args"]
    assert torch.equal(back["model"]["w"], torch.arange(100000.0))


def test_what_is_no_tree_is_written_by_torch_beside_the_file_that_is_mapped(tmp_path):
    path = tmp_path / "train.pt"
    torch.save({"w": torch.arange(100000.0)}, path)
    state = {**weightmap.torch.load(path), "in itself": Registered(5)}
    state["in itself"].number = state["in itself"]
    weightmap.torch.save(state, path)
    assert torch.equal(state["w"], torch.arange(100000.0))
    back = torch.load(path, weights_only=False)
    assert back["in itself"].number is back["in itself"]
    assert torch.equal(back["w"], torch.arange(100000.0))
    assert os.listdir(tmp_path) == ["train.pt"]


def test_a_tensor_with_hooks_warns_as_torch_does(tmp_path):
    tensor = torch.ones(1, requires_grad=True)
    tensor.register_hook(print)
    with pytest.warns(UserWarning, match="backward hook <built-in function print>"):
        weightmap.torch.save(tensor, tmp_path / "model.pt", durable=False)
    assert_same_file(tensor, tmp_path)


def test_what_is_registered_as_safe_is_written(tmp_path):
    value = [Registered(3)]
    with torch.serialization.safe_globals([Registered]):
        assert_same_file(value, tmp_path)
        (back,) = torch.load(tmp_path / "weightmap" / "model.pt", weights_only=True)
    assert back.number == 3


def test_a_buffer_gets_what_torch_gives_it():
    value = {"a": torch.ones(1000, 1000), "b": [1, "x"]}
    expected, written = io.BytesIO(), io.BytesIO()
    torch.save(value, expected)
    weightmap.torch.save(value, written)
    assert_same_bytes(expected.getvalue(), written.getvalue())


@torch_since((2, 7), "torch.utils.serialization.config")
def test_follows_torch_s_settings(tmp_path):
    from torch.utils.serialization import config

    value = {"a": torch.ones(5), "b": torch.ones(7)}
    try:
        config.save.compute_crc32 = False
        assert_same_file(value, tmp_path)
        config.save.storage_alignment = 4096
        assert_same_file(value, tmp_path)
    finally:
        config.save.compute_crc32 = True
        config.save.storage_alignment = 64
    assert_same_file(value, tmp_path)


def test_skip_data_leaves_storages_out(tmp_path):
    with torch.serialization.skip_data():
        assert_same_file({"a": torch.ones(5), "b": [torch.ones(700)]}, tmp_path)
    read = torch.load(tmp_path / "weightmap" / "model.pt", weights_only=True)
    assert read["b"][0].tolist() == [0] * 700


def test_skip_data_gives_room_to_fake_tensors(tmp_path):
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        value = {"a": torch.ones(5), "b": torch.ones(2, 3, dtype=torch.uint16)}
    with torch.serialization.skip_data(materialize_fake_tensors=True):
        expected, written = both(value, tmp_path)
    read = torch.load(tmp_path / "weightmap" / "model.pt", weights_only=True)
    assert {name: (tensor.shape, tensor.dtype) for name, tensor in read.items()} == {
        name: (tensor.shape, tensor.dtype) for name, tensor in value.items()
    }
    assert_same_bytes(expected, written)


class Registered:
    class Kind(enum.Enum):
        ONE = 1

    def __init__(self, number):
        self.number = number


@dataclasses.dataclass
class Settings:
    rates: list


class WithKeywords:
    def __new__(cls, *, number):
        made = super().__new__(cls)
        made.number = number
        return made

    def __getnewargs_ex__(self):
        return (), {"number": self.number}


class Slots:
    __slots__ = ("a",)


class Ints(list):
    pass


def holding_itself(kind):
    held = []
    held.append(kind([held]))
    return held


def nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


def of_two_types():
    tensor = torch.ones(4)
    return [tensor, tensor.view(torch.int32)]


def bound_method():
    return Registered(1).__init__


# What torch.save writes, and weightmap.save() refuses with these words: weights_only=True refuses it.
UNREAD = {
    "module": (lambda: {"m": [torch.nn.Linear(1, 1)]},
               "['m'][0] is of type torch.nn.modules.linear.Linear, for which the file would need "
               "torch.nn.modules.linear.Linear, which torch.load(weights_only=True) does not read "
               "unless it is registered with torch.serialization.add_safe_globals()"),
    "instance": (lambda: {"m": Registered(1)}, "['m'] is of type test_torch_save.Registered, for which"),
    "instance with slots": (lambda: [Slots()], "[0] is of type test_torch_save.Slots, for which"),
    "class": (lambda: [Registered], "[0] is test_torch_save.Registered, which torch.load("),
    "function": (lambda: [both], "[0] is test_torch_save.both, which torch.load("),
    "built-in function": (lambda: [len], "[0] is of type builtin_function_or_method, for which the file "
                          "would need builtins.len"),
    "bound method": (lambda: [bound_method()], "[0] is of type method, for which the file would need "
                     "builtins.getattr, which torch.load(weights_only=True) does not read"),
    "frozenset": (lambda: {"f": frozenset()}, "['f'] is of type frozenset, for which"),
    "long int": (lambda: [2**2039], "[0] is an int of 2040 bits"),
    "longest negative int": (lambda: [-(2**2039) - 1], "[0] is an int of 2040 bits"),
    "subclass of list": (lambda: [Ints([1])], "[0] is of type test_torch_save.Ints, for which"),
    "defaultdict": (lambda: collections.defaultdict(list, a=[1]),
                    "what is to be saved is of type collections.defaultdict, for which the file would need "
                    "collections.defaultdict, which torch.load(weights_only=True) does not read"),
    "deque": (lambda: [collections.deque([1])], "[0] is of type collections.deque, for which"),
    "range": (lambda: [range(3)], "[0] is of type range, for which the file would need builtins.range"),
    "slice": (lambda: [slice(3)], "[0] is of type slice, for which the file would need builtins.slice"),
    "ellipsis": (lambda: [...], "[0] is of type ellipsis, for which the file would need builtins.Ellipsis"),
    "path": (lambda: [pathlib.PurePosixPath("x")], "[0] is of type pathlib.PurePosixPath, for which"),
    "None's type": (lambda: [type(None)], "[0] is builtins.NoneType, which torch.load("),
    "enum in a class": (lambda: [Registered.Kind.ONE], "[0] is of type test_torch_save.Registered.Kind, for"),
    "keywords to make it": (lambda: [WithKeywords(number=3)], "[0] is of type test_torch_save.WithKeywords, "
                            "which takes more than a call"),
    "dataclass": (lambda: [Settings([1])], "[0] is of type test_torch_save.Settings, for which"),
    "key": (lambda: {frozenset(): 1}, "[frozenset()] is of type frozenset, for which"),
    "in an attribute": (lambda: attribute(frozenset()), "[0].__reduce__()[1][3]['tag'] is of type frozenset"),
    "in metadata": (lambda: metadata(len), "what is to be saved.__dict__['_metadata'] is of type builtin_"),
    "tuple in itself": (lambda: holding_itself(tuple)[0], "[0][0] is a tuple that holds itself"),
    "set in itself": (lambda: set_in_itself(), "is of type test_torch_save.Registered, for which"),
}


def attribute(value):
    tensor = torch.ones(1)
    tensor.tag = value
    return [tensor]


def metadata(value):
    state = collections.OrderedDict()
    state._metadata = value
    return state


def dict_in_itself():
    value = {}
    value["a"] = value
    return value


def set_in_itself():
    value = Registered(1)
    value.within = {value}
    return value


def parent_and_child():
    parent, child = Registered(1), Registered(2)
    parent.children, child.parent = [child], parent
    return {"config": parent, "child": child}


def tuples_of_lists():
    lists = [[], [], []]
    lists.append(tuple(lists))
    for each in lists[:3]:
        each.append(lists[3])
    return lists[3]


def metadata_in_itself():
    state = metadata(None)
    state._metadata = [state]
    state["w"] = torch.ones(2)
    return state


# Of what holds itself: how it is made, and whether weights_only=True reads it.
CYCLES = {
    "list": (lambda: holding_itself(list), True),
    "tuple in a list": (lambda: holding_itself(tuple), True),
    "dict": (dict_in_itself, True),
    "metadata": (metadata_in_itself, True),
    "two objects": (parent_and_child, False),
    "tuple": (lambda: holding_itself(tuple)[0], False),
    "tuple of many": (tuples_of_lists, False),
    "dict of tuples": (lambda: {"a": tuples_of_lists(), "b": holding_itself(tuple)}, False),
}


@pytest.mark.parametrize("name", CYCLES)
def test_what_holds_itself_is_written_as_torch_writes_it(name, tmp_path, monkeypatch):
    make, is_read = CYCLES[name]
    monkeypatch.setattr("weightmap._torch.save.save_by_torch", None)  # not by it
    assert_same_file(make(), tmp_path)
    if is_read:
        weightmap.save(make(), tmp_path / "model.pt")
        written = torch.load(tmp_path / "model.pt", weights_only=True)
        again = io.BytesIO()
        weightmap.torch.save(written, again)
        expected = tmp_path / "weightmap" / "model.pt"
        assert records(again.getvalue()) == records(expected.read_bytes())


@pytest.mark.parametrize("name", [name for name in CYCLES if "tuple" not in name])
def test_a_checkpoint_of_what_holds_itself_is_saved_unchanged(name, tmp_path):
    torch.save(CYCLES[name][0](), tmp_path / "model.pt")
    weightmap.save(weightmap.open(tmp_path / "model.pt"), tmp_path / "copy.pt")
    expected, copy = (records((tmp_path / each).read_bytes()) for each in ("model.pt", "copy.pt"))
    assert copy["data.pkl"] == expected["data.pkl"]
    state = {"was": weightmap.open(tmp_path / "model.pt").root(), "step": 7}
    weightmap.torch.save(state, tmp_path / "changed.pt")
    assert weightmap.open(tmp_path / "changed.pt").root()["step"] == 7


@pytest.mark.parametrize("name", UNREAD)
def test_writes_what_torch_writes_of_what_save_refuses(name, tmp_path):
    make, message = UNREAD[name]
    with pytest.raises(weightmap.UnsupportedError) as refused:
        weightmap.save(make(), tmp_path / "model.pt")
    assert message in str(refused.value)
    assert str(refused.value).endswith("; weightmap.torch.save() writes whatever torch.save writes")
    value = make()
    assert_same_file(value, tmp_path)
    torch.load(tmp_path / "weightmap" / "model.pt", weights_only=False)


def local_instance():
    class Local:
        pass

    return [Local()]


# What pickle does not write.
REFUSED = {
    "lambda": (lambda: [lambda: 0], "[0] is test_torch_save.<lambda>.<locals>.<lambda>, and no module "
               "has it by this name, so pickle cannot write it"),
    "local class": (local_instance, "[0] is test_torch_save.local_instance.<locals>.Local, and no "
                    "module has it by this name, so pickle cannot write it"),
    "open file": (lambda: [sys.__stdout__], "[0] is of type _io.TextIOWrapper: cannot pickle "),
    "generator": (lambda: [(x for x in ())], "[0] is of type generator: cannot pickle 'generator' object"),
    "lock": (lambda: [threading.Lock()], "[0] is of type _thread.lock: cannot pickle '_thread.lock' object"),
    "two types": (of_two_types, "[1] shares its elements with a tensor of another type, "
                  "torch.float32, and torch loads a storage as one type only"),
    "depth": (lambda: nested(1001), "is nested deeper than 1000 levels"),
    "mkldnn": (lambda: [torch.ones(3).to_mkldnn()], "[0] is of type torch.Tensor: "),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refuses(name, tmp_path):
    make, message = REFUSED[name]
    path = tmp_path / "model.pt"
    path.write_bytes(b"what was there")
    with pytest.raises(weightmap.UnsupportedError) as refused:
        weightmap.torch.save(make(), path)
    assert message in str(refused.value)
    assert str(refused.value).startswith(f"{path}: ")
    assert path.read_bytes() == b"what was there"
    assert os.listdir(tmp_path) == ["model.pt"]


def test_a_refusal_lists_all_that_cannot_be_written(tmp_path):
    lock = threading.Lock()
    value = {"f": lambda: 0, "a": [lock, {"b": lock}, (x for x in ())], "c": holding_itself(list)}
    with pytest.raises(weightmap.UnsupportedError) as refused:
        weightmap.torch.save(value, tmp_path / "model.pt")
    assert str(refused.value) == (
        f"{tmp_path / 'model.pt'}: ['f'] is test_torch_save.test_a_refusal_lists_all_that_cannot_be_"
        "written.<locals>.<lambda>, and no module has it by this name, so pickle cannot write it; "
        "['a'][0] is of type _thread.lock: cannot pickle '_thread.lock' object; "
        "['a'][2] is of type generator: cannot pickle 'generator' object"
    )


def test_a_refusal_lists_fifty_places(tmp_path):
    with pytest.raises(weightmap.UnsupportedError) as refused:
        weightmap.save([argparse.Namespace(a=n) for n in range(60)], tmp_path / "model.pt")
    assert "[49] is of type argparse.Namespace" in str(refused.value)
    assert "add_safe_globals(); and 10 more; weightmap.torch.save()" in str(refused.value)


@pytest.mark.parametrize("refused", [
    {"pickle_module": sys}, {"pickle_protocol": 4}, {"_use_new_zipfile_serialization": False},
    {"_disable_byteorder_record": True},
])
def test_refuses_other_ways_of_writing(refused, tmp_path):
    with pytest.raises(weightmap.UnsupportedError, match="pickle_protocol=2, a zip file"):
        weightmap.torch.save({}, tmp_path / "model.pt", **refused)


def test_the_deepest_nesting_is_written(tmp_path):
    path = tmp_path / "model.pt"
    weightmap.torch.save(nested(999), path, durable=False)
    value, depth = torch.load(path, weights_only=True), 0
    while value:
        value, depth = value[0], depth + 1
    assert depth == 999


def test_patch_leaves_to_torch_what_is_refused(tmp_path):
    value = Registered(5)
    with weightmap.patch(files="mmap", save=True):
        torch.save(value, tmp_path / "any.pt")
        torch.save({"a": 1}, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
        torch.save({"a": 1}, "/dev/null")
    assert torch.load(tmp_path / "any.pt", weights_only=False).number == 5
    assert torch.load(tmp_path / "old.pt", weights_only=True) == {"a": 1}
    assert os.path.exists("/dev/null") and not os.path.isfile("/dev/null")


# What only the process that wrote the file has.
WRITER = """
import dataclasses, enum, sys, types
import numpy, torch

module = sys.modules["classes_of_another"] = types.ModuleType("classes_of_another")
exec(open("classes_of_another.py").read(), vars(module))
w = torch.nn.Parameter(torch.arange(8.0).view(2, 4))
config = module.Config([1, w], module.Color.RED)
elements = module.Elements([1, 2, 3])
elements.tag = config
torch.save({
    "epoch": 3, "config": config, "again": config, "elements": elements,
    "items": module.Items(a=1, b=2), "class": module.Config, "w": w, "tied": w.data[1:],
    "sparse": torch.eye(3).to_sparse(), "dtype": torch.bfloat16, "numpy": numpy.random.get_state(),
    "model": torch.nn.Linear(2, 2).state_dict(),
}, "train.pt")
"""
CLASSES = """
import dataclasses, enum

class Color(enum.Enum):
    RED = 1

@dataclasses.dataclass
class Config:
    parts: list
    color: Color

class Elements(list):
    pass

class Items(dict):
    pass
"""
# Compares what weights_only=False makes of both files, where the classes are.
READER = """
import sys, torch, numpy
import classes_of_another as classes

old, new = (torch.load(name, weights_only=False) for name in ("old.pt", "train.pt"))
assert (old["epoch"], new["epoch"]) == (3, 7)
assert list(new) == [*old, "added"]
config = new["config"]
assert config is new["again"] is new["elements"].tag and type(config) is classes.Config
assert config.color is classes.Color.RED and new["class"] is classes.Config
assert config.parts[0] == 1 and config.parts[1] is new["w"]
assert type(new["w"]) is torch.nn.Parameter and torch.equal(new["w"], old["w"])
assert new["tied"].untyped_storage().data_ptr() == new["w"].untyped_storage().data_ptr()
assert type(new["elements"]) is classes.Elements and new["elements"] == [1, 2, 3]
assert type(new["items"]) is classes.Items and new["items"] == {"a": 1, "b": 2}
assert torch.equal(new["sparse"].to_dense(), torch.eye(3)) and new["dtype"] is torch.bfloat16
assert all(map(numpy.array_equal, new["numpy"], old["numpy"]))
assert new["model"]._metadata == old["model"]._metadata
assert torch.equal(new["model"]["weight"], old["model"]["weight"])
assert new["added"].tolist() == [1, 1]
"""


def test_what_root_gives_is_changed_and_saved_without_the_classes_that_the_file_names(tmp_path):
    pytest.importorskip("numpy")
    (tmp_path / "classes_of_another.py").write_text(CLASSES)

    def run(program):
        subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True)

    run(WRITER)
    path = tmp_path / "train.pt"
    (tmp_path / "old.pt").write_bytes(path.read_bytes())
    state = weightmap.open(path).root()
    state["epoch"] = 7
    state["added"] = torch.ones(2)
    weightmap.torch.save(state, path)
    assert "classes_of_another" not in sys.modules
    run(READER)


def test_a_storage_that_root_only_names_is_refused(tmp_path):
    path = tmp_path / "model.pt"
    torch.save({"s": torch.ones(3).untyped_storage()}, path)
    with pytest.raises(weightmap.UnsupportedError, match=r"\['s'\] is a storage without a tensor, which root\(\)"):
        weightmap.torch.save(weightmap.open(path).root(), path)


def test_tensors_of_weightmap_are_not_given_to_torch(tmp_path):
    path = tmp_path / "model.pt"
    torch.save({"w": torch.ones(3)}, path)
    state = {"w": weightmap.open(path)["w"], "kept": WithKeywords(number=3)}
    with pytest.raises(weightmap.UnsupportedError, match=r"none of weightmap's tensors: give it tensor.torch\(\)"):
        weightmap.torch.save(state, path)


def test_what_torch_refuses_to_save_is_refused_in_its_words():
    zeros = torch._efficientzerotensor((4, 5))
    with pytest.raises(weightmap.UnsupportedError, match="ZeroTensor is not serializable"):
        weightmap.torch.save(zeros, io.BytesIO())
    with weightmap.patch(), pytest.raises(RuntimeError, match="ZeroTensor is not serializable"):
        torch.save(zeros, io.BytesIO())


def test_patch_leaves_what_is_no_file_to_torch():
    target = torch.ones(3)
    with weightmap.patch(), pytest.raises(AttributeError, match="write"):
        torch.save("x", target)
    target.write = "x"
    with weightmap.patch(), pytest.raises(TypeError):
        torch.save("x", target)
