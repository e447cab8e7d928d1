"""What torch says about the tensors of an object, in the words of `weightmap ls --json`.

torch is the referee here: shapes, strides and storage offsets come from its tensors, places in the
file from its own PyTorchFileReader.
"""

import hashlib

import numpy
import torch


def storage_bytes(tensor):
    """The whole storage that `tensor` views, as a uint8 array that shares its memory."""
    view = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())
    return view.numpy()


def element_bytes(tensor):
    """The stored elements of `tensor`, row-major, whatever its dtype and lazy bits."""
    size = tensor.element_size()
    if tensor.numel() == 0:
        return b""
    window = numpy.lib.stride_tricks.as_strided(
        storage_bytes(tensor)[tensor.storage_offset() * size :],
        shape=(*tensor.shape, size),
        strides=(*(stride * size for stride in tensor.stride()), 1),
        writeable=False,
    )
    return window.tobytes()


def walk(value, path=()):
    """Yields (path, tensor) in the order in which a pickler meets them."""
    if isinstance(value, torch.Tensor):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from walk(item, (*path, key))
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from walk(item, (*path, index))


class Storages:
    """Numbers storages as torch.save does: in the order of first encounter."""

    def __init__(self):
        self.keys = {}
        self.sizes = {}
        self._alive = []

    def key(self, tensor):
        storage = tensor.untyped_storage()
        if storage._cdata not in self.keys:
            self.keys[storage._cdata] = str(len(self.keys))
            self.sizes[self.keys[storage._cdata]] = storage.nbytes()
            self._alive.append(storage)  # an address must not be used twice
        return self.keys[storage._cdata]


def describe(tensors, reader, key_of=None):
    """Entries as `weightmap ls --json` prints them, for (path, tensor) pairs in pickler order.

    `reader` is a torch._C.PyTorchFileReader of the file, `key_of` tells the storage key of a tensor
    where it is not torch.save's running number.
    """
    key_of = key_of or Storages().key
    entries = []
    for path, tensor in tensors:
        key = key_of(tensor)
        size = tensor.element_size()
        start = tensor.storage_offset() * size
        if tensor.numel() == 0 and start > tensor.untyped_storage().nbytes():
            start = 0  # no element is there, and torch's slices of nothing may begin behind the end
        entries.append(
            {
                "name": ".".join(str(part) for part in path),
                "path": list(path),
                **properties(tensor),
                "strides": list(tensor.stride()),
                "storage": key,
                "storage_offset": tensor.storage_offset(),
                "file_offset": reader.get_record_offset("data/" + key) + start,
                "nbytes": tensor.numel() * size,
                "contiguous": tensor.is_contiguous(),
                "requires_grad": tensor.requires_grad,
                "location": "cpu",
            }
        )
    return entries


def properties(tensor):
    """What torch says of a tensor, wherever it lies."""
    return {
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "shape": list(tensor.shape),
        # A tensor without elements may have any.
        **({"strides": list(tensor.stride())} if tensor.numel() else {}),
    }


def same_tensor(tool, path, entry, tensor, **more):
    """That the tool says of it what torch says, and has its elements."""
    expected = {**properties(tensor), **more}
    found = {name: entry[name] for name in expected}
    assert found == expected, (path, entry, expected)
    assert tool.raw(path, entry["path"]) == element_bytes(tensor), (path, entry)


def bytes_in_file(data, entry, element_size):
    """The elements that `entry` points to in the bytes of a file, row-major."""
    if entry["nbytes"] == 0:
        return b""
    window = numpy.lib.stride_tricks.as_strided(
        numpy.frombuffer(data, dtype=numpy.uint8)[entry["file_offset"] :],
        shape=(*entry["shape"], element_size),
        strides=(*(stride * element_size for stride in entry["strides"]), 1),
        writeable=False,
    )
    return window.tobytes()


def digest(data):
    return hashlib.sha256(data).hexdigest()
