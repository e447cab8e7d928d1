"""Names that torch.load(weights_only=True) reads: others are refused before anything is written."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_STORAGES = (
    "BFloat16", "Bool", "Byte", "Char", "ComplexDouble", "ComplexFloat", "Double", "Float", "Half",
    "Int", "Long", "QInt32", "QInt8", "QUInt2x4", "QUInt4x2", "QUInt8", "Short",
)
# Of tensors that are elements of a storage, and nothing more.
PLAIN_DTYPES = (
    "bfloat16", "bool", "complex128", "complex32", "complex64", "float16", "float32", "float64",
    "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "int16",
    "int32", "int64", "int8", "uint16", "uint32", "uint64", "uint8",
)
_DTYPES = (*PLAIN_DTYPES, "qint32", "qint8", "quint2x4", "quint4x2", "quint8")
_REBUILD = (
    "_rebuild_device_tensor_from_cpu_tensor", "_rebuild_meta_tensor_no_storage",
    "_rebuild_nested_tensor", "_rebuild_parameter", "_rebuild_parameter_with_state",
    "_rebuild_qtensor", "_rebuild_sparse_tensor", "_rebuild_tensor", "_rebuild_tensor_v2",
    "_rebuild_tensor_v3",
)
# What holds for torch 2.7 and later; asked only where no torch is imported.
BUILT_IN = frozenset(
    {
        "collections.OrderedDict", "collections.Counter", "_codecs.encode", "builtins.bytearray",
        "builtins.set", "builtins.complex", "torch.Size", "torch.device", "torch.Tensor",
        "torch.nn.parameter.Parameter", "torch.serialization._get_layout",
        "torch.storage.UntypedStorage", "torch._tensor._rebuild_from_type_v2",
        "torch.per_tensor_affine", "torch.per_channel_affine",
    }
    | {f"torch.{storage}Storage" for storage in _STORAGES}
    | {f"torch.{dtype}" for dtype in _DTYPES}
    | {f"torch._utils.{function}" for function in _REBUILD}
)


class SavableNames:
    """Of the moment: with what is registered as safe in torch."""

    def __init__(self) -> None:
        self._classes: tuple[Any, ...] = ()
        self._names: Any = BUILT_IN
        if "torch" in sys.modules:
            from weightmap._torch import private

            allowed = {**private._get_user_allowed_globals(), **private._get_allowed_globals()}
            self._names = allowed
            self._classes = tuple(thing for thing in allowed.values() if isinstance(thing, type))

    def __contains__(self, path: str) -> bool:
        return path in self._names

    def may_have_state(self, kind: type) -> bool:
        """Whether torch gives an object of this class its attributes back."""
        name = f"{kind.__module__}.{kind.__qualname__}"
        return name == "collections.OrderedDict" or any(kind is known for known in self._classes)
