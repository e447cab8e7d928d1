"""Sources of one's own as python/src/own_source.hpp calls them, and what Python code that the library
called has raised."""

from __future__ import annotations

from weightmap._errors import Error
from weightmap._urls import without_secrets

TYPE_CHECKING = False
if TYPE_CHECKING:
    from weightmap._typing import RangeSource


class Bridge:
    """Its methods are called by threads of the library, read_into() by several at once."""

    def __init__(self, source: RangeSource, connections: int) -> None:
        lacking = [
            name for name in ("name", "size", "tag", "read_into") if not hasattr(source, name)
        ]
        if lacking:
            raise TypeError(
                "a source is a URL or has name, size, tag and read_into(offset, buffer); this "
                f"{type(source).__name__} has no {', no '.join(lacking)}"
            )
        self._source = source
        self.connections = connections
        self.name: str = source.name

    @property
    def size(self) -> int:
        return self._source.size

    @property
    def tag(self) -> str:
        return self._source.tag

    def read_into(self, offset: int, memory: memoryview) -> None:
        """All of it, or an error. Nothing may keep the memory, which is not there afterwards."""
        wanted = len(memory)
        with memory:
            came = self._source.read_into(offset, memory)
        if came is not None and came != wanted:
            raise EOFError(f"read_into() answered {came!r} for the {wanted} bytes from {offset} on")

    def check(self) -> None:
        """After each range: that it was of the version of `tag`."""
        if check := getattr(self._source, "check", None):
            check()

    def sibling(self, relative: str) -> Bridge | None:
        """None if it knows no other files."""
        sibling = getattr(self._source, "sibling", None)
        return None if sibling is None else Bridge(sibling(relative), self.connections)


_LONGEST = 500  # letters


def tell(raised: BaseException) -> tuple[str, int]:
    """What was raised, as a sentence of an error: the words, in which URLs have lost their secrets, and the errno, or 0."""
    import re

    said = raised.message if isinstance(raised, Error) else str(raised)
    said = re.sub(r"\w+://[^\s'\"<>]+", lambda url: without_secrets(url[0]), said)
    said = "".join(letter if letter.isprintable() else " " for letter in said[:_LONGEST])
    if not isinstance(raised, Error):
        said = f"{type(raised).__name__}: {said}" if said else type(raised).__name__
    number = getattr(raised, "errno", None)
    return said, number if isinstance(number, int) else 0
