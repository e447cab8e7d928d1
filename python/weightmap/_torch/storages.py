"""The storages of tensors that torch's functions make, each at its first use: bytes of the mapping."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from weightmap import _core
from weightmap._errors import CorruptError, UnsupportedError
from weightmap._torch import private
from weightmap._torch import tensors as _tensors
from weightmap._torch.refusals import refused, unexpected


def storage_loader(
    opened: _core.Checkpoint, restore: Any
) -> tuple[Callable[[Any], Any], Callable[[str, Any, torch.Tensor], None]]:
    """A function from persistent ids to storages, each of which is made at its first use, and one
    that tells it of a tensor which was made with its storage: adopt(key, type, tensor).

    restore(storage, location) moves one to its device; None for map_location="meta", where storages
    have no bytes at all. A function and not a class, since it runs once for each tensor.
    """
    load = _bytes_loader(opened, restore)
    made: dict[str, torch.storage.TypedStorage] = {}
    typed_storage = torch.storage.TypedStorage
    untyped = torch.UntypedStorage
    element_size = private._element_size
    sizes: dict[Any, tuple[torch.dtype, int]] = {}

    def dtype_of(kind: Any) -> torch.dtype:
        return torch.uint8 if kind is untyped else kind.dtype

    def adopt(key: str, kind: Any, tensor: torch.Tensor) -> None:
        made[key] = typed_storage(
            wrap_storage=tensor.untyped_storage(), dtype=dtype_of(kind), _internal=True
        )

    def persistent(identifier: Any) -> torch.storage.TypedStorage:
        if type(identifier) is not tuple or len(identifier) != 5:
            raise unexpected(f"a persistent id of type {type(identifier)} is not one of a storage")
        tag, kind, key, location, numel = identifier
        storage = made.get(key)
        if storage is not None:
            return storage
        if tag != "storage" and tag != b"storage":
            raise unexpected(f"Only persistent_load of storage is allowed, but got {tag!r}")
        if kind not in sizes:
            dtype = dtype_of(kind)
            sizes[kind] = dtype, element_size(dtype)
        dtype, size = sizes[kind]
        nbytes = numel * size
        wrapped = load(key, dtype, nbytes, location)
        storage = typed_storage(wrap_storage=wrapped, dtype=dtype, _internal=True)
        # As torch: a storage without bytes is made anew each time.
        if wrapped.data_ptr() != 0:
            made[key] = storage
        return storage

    def part_of(storage: Any, key: str, offset: int, size: int) -> Any:
        if key not in made:
            unit = element_size(storage.dtype)
            part = storage._untyped_storage[offset * unit : (offset + size) * unit]
            made[key] = typed_storage(wrap_storage=part, dtype=storage.dtype, _internal=True)
        return made[key]

    def persistent_of_stream(identifier: Any) -> torch.storage.TypedStorage:
        if type(identifier) is not tuple or len(identifier) != 6:
            raise refused(f"a persistent id of type {type(identifier)} is not one of a storage")
        storage = persistent(identifier[:5])
        return storage if identifier[5] is None else part_of(storage, *identifier[5])

    is_stream = opened.info()["format"] == "torch_legacy"
    return persistent_of_stream if is_stream else persistent, adopt


def _bytes_loader(opened: _core.Checkpoint, restore: Any) -> Callable[..., Any]:
    """load(key, dtype, nbytes, location): one storage, where it is wanted."""
    find_storage = opened.find_storage
    info = opened.info()
    is_dcp = info["format"] == "dcp"
    chunked: dict[str, Any] = {}  # put together from pieces, so that they have no place
    if opened.has_chunks():
        from weightmap._chunked import chunked_tensors

        chunked = chunked_tensors(opened)

    def missing(key: str, nbytes: int) -> CorruptError:
        return CorruptError(f"the archive has no record data/{key} of {nbytes} bytes")

    def place_of(key: str, nbytes: int) -> int:
        place = find_storage(key)
        if place is not None and nbytes <= place[1]:
            return place[0]
        if key in chunked:
            return 0
        raise missing(key, nbytes)

    def load_meta(key: str, dtype: torch.dtype, nbytes: int, location: Any) -> Any:
        storage = torch.UntypedStorage(nbytes, device="meta")
        offset = place_of(key, nbytes)
        if not is_dcp:  # of several files
            if offset >= info["file_bytes"]:
                raise UnsupportedError(
                    f"storage data/{key} is compressed, so its elements have no place in the file"
                )
            storage._checkpoint_offset = offset
        if restore is not None:
            storage._fake_device = _text(location)
        return storage

    def load_skipped(key: str, dtype: torch.dtype, nbytes: int, location: Any) -> Any:
        place_of(key, nbytes)
        return restore(torch.UntypedStorage(nbytes), _text(location))

    if restore is None or private.detect_fake_mode(None) is not None:
        return load_meta
    if private._serialization_tls.skip_data:
        return load_skipped

    small, large = (
        _tensors.storage(memory, 0, len(memory))
        for memory in (opened.lend(0), opened.lend(_core.small_storage))
    )
    is_foreign = _tensors.is_foreign(info["byteorder"])
    # Storages of a stream or of items lie anywhere, as those in memory do; those of an archive do
    # where its writer wanted it.
    lies_anywhere = is_dcp or info["format"] == "torch_legacy" or bool(
        (small.data_ptr() | large.data_ptr()) & 7
    )

    def load_mapped(key: str, dtype: torch.dtype, nbytes: int, location: Any) -> Any:
        place = find_storage(key)  # place_of(), without another call for each tensor
        if place is None or nbytes > place[1]:
            if key in chunked:
                return restore(chunked[key].torch().untyped_storage(), _text(location))
            raise missing(key, nbytes)
        offset = place[0]
        whole = small if place[1] < _core.small_storage else large
        storage = whole[offset : offset + nbytes]
        if lies_anywhere and storage.data_ptr() % _tensors.alignment_of(dtype):
            storage = storage.clone()
        if is_foreign:
            return _restore_foreign(storage, dtype, restore, _text(location))
        return restore(storage, location if type(location) is str else _text(location))

    return load_mapped


def _restore_foreign(
    storage: torch.UntypedStorage, dtype: torch.dtype, restore: Any, location: str
) -> Any:
    """A storage of the other byte order, where it is wanted, swapped. Bytes do not say what they are
    elements of, so each tensor over them swaps a copy, which those of its unit share; see
    rebuild_foreign()."""
    if dtype is not torch.uint8:
        return restore(_tensors.swapped(storage, dtype), location)
    made = restore(storage, location)
    copies = {1: made}

    def in_order_of(dtype: torch.dtype) -> Any:
        unit = dtype.itemsize // (2 if dtype.is_complex else 1)
        if unit not in copies:
            copies[unit] = restore(_tensors.swapped(storage, dtype), location)
        return copies[unit]

    made._weightmap_in_order_of = in_order_of
    return made


def rebuild_foreign(
    storage: Any, offset: Any, size: Any, stride: Any, requires_grad: Any, hooks: Any,
    dtype: torch.dtype, metadata: Any = None,
) -> torch.Tensor:
    """torch's _rebuild_tensor_v3() for storages of bytes."""
    in_order_of = getattr(storage._untyped_storage, "_weightmap_in_order_of", None)
    if in_order_of is not None:
        storage = torch.storage.TypedStorage(
            wrap_storage=in_order_of(dtype), dtype=torch.uint8, _internal=True
        )
    return private._rebuild_tensor_v3(
        storage, offset, size, stride, requires_grad, hooks, dtype, metadata
    )


def _text(location: Any) -> str:
    return location.decode("ascii") if type(location) is bytes else location
