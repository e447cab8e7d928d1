"""How far what is read of several files may be ahead of what is used, by each process of this machine
that loads the same files."""

from __future__ import annotations

import contextlib
import os
import struct
from itertools import accumulate

from weightmap._engines.owned_file import OwnedFile, content_of, key_of, names_with, remove_left
from weightmap._errors import Error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_POSITION = struct.Struct("<Q")
_MOST_TRIES = 16


class RankProgress:
    """The position of this process in a load, in bytes, where others that load the same find it.

    What is left of one that died counts for nobody, and is removed. For one thread at a time;
    raises weightmap.Error and OSError.
    """

    def __init__(self, files: Iterable[str]) -> None:
        remove_left("load-", "stage-")  # of files that nobody may ever load again
        self._prefix = f"load-{key_of(files)}-"
        self.position = 0
        self._file = self._take()

    def _take(self) -> OwnedFile:
        for _ in range(_MOST_TRIES):
            taken = OwnedFile.take(self._prefix + os.urandom(8).hex())
            if taken is not None:
                return taken
        raise OSError("a file in the runtime directory could not be locked")

    def advance(self, position: int) -> None:
        """All before this byte is done with; never goes back."""
        if position > self.position:
            self.position = position
            self._file.write(_POSITION.pack(position))

    def slowest(self) -> int:
        """The least position of all that live, this process among them."""
        return min([self.position, *self._others()])

    def _others(self) -> Iterator[int]:
        for name in names_with(self._prefix):
            written = content_of(name)
            if written is not None:
                # One that has not begun has written nothing.
                yield _POSITION.unpack(written)[0] if len(written) == _POSITION.size else 0

    def close(self) -> None:
        """Nobody waits for this process any more."""
        self._file.close()
        with contextlib.suppress(Error, OSError):
            remove_left("load-", "stage-")


class ReadingWindow:
    """Keeps so many bytes between what is read and the slowest process that loads the same files.

    size: in bytes; None: no bound until one is known.

    A position is counted from the start of the first file. For one thread at a time.
    """

    def __init__(self, files: Sequence[str], size: int | None) -> None:
        self.size = size
        self.why_alone = ""  # why it does not know of other processes; else empty
        ends = list(accumulate(map(_size_of, files), initial=0))
        self._starts = dict(zip(files, ends))
        self._ends = dict(zip(files, ends[1:]))
        self._position = 0
        self._slowest = 0  # when it was looked at last
        self._ranks: RankProgress | None = None
        try:
            self._ranks = RankProgress(files)
        except (Error, OSError) as error:
            self._go_alone(error)

    def position_of(self, file: str, offset: int) -> int:
        return self._starts[file] + offset

    def end_of(self, file: str) -> int:
        return self._ends[file]

    def advance(self, position: int) -> None:
        """All before it is done with; never goes back."""
        self._position = max(self._position, position)
        try:
            if self._ranks is not None:
                self._ranks.advance(self._position)
        except (Error, OSError) as error:
            self._go_alone(error)

    def slowest(self) -> int:
        """The position of the slowest process."""
        try:
            self._slowest = self._position if self._ranks is None else self._ranks.slowest()
        except (Error, OSError) as error:
            self._go_alone(error)
            self._slowest = self._position
        return self._slowest

    def has_room(self, end: int, is_waited_for: bool) -> bool:
        """Whether may be read up to there.

        is_waited_for: by the consumer of this process. If no other is behind it, this is so: what
            it waits for comes, whatever the window.
        """
        if self.size is None or end - self._slowest <= self.size:
            return True
        return end - self.slowest() <= self.size or (
            is_waited_for and self._slowest == self._position
        )

    def _go_alone(self, error: Exception) -> None:
        self.why_alone = error.message if isinstance(error, Error) else str(error)
        self.close()

    def close(self) -> None:
        """Nobody waits for this process any more."""
        if self._ranks is not None:
            self._ranks.close()
            self._ranks = None


def _size_of(file: str) -> int:
    try:
        return os.stat(file).st_size
    except OSError:  # the engine's own loader says so
        return 0
