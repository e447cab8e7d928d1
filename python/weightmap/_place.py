"""Places in the tree of values of a checkpoint, and what lies there."""

from __future__ import annotations

from weightmap._errors import Error, TensorNotFoundError, about_file
from weightmap._left_out import warn_of_left_out

_LONGEST_WAY = 400  # for which names that are like it are looked up
_MOST_KEYS = 10000

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from weightmap import _core


def has_tensors_by_name_only(core: _core.Checkpoint) -> bool:
    """Of safetensors, GGUF, npz and npy files and of sets root() is metadata, in which no tensor is."""
    kind = core.info()["format"]
    by_name = ("safetensors", "gguf", "npz", "npy")
    return kind in by_name or (len(core.files()) > 1 and kind != "dcp")


def root_at(core: _core.Checkpoint, path: tuple[str | int, ...], file: str) -> Any:
    from weightmap._chunked import chunked_tensors
    from weightmap._values import PlainMachine

    try:
        made = core.evaluate(PlainMachine(chunked_tensors(core)), path)
    except Error as error:
        raise about_file(error, file)
    if not path:
        warn_of_left_out(file, core.left_out_values())
    return made


def path_to(
    core: _core.Checkpoint, way: str | tuple[str | int, ...], file: str
) -> tuple[str | int, ...]:
    """The path that keys joined by dots stand for; a path itself is checked when it is used."""
    if isinstance(way, tuple) and all(type(part) in (str, int) for part in way):
        return way
    if not isinstance(way, str):
        raise TypeError(f"a place in a checkpoint is a str or a tuple of keys, not {way!r}")
    found = core.look(way)
    if found is None:
        raise TensorNotFoundError(f"has nothing called {way!r}{_hint(core, way)}", file=file)
    return found[0]


def missing_path(
    core: _core.Checkpoint, path: tuple[str | int, ...], file: str
) -> TensorNotFoundError:
    """That nothing is at a path that was given as a tuple."""
    near = _hint(core, ".".join(map(str, path)))
    if len(path) > 1 and all(core.look(str(part)) is not None for part in path):
        near = f"; a tuple is one path: several places are a list, {list(path)!r}"
    return TensorNotFoundError(f"has nothing at {path!r}{near}", file=file)


def _hint(core: _core.Checkpoint, way: str) -> str:
    """Names that are like it, as the lookup of tensors gives them."""
    if has_tensors_by_name_only(core) or len(way) > _LONGEST_WAY:
        return ""
    try:
        here = root_at(core, (), "")
    except Error:
        return ""
    begin, rest = "", way
    while True:
        parts = {str(key): part for key, part in here.items()} if isinstance(here, dict) else {}
        down = max((key for key in parts if rest.startswith(f"{key}.")), key=len, default=None)
        if down is None:
            break
        here, begin, rest = parts[down], f"{begin}{down}.", rest[len(down) + 1 :]
    return like(rest, parts, begin)


def like(wanted: str, names: Iterable[str], begin: str = "") -> str:
    """What of the names may be meant."""
    from difflib import get_close_matches

    shown = [name for name in names if name.isprintable() and len(name) < _LONGEST_WAY]
    near = [f'"{begin}{name}"' for name in get_close_matches(wanted, shown[:_MOST_KEYS])]
    if not near or len(wanted) > _LONGEST_WAY:
        return ""
    return f"; did you mean {' or '.join([', '.join(near[:-1]), near[-1]] if near[1:] else near)}?"


def tensors_below(core: _core.Checkpoint, path: tuple[str | int, ...]) -> list[int]:
    if core.has_chunks():  # pieces have no path; the names of a DCP folder are its paths
        begin = "".join(f"{part}." for part in path)
        return [i for i in range(len(core)) if core.name(i).startswith(begin)]
    return [i for i in range(len(core)) if core.path(i)[: len(path)] == path]


def what_it_is(core: _core.Checkpoint, name: str | tuple[str | int, ...]) -> str:
    """For an error about a name that leads to something else than a tensor."""
    if not isinstance(name, str):
        return ""
    try:
        found = core.look(name)
    except Error:
        return ""
    return _what_matches(core, name) if found is None else _what_is_at(core, name, *found)


def _what_matches(core: _core.Checkpoint, pattern: str) -> str:
    matching = core.match(pattern)
    if not matching or core.name(matching[0]) == pattern:  # a name that several tensors have
        return ""
    count = f"{len(matching)} name{' matches' if len(matching) == 1 else 's match'}"
    return f", but it is a pattern that {count}; take find({pattern!r})"


def _what_is_at(core: _core.Checkpoint, name: str, path: tuple[str | int, ...], kind: str) -> str:
    kind = kind if kind.isprintable() and len(kind) <= 200 else "object"
    tensors = len(tensors_below(core, path))
    article = "" if kind == "None" else "an " if kind[0] in "aeiou" else "a "
    where = f"root(){''.join(f'[{part!r}]' for part in path)}"
    if tensors == 0:
        return f": it is {article}{kind}; take {where}"
    of = f"{tensors} tensor{'' if tensors == 1 else 's'}"
    return f": it is {article}{kind} with {of}; take subtree({name!r}) or {where}"
