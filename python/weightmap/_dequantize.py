"""Tensor.dequantize()."""

from __future__ import annotations

from weightmap._errors import Error, UnsupportedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from weightmap._core import Tensor


def dequantize(tensor: Tensor) -> Any:
    elements, _ = tensor.block
    if elements == 1:
        return tensor.__array__("float32", copy=True)
    if tensor.byteorder == "foreign":
        raise UnsupportedError(
            f"tensor {tensor.name!r} has blocks in the other byte order, whose fields are not "
            "converted; bits() gives their bytes"
        )
    try:
        import gguf
    except ImportError as error:
        text = f"the values of {tensor.dtype} are computed by the package gguf: pip install gguf"
        raise ImportError(text) from error
    try:
        kind = gguf.GGMLQuantizationType[tensor.dtype.upper()]
        return gguf.quants.dequantize(tensor.bits().__array__(copy=True), kind)
    except (KeyError, NotImplementedError) as error:
        text = f"the package gguf does not compute the values of {tensor.dtype}"
        raise UnsupportedError(text) from error
