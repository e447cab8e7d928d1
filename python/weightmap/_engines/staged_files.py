"""Copies several files into shared memory, one after the other, ahead of who consumes them."""

from __future__ import annotations

import contextlib
import os
import threading
import time

from weightmap._engines.owned_file import OwnedFile, content_of, key_of
from weightmap._engines.warming import FIRST_LOOK, LONGEST_LOOK, Cancelled, OpenedFiles
from weightmap._errors import Error
from weightmap._open import open as open_checkpoint
from weightmap._stage import stage
from weightmap._staging import StagedFile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from weightmap._checkpoint import Checkpoint
    from weightmap._engines.reading_window import ReadingWindow
    from weightmap._engines.warming import WarmingCounts

_MOST_TRIES = 5  # to open what another process has staged


class StagedFiles(OpenedFiles):
    """A thread that stages files, or finds them staged by another process; a context manager.

    Of the processes of this user that stage a file at the same time one does it. Its copy has no
    name, so nothing is left of it when the last of them has ended, in whatever way.

    window: its positions say how long the copies of this process stay open for others. Without a
        size it gets that of the two largest files.
    """

    def __init__(
        self, files: Sequence[str], window: ReadingWindow, counts: WarmingCounts
    ) -> None:
        self._files = files
        self._window = window
        self._counts = counts
        if window.size is None:
            sizes = [window.end_of(file) - window.position_of(file, 0) for file in files]
            window.size = sum(sorted(sizes)[-2:])
        self._changed = threading.Condition()
        self._answers: dict[str, Checkpoint | Error] = {}
        self._staged: dict[str, tuple[StagedFile, OwnedFile]] = {}  # that others may ask for
        self._is_waited_for = False
        self._cancelled = False
        self._thread = threading.Thread(target=self._run, name="weightmap-staging", daemon=True)
        self._thread.start()

    def open(self, file: str) -> Checkpoint:
        """Waits for it; each once. Raises weightmap.Error, also if it could not be staged."""
        began = time.perf_counter()
        with self._changed:
            self._window.advance(self._window.position_of(file, 0))
            self._is_waited_for = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: file in self._answers)
            self._is_waited_for = False
            opened = self._answers.pop(file)
        self._counts.waiting_seconds += time.perf_counter() - began
        if isinstance(opened, Error):
            raise opened
        return opened

    def leave(self, file: str) -> None:
        """The consumer has done with it."""
        with self._changed:
            self._window.advance(self._window.end_of(file))
            self._changed.notify_all()

    def _run(self) -> None:
        for file in self._files:
            began = time.perf_counter()
            try:
                self._wait_for_room(file)
                began = time.perf_counter()
                opened: Checkpoint | Error = self._obtain(file)
            except Cancelled:
                return
            except Error as error:
                opened = error
            except Exception as error:
                opened = Error(repr(error), file=file)
            self._counts.reading_seconds += time.perf_counter() - began
            with self._changed:
                self._answers[file] = opened
                self._changed.notify_all()

    def _wait_for_room(self, file: str) -> None:
        look = FIRST_LOOK
        with self._changed:
            while not self._window.has_room(self._window.end_of(file), self._is_waited_for):
                self._pause(look)
                look = min(2 * look, LONGEST_LOOK)
            slowest = self._window.slowest()
        for done in [file for file in self._staged if self._window.end_of(file) <= slowest]:
            self._forget(done)

    def _obtain(self, file: str) -> Checkpoint:
        key = key_of([file])
        name = f"stage-{key}"
        look = FIRST_LOOK
        tries = 0
        while tries < _MOST_TRIES:
            own = OwnedFile.take(name)
            if own is not None:
                return self._stage(file, key, own)
            copy = content_of(name)
            if copy:
                with contextlib.suppress(Error):  # its owner ends, or is in another container
                    opened = _opened_from_another(copy, key)
                    if content_of(name) == copy:  # so its owner has it still
                        self._counts.bytes_waited_for += os.stat(file).st_size
                        return opened
            # b"": it is being staged. None: the owner has ended, or is another load of this process.
            if copy != b"":
                tries += 1
            with self._changed:
                self._pause(look)
            look = min(2 * look, LONGEST_LOOK)
        self._counts.remarks[f"{file} staged by each process for itself"] = None
        return self._stage(file, key, None)

    def _stage(self, file: str, key: str, own: OwnedFile | None) -> Checkpoint:
        try:
            staged = stage(file, progress=self._go_on)
            self._counts.bytes_read += staged.report.file_bytes
            opened = open_checkpoint(staged, copy_on_write="small")
            if own is not None:
                own.write(_copy_of(opened, key, staged.path))
                self._staged[file] = staged, own
            return opened
        except BaseException:
            if own is not None:
                own.close()
            raise

    def _go_on(self, _done: int, _all: int) -> None:
        if self._cancelled:
            raise Cancelled

    def _pause(self, seconds: float) -> None:
        """Under the condition's lock."""
        if self._cancelled:
            raise Cancelled
        self._changed.wait(seconds)

    def _forget(self, file: str) -> None:
        staged, own = self._staged.pop(file)
        own.close()
        staged.close()

    def close(self) -> None:
        """Ends the staging; what was opened stays."""
        with self._changed:
            self._cancelled = True
            self._changed.notify_all()
        self._thread.join()
        for file in list(self._staged):
            self._forget(file)
        self._window.close()


def _copy_of(opened: Checkpoint, key: str, path: str) -> bytes:
    """What others are told of a copy. Its path alone may lead to another file: the descriptor may
    be used anew, and in another container the process is another one."""
    generation = opened.generation
    return os.fsencode(f"{generation.device} {generation.inode} {key} {path}")


def _opened_from_another(copy: bytes, key: str) -> Checkpoint:
    path = os.fsdecode(copy).split(" ", 3)[-1]
    opened = open_checkpoint(path, copy_on_write="small")
    if _copy_of(opened, key, path) != copy:
        raise Error("is not the copy that its owner told of", file=path)
    return opened
