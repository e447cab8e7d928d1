"""Names of tensors follow from the values, whichever Python pickled them, by whichever protocol."""

import base64
import collections
import io
import json
import pickle
import types

import pytest
import torch
from random_trees import RandomTrees

import weightmap
from weightmap import Object, Tensor

PYTHON2 = "python2.json"  # by make_python2_fixtures.py


def children_of(value):
    """What a value holds: (key, child); the key of an attribute is its name, of the rest None."""
    if isinstance(value, dict):
        children = list(value.items())
    elif isinstance(value, (list, tuple, set, frozenset, collections.deque)):
        children = list(enumerate(value))
    elif isinstance(value, Object):
        children = list(enumerate([*value.arguments, *value.elements])) + value.items
        return children + (list(value.state.items()) if type(value.state) is dict else [])
    else:
        children = []
    return children + list(getattr(value, "__dict__", {}).items())


def names_of(value, name=""):
    """The names of the tensors, by the keys, indices and attributes that lead to them."""
    if isinstance(value, (Tensor, Stub)):
        return [name]
    dot = "." if name else ""
    return [
        found
        for key, child in children_of(value)
        for found in names_of(child, f"{name}{dot}{key}")
    ]


class PaddleTensor(tuple):
    """As paddle pickles a tensor within a dict: tuple((name, array))."""

    def __reduce_ex__(self, protocol):
        return tuple, (tuple(self),)


class Storage:
    def __init__(self, number):
        self.number = number


class Stub:
    """A tensor of one element that is pickled as torch's are."""

    def __init__(self, number):
        self.storage = Storage(number)

    def __reduce_ex__(self, protocol):
        hooks = collections.OrderedDict()
        return torch._utils._rebuild_tensor_v2, (self.storage, 0, (1,), (1,), False, hooks)


class Thing:
    pass


class Many(dict):
    pass


def identifier(thing):
    if isinstance(thing, Storage):
        return "storage", torch.FloatStorage, str(thing.number), "cpu", 1
    return None


class PythonPickler(pickle._Pickler):
    def persistent_id(self, thing):
        return identifier(thing)

    def save_pers(self, pid):  # as a tuple in protocol 0 as well
        self.save(pid, save_persistent_id=False)
        self.write(pickle.BINPERSID)


class CPickler(pickle.Pickler):
    def persistent_id(self, thing):
        return identifier(thing)


class Trees(RandomTrees):
    def container(self, depth):
        make = {
            "dict": lambda: dict(self.items(depth)),
            "ordered": lambda: collections.OrderedDict(self.items(depth)),
            "marked": lambda: self.attributes(collections.OrderedDict(self.items(depth)), depth),
            "default": lambda: collections.defaultdict(list, self.items(depth)),
            "counter": lambda: collections.Counter(dict(self.items(depth))),
            "list": lambda: self.values(depth),
            "tuple": lambda: tuple(self.values(depth)),
            "called": lambda: PaddleTensor(self.values(depth)),
            "deque": lambda: collections.deque(self.values(depth)),
            "bounded": lambda: collections.deque(self.values(depth), 10),
            "set": lambda: {self.tensor()},
            "frozen": lambda: frozenset([self.tensor()]),
            "thing": lambda: self.attributes(Thing(), depth),
            "space": lambda: self.attributes(types.SimpleNamespace(), depth),
            "many": lambda: self.attributes(Many(self.items(depth)), depth),
        }
        return make[self.random.choice(list(make))]()


def storages(count):
    return {str(number): bytes(4) for number in range(count)}


def test_python_2_names_tensors_by_what_it_pickled(data, archive):
    entries = json.loads((data / PYTHON2).read_text())
    assert len(entries) == 40
    for number, entry in enumerate(entries):
        content = base64.b64decode(entry["pickle"])
        path = archive(content, storages(entry["storages"]), f"{number}.pt")
        checkpoint = weightmap.open(path)
        assert sorted(names_of(checkpoint.root())) == entry["names"], entry
        assert sorted(checkpoint) == entry["names"], entry


@pytest.mark.parametrize("pickler", [PythonPickler, CPickler])
@pytest.mark.parametrize("protocol", range(6))
def test_names_are_those_of_the_values(archive, pickler, protocol):
    if pickler is CPickler and protocol == 0:
        pytest.skip("protocol 0 of C writes the text of a persistent id")
    for seed in range(25):
        trees = Trees(seed, Stub)
        tree = {"state": collections.OrderedDict(trees.items(4)), "other": trees.value(4)}
        text = io.BytesIO()
        pickler(text, protocol).dump(tree)
        checkpoint = weightmap.open(archive(text.getvalue(), storages(trees.tensors), f"{seed}.pt"))
        names = sorted(checkpoint)
        assert names == sorted(names_of(checkpoint.root())), (seed, text.getvalue())
        if protocol >= 2:  # before that, a subclass of dict is a call with a dict
            assert names == sorted(names_of(tree)), (seed, text.getvalue())


class Called:
    """Pickled as a call with arguments that the test names."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("made", [
    Called(collections.OrderedDict, [["a", torch.ones(2)], ("b", {"c": torch.zeros(3)})]),
    Called(collections.OrderedDict, (("a", torch.ones(2)), ["b", {"c": torch.zeros(3)}])),
    Called(collections.OrderedDict, {"a": torch.ones(2), "b": {"c": torch.zeros(3)}}),
    Called(dict, [["a", torch.ones(2)], ["b", {"c": torch.zeros(3)}]]),
    Called(collections.defaultdict, list, [["a", torch.ones(2)], ["b", {"c": torch.zeros(3)}]]),
    Called(collections.Counter, {"a": torch.ones(2), "b": {"c": torch.zeros(3)}}),
])
@pytest.mark.parametrize("zipped", [True, False])
def test_a_dict_that_is_called_with_its_items_is_a_dict_everywhere(tmp_path, made, zipped):
    path = tmp_path / "called.pt"
    torch.save({"model": made}, path, _use_new_zipfile_serialization=zipped)
    checkpoint = weightmap.open(path)
    assert list(checkpoint) == ["model.a", "model.b.c"]
    assert checkpoint["model", "b", "c"].shape == (3,)
    assert list(checkpoint.subtree("model")) == ["a", "b.c"]
    assert list(checkpoint.root()["model"]) == ["a", "b"]
    weightmap.save_safetensors(checkpoint, tmp_path / "a.safetensors")
    with weightmap.safe_open(tmp_path / "a.safetensors", "pt") as file:
        assert sorted(file.keys()) == ["model.a", "model.b.c"]


def test_a_state_dict_of_python_2_loads_into_its_model(tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
    pairs = [[name, tensor] for name, tensor in model.state_dict().items()]
    torch.save(Called(collections.OrderedDict, pairs), tmp_path / "a.pt")
    checkpoint = weightmap.open(tmp_path / "a.pt")
    assert list(checkpoint) == ["0.weight", "0.bias", "1.weight", "1.bias"]
    other = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
    assert not checkpoint.load_into(other).missing
    assert torch.equal(other[1].weight, model[1].weight)
    loaded = weightmap.torch.load(tmp_path / "a.pt")
    assert list(loaded) == list(model.state_dict())
