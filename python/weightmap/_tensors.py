"""Mapped bytes as torch tensors and storages. Imported when torch is wanted, not before."""

from __future__ import annotations

import operator
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from weightmap import _core
from weightmap._errors import MissingPackageError, UnsupportedError

try:
    import torch
except ImportError:
    raise MissingPackageError("torch tensors need the package torch: pip install torch") from None

if TYPE_CHECKING:
    from weightmap._core import MappedBytes


def _functions_of_torch(names: Iterable[str]) -> tuple[Any, ...]:
    """Those of them that this torch has: most are private."""
    found = []
    for name in names:
        try:
            found.append(operator.attrgetter(name)(torch))
        except AttributeError:
            pass
    return tuple(found)


# From DLPack capsules to tensors; the second is Python around the first.
_IMPORTERS = _functions_of_torch(("_C._from_dlpack", "utils.dlpack.from_dlpack"))
# Something true if a mode, a trace or a transform would see how a tensor is made. All are needed.
_BUSY_NAMES = ("_C._len_torch_dispatch_stack", "_C._len_torch_function_stack",
               "_C._get_tracing_state", "_C._functorch.peek_interpreter_stack")
_BUSY = _functions_of_torch(_BUSY_NAMES)
_core.use_torch(_IMPORTERS if len(_BUSY) == len(_BUSY_NAMES) else (), torch, _BUSY)

_QUANTIZED = ("qint8", "quint8", "qint32", "quint4x2", "quint2x4")
_ORDERS = {"little": "big", "big": "little"}


def storage(memory: MappedBytes, offset: int, nbytes: int) -> torch.UntypedStorage:
    """The bytes [offset, offset + nbytes) of the file as a storage that keeps `memory`."""
    if nbytes == 0:
        return torch.UntypedStorage(0)
    part = torch.frombuffer(memory, dtype=torch.uint8, count=nbytes, offset=offset)
    return part.untyped_storage()


def swapped(storage: torch.UntypedStorage, dtype: torch.dtype) -> torch.UntypedStorage:
    """A copy of `storage` in this machine's byte order."""
    copy = storage.clone()
    copy.byteswap(dtype)
    return copy


def view(
    memory: MappedBytes,
    offset: int,
    nbytes: int,
    dtype_name: str,
    storage_offset: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    conjugate: bool,
    negative: bool,
    foreign: bool,
) -> torch.Tensor:
    """A tensor over the storage at [offset, offset + nbytes). Strides are in elements."""
    if dtype_name in _QUANTIZED:
        raise UnsupportedError(
            f"a {dtype_name} tensor needs its scales, which weightmap.torch.load() puts together; "
            ".bits() gives the stored integers"
        )
    dtype = getattr(torch, dtype_name, None)
    if dtype is None:
        raise UnsupportedError(f"this torch has no {dtype_name}; .bits() gives stored integers")
    whole = storage(memory, offset, nbytes)
    if foreign:
        whole = swapped(whole, dtype)
    if 0 in shape:
        storage_offset = 0
    tensor = torch.empty((0,), dtype=dtype).set_(whole, storage_offset, shape, strides)
    # torch asks only whether a key is there, not what it says.
    lazy = {"conj": conjugate, "neg": negative}
    if conjugate or negative:
        torch._utils.set_tensor_metadata(tensor, {bit: True for bit in lazy if lazy[bit]})
    return tensor


def is_foreign(byteorder: str) -> bool:
    return byteorder == _ORDERS[sys.byteorder]
