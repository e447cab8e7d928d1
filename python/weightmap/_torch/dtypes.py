"""torch's dtypes by the names that weightmap has for them."""

from __future__ import annotations

import torch

from weightmap._errors import UnsupportedError

_QUANTIZED = ("qint8", "quint8", "qint32", "quint4x2", "quint2x4")


def dtype_of(name: str) -> torch.dtype:
    if name in _QUANTIZED:
        raise UnsupportedError(
            f"a {name} tensor needs its scales, which weightmap.torch.load() puts together; "
            ".bits() gives the stored integers"
        )
    if name.startswith("opaque["):
        raise UnsupportedError(
            f"{name} tells only the size of an element, since numpy forgot its dtype; "
            'open(path, dtypes={name: "bfloat16"}) says it, and .bits() gives stored integers'
        )
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise UnsupportedError(f"this torch has no {name}; .bits() gives stored integers")
    return dtype
