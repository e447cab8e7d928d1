"""Files that are open from the start of a load, and what brings those that are not cached into memory,
ahead of whoever consumes them."""

from __future__ import annotations

import threading
import time

from weightmap._errors import Error, FileError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any, TypeAlias

    from weightmap._checkpoint import Checkpoint
    from weightmap._core import Tensor
    from weightmap._engines.reading_window import ReadingWindow

    Wanted: TypeAlias = Sequence[int] | dict[int, list[Tensor]]

# Of each file so much at a time: the consumer begins as soon as the first of them is there.
_BATCH_BYTES = 256 << 20
_FEWEST = 2  # threads that read files of a server: keep a disk busy while one of them waits for it
# Less than what hung a network mount when all ranks of a node read with so many: 16.
_MOST = 8
_LEAST_GAIN = 1.1
# In seconds: between two looks at how far other processes are.
FIRST_LOOK, LONGEST_LOOK = 0.001, 0.05


class Cancelled(Exception):
    pass


class WarmingCounts:
    """What was done so far, by one or more WarmingAhead of the same load."""

    def __init__(self) -> None:
        self.cold_bytes: int | None = 0  # not cached when it was looked at; None: cannot be known
        self.bytes_read = 0  # by this process
        self.bytes_waited_for = 0  # that another process read meanwhile
        self.reading_seconds = 0.0  # in the background
        self.waiting_seconds = 0.0  # of the consumer
        self.remarks: dict[str, None] = {}  # each once, in the order in which they came up


class ReadingThreads:
    """Twice as many for the next batch, as long as the last one came faster by it.

    A server's answers take their time, so that more questions at once bring more; how many it
    takes only trying tells. Only the one reader of a node asks with more than two threads.
    """

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self.count = _FEWEST
        self._rate = 0.0  # of the last batch, in bytes per second
        self._is_settled = False

    def learn(self, was_reader: bool, size: int, seconds: float) -> None:
        """Of a batch that was read with `count` threads.

        was_reader: of all of it. Else another read, and what this process reads next, if it has
            to, it reads with two threads.
        """
        if not was_reader:
            self._begin()
        elif not self._is_settled:
            rate = size / max(seconds, 1e-9)
            if rate < _LEAST_GAIN * self._rate:
                self.count //= 2
                self._is_settled = True
            else:
                self._rate = rate
                self._is_settled = self.count == _MOST
                self.count = min(2 * self.count, _MOST)


