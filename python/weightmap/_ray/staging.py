"""Brings a version into a node's memory."""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import ray
from ray.exceptions import RayError

from weightmap._errors import CancelledError
from weightmap._ray.stored import read

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from weightmap._ray.copy import Copy
    from weightmap._ray.stored import Stored
    from weightmap._ray.records import Version
    from weightmap._typing import RangeSource

    Piece = tuple[str, Any]  # the node that reads it, and the reference to what Keeper.read() returns

# Chunks on their way at a time.
_FROM_PEERS = 4
_FROM_STORE = 16
# Nodes that all ask in file order wait for the same chunk. They keep the order roughly.
_SHUFFLED = 32
_LOOK = 0.1  # seconds between two looks whether a chunk is late
_FIRST = 10.0  # seconds for the first one
_TIMES = 3


class Counts:
    """Of one staging, for status()."""

    def __init__(self) -> None:
        self.bytes_from_store = 0
        self.bytes_from_peers = 0
        self.retries = 0  # chunks that came from the store since Ray did not bring them
        self.seconds = 0.0


class Staging:
    """Threads that obtain one chunk after the other.

    pieces: the chunks in Ray's object store; None: all come from the store.
    """

    def __init__(self, version: Version, node: str, pieces: list[Piece] | None) -> None:
        self.version = version
        self.counts = Counts()
        self._node = node
        self._pieces = pieces or []
        self._ranges = version.ranges()
        self._lock = threading.Lock()  # of what is below, and the counts
        self._order = iter(self._shuffled())
        self._failure: BaseException | None = None
        self._began = time.monotonic()
        self._arrived = self._began  # when Ray brought the last piece
        self._pieces_here = 0
        self._late: set[str] = set()  # nodes whose pieces are not waited for any more

    def _shuffled(self) -> list[int]:
        indexes = range(len(self._ranges))
        if not self._pieces:
            return list(indexes)
        return sorted(indexes, key=lambda index: index + random.random() * _SHUFFLED)

    def run(self, copy: Copy) -> None:
        """Returns when all bytes are in the copy. Raises the first error of a thread."""
        threads = min(_FROM_PEERS if self._pieces else _FROM_STORE, len(self._ranges))
        with ThreadPoolExecutor(threads + 1, thread_name_prefix="weightmap") as pool:
            pool.submit(self._guarded, self._reserve, copy)
            for _ in range(threads):
                pool.submit(self._guarded, self._obtain_chunks, copy)
        self.counts.seconds = time.monotonic() - self._began
        if self._failure is not None:
            raise self._failure

    def cancel(self) -> None:
        """run() ends with an error, after the chunks that are on their way."""
        self._fail(CancelledError("the staging was cancelled", file=self.version.stored.name))

    def _guarded(self, work: Any, *arguments: Any) -> None:
        try:
            work(*arguments)
        except BaseException as error:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        with self._lock:
            self._failure = self._failure or error

    def _reserve(self, copy: Copy) -> None:
        for _ in copy.reserving():
            if self._failure is not None:
                return

    def _obtain_chunks(self, copy: Copy) -> None:
        store = _Store(self.version.stored)
        while (index := self._next()) is not None:
            offset, length = self._ranges[index]
            found = self._from_ray(*self._pieces[index]) if self._pieces else None
            reader, content = found or (self._node, store.read(offset, length))
            copy.write(offset, memoryview(content))
            with self._lock:
                self.counts.retries += bool(self._pieces) and found is None
                if reader == self._node:
                    self.counts.bytes_from_store += length
                else:
                    self.counts.bytes_from_peers += length

    def _next(self) -> int | None:
        with self._lock:
            return None if self._failure is not None else next(self._order, None)

    def _from_ray(self, node: str, reference: Any) -> tuple[str, Any] | None:
        """None: it is to be read from the store, which also tells what is wrong if something is."""
        try:
            while not ray.wait([reference], timeout=_LOOK)[0]:
                if self._failure is not None or self._is_late(node):
                    return None
            found: tuple[str, Any] = ray.get(reference, timeout=self._patience())
        except RayError:
            return None
        with self._lock:
            self._arrived = time.monotonic()
            self._pieces_here += 1
        return found

    def _is_late(self, node: str) -> bool:
        """Whether no piece came for long: what a dead node was to read would else be late piece by
        piece."""
        with self._lock:
            if time.monotonic() - self._arrived >= self._patience():
                self._late.add(node)
            return node in self._late

    def _patience(self) -> float:
        """Three times what a chunk takes on average, and `patience` seconds."""
        usual = _FIRST
        if self._pieces_here:
            usual = _TIMES * _FROM_PEERS * (self._arrived - self._began) / self._pieces_here
        return usual + self.version.patience


class _Store:
    """What one thread reads from the store, into memory that it uses again."""

    def __init__(self, stored: Stored) -> None:
        self._stored = stored
        self._source: RangeSource | None = None
        self._buffer = bytearray()

    def read(self, offset: int, length: int) -> memoryview:
        """Valid until the next call."""
        if self._source is None:
            self._source = self._stored.open()
        if len(self._buffer) < length:
            self._buffer = bytearray(length)
        content = memoryview(self._buffer)[:length]
        read(self._source, offset, content)
        return content
