"""Arrays of numpy, and what speaks DLPack, as values that are to be written."""

from __future__ import annotations

import math
import os
import sys

from weightmap import config
from weightmap._errors import LimitExceededError, UnsupportedError
from weightmap._saving.names import PLAIN_DTYPES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from weightmap._saving.values import Made, Values

_CPU = 1  # DLPack's device type
_MOST_GAPS = 2  # as many bytes as elements have, and no more, may lie between them
# Types whose elements are one element of torch each, by their names.
DTYPES = frozenset(PLAIN_DTYPES) - {"complex32"}  # which numpy has not


class Arrays:
    """Teaches `values` what arrays are: tensors. Imports nothing that is not imported already."""

    def __init__(self, values: Values, is_reserved: Callable[[], bool]) -> None:
        self._values = values
        self._is_reserved = is_reserved
        self._kept: list[Any] = []  # so that no id is used twice

    def maker_of(self, kind: type) -> Callable[[Any], Made] | None:
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            if kind in (numpy.ndarray, numpy.memmap):
                return self._array
            if issubclass(kind, numpy.generic):
                return self._scalar
            if issubclass(kind, numpy.ndarray):
                return None
        if hasattr(kind, "__dlpack__") and hasattr(kind, "__dlpack_device__"):
            return self._exchanged
        return None

    def _array(self, thing: Any) -> int:
        import numpy

        name = thing.dtype.name
        if name not in DTYPES:
            raise UnsupportedError(f"is an array of {thing.dtype}, for which torch has no type")
        array = thing
        if not array.dtype.isnative or not _fits_a_storage(array):
            check_repeats(array.shape, [step / array.itemsize for step in array.strides])
        if not array.dtype.isnative:
            array = array.astype(array.dtype.newbyteorder("="))
        if not _fits_a_storage(array):
            array = numpy.array(array, order="C")
        size = array.itemsize
        steps = array.strides if array.size else _row_major(array.shape, size)
        reach = sum((length - 1) * step for length, step in zip(array.shape, steps)) + size
        writer = self._values.writer
        number = writer.add_storage(
            array.__array_interface__["data"][0],
            reach if array.size else 0,
            array,
            "cpu",
            self._is_reserved(),
        )
        strides = tuple([step // size for step in steps])
        made = writer.tensor(number, name, 0, array.shape, strides, False)
        return self._values.remember(thing, made)

    def _scalar(self, thing: Any) -> Made:
        """A number, or a text, of numpy as Python's of the same value."""
        value = thing.item()
        if type(value) not in (bool, int, float, complex, str, bytes):
            raise UnsupportedError(
                f"is of type numpy.{type(thing).__name__}, for which Python has no number"
            )
        self._kept.append(value)
        return self._values.begin(value)

    def _exchanged(self, thing: Any) -> Made:
        made = self._values.begin(from_dlpack(thing))
        return self._values.remember(thing, made) if type(made) is int else made


# As of mapped tensors (docs/options.md): elements for each stored one, and those besides.
_MOST_REPEATS, _FREE_ELEMENTS = 1024, 1 << 24


def check_repeats(shape: Sequence[int], strides: Sequence[float]) -> None:
    """Refuses what is to be copied whose strides repeat a few elements without a bound."""
    elements = math.prod(shape)
    if elements <= _FREE_ELEMENTS or (config.load.repeats or os.environ.get(_REPEATS)) == "any":
        return
    stored = int(sum((length - 1) * abs(step) for length, step in zip(shape, strides))) + 1
    if (elements - _FREE_ELEMENTS) // _MOST_REPEATS > stored:
        raise LimitExceededError(
            f"has {elements} elements in a storage of {stored}, and its strides may repeat each "
            f"{_MOST_REPEATS} times; the option repeats=any ({_REPEATS}) lifts this bound"
        )


_REPEATS = "WEIGHTMAP_REPEATS"


def from_dlpack(thing: Any) -> Any:
    """A tensor of torch, or an array where torch is not imported, of what speaks DLPack."""
    device = thing.__dlpack_device__()
    if device[0] != _CPU:
        raise UnsupportedError(f"is on the DLPack device {tuple(device)}, not on the CPU")
    torch = sys.modules.get("torch")
    try:
        if torch is not None:
            return torch.from_dlpack(thing)
        import numpy

        return numpy.from_dlpack(thing)
    except Exception as error:
        raise UnsupportedError(f"is not handed over by DLPack: {error}") from error


def _row_major(shape: tuple[int, ...], size: int) -> tuple[int, ...]:
    strides = []
    for length in reversed(shape):
        strides.append(size)
        size *= max(length, 1)
    return tuple(reversed(strides))


def _fits_a_storage(array: Any) -> bool:
    """Whether the strides are some that torch has, and do not leave out much."""
    if array.size == 0:
        return True
    size = array.itemsize
    if any(step < 0 or step % size for step in array.strides):
        return False
    reach = sum((length - 1) * step for length, step in zip(array.shape, array.strides)) + size
    return bool(reach <= _MOST_GAPS * array.nbytes)
