"""What becomes of files in memory when an inference engine has loaded them."""

from __future__ import annotations

import contextlib
import os

from weightmap._engines.hold_daemon import hold
from weightmap._errors import Error
from weightmap._files import evict, processes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


class EngineRelease:
    """Files that were mapped, and what is to be done with them.

    how: "keep", "node" or "hold".
    remarks: gets what could not be done.
    """

    def __init__(self, how: str, remarks: dict[str, None]) -> None:
        self._how = how
        self._remarks = remarks
        self._files: list[str] = []

    def add(self, file: str) -> None:
        self._files.append(file)

    def release(self) -> None:
        """Does what can be done now, and keeps the rest in mind for the next time."""
        if self._how == "node" and self._files:
            with contextlib.suppress(Error):  # of files that this user may not write to
                self._files = list(_not_evicted(self._files))
        elif self._how == "hold" and self._files:
            files, self._files = self._files, []
            try:
                hold(files)
            except (Error, OSError) as error:
                text = error.message if isinstance(error, Error) else str(error)
                self._remarks[f"not held: {text}"] = None


def _not_evicted(files: Iterable[str]) -> Iterable[str]:
    """Drops from the page cache what no other process has mapped."""
    files = list(files)
    mapped = processes(*files).mapped
    others = {os.path.realpath(each.file) for each in mapped if each.process != os.getpid()}
    for file in files:
        if os.path.realpath(file) in others or evict(file).cached_after != 0:
            yield file
