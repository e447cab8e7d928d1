"""weightmap.replacing(): a new version of a checkpoint, without a moment in which there is none."""

from __future__ import annotations

import fcntl
import os

from weightmap import _core
from weightmap._errors import InvalidArgumentError, UnsupportedError, from_library

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from weightmap._typing import PathLike

# As weightmap/new_file.hpp names what it makes: ".NAME.weightmap-" DIGITS ".tmp", which nobody
# opens by mistake. It is a directory, so that the file in it has the very name that it will have:
# torch.save() writes that into the file.
_MARK = ".weightmap-"
_ENDING = ".tmp"
_LONGEST_BEGINNING = 200  # bytes, of at most 255


class Replacing:
    """What replacing() returns; a context manager, which may be entered once.

    any_content: what is written need not be a checkpoint.

    For one thread. The process that enters the block is to leave it; a forked child must not.
    """

    def __init__(self, path: PathLike, crc: bool = False, any_content: bool = False) -> None:
        self._shown = os.fsdecode(path)
        if "\0" in self._shown:
            raise InvalidArgumentError("a path has no NUL in it", file=self._shown)
        self._target = os.fsdecode(os.path.realpath(path))
        self._crc = crc
        self._any_content = any_content
        self._folder = ""
        self._lock = -1

    def __enter__(self) -> str:
        if self._folder:
            raise InvalidArgumentError("is being replaced by this object already", file=self._shown)
        name = os.path.basename(self._target)
        if not name or os.path.isdir(self._target):
            raise InvalidArgumentError("is not the name of a file", file=self._shown)
        try:
            for abandoned in _folders_of(self._target):
                _remove_unlocked(abandoned)
            self._make_folder()
        except OSError as error:
            self._remove()
            raise from_library(
                "io", f"cannot write beside it: {error.strerror}", None, self._shown,
                error.errno or 0,
            ) from None
        except BaseException:
            self._remove()
            raise
        return os.path.join(self._folder, name)

    def __exit__(self, kind: object, *exception: object) -> None:
        try:
            if kind is None:
                self._publish(os.path.join(self._folder, os.path.basename(self._target)))
        finally:
            self._remove()

    def _publish(self, new: str) -> None:
        if not os.path.lexists(new):
            raise InvalidArgumentError(
                "stays as it was, since nothing was written to the path that replacing() gave",
                file=self._shown,
            )
        if os.path.isdir(new):  # which would be led to, and is not there afterwards
            raise UnsupportedError(
                "is a folder of several files, which cannot be replaced at one moment: give each "
                "version a folder, and publish() that under a link",
                file=self._shown,
            )
        source, target = os.fsencode(new), os.fsencode(self._target)
        _core.publish(source, target, False, self._crc, self._any_content, False, None)

    def _make_folder(self) -> None:
        while True:
            self._folder = _beginning_of(self._target) + os.urandom(8).hex() + _ENDING
            os.mkdir(self._folder, 0o700)
            try:
                self._lock = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
                fcntl.flock(self._lock, fcntl.LOCK_SH)
            except OSError:
                pass  # it is gone already; or the file system has no locks, and nobody removes it
            # Until then another process may have found it unlocked, and removed it.
            if os.path.isdir(self._folder):
                return
            self._remove()

    def _remove(self) -> None:
        if self._folder:
            _remove_folder(self._folder)
        if self._lock >= 0:
            os.close(self._lock)
        self._folder, self._lock = "", -1


def _beginning_of(target: str) -> str:
    folder, name = os.path.split(os.fsencode(target))
    beginning = b"." + name[:_LONGEST_BEGINNING] + _MARK.encode()
    return os.fsdecode(os.path.join(folder, beginning))


def _folders_of(target: str) -> Iterator[str]:
    """What is there for new versions of it, of processes that live and of those that were killed."""
    folder, beginning = os.path.split(_beginning_of(target))
    for name in os.listdir(folder):
        if name.startswith(beginning) and name.endswith(_ENDING):
            path = os.path.join(folder, name)
            if os.path.isdir(path) and not os.path.islink(path):
                yield path


def remove_abandoned(path: PathLike) -> None:
    """What replacing() of this path has left in processes that were killed."""
    if "\0" in os.fsdecode(path):
        return
    try:
        for abandoned in _folders_of(os.fsdecode(os.path.realpath(path))):
            _remove_unlocked(abandoned)
    except OSError:
        pass  # the writing tells of a folder that is not there


def _remove_unlocked(folder: str) -> None:
    """What cannot be removed stays, as it did before."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _remove_folder(folder)
    except OSError:
        pass
    finally:
        os.close(descriptor)


def _remove_folder(folder: str) -> None:
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


def replacing(path: PathLike, *, crc: bool = False) -> Replacing:
    """Writes a new version of a checkpoint beside it, and publishes it once it is complete.

        with weightmap.replacing("model.pt") as new:
            trainer.save(new)

    For a state that you have in hand weightmap.torch.save(state, "model.pt") does all of it. If the
    block ends with an exception, or if what was written is no checkpoint, "model.pt" stays as it
    was, as it does if that has another format than the old file, or than the name promises. Tensors
    that are mapped from the old file stay valid, so they may be among what is saved.

    path: need not exist; a symbolic link stays one, and what it leads to is replaced.
    crc: compare every byte of the new file with its CRC-32 before it is published.
    """
    return Replacing(path, crc)
