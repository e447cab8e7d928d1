"""Defaults for every open, process-wide or for a block of code.

    weightmap.config.load.verify = "crc"            # from now on, everywhere
    with weightmap.config.patch("load.verify", "crc"):
        weightmap.open(path)                        # only here, only in this thread or task

A setting that is None leaves the choice to its environment variable and then to the built-in
default, and an argument of the call goes before all of them:

    argument > patch() > attribute > environment variable > built-in default

| setting             | values                             | argument       | environment variable     |
|---------------------|------------------------------------|----------------|--------------------------|
| load.mmap_flags     | mmap.MAP_SHARED, mmap.MAP_PRIVATE  | sharing        | WEIGHTMAP_SHARING        |
| load.writable       | bool                               | writable       | WEIGHTMAP_WRITABLE       |
| load.verify         | "chain", "headers", "crc"          | verify         | WEIGHTMAP_VERIFY         |
| load.endianness     | "little", "big", "native"          | endianness     | WEIGHTMAP_BYTEORDER      |
| load.populate       | bool                               | populate       | WEIGHTMAP_POPULATE       |
| load.no_reserve     | bool                               | no_reserve     | WEIGHTMAP_NORESERVE      |
| load.locked         | bool                               | locked         | WEIGHTMAP_LOCKED         |
| load.huge_pages     | bool                               | huge_pages     | WEIGHTMAP_HUGEPAGES      |
| load.protection     | "map", "guard", "snapshot"         | protection     | WEIGHTMAP_PROTECTION     |
| load.shared_catalog | bool                               | shared_catalog | WEIGHTMAP_SHARED_CATALOG |
"""

from __future__ import annotations

import contextlib
import contextvars
import mmap
from collections.abc import Iterator, Mapping
from typing import Any

from weightmap._errors import InvalidArgumentError

_WORDS = {
    "mmap_flags": (mmap.MAP_SHARED, mmap.MAP_PRIVATE),
    "verify": ("chain", "headers", "crc"),
    "endianness": ("little", "big", "native"),
    "protection": ("map", "guard", "snapshot"),
}
_BOOLEANS = ("writable", "populate", "no_reserve", "locked", "huge_pages", "shared_catalog")
_SETTINGS = (*_WORDS, *_BOOLEANS)

_patches: contextvars.ContextVar[Mapping[str, Any]] = contextvars.ContextVar(
    "weightmap.config", default={}
)


def _check(name: str, value: Any) -> None:
    if name not in _SETTINGS:
        known = ", ".join(f"load.{setting}" for setting in _SETTINGS)
        raise InvalidArgumentError(f"there is no setting load.{name}; there are {known}")
    if value is None:
        return
    allowed = _WORDS.get(name, (False, True))
    if not any(value == word and type(value) is type(word) for word in allowed):
        words = ", ".join(repr(word) for word in allowed)
        if (name, value) == ("protection", "copy"):
            words += " (weightmap.stage() makes a copy in memory)"
        raise InvalidArgumentError(f"load.{name} is {value!r}, expected None or one of {words}")


class _Load:
    """The settings of `config.load`; see the module's documentation."""

    __slots__ = ("_values",)

    mmap_flags: int | None
    writable: bool | None
    verify: str | None
    endianness: str | None
    populate: bool | None
    no_reserve: bool | None
    locked: bool | None
    huge_pages: bool | None
    protection: str | None
    shared_catalog: bool | None

    def __init__(self) -> None:
        object.__setattr__(self, "_values", {})

    def __getattr__(self, name: str) -> Any:
        if name not in _SETTINGS:
            raise AttributeError(f"config.load has no setting {name!r}")
        patched = _patches.get()
        return patched[name] if name in patched else self._values.get(name)

    def __setattr__(self, name: str, value: Any) -> None:
        _check(name, value)
        self._values[name] = value

    def __dir__(self) -> list[str]:
        return list(_SETTINGS)

    def __repr__(self) -> str:
        return "load(" + ", ".join(f"{name}={getattr(self, name)!r}" for name in _SETTINGS) + ")"


load = _Load()


@contextlib.contextmanager
def patch(setting: str | Mapping[str, Any], value: Any = None) -> Iterator[None]:
    """Changes settings for a block: patch("load.verify", "crc") or patch({"load.verify": "crc"}).

    Seen by this thread (or asyncio task) only. Patches nest.
    """
    changes = {setting: value} if isinstance(setting, str) else dict(setting)
    patched = dict(_patches.get())
    for name, new in changes.items():
        section, dot, short = name.partition(".")
        if section != "load" or not dot:
            raise InvalidArgumentError(f"there is no setting {name}; they all begin with load.")
        _check(short, new)
        patched[short] = new
    token = _patches.set(patched)
    try:
        yield
    finally:
        _patches.reset(token)


def _with_defaults(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of an open, with what they leave None taken from the settings."""
    patched = _patches.get()
    if not patched and not load._values:
        return dict(arguments)
    filled = dict(arguments)
    for name in _SETTINGS:
        value = getattr(load, name)
        if name == "mmap_flags":
            name = "sharing"
            value = {mmap.MAP_SHARED: "shared", mmap.MAP_PRIVATE: "private", None: None}[value]
        if filled.get(name) is None:
            filled[name] = value
    return filled
