"""A matrix of stored numbers and the rows of it that are alike, with numpy or without.

`Matrix(name, dtype, shape, stored)` reads `stored`, any buffer of rows * columns numbers, where it
lies: nothing of it is copied but the rows that are computed with at a time.
"""

from __future__ import annotations

import heapq
import math
import operator
import struct
from collections.abc import Iterator
from typing import Any

try:
    import numpy
except ImportError:
    numpy = None  # type: ignore[assignment]

BLOCK_BYTES = 2 << 20  # of float32: what numpy computes on at a time
ITEM_BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}


def is_matrix(dtype: str, shape: tuple[int, ...]) -> bool:
    """Whether it can be served: real numbers, two dimensions, at least one row."""
    return dtype in ITEM_BYTES and len(shape) == 2 and 0 not in shape


class PlainMatrix:
    """The standard library alone: slow where all rows are looked at."""

    def __init__(self, name: str, dtype: str, shape: tuple[int, int], stored: Any) -> None:
        self.name = name
        self.rows, self.columns = shape
        self._dtype = dtype
        self._stored = memoryview(stored).cast("B")

    def row(self, row: int) -> list[float]:
        size = self.columns * ITEM_BYTES[self._dtype]
        stored = self._stored[row * size : (row + 1) * size]
        if self._dtype == "bfloat16":  # the upper half of a float32
            widened = bytearray(2 * size)
            widened[2::4], widened[3::4] = stored[0::2], stored[1::2]
            return list(struct.unpack(f"<{self.columns}f", widened))
        code = {"float64": "d", "float32": "f", "float16": "e"}[self._dtype]
        return list(struct.unpack(f"<{self.columns}{code}", stored))

    def nearest(self, row: int, count: int, metric: str) -> list[tuple[int, float]]:
        """The `count` rows most like `row`, best first; equal ones in the order of the matrix.

        Rows whose score is not finite are left out.
        """
        query = self.row(row)
        length = math.hypot(*query)
        scores = (
            (other, _score(query, length, self.row(other), metric))
            for other in range(self.rows)
            if other != row
        )
        finite = (found for found in scores if math.isfinite(found[1]))
        return heapq.nsmallest(count, finite, key=lambda found: (-found[1], found[0]))


def _score(query: list[float], length: float, other: list[float], metric: str) -> float:
    product = sum(map(operator.mul, query, other))
    if metric == "dot":
        return product
    lengths = length * math.hypot(*other)
    return product / lengths if lengths else 0.0


class NumpyMatrix:
    """The same with numpy, block by block."""

    def __init__(self, name: str, dtype: str, shape: tuple[int, int], stored: Any) -> None:
        self.name = name
        self.rows, self.columns = shape
        # numpy has no bfloat16, which is the upper half of a float32: its bits can be widened.
        self._is_bfloat16 = dtype == "bfloat16"
        self._computed = numpy.float64 if dtype == "float64" else numpy.float32
        kind = "uint16" if self._is_bfloat16 else dtype
        self._stored = numpy.frombuffer(stored, numpy.dtype(kind)).reshape(shape)

    def row(self, row: int) -> list[float]:
        return self._block(row, row + 1)[0].tolist()

    def nearest(self, row: int, count: int, metric: str) -> list[tuple[int, float]]:
        """As PlainMatrix.nearest()."""
        query = self._block(row, row + 1)[0].copy()
        best_rows = numpy.empty(0, numpy.int64)
        best_scores = numpy.empty(0, query.dtype)
        with numpy.errstate(all="ignore"):
            for start, block in self._blocks():
                scores = self._scores(block, query, metric)
                wanted = numpy.isfinite(scores)
                if start <= row < start + len(block):
                    wanted[row - start] = False
                if len(best_scores) == count:
                    wanted &= scores > best_scores[-1]
                found = numpy.flatnonzero(wanted)
                best_rows = numpy.concatenate([best_rows, found + start])
                best_scores = numpy.concatenate([best_scores, scores[found]])
                order = numpy.argsort(-best_scores, kind="stable")[:count]
                best_rows, best_scores = best_rows[order], best_scores[order]
        return list(zip(best_rows.tolist(), best_scores.tolist(), strict=True))

    @staticmethod
    def _scores(block: numpy.ndarray, query: numpy.ndarray, metric: str) -> numpy.ndarray:
        products = block @ query
        if metric == "dot":
            return products
        squares = numpy.einsum("ij,ij->i", block, block) * (query @ query)
        return numpy.where(squares == 0, 0, products / numpy.sqrt(squares))

    def _blocks(self) -> Iterator[tuple[int, numpy.ndarray]]:
        """Every row once: (number of the first row, rows) of about BLOCK_BYTES."""
        step = max(1, BLOCK_BYTES // (4 * self.columns))
        for start in range(0, self.rows, step):
            yield start, self._block(start, min(start + step, self.rows))

    def _block(self, start: int, stop: int) -> numpy.ndarray:
        """Rows to compute with: the stored bytes, or a copy of these rows if of another type."""
        stored = self._stored[start:stop]
        if self._is_bfloat16:
            widened = stored.astype(numpy.uint32)
            widened <<= 16
            return widened.view(numpy.float32)
        return stored.astype(self._computed, copy=False)


Matrix = PlainMatrix if numpy is None else NumpyMatrix
