"""Checkpoints laid out record by record, where torch.save gives no choice."""

import io
import pickle

import torch
from describe import Storages, storage_bytes


def write_by_hand(
    path, value, key_of=None, order=None, storage_data=None, location="cpu", head=(), byteorder=None
):
    """Lays out a checkpoint with torch's own record writer where torch.save gives no choice.

    `key_of(number)` names the storages, `order(keys)` tells the order of their records,
    `storage_data(tensor)` their bytes; `head` are (name, bytes) records behind data.pkl.
    """
    numbering = Storages()
    key_of = key_of or str
    storages = {}

    class Pickler(pickle.Pickler):
        def persistent_id(self, thing):
            if not isinstance(thing, torch.storage.TypedStorage):
                return None
            tensor = torch.empty(0, dtype=thing.dtype).set_(thing)
            key = key_of(int(numbering.key(tensor)))
            storages[key] = tensor
            kind = getattr(torch, thing._pickle_storage_type())
            return ("storage", kind, key, location, thing._size())

    stream = io.BytesIO()
    Pickler(stream, protocol=2).dump(value)
    writer = torch._C.PyTorchFileWriter(str(path))
    writer.write_record("data.pkl", stream.getvalue(), len(stream.getvalue()))
    if byteorder:
        writer.write_record("byteorder", byteorder, len(byteorder))
    for name, data in head:
        writer.write_record(name, data, len(data))
    for key in (order or list)(list(storages)):
        data = (storage_data or (lambda tensor: storage_bytes(tensor).tobytes()))(storages[key])
        writer.write_record("data/" + key, data, len(data))
    writer.write_end_of_file()
    return lambda tensor: key_of(int(numbering.key(tensor)))


def write_again(path, copy, change=lambda name, data: data, version=None):
    """Lays an archive, a path or a stream, out again with torch's record writer, each record as
    change(name, data) has it, None for one that is left out; the writer adds those that are its own."""
    source = torch._C.PyTorchFileReader(path if isinstance(path, io.BytesIO) else str(path))
    writer = torch._C.PyTorchFileWriter(str(copy))
    for name in source.get_all_records():
        if name not in ("version", ".data/version", "byteorder", ".data/serialization_id"):
            data = change(name, source.get_record(name))
            if data is not None:
                writer.write_record(name, data, len(data))
    if version is not None:
        writer.set_min_version(version)
    writer.write_end_of_file()
