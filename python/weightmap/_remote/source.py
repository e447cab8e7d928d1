"""Source: a file by URL, and whatever else is one."""

from __future__ import annotations

from weightmap import _core
from weightmap._errors import InvalidArgumentError, UnsupportedError
from weightmap._remote.bridge import Bridge
from weightmap._urls import is_url, without_secrets

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import ModuleType
    from typing import Any

    from weightmap._typing import RangeSource


class Source:
    """A file by its URL, whose size and tag are asked for when they are needed.

    What takes a source opens it anew, for itself, and refuses another version than the one whose
    size or tag was asked for here. Any thread may use it, and reads one after the other; not a
    forked child.
    """

    def __init__(self, opened: _core.UrlSource) -> None:
        self._opened = opened

    @property
    def name(self) -> str:
        """The URL, without user, password and query."""
        return self._opened.name()

    @property
    def size(self) -> int:
        """In bytes."""
        return self._opened.size()

    @property
    def tag(self) -> str:
        """The ETag as the server sent it, with its quotes; empty if it sent none."""
        return self._opened.tag()

    def read_into(self, offset: int, buffer: Any) -> int:
        """Fills all of a writable buffer with the bytes from `offset` on, and returns its size.

        Its ranges of 8 MiB are on their way together. The GIL is released meanwhile; Ctrl-C ends it.
        """
        return self._opened.read_into(offset, buffer)

    def sibling(self, relative: str) -> Source:
        """Another file, by its name relative to the folder of this one."""
        return Source(self._opened.sibling(relative))

    @property
    def counts(self) -> dict[str, int]:
        """The requests and bytes of its own reads."""
        return self._opened.counts()

    def __repr__(self) -> str:
        return f"<weightmap.remote.Source {self.name}>"


def open_url(
    url: str,
    *,
    connections: int = 0,
    retries: int = 6,
    headers: Sequence[str] = (),
    signer: Callable[[str, bool], str] | None = None,
    deadline: float | None = None,
    unproven: bool = False,
) -> Source:
    """A file by URL: https://, http://, s3:// or file://. Asks nothing of the network yet.

    connections: requests on their way at a time. 0: begins with 16, and doubles up to 64 while the
        rate grows.
    retries: requests that may fail for one range, one after the other.
    headers: "Name: value", sent to the host of the URL and to no other after a redirect.
    signer: is called as signer(url, again) and returns the URL to request in place of `url`: a
        presigned one. `again`: the store refused the last one. It is called in a thread of the
        library, which has the GIL then.
    deadline: seconds for all that one read, metadata, stage or fetch does.
    unproven: take files of a server that names no version, neither by an ETag nor by a date; without
        it UnsupportedError, as bytes of two versions may come as one file.

    Credentials for s3:// are those of AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN,
    AWS_REGION and AWS_ENDPOINT_URL, unless there is a signer. No error and no repr has a query, a
    password or a header's value. UnsupportedError in a build without libcurl.

    Any thread may call it, and a forked child.
    """
    if deadline is not None and not deadline > 0:
        raise InvalidArgumentError(f"deadline is {deadline!r}, expected None or seconds")
    milliseconds = 0 if deadline is None else max(1, round(deadline * 1000))
    if isinstance(headers, str):
        raise TypeError("headers are a list of texts")
    opener = _curl(url).opener(url, connections, retries, milliseconds, list(headers), signer, unproven)
    return Source(_core.url_source(opener))


def _curl(url: str) -> ModuleType:
    """The module that has libcurl, which takes longer to load than the rest of the package."""
    try:
        import weightmap._curl
    except ImportError as error:
        why = "" if isinstance(error, ModuleNotFoundError) else f" ({error})"
        raise UnsupportedError(
            f"this build has no libcurl{why}, which URLs need; a source over another client does "
            "without: weightmap.remote.from_obstore(), from_fsspec(), from_pyarrow()",
            file=without_secrets(url),
        ) from None
    return weightmap._curl


_CONNECTIONS = 16  # of a source of one's own


def core_source(
    source: str | Source | RangeSource, connections: int, unproven: bool = False
) -> Any:
    """As the extension module takes it."""
    if isinstance(source, str):
        return open_url(source, connections=connections, unproven=unproven)._opened
    if unproven:
        raise InvalidArgumentError("unproven is of a URL, or of open_url()", file=source.name)
    if isinstance(source, Source):
        if connections:
            raise InvalidArgumentError(
                "the connections of a URL are chosen by open_url()", file=source.name
            )
        return source._opened
    return Bridge(source, connections or _CONNECTIONS)
