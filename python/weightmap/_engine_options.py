"""What an inference engine's user may tell weightmap's loader: a dict of keys, from JSON."""

from __future__ import annotations

from weightmap._errors import InvalidArgumentError
from weightmap._record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class EngineOptions(Record):
    """The keys, with what they are by default."""

    warm: str = "auto"  # or "off"
    reader: str = "node"  # or "rank"
    upload: str = "auto"  # or "mapped", "copied"
    release: str = "keep"  # or "node"
    slices: str = "auto"  # or "on", "off"
    strict: bool = False


_ALLOWED: dict[str, tuple[Any, ...]] = {
    "warm": ("auto", "off"),
    "reader": ("node", "rank"),
    "upload": ("auto", "mapped", "copied"),
    "release": ("keep", "node"),
    "slices": ("auto", "on", "off"),
    "strict": (False, True),
}


def parse_engine_options(given: Any) -> EngineOptions:
    """InvalidArgumentError names the key that is unknown, or the value and those allowed."""
    if not isinstance(given, dict):
        raise InvalidArgumentError(f"the loader's keys are a dict, not a {type(given).__name__}")
    for key, value in given.items():
        if key not in _ALLOWED:
            raise InvalidArgumentError(
                f"the loader has no key {key!r}; it has {', '.join(_ALLOWED)}"
            )
        allowed = _ALLOWED[key]
        if type(value) is not type(allowed[0]) or value not in allowed:
            choices = " or ".join(repr(choice) for choice in allowed)
            raise InvalidArgumentError(f"{key} is {value!r}, expected {choices}")
    return EngineOptions(**given)
