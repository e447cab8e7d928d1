"""Which tensors weightmap.torch.load() may make without calling torch's rebuild functions, and when.

The answer is the same tensors (docs/python.md), so this is switched off wherever something may look
at the calls in between, or may have put functions of its own in their place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from weightmap._torch import private

_UNTYPED = ("uint16", "uint32", "uint64", "float8_e5m2", "float8_e4m3fn", "float8_e5m2fnuz",
            "float8_e4m3fnuz", "float8_e8m0fnu")
_STORAGES = {
    "FloatStorage": "float32", "HalfStorage": "float16", "BFloat16Storage": "bfloat16",
    "DoubleStorage": "float64", "LongStorage": "int64", "IntStorage": "int32",
    "ShortStorage": "int16", "CharStorage": "int8", "ByteStorage": "uint8", "BoolStorage": "bool",
    "ComplexDoubleStorage": "complex128", "ComplexFloatStorage": "complex64",
}
# What may be replaced from outside, as torch has it, and what these functions call.
_REPLACEABLE = ("_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_tensor_v3",
                "_restore_device_fake_mode", "_cpu_deserialize", "_get_restore_location",
                "default_restore_location")


class DirectTensors:
    """What python/src/direct_tensors.hpp asks for."""

    untyped_storage = torch.UntypedStorage
    dtypes = {getattr(torch, name): name for name in _UNTYPED if hasattr(torch, name)}

    def __init__(
        self, allowed: dict[str, Any], adopt: Callable[[str, Any, torch.Tensor], None]
    ) -> None:
        """`allowed`: torch's names of globals, and what they stand for."""
        self.rebuild = private._rebuild_tensor_v2
        self.rebuild_untyped = private._rebuild_tensor_v3
        self.storage_types = _storage_types(allowed)
        self.adopt = adopt


def _storage_types(allowed: dict[str, Any]) -> dict[Any, str]:
    """What stands for the types of storages, with the name of the dtype that each of them has."""
    known = {}
    for name, dtype in _STORAGES.items():
        kind = allowed.get(f"torch.{name}")
        if getattr(kind, "dtype", None) is getattr(torch, dtype):
            known[kind] = dtype
    return known


def settings(
    map_location: Any, is_foreign: bool, adopt: Callable[[str, Any, torch.Tensor], None]
) -> DirectTensors | None:
    """What one load may make directly; None if nothing."""
    if not are_allowed(map_location, is_foreign):
        return None
    return DirectTensors(private._get_allowed_globals(), adopt)


def are_allowed(map_location: Any, is_foreign: bool) -> bool:
    """Whether storages of the location "cpu" become tensors as they are, and nobody watches."""
    return (
        not is_foreign
        and _means_cpu(map_location)
        and private.detect_fake_mode(None) is None
        and not private._serialization_tls.skip_data
        and all(_is_torchs_own(name) for name in _REPLACEABLE if private.has(name))
        and _is_asked_first(private._cpu_deserialize)
    )


def _means_cpu(map_location: Any) -> bool:
    if type(map_location) is torch.device:
        return map_location == torch.device("cpu")
    return map_location is None or (type(map_location) is str and map_location == "cpu")


def _is_asked_first(restore: Any) -> bool:
    """Whether it is what decides about every storage where it is to go."""
    packages: Any = private._package_registry
    return len(packages) > 0 and packages[0][2] is restore


def _is_torchs_own(name: str) -> bool:
    """Whether this function is the one that its module defines."""
    function: Any = getattr(private, name)
    code = getattr(function, "__code__", None)
    own = vars(private.owner_of(name))
    return code is not None and code.co_name == name and function.__globals__ is own
