"""What an inference engine's user may tell weightmap's loader: a dict of keys, from JSON."""

from __future__ import annotations

from weightmap._errors import InvalidArgumentError
from weightmap._record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Literal


class EngineOptions(Record):
    """The keys, with what they are by default."""

    warm: str = "auto"  # or "off", "stage"
    reader: str = "node"  # or "rank"
    window_bytes: int | None = None
    upload: str = "auto"  # or "mapped", "copied", "pinned"
    release: str = "keep"  # or "node", "hold"
    slices: str = "auto"  # or "on", "off"
    strict: bool = False
    access: dict[str, Literal["normal", "random"]] | None = None  # as of weightmap.open()


_ALLOWED: dict[str, tuple[Any, ...]] = {
    "warm": ("auto", "off", "stage"),
    "reader": ("node", "rank"),
    "window_bytes": (None,),
    "upload": ("auto", "mapped", "copied", "pinned"),
    "release": ("keep", "node", "hold"),
    "slices": ("auto", "on", "off"),
    "strict": (False, True),
    "access": (None,),
}


def parse_engine_options(given: Any, has_slices: bool = True) -> EngineOptions:
    """InvalidArgumentError names the key that is unknown, or the value and those allowed.

    has_slices: whether the engine has the key of that name.
    """
    keys = [key for key in _ALLOWED if has_slices or key != "slices"]
    if not isinstance(given, dict):
        raise InvalidArgumentError(f"the loader's keys are a dict, not a {type(given).__name__}")
    for key, value in given.items():
        if key not in keys:
            raise InvalidArgumentError(f"the loader has no key {key!r}; it has {', '.join(keys)}")
        allowed = _ALLOWED[key]
        if key == "window_bytes" and _is_size(value):
            continue
        if key == "access" and _is_access(value):
            continue
        if type(value) is not type(allowed[0]) or value not in allowed:
            choices = [repr(choice) for choice in allowed]
            if key == "window_bytes":
                choices.append("a number of bytes")
            if key == "access":
                choices.append("a dict of patterns and 'normal' or 'random'")
            raise InvalidArgumentError(f"{key} is {value!r}, expected {' or '.join(choices)}")
    options = EngineOptions(**given)
    if options.warm == "stage" and options.release == "hold":
        raise InvalidArgumentError(
            "release is 'hold', which keeps files in the page cache, but warm is 'stage', which "
            "reads them past it"
        )
    for key, value in (("warm", "stage"), ("release", "hold")):
        if options.access and getattr(options, key) == value:
            raise InvalidArgumentError(f"access is for parts of files, but {key} is {value!r}, "
                                       "which reads whole files")
    return options


def _is_access(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(pattern, str) and how in ("normal", "random") for pattern, how in value.items()
    )


def _is_size(value: Any) -> bool:
    return type(value) is int and value > 0
