"""What Python code that the library called has raised, as a sentence of an error."""

from __future__ import annotations

from weightmap._errors import Error
from weightmap._urls import without_secrets

_LONGEST = 500  # letters


def tell(raised: BaseException) -> tuple[str, int]:
    """The words, in which URLs have lost their secrets, and the errno, or 0."""
    import re

    said = raised.message if isinstance(raised, Error) else str(raised)
    said = re.sub(r"\w+://[^\s'\"<>]+", lambda url: without_secrets(url[0]), said)
    said = "".join(letter if letter.isprintable() else " " for letter in said[:_LONGEST])
    if not isinstance(raised, Error):
        said = f"{type(raised).__name__}: {said}" if said else type(raised).__name__
    number = getattr(raised, "errno", None)
    return said, number if isinstance(number, int) else 0
