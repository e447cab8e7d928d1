#!/usr/bin/env python2.7
"""Writes python2.json: random trees with tensors, pickled by a real Python 2.7, without torch.

    python2.7 tests/data/make_python2_fixtures.py > tests/data/python2.json

Each entry has the pickler ("pickle" or "cPickle", which torch used), the protocol, the pickle in
base64, and the names of the tensors as a walk of Python 2's own objects gives them. Storage N has
four bytes, the float N. A persistent id is a tuple in protocol 0 as well, where Python would write
its text.
"""

import base64
import cPickle
import collections
import json
import os
import pickle
import StringIO
import sys
import types

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "support"))
from random_trees import RandomTrees


def module(name):
    made = sys.modules[name] = types.ModuleType(name)
    return made


FloatStorage = type("FloatStorage", (object,), {"__module__": "torch"})
module("torch").FloatStorage = FloatStorage


def _rebuild_tensor_v2(*arguments):
    raise NotImplementedError


_rebuild_tensor_v2.__module__ = "torch._utils"
module("torch._utils")._rebuild_tensor_v2 = _rebuild_tensor_v2


class Storage(object):
    def __init__(self, number):
        self.number = number


class Tensor(object):
    def __init__(self, number):
        self.storage = Storage(number)

    def __reduce_ex__(self, protocol):
        hooks = collections.OrderedDict()
        return _rebuild_tensor_v2, (self.storage, 0, (1,), (1,), False, hooks)


class Thing(object):
    pass


class Old:
    pass


class Many(dict):
    pass


for kind in (Thing, Old, Many):
    kind.__module__ = "things"
    setattr(sys.modules.get("things") or module("things"), kind.__name__, kind)


class Trees(RandomTrees):
    def __init__(self, seed, protocol):
        RandomTrees.__init__(self, seed, Tensor)
        self.protocol = protocol

    def container(self, depth):
        kinds = ["dict", "ordered", "ordered", "ordered", "default", "list", "tuple", "deque",
                 "bounded", "set", "frozen", "thing", "old"]
        kind = self.random.choice(kinds + ["many"] * (self.protocol == 2))
        if kind == "dict":
            return dict(self.items(depth))
        if kind == "ordered":
            made = collections.OrderedDict(self.items(depth))
            return self.attributes(made, depth) if self.random.random() < 0.2 else made
        if kind == "default":
            return collections.defaultdict(list, self.items(depth))
        if kind == "many":
            made = Many(self.items(depth))
            return self.attributes(made, depth) if self.random.random() < 0.5 else made
        if kind in ("set", "frozen"):
            return {"set": set, "frozen": frozenset}[kind]([self.tensor()])
        if kind in ("thing", "old"):
            return self.attributes({"thing": Thing, "old": Old}[kind](), depth)
        if kind == "bounded":
            return collections.deque(self.values(depth), 10)
        return {"list": list, "tuple": tuple, "deque": collections.deque}[kind](self.values(depth))


_HIDDEN = set(vars(collections.OrderedDict()))


def names_of(value, name=""):
    """The names of the tensors, by the keys, indices and attributes that lead to them."""
    if isinstance(value, Tensor):
        return [name]
    children = []
    if isinstance(value, dict):
        children = value.items()
    elif isinstance(value, (list, tuple, set, frozenset, collections.deque)):
        children = enumerate(value)
    attributes = [item for item in getattr(value, "__dict__", {}).items() if item[0] not in _HIDDEN]
    return [
        found
        for key, child in list(children) + attributes
        for found in names_of(child, (name + "." if name else "") + unicode(key))
    ]


def identifier(thing):
    if isinstance(thing, Storage):
        return "storage", FloatStorage, str(thing.number), "cpu", 1
    return None


class Pickler(pickle.Pickler):
    def save_pers(self, pid):
        self.save(pid)
        self.write(pickle.BINPERSID)


def pickled(name, tree, protocol):
    text = StringIO.StringIO()
    pickler = Pickler(text, protocol) if name == "pickle" else cPickle.Pickler(text, protocol)
    pickler.persistent_id = identifier
    pickler.dump(tree)
    return text.getvalue()


PICKLERS = ("pickle", 0), ("pickle", 1), ("pickle", 2), ("cPickle", 1), ("cPickle", 2)
made = []
for seed in range(8):
    for name, protocol in PICKLERS:
        trees = Trees(seed * 10 + protocol, protocol)
        root = {"state": collections.OrderedDict(trees.items(4)), "other": trees.value(4)}
        content = base64.b64encode(pickled(name, root, protocol))
        made.append({"pickler": name, "protocol": protocol, "storages": trees.tensors,
                     "names": sorted(names_of(root)), "pickle": content})
print("[\n%s\n]" % ",\n".join(json.dumps(entry, sort_keys=True) for entry in made))
