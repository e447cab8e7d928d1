"""The state dict of a TorchScript archive, without its code."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

from weightmap import _core
from weightmap._torch import private
from weightmap._torch.dtypes import dtype_of
from weightmap._torch.weights_only import WeightsOnlyMachine

import torch

# torch/jit/_pickle.py: calls that say the type of a list or dict, their first argument.
_TYPE_TAGS = ("restore_type_tag", "build_intlist", "build_tensorlist", "build_doublelist",
              "build_boollist")

# Storages that only TorchScript has classes for, by the names of c10::ScalarType.
_STORAGES = {
    "ComplexHalfStorage": "complex32",
    "UInt16Storage": "uint16",
    "UInt32Storage": "uint32",
    "UInt64Storage": "uint64",
    "Float8_e5m2Storage": "float8_e5m2",
    "Float8_e4m3fnStorage": "float8_e4m3fn",
    "Float8_e5m2fnuzStorage": "float8_e5m2fnuz",
    "Float8_e4m3fnuzStorage": "float8_e4m3fnuz",
    "Float8_e8m0fnuStorage": "float8_e8m0fnu",
    "Float4_e2m1fn_x2Storage": "float4_e2m1fn_x2",
    "Bits1x8Storage": "bits1x8",
    "Bits2x4Storage": "bits2x4",
    "Bits4x2Storage": "bits4x2",
    "Bits8Storage": "bits8",
    "Bits16Storage": "bits16",
}

# c10/core/Layout.h
_LAYOUTS = {
    1: torch.sparse_coo,
    2: torch.sparse_csr,
    4: torch.sparse_csc,
    5: torch.sparse_bsr,
    6: torch.sparse_bsc,
}


class _Storage:
    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype


class _Class:
    """A class of the archive's code. To call it is how an enum is made, of its value."""

    def __call__(self, *_: Any) -> _Object:
        return _Object()


class _Object:
    """An object of one, with the attributes that the archive gives it."""

    attributes: dict[str, Any]

    def __init__(self) -> None:
        self.attributes = {}


class ScriptMachine(WeightsOnlyMachine):
    """Makes tensors as torch does and objects of the archive's classes as plain attributes."""

    def __init__(self, persistent: Callable[[Any], Any], is_foreign: bool) -> None:
        super().__init__(persistent, is_foreign, None)

    def find_global(self, module: str, name: str) -> Any:
        if module == "__torch__" or module.startswith("__torch__."):
            return _Class()
        if module == "torch.jit._pickle" and name in _TYPE_TAGS:
            return _unwrapped
        if module == "torch" and name in _STORAGES:
            return _Storage(dtype_of(_STORAGES[name]))
        if module == "torch._utils" and name == "_rebuild_sparse_tensor":
            return _rebuild_sparse
        return super().find_global(module, name)

    def create(self, type_: Any, arguments: Any) -> Any:
        return _Object() if isinstance(type_, _Class) else super().create(type_, arguments)

    def build(self, target: Any, state: Any) -> None:
        if not isinstance(target, _Object):
            super().build(target, state)
        elif isinstance(state, dict):
            target.attributes = state


def _unwrapped(value: Any, *_: Any) -> Any:
    return value


def _rebuild_sparse(layout: int, size: Any, _: bool, *parts_and_hooks: Any) -> torch.Tensor:
    *parts, _hooks = parts_and_hooks
    return private._rebuild_sparse_tensor(_LAYOUTS[layout], (*parts, size))


def state_dict(
    opened: _core.Checkpoint, persistent: Callable[[Any], Any], is_foreign: bool
) -> OrderedDict[str, torch.Tensor]:
    """What torch.jit.load(path).state_dict() has: the parameters and buffers, by their names."""
    module = opened.evaluate(ScriptMachine(persistent, is_foreign), ("data",))
    names = _state_names(opened)
    return OrderedDict(
        (name, value.detach()) for name, value in _tensors(module) if name in names
    )


def _state_names(opened: _core.Checkpoint) -> set[str]:
    tensors = (opened.at(index) for index in range(len(opened)))
    names = {tensor.name for tensor in tensors if tensor.is_parameter or tensor.is_buffer}
    composed = opened.composed()
    return names | {each["name"] for each in composed if each["is_parameter"] or each["is_buffer"]}


def _tensors(module: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """An object's own tensors before those of the objects in it, as torch has them."""
    waiting = [("", module)]
    while waiting:
        prefix, holder = waiting.pop()
        inner = []
        for name, value in holder.attributes.items():
            if isinstance(value, torch.Tensor):
                yield prefix + name, value
            elif isinstance(value, _Object):
                inner.append((f"{prefix}{name}.", value))
        waiting += reversed(inner)
