"""Which chunks of a version are in Ray's object store, and until when."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Generic, TypeVar

    Reference = TypeVar("Reference")
else:
    from typing import Generic, TypeVar

    Reference = TypeVar("Reference")


class ChunkTable(Generic[Reference]):
    """References to chunks; an object is freed with the last reference to it.

    A chunk stays until each node that takes part has it, or until `capacity` younger ones are here:
    a node that stands still does not fill the memory of all. Who asks for it later has it read
    again.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._nodes: set[str] = set()
        self._chunks: dict[int, Reference] = {}
        self._had_by: dict[int, set[str]] = {}

    def __len__(self) -> int:
        return len(self._chunks)

    @property
    def nodes(self) -> int:
        """How many take part."""
        return len(self._nodes)

    def join(self, node: str) -> None:
        self._nodes.add(node)

    def leave(self, node: str) -> None:
        """The node has all it wants, or is no more."""
        self._nodes.discard(node)
        self._free(self._chunks)

    def get(self, index: int, node: str, read: Callable[[], Reference]) -> Reference:
        """The chunk, which is read if it is not here."""
        self.join(node)
        if index not in self._chunks:
            self._chunks[index] = read()
            self._had_by[index] = set()
            if len(self._chunks) > self._capacity:
                self._forget(next(iter(self._chunks)))
        return self._chunks[index]

    def note(self, node: str, indexes: Iterable[int]) -> None:
        """The node has these chunks, from wherever."""
        here = [index for index in indexes if index in self._chunks]
        for index in here:
            self._had_by[index].add(node)
        self._free(here)

    def _free(self, indexes: Iterable[int]) -> None:
        for index in [each for each in indexes if self._had_by[each] >= self._nodes]:
            self._forget(index)

    def _forget(self, index: int) -> None:
        del self._chunks[index], self._had_by[index]
