"""Checkpoint.summary(): what is in a checkpoint, on a few lines whatever its size."""

from __future__ import annotations

from weightmap._record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

_MOST_LINES = 12  # of one kind that are printed


class Share(Record):
    """A part of a checkpoint's tensors."""

    tensors: int
    elements: int
    bytes: int


class Summary(Record):
    """What is in a checkpoint. Tied tensors, which are the same elements, count once."""

    path: str  # of a model the name of its class
    all: Share
    own_bytes: int | None  # memory that this process alone has; None: the system does not tell
    dtypes: dict[str, Share]  # largest first, as the next
    prefixes: dict[str, Share]  # by the first parts of the names
    ties: tuple[tuple[str, ...], ...]  # names of the same elements

    def __repr__(self) -> str:
        lines = [self.first_line()]
        for title, shares in (("by dtype", self.dtypes), ("by prefix", self.prefixes)):
            lines.append(f"{title}:")
            lines += _cut([f"  {_short(name)}: {_words(share)}" for name, share in shares.items()])
        if self.ties:
            lines.append("tied:")
            lines += _cut(["  " + " = ".join(_cut([_short(n) for n in names])) for names in self.ties])
        return "\n".join(lines)

    def first_line(self) -> str:
        line = f"{self.path}: {_words(self.all)}"
        if self.own_bytes is None:
            return line
        return f"{line}; {human_bytes(self.own_bytes)} in this process alone"


def summarize(path: str, tensors: Iterable[Any], depth: int, own_bytes: int | None) -> Summary:
    """The summary of these tensors; prefixes are the first `depth` parts of names."""
    names_of: dict[object, list[str]] = {}
    dtypes: dict[str, list[int]] = {}
    prefixes: dict[str, list[int]] = {}
    everything = [0, 0, 0]
    for tensor in tensors:
        if tensor.numel > 0:
            at = tensor.file_index, tensor.file_offset
            place = (at, tensor.dtype, tensor.shape, getattr(tensor, "strides", ()))
            names = names_of.setdefault(place, [])
            names.append(tensor.name)
            if len(names) > 1:
                continue
        prefix = ".".join(tensor.name.split(".")[:depth])
        shares = dtypes.setdefault(tensor.dtype, [0, 0, 0]), prefixes.setdefault(prefix, [0, 0, 0])
        for share in (everything, *shares):
            share[0] += 1
            share[1] += tensor.numel
            share[2] += tensor.nbytes
    ties = tuple(tuple(names) for names in names_of.values() if len(names) > 1)
    return Summary(path, Share(*everything), own_bytes, _sorted(dtypes), _sorted(prefixes), ties)


def _sorted(shares: dict[str, list[int]]) -> dict[str, Share]:
    by_size = sorted(shares.items(), key=lambda item: -item[1][2])
    return {name: Share(*share) for name, share in by_size}


def _words(share: Share) -> str:
    noun = "tensor" if share.tensors == 1 else "tensors"
    return f"{share.tensors:,} {noun}, {share.elements:,} elements, {human_bytes(share.bytes)}"


def human_bytes(size: int) -> str:
    value, unit = float(size), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{size} B" if unit == "B" else f"{value:.1f} {unit}"


def _short(name: str) -> str:
    shown = name if name.isprintable() else ascii(name)
    return shown if len(shown) <= 80 else shown[:77] + "..."


def _cut(lines: list[str]) -> list[str]:
    if len(lines) <= _MOST_LINES:
        return lines
    return [*lines[: _MOST_LINES - 1], f"  and {len(lines) - _MOST_LINES + 1:,} more"]
