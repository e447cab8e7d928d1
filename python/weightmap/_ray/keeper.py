"""The actor that keeps a fleet's copy on a node."""

from __future__ import annotations

import pickle
import threading

import ray

from weightmap._errors import CancelledError, Error, FileError
from weightmap._open import open as open_checkpoint
from weightmap._ray.copy import Copy
from weightmap._ray.node_files import NodeFiles
from weightmap._ray.records import NodeStatus
from weightmap._ray.staging import Counts, Staging
from weightmap._ray.stored import read

TYPE_CHECKING = False
if TYPE_CHECKING:
    from weightmap._ray.records import Version
    from weightmap._ray.staging import Piece
    from weightmap._typing import RangeSource

READERS = 4  # threads that read pieces for all nodes


class Keeper:
    """Its calls run in threads, at the same time. It can be killed at any time: Ray starts it
    again, and what it has is in /dev/shm."""

    def __init__(self, fleet: str) -> None:
        self._node = ray.get_runtime_context().get_node_id()
        self._files = NodeFiles(fleet, self._node)
        for each in ray.nodes():
            if not each["Alive"]:
                NodeFiles(fleet, each["NodeID"]).remove_all()
        self._one_at_a_time = threading.Lock()
        self._lock = threading.Lock()  # of the files' names, and of what is below
        self._current: Version | None = None
        self._staging: Staging | None = None
        self._dropped: set[str] = set()
        self._error = ""
        self._idle: dict[str, list[RangeSource]] = {}  # of read(), by one version's key

    def has(self, version: Version) -> bool:
        """Known when what is being staged has ended."""
        with self._one_at_a_time:
            return self._files.has(version)

    @ray.method(concurrency_group="read")
    def read(self, version: Version, offset: int, length: int) -> tuple[str, pickle.PickleBuffer]:
        """The bytes, which Ray lends out of its object store without a copy, and this node."""
        content = bytearray(length)
        with self._lock:
            if version.key in self._dropped:
                raise CancelledError("the staging was cancelled", file=version.stored.name)
            if version.key not in self._idle:
                self._idle = {version.key: []}
            idle = self._idle[version.key]
            source = idle.pop() if idle else None
        source = source or version.stored.open()
        read(source, offset, memoryview(content))
        idle.append(source)
        return self._node, pickle.PickleBuffer(content)

    def stage(self, version: Version, pieces: list[Piece] | None) -> bool:
        """Returns True when a proven copy is here, and goes on if the caller dies."""
        with self._one_at_a_time:
            with self._lock:
                if self._files.has(version):
                    return True
                staging = Staging(version, self._node, pieces)
                self._staging, self._error = staging, ""
                if version.key in self._dropped:
                    staging.cancel()
            try:
                self._run(staging)
            except BaseException as error:
                self._error = str(error)
                raise
            return True

    def _run(self, staging: Staging) -> None:
        version = staging.version
        try:
            with Copy(version.stored.size) as copy:
                staging.run(copy)
                _prove(copy, version)
                with self._lock:
                    if version.key in self._dropped:
                        raise CancelledError("the staging was cancelled", file=version.stored.name)
                    copy.name(self._files.copy_of(version))
        except OSError as error:
            if isinstance(error, Error):
                raise
            raise FileError(
                f"/dev/shm: {error.strerror}", file=version.stored.name, errno=error.errno
            ) from None

    def point(self, version: Version) -> bool:
        """Makes the version the one that is used here, or none if it is not here yet: False."""
        with self._lock:
            if self._current is not None and version.generation < self._current.generation:
                return False  # a message that was late
            self._current = version
            is_here = self._files.has(version)
            if is_here:
                self._files.point_to(version)
            else:
                self._files.point_nowhere()
            self._files.remove_copies(before=version.generation)
            return is_here

    def drop(self, version: Version) -> None:
        """The version is not to come, and leaves if it is here."""
        with self._lock:
            self._dropped.add(version.key)
            if self._staging is not None and self._staging.version.key == version.key:
                self._staging.cancel()
            if self._current == version:
                self._current = None
                self._files.point_nowhere()
            self._files.remove(version)

    def link(self, path: str) -> None:
        with self._lock:
            self._files.keep_link(path)

    def release(self) -> None:
        """Removes all files of the fleet on this node."""
        with self._lock:
            if self._staging is not None:
                self._dropped.add(self._staging.version.key)
                self._staging.cancel()
            self._files.remove_all()

    def versions(self) -> tuple[Version | None, Version | None, int]:
        """For a new directory: the current version, the one that was staged last, and the greatest
        generation that was seen. A keeper that was started again knows the last only."""
        with self._lock:
            staged = None if self._staging is None else self._staging.version
            if staged is not None and (self._error or staged.key in self._dropped):
                staged = None
            generations = [each.generation for each in (self._current, staged) if each]
            return self._current, staged, max(generations, default=self._files.current_generation())

    def path(self) -> str | None:
        return self._files.current()

    def status(self) -> NodeStatus:
        with self._lock:
            generation, staging = self._files.current_generation(), self._staging
            counts = Counts() if staging is None else staging.counts
            is_newest = staging is None or generation >= staging.version.generation
            state = (
                "failed" if self._error
                else "ready" if generation and is_newest
                else "waiting" if staging is None
                else "staging"
            )
            return NodeStatus(
                node=self._node,
                state=state,
                generation=generation,
                tag="" if staging is None else staging.version.stored.tag,
                bytes_from_store=counts.bytes_from_store,
                bytes_from_peers=counts.bytes_from_peers,
                retries=counts.retries,
                seconds=counts.seconds,
                error=self._error,
            )


def _prove(copy: Copy, version: Version) -> None:
    """Raises weightmap.Error if it is no checkpoint, or if a checksum differs."""
    try:
        open_checkpoint(
            copy.descriptor, verify="crc" if version.verify else None, copy_on_write=False
        ).close()
    except Error as error:
        error.file = version.stored.name
        raise
