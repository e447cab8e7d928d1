"""The exceptions of weightmap: one family, with the parents that Python people catch."""

from __future__ import annotations

import errno
import os
from _pickle import UnpicklingError  # pickle's, without the rest of it

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Error(Exception):
    """What every exception of weightmap is.

    code: "io", "not_a_checkpoint", "corrupt", "unsupported", "unsafe_pickle", "limit_exceeded",
        "invalid_argument", "not_found" or "cancelled"; grouped by what can be done about it.
    message: one sentence, safe to print; text from the file is escaped and cut.
    file: the path as it was given, or None.
    file_offset: the first byte of the file that is to blame, or None.
    """

    code = "io"

    def __init__(
        self,
        message: str,
        *,
        file: str | None = None,
        file_offset: int | None = None,
        errno: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.file = file
        self.file_offset = file_offset
        self.errno = errno

    def __str__(self) -> str:
        text = self.message if self.file is None else f"{_printable(self.file)}: {self.message}"
        return text if self.file_offset is None else f"{text} (at byte {self.file_offset})"

    def __reduce__(self) -> tuple[Any, ...]:
        state = {"file": self.file, "file_offset": self.file_offset, "errno": self.errno}
        return _restore, (type(self), self.message, state)


def _printable(path: str) -> str:
    return path if path.isprintable() else "".join(
        letter if letter.isprintable() else repr(letter)[1:-1] for letter in path
    )


def _restore(kind: type[Error], message: str, state: dict[str, Any]) -> Error:
    return kind(message, **state)


class FileError(Error, OSError):
    """The operating system said no: `errno` and `strerror` are its reason."""

    code = "io"

    def __init__(
        self,
        message: str,
        *,
        file: str | None = None,
        file_offset: int | None = None,
        errno: int | None = None,
    ) -> None:
        super().__init__(message, file=file, file_offset=file_offset, errno=errno)
        self.filename = file
        self.strerror = None if errno is None else os.strerror(errno)


class MissingFileError(FileError, FileNotFoundError):
    """There is no such file."""


class FilePermissionError(FileError, PermissionError):
    """The file may not be read, or not be written to."""


def file_error(error: OSError, message: str, file: str) -> FileError:
    """What the system said, as an exception of weightmap."""
    kinds = {errno.ENOENT: MissingFileError, errno.EACCES: FilePermissionError}
    kind = kinds.get(error.errno or 0, FileError)
    return kind(f"{message}: {error.strerror}", file=file, errno=error.errno)


class NotACheckpointError(Error, ValueError):
    """The file is something else; the message names it where it can."""

    code = "not_a_checkpoint"


class CorruptError(Error, ValueError):
    """The file contradicts itself or ends early: fetch it again."""

    code = "corrupt"


class UnsupportedError(Error, ValueError):
    """A valid file or call that asks for something this version does not do."""

    code = "unsupported"


class UnsafePickleError(Error, UnpicklingError):
    """The pickle asks for something that only running code could answer."""

    code = "unsafe_pickle"


class LimitExceededError(Error, ValueError):
    """The file would cost more than is allowed."""

    code = "limit_exceeded"


class InvalidArgumentError(Error, ValueError):
    """The call itself is wrong."""

    code = "invalid_argument"


class TensorNotFoundError(InvalidArgumentError, KeyError):
    """No tensor has this name, or more than one: then ask by path."""

    code = "not_found"


class CancelledError(Error):
    """What was waited for was cancelled: a Staging, by another thread."""

    code = "cancelled"


class MissingPackageError(UnsupportedError, ImportError):
    """An optional package is needed for this and is not installed."""


for _kind in list(vars().values()):
    if isinstance(_kind, type) and issubclass(_kind, Error):
        _kind.__module__ = "weightmap"  # where people import them from

_BY_CODE: dict[str, type[Error]] = {
    kind.code: kind
    for kind in (
        FileError,
        NotACheckpointError,
        CorruptError,
        UnsupportedError,
        UnsafePickleError,
        LimitExceededError,
        InvalidArgumentError,
        TensorNotFoundError,
        CancelledError,
    )
}
_BY_ERRNO: dict[int, type[Error]] = {
    errno.ENOENT: MissingFileError,
    errno.EACCES: FilePermissionError,
    errno.EPERM: FilePermissionError,
}


def about_file(error: Error, file: str) -> Error:
    """The error, which names `file` unless it names one already."""
    if error.file is None:
        error.file = file
    return error


def from_library(
    code: str, message: str, file_offset: int | None, file: str | None, os_error: int
) -> Error:
    """The exception for an Error of the C++ library."""
    kind = _BY_ERRNO.get(os_error, _BY_CODE[code]) if code == "io" else _BY_CODE[code]
    return kind(message, file=file, file_offset=file_offset, errno=os_error or None)
