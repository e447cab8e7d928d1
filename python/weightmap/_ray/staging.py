"""Brings a version into a node's memory."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayError

from weightmap._errors import CancelledError
from weightmap._ray.deadline import Deadline
from weightmap._ray.stored import read
from weightmap._ray.window import RandomWindow

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from weightmap._ray.chunk import Chunk
    from weightmap._ray.copy import Copy
    from weightmap._ray.stored import Stored
    from weightmap._ray.version import Version
    from weightmap._typing import RangeSource

# Chunks on their way at a time. By peers each is a task of Ray at first, in a process of its own.
_FROM_PEERS = 4
_FROM_STORE = 16
_LOOK = 0.1  # seconds between two looks at the deadline


class Counts:
    """Of one staging, for status()."""

    def __init__(self) -> None:
        self.bytes_from_store = 0
        self.bytes_from_peers = 0
        self.retries = 0  # chunks that came from the store since no peer gave them in time
        self.seconds = 0.0


class Staging:
    """Threads that obtain one chunk after the other, from peers or from the store.

    directory: the actor that has chunks read; None: the store alone.
    """

    def __init__(self, version: Version, node: str, directory: Any) -> None:
        self.version = version
        self.counts = Counts()
        self._node = node
        self._directory = directory
        self._asked_for = version.without_order()
        self._grid = version.grid
        self._deadline = Deadline(version.patience)
        self._window = RandomWindow(self._grid.in_order(version.first))
        self._lock = threading.Lock()  # of the window, the counts and what is below
        self._arrived: list[int] = []  # what the directory was not told of yet
        self._failure: BaseException | None = None

    def run(self, copy: Copy) -> None:
        """Returns when all bytes are in the copy. Raises the first error of a thread."""
        began = time.monotonic()
        threads = _FROM_STORE if self._directory is None else _FROM_PEERS
        with ThreadPoolExecutor(threads + 1, thread_name_prefix="weightmap") as pool:
            pool.submit(self._guarded, self._reserve, copy)
            for _ in range(min(threads, len(self._grid))):
                pool.submit(self._guarded, self._obtain_chunks, copy)
        self.counts.seconds = time.monotonic() - began
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
            offset, length = self._grid.range_of(index)
            chunk = self._from_peers(index)
            content = store.read(offset, length) if chunk is None else memoryview(chunk.content)
            copy.write(offset, content)
            self._note(index, length, chunk)

    def _next(self) -> int | None:
        with self._lock:
            return None if self._failure is not None else self._window.next()

    def _note(self, index: int, length: int, chunk: Chunk | None) -> None:
        with self._lock:
            self._arrived.append(index)
            if chunk is None or chunk.node == self._node:
                self.counts.bytes_from_store += length
            else:
                self.counts.bytes_from_peers += length

    def _from_peers(self, index: int) -> Chunk | None:
        """None: it is to be read from the store, which also tells what is wrong if something is."""
        directory = self._directory
        if directory is None:
            return None
        try:
            return self._from_object_store(directory, index)
        except RayError as error:
            with self._lock:
                self.counts.retries += 1
                # A directory that died: the store has the rest. Late: one chunk only.
                if isinstance(error, RayActorError):
                    self._directory = None
            return None

    def _from_object_store(self, directory: Any, index: int) -> Chunk:
        with self._lock:
            arrived, self._arrived = self._arrived, []
        began = time.monotonic()
        asked = directory.chunk.remote(self._asked_for, index, self._node, arrived)
        reference, reader = ray.get(asked, timeout=self._deadline.limit())
        peer = None if reader == self._node else reader
        while not ray.wait([reference], timeout=_LOOK)[0]:
            if self._deadline.is_over(peer, began, time.monotonic()):
                raise GetTimeoutError
        chunk: Chunk = ray.get(reference, timeout=self._deadline.limit())
        self._deadline.note(time.monotonic() - began)
        return chunk


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