class WarmingAhead:
    """A thread that warms checkpoints one after the other; a context manager.

    Asks first what is cached, and leaves that alone. What cannot be warmed is read when it is
    looked at, and is a remark.

    plan: checkpoints, each of one file, and the positions in it of the tensors that are wanted; a
        dict of them if only these parts of each are.
    one_reader: as of Checkpoint.warm(). Of parts each process reads its own: where two processes
        need the same pages at the same time, the page cache has them read once.
    window: is asked before each batch, and closed at the end. Without a size it gets half of what
        the first batch finds that memory has room for: the other half is for what the consumers
        take, and for pages that are used and not dropped yet.
    """

    def __init__(
        self,
        plan: Sequence[tuple[Checkpoint, Wanted]],
        one_reader: bool,
        counts: WarmingCounts,
        window: ReadingWindow | None = None,
    ) -> None:
        self._plan = plan
        self._window = window
        self._is_waited_for = False
        self._one_reader = one_reader
        self._counts = counts
        self._threads = ReadingThreads()
        self._changed = threading.Condition()
        # Which tensors of each checkpoint are not there yet. None: not looked yet.
        self._missing: list[set[int] | None] = [None] * len(plan)
        self._cancelled = False
        self._thread = threading.Thread(target=self._run, name="weightmap-warming", daemon=True)
        self._thread.start()

    def wait_for(self, position: int, index: int | None) -> None:
        """Returns when a tensor of the plan is there, or will not come.

        position: of the checkpoint in the plan.
        index: of the tensor in the checkpoint; None for all of the checkpoint.
        """
        began = time.perf_counter()
        with self._changed:
            self._advance(position, index)
            if not self._is_there(position, index):
                self._is_waited_for = True
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._is_there(position, index))
                self._is_waited_for = False
        self._counts.waiting_seconds += time.perf_counter() - began

    def _advance(self, position: int, index: int | None) -> None:
        """The consumer has done with all before this tensor."""
        if self._window is not None:
            checkpoint = self._plan[position][0]
            offset = 0 if index is None else checkpoint._core.at(index).file_offset
            self._window.advance(self._window.position_of(checkpoint.path, offset))

    def leave(self, file: str) -> None:
        """The consumer has done with a file, in whatever way."""
        with self._changed:
            if self._window is not None:
                self._window.advance(self._window.end_of(file))
            self._changed.notify_all()

    def _is_there(self, position: int, index: int | None) -> bool:
        missing = self._missing[position]
        return missing is not None and (not missing if index is None else index not in missing)

    def _run(self) -> None:
        for position, (checkpoint, wanted) in enumerate(self._plan):
            try:
                self._warm(position, checkpoint, wanted)
            except Cancelled:
                return
            except Exception as error:
                message = error.message if isinstance(error, Error) else repr(error)
                self._remark(f"not all of it was read ahead: {message}")
            finally:
                self._set_missing(position, set())

    def _set_missing(self, position: int, missing: set[int]) -> None:
        with self._changed:
            self._missing[position] = missing
            self._changed.notify_all()

    def _warm(self, position: int, checkpoint: Checkpoint, wanted: Wanted) -> None:
        cold = self._cold_tensors(checkpoint, wanted)
        missing = {tensor.index for tensor in cold}
        self._set_missing(position, set(missing))
        elects = self._one_reader and not isinstance(wanted, dict)
        is_remote = bool(cold) and elects and checkpoint._core.is_remote()
        for batch in _batches(cold):
            self._wait_for_room(checkpoint, batch)
            threads = self._threads.count if is_remote else 2
            began = time.perf_counter()
            try:
                warmed = self._read(checkpoint, batch, wanted, threads, elects)
            finally:
                self._counts.reading_seconds += time.perf_counter() - began
            self._counts.bytes_read += warmed["bytes_read" if elects else "bytes"]
            self._counts.bytes_waited_for += warmed["bytes_waited_for"]
            if warmed["takeovers"]:
                self._remark("took the reading over from another rank")
            if warmed["why_alone"]:
                self._remark(f"each process read for itself: {warmed['why_alone']}")
            if warmed["bytes_left_out"]:
                self._remark(f"not all of it fits into memory ({warmed['budget_reason']})")
            if is_remote:
                was_reader = warmed["was_reader"] and not warmed["bytes_waited_for"]
                self._threads.learn(was_reader, warmed["bytes_read"], warmed["seconds"])
            self._size_window(warmed["budget_bytes"])
            missing.difference_update(batch)
            self._set_missing(position, set(missing))

    def _read(
        self,
        checkpoint: Checkpoint,
        batch: list[int],
        wanted: Wanted,
        threads: int,
        elects: bool,
    ) -> dict[str, Any]:
        parts: list[Tensor] = []
        if isinstance(wanted, dict):
            batch, parts = [], [part for index in batch for part in wanted[index]]
        return checkpoint._core.warm(batch, parts, threads, 0, False, elects, self._go_on)

    def _wait_for_room(self, checkpoint: Checkpoint, batch: Sequence[int]) -> None:
        window = self._window
        if window is None:
            return
        last = max(map(checkpoint._core.at, batch), key=lambda tensor: tensor.file_offset)
        end = window.position_of(checkpoint.path, last.file_offset + last.nbytes)
        look = FIRST_LOOK
        with self._changed:
            while not window.has_room(end, self._is_waited_for):
                if self._cancelled:
                    raise Cancelled
                self._changed.wait(look)
                look = min(2 * look, LONGEST_LOOK)
            if window.why_alone:
                self._remark(f"the window knows of this process only: {window.why_alone}")

    def _size_window(self, budget_bytes: int) -> None:
        with self._changed:
            if self._window is not None and self._window.size is None:
                self._window.size = budget_bytes // 2

    def _cold_tensors(self, checkpoint: Checkpoint, wanted: Wanted) -> list[Tensor]:
        core = checkpoint._core
        try:
            tensors = checkpoint.residency().tensors
        except FileError:  # of a file that this user may not write to
            self._counts.cold_bytes = None
            return [core.at(index) for index in wanted]
        missing = {index: tensors[index].extent_bytes - tensors[index].cached_bytes
                   for index in wanted}
        cold = [index for index in wanted if missing[index] > 0]
        if self._counts.cold_bytes is not None:
            if isinstance(wanted, dict):  # which of the pages are cached is not looked at
                for index in cold:
                    needed = sum(part.nbytes for part in wanted[index])
                    missing[index] = min(missing[index], needed)
            # Of tensors that share their bytes once.
            at = {tensors[index].file_offset: missing[index] for index in cold}
            self._counts.cold_bytes += sum(at.values())
        return [core.at(index) for index in cold]

    def _remark(self, text: str) -> None:
        self._counts.remarks[text] = None

    def _go_on(self, _done: int, _all: int) -> None:
        if self._cancelled:
            raise Cancelled

    def close(self) -> None:
        """Ends the reading; what came stays."""
        with self._changed:
            self._cancelled = True
            self._changed.notify_all()
        self._thread.join()
        if self._window is not None:
            self._window.close()

    def __enter__(self) -> WarmingAhead:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class OpenedFiles:
    """Read when they are touched; a context manager."""

    def __init__(self, opened: Mapping[str, Checkpoint]) -> None:
        self._opened = opened

    def open(self, file: str) -> Checkpoint | None:
        """None: it was refused."""
        return self._opened.get(file)

    def wait_for(self, file: str, index: int | None) -> None:
        """Returns when a tensor, by its position in the file, or all of it may be looked at."""

    def leave(self, file: str) -> None:
        """The consumer has done with it."""

    def close(self) -> None:
        """Ends what was begun for them; tensors stay."""

    def __enter__(self) -> OpenedFiles:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class WarmedFiles(OpenedFiles):
    """Brought into memory ahead of their consumer."""

    def __init__(self, opened: Mapping[str, Checkpoint], warming: WarmingAhead) -> None:
        super().__init__(opened)
        self._warming = warming
        self._positions = {file: position for position, file in enumerate(opened)}

    def wait_for(self, file: str, index: int | None) -> None:
        self._warming.wait_for(self._positions[file], index)

    def leave(self, file: str) -> None:
        self._warming.leave(file)

    def close(self) -> None:
        self._warming.close()


def _batches(tensors: Iterable[Tensor]) -> Iterable[list[int]]:
    """Their positions in the checkpoint, in pieces of some _BATCH_BYTES."""
    batch: list[int] = []
    size = 0
    for tensor in tensors:
        batch.append(tensor.index)
        size += tensor.nbytes
        if size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
