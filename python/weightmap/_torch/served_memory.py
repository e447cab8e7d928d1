"""Where the tensors of a model lie, and what of them this process alone has."""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch

from weightmap import _core
from weightmap._errors import Error
from weightmap._summary import Summary, summarize
from weightmap._torch.wrapped import is_wrapper, memory_of, parts_of


class FileMapping(NamedTuple):
    begin: int
    end: int
    writable: bool
    anonymous_bytes: int  # copied by writing


def mappings_of(addresses: list[int], counted: bool) -> list[FileMapping | None]:
    """The mapping of a file for each address; None where there is none, or no /proc to tell it.
    Without counted, anonymous_bytes are 0."""
    try:
        memory = _shared_memory()
        mappings = [FileMapping(*fields) for fields in _core.file_mappings(addresses, counted)]
        mappings = [mapping for mapping in mappings if mapping.begin not in memory]
    except (Error, OSError):
        mappings = []
    begins = [mapping.begin for mapping in mappings]

    def at(address: int) -> FileMapping | None:
        index = bisect_right(begins, address) - 1
        return mappings[index] if index >= 0 and address < mappings[index].end else None

    return [at(address) for address in addresses]


# What the system names memory that processes share, torch's first; copies that weightmap stages
# are never mapped to be written to by all of them.
_MEMORY = (b"/dev/shm/torch_", b"/memfd:", b"/dev/zero", b"/SYSV")


def _shared_memory() -> set[int]:
    """Where mappings begin that look like those of files, and have none behind them."""
    with open("/proc/self/maps", "rb") as maps:
        fields = [line.split(None, 5) for line in maps]
    return {
        int(line[0].partition(b"-")[0], 16)
        for line in fields
        if len(line) == 6 and line[1] == b"rw-s" and line[5].startswith(_MEMORY)
    }


def summary(model: torch.nn.Module, depth: int = 1) -> Summary:
    """What is in a model, as Checkpoint.summary() says it of a file, and how much of it belongs to
    this process alone (own_bytes): parameters, buffers and packed weights of quantized modules that
    lie in no file, and pages of files that were copied because they were written to. The rest are
    pages of files, which all processes share. Memory that share_memory() took is no file's. What
    lies on a device counts nothing.
    """
    tensors = [*model.named_parameters(remove_duplicate=False),
               *model.named_buffers(remove_duplicate=False)]
    packed = list(_packed_weights(model))
    own_bytes = _own_bytes([tensor for _, tensor in tensors])
    own_bytes += sum(tensor.nbytes for _, tensor in packed)
    described = [_described(name, tensor) for name, tensor in (*tensors, *packed)]
    return summarize(type(model).__name__, described, depth, own_bytes)


def _packed_weights(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Copies of what torch's quantized modules keep in objects of its C++ library."""
    kind: Any = torch.ScriptObject  # which torch describes without its methods
    for module_name, module in model.named_modules():
        for key, packed in vars(module).items():
            if isinstance(packed, kind) and packed._has_method("__getstate__"):
                name = f"{module_name}.{key}" if module_name else key
                for number, tensor in enumerate(_tensors_in(packed.__getstate__())):
                    yield f"{name}.{number}", tensor


def _tensors_in(state: Any) -> Iterator[torch.Tensor]:
    if isinstance(state, torch.Tensor):
        yield state
    elif isinstance(state, (tuple, list)):
        for part in state:
            yield from _tensors_in(part)


def _own_bytes(tensors: Sequence[torch.Tensor]) -> int:
    sizes = _storages_of(tensors)
    places = mappings_of(list(sizes), counted=True)
    in_no_file = [size for size, place in zip(sizes.values(), places) if place is None]
    return sum(in_no_file) + sum(place.anonymous_bytes for place in {*places} if place is not None)


def bytes_in_no_file(tensors: Sequence[torch.Tensor]) -> int:
    """Of their storages, without what was copied because it was written to."""
    sizes = _storages_of(tensors)
    places = mappings_of(list(sizes), counted=False)
    return sum(size for size, place in zip(sizes.values(), places) if place is None)


def _storages_of(tensors: Sequence[torch.Tensor]) -> dict[int, int]:
    """Addresses on the CPU, and bytes at them."""
    sizes: dict[int, int] = {}
    for tensor in tensors:
        for storage in memory_of(tensor):
            sizes[storage.data_ptr()] = storage.nbytes()
    return sizes


class _Described(NamedTuple):
    """A tensor as summarize() takes one."""

    name: str
    numel: int
    nbytes: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    file_index: Any  # these two: where its bytes are
    file_offset: Any


def _described(name: str, tensor: torch.Tensor) -> _Described:
    is_strided = tensor.layout == torch.strided
    address: Any = id(tensor)
    nbytes = tensor.numel() * tensor.element_size()
    if is_wrapper(tensor):
        parts = [part for _, part in parts_of(tensor)]
        address = tuple(map(id, parts))
        nbytes = sum(part.numel() * part.element_size() for part in parts)
    elif is_strided and not tensor.is_meta:
        with contextlib.suppress(RuntimeError):  # a tensor of a class without memory
            address = tensor.data_ptr()
    return _Described(
        name, tensor.numel(), nbytes,
        str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape),
        tensor.stride() if is_strided else (), tensor.device, address,
    )
