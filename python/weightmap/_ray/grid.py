"""Cuts a file into the chunks in which it travels."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


class ChunkGrid:
    """The chunks of a file of `size` bytes, numbered from its beginning; the last may be shorter."""

    def __init__(self, size: int, chunk_bytes: int) -> None:
        self._size = size
        self._chunk_bytes = chunk_bytes

    def __len__(self) -> int:
        return -(-self._size // self._chunk_bytes)

    def range_of(self, index: int) -> tuple[int, int]:
        """The offset of a chunk in the file and its length, in bytes."""
        offset = index * self._chunk_bytes
        return offset, min(self._chunk_bytes, self._size - offset)

    def covering(self, ranges: Iterable[tuple[int, int]]) -> list[int]:
        """The chunks in which these (offset, length) lie, in their order, each once."""
        found: dict[int, None] = {}
        for offset, length in ranges:
            first = offset // self._chunk_bytes
            last = (offset + length - 1) // self._chunk_bytes if length else first - 1
            found.update(dict.fromkeys(range(first, last + 1)))
        return list(found)

    def in_order(self, first: Iterable[int]) -> list[int]:
        """All chunks: `first`, then the rest in file order."""
        return list(dict.fromkeys([*first, *range(len(self))]))
