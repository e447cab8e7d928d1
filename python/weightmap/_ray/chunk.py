"""A chunk on its way between nodes, and the task that reads it from the store."""

from __future__ import annotations

import functools
import pickle

import ray

from weightmap._ray.stored import read

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from weightmap._ray.stored import Stored
    from weightmap._typing import RangeSource


class Chunk:
    """Bytes, and the node that read them from the store. Ray lends the bytes out of its object store
    without a copy."""

    def __init__(self, node: str, content: Any) -> None:
        self.node = node
        self.content = content

    def __reduce_ex__(self, protocol: object) -> tuple[Any, ...]:
        return Chunk, (self.node, pickle.PickleBuffer(self.content))


@functools.lru_cache(maxsize=2)
def _source(stored: Stored) -> RangeSource:
    """Opened once by each worker, which runs one task at a time."""
    return stored.open()


def read_chunk(stored: Stored, offset: int, length: int) -> Chunk:
    """A task of Ray. It gives the same bytes whenever and wherever it is run, or fails with
    "changed", so that Ray may run it again for a chunk that was lost with its node."""
    content = bytearray(length)
    try:
        read(_source(stored), offset, memoryview(content))
    except BaseException:
        _source.cache_clear()
        raise
    return Chunk(ray.get_runtime_context().get_node_id(), content)
