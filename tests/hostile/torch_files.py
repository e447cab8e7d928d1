"""Checkpoints as torch.save lays them out, with room for lies."""

import dataclasses
import struct

import pickle_builder as p
from zip_builder import Archive, Record

VERSION = b"3\n"
IDENTITY = b"0123456789" * 4


def floats(count, first=1.0):
    return struct.pack(f"<{count}f", *(first + i for i in range(count)))


@dataclasses.dataclass
class Model:
    pickle: bytes
    storages: dict  # key -> bytes
    tensors: dict  # name -> bytes that a copy of it has


def small(protocol=2):
    """A tensor of each kind: several types, a view, an odd size, none at all."""
    storages = {"0": floats(12), "1": struct.pack("<6q", *range(6)), "2": floats(5, 50.0),
                "3": struct.pack("<4e", 1, 2, 3, 4), "4": b""}
    first = p.Storage("0", 12)
    state = {"w": p.Tensor(first, 0, (3, 4), (4, 1)),
             "steps": p.Tensor(p.Storage("1", 6, "LongStorage"), 0, (6,), (1,)),
             "bias": p.Tensor(p.Storage("2", 5), 0, (5,), (1,)),
             "half": p.Tensor(p.Storage("3", 4, "HalfStorage"), 0, (2, 2), (2, 1)),
             "empty": p.Tensor(p.Storage("4", 0), 0, (0,), (1,)),
             "column": p.Tensor(p.Storage("0", 12), 1, (3,), (4,))}
    tensors = {"w": storages["0"], "steps": storages["1"], "bias": storages["2"],
               "half": storages["3"], "empty": b"", "column": struct.pack("<3f", 2, 6, 10)}
    return Model(p.pickled(state, protocol), storages, tensors)


def many(count=100, change=None):
    """So many tensors that the short way is tried. `change(i, arguments)` may change each."""
    state, storages, tensors = {}, {}, {}
    for i in range(count):
        arguments = [p.Storage(str(i), 12), 0, (3, 4), (4, 1)]
        if change is not None:
            change(i, arguments)
        state[f"layers.{i}.weight"] = p.Tensor(*arguments)
        storages[str(i)] = tensors[f"layers.{i}.weight"] = floats(12, float(i))
    return Model(p.pickled(state), storages, tensors)


MODELS = (("small", small()), ("many", many()))


def model_of(data_pkl, storages=None, tensors=None):
    return Model(data_pkl, {"0": floats(12)} if storages is None else storages, tensors or {})


def records(model, order=None):
    made = [Record("data.pkl", model.pickle), Record(".format_version", b"1"),
            Record(".storage_alignment", b"64"), Record("byteorder", b"little")]
    made += [Record("data/" + key, model.storages[key]) for key in (order or model.storages)]
    return made + [Record("version", VERSION), Record(".data/serialization_id", IDENTITY)]


def torch_file(model, changes=None, without=(), more=(), storage_order=None, **archive):
    """`changes`: fields of records by name. `without`: names of records. `more`: (place, record),
    to be put before the record of that name, or at the end for None."""
    made = []
    for record in records(model, storage_order):
        made += [new for place, new in more if place == record.name]
        if record.name in without:
            continue
        for field, value in (changes or {}).get(record.name, {}).items():
            setattr(record, field, value)
        made.append(record)
    made += [new for place, new in more if place is None]
    built = Archive(made, **archive).build()
    built.pickle_offset = built.payload.get("data.pkl", 0)
    built.pickle_bytes = len(model.pickle)
    return built


def pickle_file(data_pkl, storages=None, **more):
    """A checkpoint with one storage of twelve floats, and this pickle."""
    return torch_file(model_of(data_pkl, storages), **more)
