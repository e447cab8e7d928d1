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
    from weightmap._core import MappedBytes

# torch's name to numpy's, where they differ. Quantized and packed types show stored integers.
_NAMES = {
    "qint8": "int8",
    "quint8": "uint8",
    "qint32": "int32",
    "bits16": "uint16",
    **{f"int{bits}": "int8" for bits in range(1, 8)},
    **{
        name: "uint8"
        for name in (
            *(f"uint{bits}" for bits in range(1, 8)),
            *("bits8", "bits1x8", "bits2x4", "bits4x2", "quint4x2", "quint2x4"),
            "float4_e2m1fn_x2",
        )
    },
}
_ML_DTYPES = (
    "bfloat16",
    "float8_e5m2",
    "float8_e4m3fn",
    "float8_e5m2fnuz",
    "float8_e4m3fnuz",
    "float8_e8m0fnu",
)


@functools.lru_cache(maxsize=None)
def numpy_dtype(name: str, foreign: bool) -> Any:
    """The numpy.dtype of torch's `name`, of the other byte order if `foreign`."""
    if name == "complex32":
        raise UnsupportedError("numpy has no type for complex32; .bits() gives it as uint32")
    if name in _ML_DTYPES:
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
    dtype = numpy.dtype(_NAMES.get(name, name))
    return dtype.newbyteorder("S") if foreign else dtype


def view(
    name: str,
    foreign: bool,
    shape: tuple[int, ...],
    memory: MappedBytes,
    offset: int,
    strides: tuple[int, ...],
) -> Any:
    """An array over `memory`, which it keeps; read-only if that is. Strides are in bytes."""
    dtype = numpy_dtype(name, foreign)
    if 0 in shape:  # an empty view has no place, and its strides mean nothing
        array = numpy.empty(shape, dtype)
        array.flags.writeable = memory.writable
        return array
    return numpy.ndarray(shape, dtype, memory, offset, strides)
