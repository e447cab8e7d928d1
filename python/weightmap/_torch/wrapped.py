"""Tensors that wrap others: DTensor, the quantized ones of torchao, whatever has __tensor_flatten__.

They say that they are strided and on the CPU, but their storage has no address: what they wrap has.
"""

from __future__ import annotations

import copyreg
from collections.abc import Iterator

import torch


def parts_of(tensor: torch.Tensor, name: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors that have the memory, and the names that a file of torch gives them. A tensor that
    wraps none is itself its only part."""
    waiting = [(name, tensor)]
    while waiting:
        name, each = waiting.pop()
        if hasattr(type(each), "__tensor_flatten__"):
            attributes, _ = each.__tensor_flatten__()
            place = name + _place_of_state(each)
            waiting += [(f"{place}.{key}", getattr(each, key)) for key in reversed(attributes)]
        elif isinstance(each, torch.Tensor):  # DTensor names its mesh, too
            yield name, each


def _place_of_state(wrapper: torch.Tensor) -> str:
    """The attributes are the fourth argument of a call in the file, and those of slots its second
    half: "weight.3.scale", "weight.3.1._local_tensor"."""
    slots: list[str] = copyreg._slotnames(type(wrapper))  # type: ignore[attr-defined]
    return ".3.1" if any(hasattr(wrapper, slot) for slot in slots) else ".3"


def is_wrapper(tensor: torch.Tensor) -> bool:
    return hasattr(type(tensor), "__tensor_flatten__")


def memory_of(tensor: torch.Tensor) -> list[torch.UntypedStorage]:
    """The storages on the CPU that its elements, or those of its parts, lie in."""
    found = []
    for _, part in parts_of(tensor):
        if part.device.type == "cpu" and part.layout == torch.strided and not part.is_nested:
            storage = part.untyped_storage()
            try:
                storage.data_ptr()
            except RuntimeError:  # of another class that has no memory of its own
                continue
            found.append(storage)
    return found


def addresses_of(tensor: torch.Tensor) -> tuple[int, ...]:
    return tuple(storage.data_ptr() for storage in memory_of(tensor))
