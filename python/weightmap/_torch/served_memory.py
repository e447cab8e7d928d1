"""Where the tensors of a model lie, and what of them this process alone has."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from weightmap import _core
from weightmap._errors import Error
from weightmap._summary import Summary, summarize


class FileMapping(NamedTuple):
    begin: int
    end: int
    writable: bool
    anonymous_bytes: int  # copied by writing


def mappings_of(addresses: list[int], counted: bool) -> list[FileMapping | None]:
    """The mapping of a file for each address; None where there is none, or no /proc to tell it.
    Without counted, anonymous_bytes are 0."""
    try:
        mappings = [FileMapping(*fields) for fields in _core.file_mappings(addresses, counted)]
    except Error:
        mappings = []
    begins = [mapping.begin for mapping in mappings]

    def at(address: int) -> FileMapping | None:
        index = bisect_right(begins, address) - 1
        return mappings[index] if index >= 0 and address < mappings[index].end else None

    return [at(address) for address in addresses]


def summary(model: torch.nn.Module, depth: int = 1) -> Summary:
    """What is in a model, as Checkpoint.summary() says it of a file, and how much of it belongs to
    this process alone (own_bytes): parameters and buffers that lie in no file, and pages of files
    that were copied because they were written to. The rest are pages of files, which all processes
    share. What lies on a device counts nothing.
    """
    tensors = [*model.named_parameters(remove_duplicate=False),
               *model.named_buffers(remove_duplicate=False)]
    own_bytes = _own_bytes([tensor for _, tensor in tensors])
    described = [_described(name, tensor) for name, tensor in tensors]
    return summarize(type(model).__name__, described, depth, own_bytes)


def _own_bytes(tensors: Sequence[torch.Tensor]) -> int:
    sizes: dict[int, int] = {}
    for tensor in tensors:
        if tensor.device.type == "cpu" and tensor.layout == torch.strided:
            storage = tensor.untyped_storage()
            sizes[storage.data_ptr()] = storage.nbytes()
    places = mappings_of(list(sizes), counted=True)
    in_no_file = [size for size, place in zip(sizes.values(), places) if place is None]
    return sum(in_no_file) + sum(place.anonymous_bytes for place in {*places} if place is not None)


class _Described(NamedTuple):
    """A tensor as summarize() takes one."""

    name: str
    numel: int
    nbytes: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    file_index: Any  # these two: where its bytes are
    file_offset: int


def _described(name: str, tensor: torch.Tensor) -> _Described:
    is_strided = tensor.layout == torch.strided
    address = tensor.data_ptr() if is_strided and not tensor.is_meta else id(tensor)
    return _Described(
        name, tensor.numel(), tensor.numel() * tensor.element_size(),
        str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape),
        tensor.stride() if is_strided else (), tensor.device, address,
    )
