"""URLs where paths are taken, and what of them may be shown."""

from __future__ import annotations

import errno
import os

from weightmap._errors import MissingFileError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from weightmap._typing import PathLike

_SCHEMES = ("http", "https", "s3", "file", "gs", "az", "hf")


def is_url(text: object) -> bool:
    return isinstance(text, str) and text.partition("://")[0].lower() in _SCHEMES and "://" in text


def without_secrets(url: str) -> str:
    """Without user, password, query and fragment, any of which may be a credential."""
    scheme, mark, rest = url.partition("#")[0].partition("?")[0].partition("://")
    host, slash, path = rest.partition("/")
    return scheme + mark + host.rpartition("@")[2] + slash + path


def file_of(path: PathLike) -> bytes:
    """The path of a file as the library takes it; an error that says what to call for a URL."""
    text = os.fsdecode(path)
    if is_url(text) and not os.path.lexists(text):
        raise MissingFileError(
            "is a URL, and not a file: weightmap.remote.stage(url) brings it into shared memory, "
            "weightmap.remote.fetch(url, path) into a file",
            file=without_secrets(text),
            errno=errno.ENOENT,
        )
    return os.fsencode(path)
