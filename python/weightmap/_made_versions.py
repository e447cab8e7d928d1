"""The versions of one model that its followers have made on a node."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import stat
import time

from weightmap._errors import FileError, file_error
from weightmap._open import open as open_checkpoint
from weightmap._published import version_in
from weightmap._watch import seen_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from weightmap._watch import SeenFile

_RECORD = "weightmap_version.json"


class MadeVersions:
    """Folders BASE/NAME@VERSION in a folder of their own, in which nothing else is touched.

    BASE stands for the files of the model that all of them were made of: what was made of others is
    not used, and goes as any version does that nobody holds.
    """

    def __init__(self, model: str, base: str, deltas: str, place: str) -> None:
        self._name = os.path.basename(model)
        asked = "\0".join((model, os.path.realpath(deltas)))
        self._all = os.path.join(place, f"{self._name}.followed-{_short_sum(asked)}")
        self._folder = os.path.join(self._all, _short_sum(repr(_files_of(base))))
        self._known: dict[str, str] = {}  # versions by name and inode of their folders
        self._look()

    def folder_of(self, version: str) -> str:
        is_name = re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}", version)
        shown = version if is_name else hashlib.sha256(version.encode()).hexdigest()
        return os.path.join(self._folder, f"{self._name}@{shown}")

    def __contains__(self, folder: str) -> bool:
        return os.path.dirname(folder) == self._folder

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """The versions that are there: version and folder."""
        for entry in self._look():
            if entry.name.startswith(f"{self._name}@"):
                version = self._version_of(entry)
                if version:
                    yield version, entry.path

    def make_room(self, kept: set[str], patience: float, interval: float) -> None:
        """Removes the versions that no follower holds. Waits a while for those that are held."""
        self._look()
        for others in _folders_in(self._all):
            if others.path != self._folder:
                self._remove_others(others.path)
        end = time.monotonic() + patience
        while True:
            held = [entry.path for entry in self._look() if not self._remove(entry, kept)]
            if not held or time.monotonic() > end:
                return
            time.sleep(min(0.02, interval))

    def _remove_others(self, folder: str) -> None:
        """What was made of other files, as far as no follower holds it."""
        try:
            for entry in _folders_in(folder):
                self._remove(entry, set())
            os.rmdir(folder)
        except OSError:  # is not empty, or another has removed it
            pass

    def _look(self) -> list[os.DirEntry[str]]:
        """What is in the folder, which is made if it is not there."""
        try:
            os.makedirs(self._folder, exist_ok=True)
            self._check_own()
            return _folders_in(self._folder)
        except FileError:
            raise
        except OSError as error:
            raise file_error(error, "cannot use it for versions", self._folder) from None

    def _check_own(self) -> None:
        """Where others may make folders, theirs is not used, nor what a link leads to."""
        for folder in (self._all, self._folder):
            status = os.lstat(folder)
            if stat.S_ISLNK(status.st_mode):
                raise FileError("is a symbolic link, and versions are made and removed in a folder "
                                "of their own", file=folder)
            beside = os.stat(os.path.dirname(folder))
            if beside.st_mode & stat.S_IWOTH and status.st_uid != os.geteuid():
                raise FileError("is another user's, who could put other weights there", file=folder)

    def _version_of(self, entry: os.DirEntry[str]) -> str:
        """Empty for what is no whole version. One that is stays as it is."""
        key = f"{entry.name}/{entry.inode()}"
        if key not in self._known:
            recorded = os.path.isfile(os.path.join(entry.path, _RECORD))
            version = version_in(entry.path) if recorded else ""
            if not version:
                return ""
            self._known[key] = version
        return self._known[key]

    def _remove(self, entry: os.DirEntry[str], kept: set[str]) -> bool:
        """False if it is held."""
        if entry.name.startswith(f".{self._name}@"):
            return _remove_left(entry)
        if not entry.name.startswith(f"{self._name}@"):
            return True
        if entry.path in kept and self._version_of(entry):
            return True
        return _remove_version(entry)


class Hold:
    """A shared lock on a version, which ends with the object and with the process."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __del__(self) -> None:
        os.close(self._descriptor)

    @staticmethod
    def take(folder: str) -> Hold | None:
        """None if it is removed now."""
        lock = _lock(os.path.join(folder, _RECORD), os.O_RDONLY, _shared)
        return None if lock is None else Hold(lock)


def _shared(descriptor: int) -> None:
    fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)


def _exclusive(descriptor: int) -> None:
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _as_the_maker(descriptor: int) -> None:
    """apply_delta() has a lock of fcntl(), beside which those of flock() are nothing."""
    fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _lock(path: str, flags: int, take: Callable[[int], None]) -> int | None:
    """A descriptor of the file with a lock; None if it is not there, or locked otherwise."""
    try:
        descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        take(descriptor)
        if os.path.samestat(os.fstat(descriptor), os.lstat(path)):
            return descriptor
    except OSError:
        pass
    os.close(descriptor)
    return None


def _remove_version(entry: os.DirEntry[str]) -> bool:
    """By a hidden name, so that none is half there. False if it is held."""
    record = os.path.join(entry.path, _RECORD)
    descriptor = _lock(record, os.O_RDONLY, _exclusive)
    if descriptor is None and os.path.isfile(record):
        return False
    folder, name = os.path.split(entry.path)
    hidden = os.path.join(folder, f".{name}.removed-{os.getpid()}")
    try:
        os.rename(entry.path, hidden)
        _remove_all(hidden)
    except OSError:  # another has removed it
        pass
    finally:
        if descriptor is not None:
            os.close(descriptor)
    return True


def _remove_left(entry: os.DirEntry[str]) -> bool:
    """What a process that was killed has left: half removed, or half made."""
    made = entry.name.removesuffix(".weightmap-new")
    if made == entry.name:
        _remove_all(entry.path)
        return True
    lock = os.path.join(os.path.dirname(entry.path), f"{made}.weightmap-lock")
    descriptor = _lock(lock, os.O_RDWR, _as_the_maker)
    if descriptor is not None:  # who makes it has this lock
        _remove_all(entry.path)
        os.remove(lock)
        os.close(descriptor)
    elif not os.path.lexists(lock):
        _remove_all(entry.path)
    return True


def _remove_all(folder: str) -> None:
    """A version has the permissions of its base, which may be for reading only."""
    try:
        os.chmod(folder, stat.S_IRWXU)
    except OSError:  # another has removed it
        pass
    shutil.rmtree(folder, ignore_errors=True)


def _folders_in(folder: str) -> list[os.DirEntry[str]]:
    """No links to folders."""
    with os.scandir(folder) as entries:
        return [entry for entry in entries if entry.is_dir(follow_symlinks=False)]


def _short_sum(text: str) -> str:
    return hashlib.sha256(os.fsencode(text)).hexdigest()[:16]


def _files_of(folder: str) -> list[SeenFile]:
    """What tells the model in a folder from others by the same path."""
    with open_checkpoint(folder) as checkpoint:
        return [seen_file(path, os.stat(path)) for path in checkpoint.files]
