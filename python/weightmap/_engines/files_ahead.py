"""Files that are open from the start of a load."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from weightmap._checkpoint import Checkpoint
    from weightmap._engines.warming import WarmingAhead


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
