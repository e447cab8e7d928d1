"""weightmap.watch(): whether a name stands for another version of a model by now."""

from __future__ import annotations

import os
import time

from weightmap._errors import Error, InvalidArgumentError
from weightmap._open import open

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from weightmap._typing import PathLike

    SeenFile = tuple[str, int, int, int]  # name, inode, size, and time of the last write
    Seen = tuple[str, tuple[SeenFile, ...]]  # by name, as for a file by itself


class Watch:
    """What watch() returns. Its first version is the one that is there as it is made.

        for folder in weightmap.watch("/models/llama"):
            replace(weightmap.transformers.load(folder))

    An iteration gives the path, without links, of each version that comes; it never ends, and waits
    in between. For one thread at a time.
    """

    def __init__(self, model: PathLike, interval: float) -> None:
        check_interval(interval)
        self._model = os.fsdecode(model)
        self._interval = interval
        open(self._model).close()  # what it is, or that it is nothing
        self._last = _seen(self._model)

    @property
    def path(self) -> str:
        """Of the last version that was told, without links."""
        return self._last[0]

    def changed(self) -> bool:
        """Whether another version is there, as a whole: then it is the last one that was told.

        Some calls of stat(), and after a change one open().
        """
        now = _seen(self._model)
        if now == self._last or not _opens(self._model) or now != _seen(self._model):
            return False
        self._last = now
        return True

    def wait(self, timeout: float | None = None) -> bool:
        """Waits for another version; False after `timeout` seconds without one."""
        return wait_until(self.changed, self._interval, timeout)

    def __iter__(self) -> Iterator[str]:
        while True:
            self.wait()
            yield self.path

    def __repr__(self) -> str:
        return f"<weightmap.Watch of {self._model}, at {self.path}>"


def watch(model: PathLike, *, interval: float = 1.0) -> Watch:
    """Tells when a link, a folder or a file stands for another version of a model.

    When: a process serves the present version, whatever led to it: `weightmap fetch`, `hold`,
    `publish`, a rename. Models of the hub are followed by the path of their snapshots.

    model: what weightmap.open() opens by a path. Its weights, and all other files of its folder,
        count: a new config.json is a new version.
    interval: seconds between two looks of wait() and of an iteration.

    A version that cannot be opened, or is changed while it is looked at, is not told yet. What is
    mapped of the last one stays whole, and its memory is given back with the last tensor of it.
    Raises weightmap.Error if there is no model now. Any thread may call it, and a forked child.
    """
    return Watch(model, interval)


def check_interval(interval: float) -> None:
    if not interval > 0:
        raise InvalidArgumentError(f"interval is {interval}, expected seconds above 0")


def wait_until(changed: Callable[[], bool], interval: float, timeout: float | None) -> bool:
    """Calls `changed` over and over until it is true; False after `timeout` seconds."""
    end = None if timeout is None else time.monotonic() + timeout
    while not changed():
        left = interval if end is None else min(interval, end - time.monotonic())
        if left <= 0:
            return False
        time.sleep(left)
    return True


def _opens(model: str) -> bool:
    try:
        open(model).close()
    except Error:
        return False
    return True


def _seen(model: str) -> Seen:
    path = os.path.realpath(model)
    try:
        if not os.path.isdir(path):
            return path, (seen_file("", os.stat(path)),)
        with os.scandir(path) as entries:
            return path, tuple(sorted(seen_file(each.name, each.stat()) for each in entries
                                      if each.is_file()))
    except OSError:  # it is being replaced
        return path, ()


def seen_file(name: str, status: os.stat_result) -> SeenFile:
    """What another file by this name, or other content, would not have."""
    return name, status.st_ino, status.st_size, status.st_mtime_ns
