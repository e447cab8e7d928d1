"""What a node has in /dev/shm for a fleet."""

from __future__ import annotations

import contextlib
import glob
import hashlib
import os
import re

from weightmap._errors import InvalidArgumentError
from weightmap._ray.copy import SHARED_MEMORY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from weightmap._ray.records import Version


def checked_name(name: str) -> str:
    """Of a fleet."""
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,100}", name):
        raise InvalidArgumentError(f"{name!r} is not up to 100 letters, digits, '.', '_' and '-'")
    return name


class NodeFiles:
    """weightmap-FLEET@KIND@NODE, of these kinds, where no fleet's name has an "@":

    GENERATION-DIGEST: a copy, which is whole and was proven before it got this name.
    current: a symbolic link to the copy that is to be used.
    link-DIGEST: a symbolic link to a path that is kept a link to the current copy.

    They outlive the keeper, and are all that it has to know after a restart. Raylets that share a
    machine have files of their own.
    """

    def __init__(self, fleet: str, node: str) -> None:
        self._begin = f"{SHARED_MEMORY}/weightmap-{fleet}@"
        self._node = node

    def copy_of(self, version: Version) -> str:
        return self._path(version.key)

    def has(self, version: Version) -> bool:
        return _is_own(self.copy_of(version))

    def current(self) -> str | None:
        """The path of the copy to be used."""
        link = self._path("current")
        try:
            target = os.readlink(link) if _is_own(link) else ""
        except FileNotFoundError:  # since just now
            return None
        return target if _is_own(target) else None

    def current_generation(self) -> int:
        """0: there is none."""
        current = self.current()
        return 0 if current is None else self._generation_of(current)

    def point_to(self, version: Version) -> None:
        """To a copy that is here. Whoever has another one mapped keeps it."""
        _replace_link(self._path("current"), self.copy_of(version))
        for kept in self._links():
            self._point(os.readlink(kept))

    def point_nowhere(self) -> None:
        _remove([self._path("current")])

    def keep_link(self, path: str) -> None:
        """Has the path be a link to the current copy, from now on."""
        if os.path.lexists(path) and not self._is_ours(path):
            raise InvalidArgumentError("is there already, and is no link to a copy", file=path)
        digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:12]
        _replace_link(self._path(f"link-{digest}"), path)
        self._point(path)

    def remove_copies(self, before: int) -> None:
        """Of older generations."""
        _remove(path for path in self._copies() if self._generation_of(path) < before)

    def remove(self, version: Version) -> None:
        _remove([self.copy_of(version)])

    def remove_all(self) -> None:
        for kept in self._links():
            if self._is_ours(os.readlink(kept)):
                _remove([os.readlink(kept)])
        _remove(self._all("*"))

    def _point(self, path: str) -> None:
        current = self.current()
        if current is not None:
            _replace_link(path, current)

    def _is_ours(self, path: str) -> bool:
        return os.path.islink(path) and os.readlink(path).startswith(self._begin)

    def _path(self, kind: str) -> str:
        return f"{self._begin}{kind}@{self._node}"

    def _all(self, kind: str) -> list[str]:
        return glob.glob(f"{glob.escape(self._begin)}{kind}@{glob.escape(self._node)}")

    def _links(self) -> list[str]:
        return [path for path in self._all("link-*") if _is_own(path)]

    def _copies(self) -> list[str]:
        return self._all("[0-9]*-*")

    def _generation_of(self, copy: str) -> int:
        return int(copy[len(self._begin) :].partition("-")[0])


def _is_own(path: str) -> bool:
    """/dev/shm is open to all users."""
    try:
        return os.lstat(path).st_uid == os.geteuid()
    except FileNotFoundError:
        return False


def _replace_link(path: str, target: str) -> None:
    """Atomically: who looks at the path sees the old link or the new one."""
    new = f"{path}.new-{os.getpid()}"
    _remove([new])
    os.symlink(target, new)
    os.replace(new, path)


def _remove(paths: Iterable[str]) -> None:
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
