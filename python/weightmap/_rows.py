"""Rows of tables that are larger than memory."""

from __future__ import annotations

import array
from typing import TYPE_CHECKING

from weightmap._errors import InvalidArgumentError, UnsupportedError

if TYPE_CHECKING:
    from typing import Any

    from weightmap import _core
    from weightmap._chunked import ChunkedTensor
    from weightmap._core import Tensor


class Rows:
    """Rows of a table, or of tables that belong together, by their numbers: Checkpoint.rows().

    A call reads exactly the pages of the rows, all of them at once, and copies the rows out. `ids`
    are integers: a list, a numpy array or a torch tensor of any shape; an id may occur any number
    of times.

    InvalidArgumentError for an id that is no row; FileError if a file was truncated or written to
    since it was opened. Safe to use from any thread; others run meanwhile.
    """

    __slots__ = ("_core", "_tables")

    def __init__(self, core: _core.Rows, tables: list[Tensor | ChunkedTensor]) -> None:
        self._core = core
        self._tables = tables

    def __len__(self) -> int:
        """The number of rows of each table."""
        return self._core.count()

    def gather(self, ids: Any, out: Any) -> None:
        """Copies the rows into a writable buffer of as many rows as there are ids; of several
        tables into a list of such, one for each."""
        self._core.gather(_int64(ids)[0], list(out) if isinstance(out, (list, tuple)) else [out])

    def numpy(self, ids: Any) -> Any:
        """The rows as a new numpy array of the shape of `ids` and that of a row; of several tables
        a tuple of such."""
        import numpy

        from weightmap._core import numpy_word
        from weightmap._numpy import numpy_dtype

        numbers, shape = _int64(ids)
        made = []
        for table in self._tables:
            word, is_ml_dtype = numpy_word(table.dtype)
            if not word or table.block[0] > 1:
                raise _no_type("numpy", table.dtype)
            made.append(numpy.empty(shape + table.shape[1:], numpy_dtype(word, is_ml_dtype, False)))
        self._core.gather(numbers, [each.reshape(-1).view("uint8") for each in made])
        return made[0] if len(made) == 1 else tuple(made)

    def torch(self, ids: Any) -> Any:
        """The rows as a new torch tensor of the shape of `ids` and that of a row; of several tables
        a tuple of such."""
        import torch

        from weightmap._torch.dtypes import dtype_of

        numbers, shape = _int64(ids)
        memory, made = [], []
        for number, table in enumerate(self._tables):
            if table.block[0] > 1:
                raise _no_type("torch", table.dtype)
            memory.append(bytearray(len(memoryview(numbers)) * self._core.row_bytes(number)))
        self._core.gather(numbers, memory)
        for table, each in zip(self._tables, memory):
            dtype, whole = dtype_of(table.dtype), shape + table.shape[1:]
            made.append(torch.frombuffer(each, dtype=dtype).reshape(whole) if each
                        else torch.empty(whole, dtype=dtype))
        return made[0] if len(made) == 1 else tuple(made)


def _no_type(library: str, dtype: str) -> UnsupportedError:
    return UnsupportedError(f"{library} has no type for {dtype}; .gather() has its bytes")


def _int64(ids: Any) -> tuple[Any, tuple[int, ...]]:
    """Contiguous memory of the numbers, and their shape."""
    if isinstance(ids, (list, tuple, range)):
        return array.array("q", ids), (len(ids),)
    if type(ids).__module__.partition(".")[0] == "torch":
        import torch

        if ids.dtype.is_floating_point or ids.dtype.is_complex or ids.dtype == torch.bool:
            raise InvalidArgumentError(f"ids are integers, not {ids.dtype}")
        return ids.detach().to("cpu", torch.int64).contiguous().view(-1).numpy(), tuple(ids.shape)
    import numpy

    given = numpy.asarray(ids)
    if given.dtype.kind not in "iu":
        raise InvalidArgumentError(f"ids are integers, not {given.dtype}")
    return numpy.ascontiguousarray(given, numpy.int64).reshape(-1), given.shape
