"""Staging: a remote checkpoint on its way into shared memory."""

from __future__ import annotations

import atexit
import os
import threading
from weakref import WeakSet

from weightmap import _core
from weightmap._checkpoint import Checkpoint
from weightmap._remote.fetching import chunk_size, fetch_report, order_of, sums_of
from weightmap._remote.source import core_source
from weightmap._staging import StagedFile, bytes_allowed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from weightmap._remote.source import Source
    from weightmap._typing import Progress, RangeSource
    from weightmap.reports import FetchReport

# Their threads may call Python, which is not there any more at the end of the interpreter.
_running: WeakSet[Staging] = WeakSet()


class Staging:
    """A staged copy on its way: what stage() returns, and a context manager.

    Any thread may call it, and several may wait at once; a forked child may not. Leaving a `with`
    block cancels what has not arrived, and waits for reads that have begun. Tensors that wait() returned
    keep the memory, and the staged file of finish() is there on its own.
    """

    def __init__(self, staging: _core.Staging, name: str, progress: Progress | None) -> None:
        self._staging = staging
        self._name = name
        self._progress = progress
        self._process = os.getpid()
        self._finish = threading.Lock()
        self._staged: StagedFile | None = None
        _running.add(self)

    @property
    def checkpoint(self) -> Checkpoint:
        """Names, shapes, dtypes and all else that is metadata. The bytes of its tensors are not to
        be had by it: those of wait(), or of weightmap.open(staging.finish()), have them."""
        return Checkpoint(self._staging.checkpoint(), self._name)

    def wait(self, name: str) -> _core.Tensor:
        """The tensor, once its bytes have come and their sum was compared; they come before others.

        Raises what the fetch failed with. The GIL is released meanwhile. Ctrl-C cancels the staging.
        """
        return self._staging.wait(name)

    def finish(self) -> StagedFile:
        """Waits for everything, and returns the staged file, as weightmap.stage() of a path does.

        Calls `progress` in this thread. What that raises, and Ctrl-C, cancels the staging.
        """
        with self._finish:
            if self._staged is None:
                self._staged = StagedFile(self._staging.finish(self._progress))
                _running.discard(self)
            return self._staged

    def cancel(self) -> None:
        """Lets no more bytes come; who waits gets an error. What finish() returned stays."""
        self._staging.cancel()

    @property
    def report(self) -> FetchReport:
        """What came so far."""
        return fetch_report(self._staging.report())

    def __enter__(self) -> Staging:
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop()

    def _stop(self) -> None:
        if os.getpid() != self._process:
            return
        self.cancel()
        with self._finish:  # who is in it comes out now
            self._staging.stop()

    def __repr__(self) -> str:
        return f"<weightmap.remote.Staging of {self._name}>"


@atexit.register
def _stop_all() -> None:
    for staging in list(_running):
        staging._stop()


def stage(
    source: str | Source | RangeSource,
    *,
    order: Iterable[str] = (),
    name: str = "",
    budget_bytes: int | None = None,
    verify: bool = True,
    chunk_bytes: int | None = None,
    connections: int = 0,
    sha256: str | None = None,
    require_digest: bool = False,
    unproven: bool = False,
    progress: Progress | None = None,
) -> Staging:
    """Brings a remote checkpoint into shared memory: metadata first, which is there on return.

        with weightmap.remote.stage("https://host/model.safetensors") as staging:
            embedding = staging.wait("embed.weight").torch()   # while the rest comes
            staged = staging.finish()
        checkpoint = weightmap.open(staged)

    source: a URL, a Source, or an object of your own, as weightmap.remote's documentation has it.
    order: names of tensors or patterns, in the order in which they are needed; then the rest.
    name, budget_bytes: as of weightmap.stage().
    verify: compare the CRC-32 of each storage of a zip archive once it has come.
    chunk_bytes: what one request asks for, rounded up to 2 MiB. None: 16 MiB.
    connections: reads on their way at a time; 0: 16 of a source of one's own, and up to 64 of a URL.
    sha256: of the file, in hexadecimal digits; finish() compares it before the copy is there. None:
        what the store says of it, if it does.
    require_digest: refuse a file whose SHA-256 neither of them says.
    unproven: take a URL of a server that names no version, as open_url() has it.
    progress: is called by finish() with the bytes that have come and the bytes in all.

    Raises weightmap.Error. The GIL is released meanwhile, and the fetch goes on in threads of its
    own.

    Any thread may call it, and a forked child.
    """
    opened = core_source(source, connections, unproven)
    staging = _core.start_staging(
        opened,
        order_of(order),
        verify,
        chunk_size(chunk_bytes),
        os.fsencode(name),
        bytes_allowed("budget_bytes", budget_bytes),
        sums_of(sha256),
        require_digest,
    )
    return Staging(staging, os.fsdecode(staging.checkpoint().file()), progress)
