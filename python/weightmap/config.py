"""Defaults for every open, process-wide or for a block of code.

    weightmap.config.load.verify = "crc"            # from now on, everywhere
    with weightmap.config.override("load.verify", "crc"):
        weightmap.open(path)                        # only here, only in this thread or task

Each option of weightmap.open() is a setting of the same name and takes the same values, but
`sharing`, which is load.mmap_flags here: mmap.MAP_SHARED or mmap.MAP_PRIVATE. A setting that is
None leaves the choice to its environment variable and then to the built-in default, and an argument
of the call goes before all of them:

    argument > override() > attribute > environment variable > built-in default
"""

from __future__ import annotations

import contextvars
import mmap

from weightmap import _core
from weightmap._errors import InvalidArgumentError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from contextlib import AbstractContextManager
    from typing import Any

_FLAGS = {"shared": mmap.MAP_SHARED, "private": mmap.MAP_PRIVATE}
_WORD_OF = {flag: word for word, flag in _FLAGS.items()}
# What each setting takes.
_ALLOWED: dict[str, tuple[Any, ...]] = {
    "mmap_flags": tuple(_WORD_OF),
    **{name: values for name, values in _core.option_values().items() if name != "sharing"},
}

_overrides: contextvars.ContextVar[Mapping[str, Any]] = contextvars.ContextVar(
    "weightmap.config", default={}
)


def _check(name: str, value: Any) -> None:
    if name not in _ALLOWED:
        known = ", ".join(f"load.{setting}" for setting in _ALLOWED)
        raise InvalidArgumentError(f"there is no setting load.{name}; there are {known}")
    if value is None:
        return
    allowed = _ALLOWED[name]
    if not any(value == word and type(value) is type(word) for word in allowed):
        words = ", ".join(repr(word) for word in allowed)
        if (name, value) == ("protection", "copy"):
            words += " (weightmap.stage() makes a copy in memory)"
        raise InvalidArgumentError(f"load.{name} is {value!r}, expected None or one of {words}")


class _Load:
    """The settings of `config.load`; see the module's documentation."""

    __slots__ = ("_values",)

    def __init__(self) -> None:
        object.__setattr__(self, "_values", {})

    def __getattr__(self, name: str) -> Any:
        if name not in _ALLOWED:
            raise AttributeError(f"config.load has no setting {name!r}")
        overrides = _overrides.get()
        return overrides[name] if name in overrides else self._values.get(name)

    def __setattr__(self, name: str, value: Any) -> None:
        _check(name, value)
        self._values[name] = value

    def __dir__(self) -> list[str]:
        return list(_ALLOWED)

    def __repr__(self) -> str:
        return "load(" + ", ".join(f"{name}={getattr(self, name)!r}" for name in _ALLOWED) + ")"


load = _Load()


def override(
    setting: str | Mapping[str, Any], value: Any = None
) -> AbstractContextManager[None]:
    """Changes settings for a block: override("load.verify", "crc"), or several of them:
    override({"load.verify": "crc", "load.populate": True}).

    Seen by this thread (or asyncio task) only, and by the calls that weightmap.patch() serves in
    the threads that are started in its block; in free-threaded Python by all threads that are
    started in the block. Blocks nest.
    """
    import contextlib

    return contextlib.contextmanager(_overridden)(setting, value)


def _overridden(setting: str | Mapping[str, Any], value: Any) -> Iterator[None]:
    changes = {setting: value} if isinstance(setting, str) else dict(setting)
    overrides = dict(_overrides.get())
    for name, new in changes.items():
        section, dot, short = name.partition(".")
        if section != "load" or not dot:
            raise InvalidArgumentError(f"there is no setting {name}; they all begin with load.")
        _check(short, new)
        overrides[short] = new
    yield from _while_overridden(overrides)


def _while_overridden(overrides: Mapping[str, Any]) -> Iterator[None]:
    token = _overrides.set(overrides)
    try:
        yield
    finally:
        _overrides.reset(token)


def _inherited(*settings: Mapping[str, Any]) -> AbstractContextManager[None]:
    """These settings, the last before the others, beneath what is overridden here already."""
    import contextlib

    merged: dict[str, Any] = {}
    for overrides in (*settings, _overrides.get()):
        merged.update(overrides)
    return contextlib.contextmanager(_while_overridden)(merged)


def _with_defaults(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of an open, with what they leave None taken from the settings."""
    overrides = _overrides.get()
    if not overrides and not load._values:
        return dict(arguments)
    filled = dict(arguments)
    for name in _ALLOWED:
        value = getattr(load, name)
        if name == "mmap_flags":
            name, value = "sharing", _WORD_OF.get(value)
        if filled.get(name) is None:
            filled[name] = value
    return filled
