"""Mapped bytes as numpy arrays. Imported when an array is wanted, not before."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from weightmap._errors import MissingPackageError, UnsupportedError

try:
    import numpy
except ImportError:
    raise MissingPackageError("arrays need the package numpy: pip install numpy") from None

if TYPE_CHECKING:
    from weightmap._core import MappedBytes, Tensor

@functools.lru_cache(maxsize=None)
def numpy_dtype(name: str, is_ml_dtype: bool, foreign: bool) -> Any:
    """The numpy.dtype of this name, or ml_dtypes' own, of the other byte order if `foreign`."""
    if not is_ml_dtype:
        dtype = numpy.dtype(name)
        return dtype.newbyteorder("S") if foreign else dtype
    try:
        import ml_dtypes
    except ImportError:
        raise MissingPackageError(
            f"numpy knows {name} only with the package ml_dtypes: pip install ml_dtypes; "
            ".bits().numpy() gives the elements as integers without it"
        ) from None
    dtype = numpy.dtype(getattr(ml_dtypes, name))
    if foreign and dtype.itemsize > 1:
        raise UnsupportedError(
            f"ml_dtypes has no {name} of the other byte order; take .bits().numpy()"
        )
    return dtype


def view(
    name: str,
    is_ml_dtype: bool,
    foreign: bool,
    shape: tuple[int, ...],
    memory: MappedBytes,
    offset: int,
    strides: tuple[int, ...],
) -> Any:
    """An array over `memory`, which it keeps; read-only if that is. Strides are in bytes."""
    dtype = numpy_dtype(name, is_ml_dtype, foreign)
    if 0 in shape:  # an empty view has no place, and its strides mean nothing
        array = numpy.empty(shape, dtype)
        array.flags.writeable = memory.writable
        return array
    buffer: Any = memory  # of a type that numpy's stubs do not know
    return numpy.ndarray(shape, dtype, buffer, offset, strides)


def dequantize(tensor: Tensor) -> Any:
    """Tensor.dequantize()."""
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
