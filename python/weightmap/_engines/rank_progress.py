"""How far each process of this machine has come that loads the same files."""

from __future__ import annotations

import contextlib
import os
import struct

from weightmap._engines.owned_file import OwnedFile, content_of, key_of, names_with, remove_left
from weightmap._errors import Error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

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
