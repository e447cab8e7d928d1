"""Which bytes of a checkpoint a rank needs, kept from one start to the next."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping

from weightmap import _core
from weightmap._chunked import parts_of
from weightmap._errors import Error, InvalidArgumentError
from weightmap._record import Record
from weightmap._replacing import Replacing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from typing import Any

    from weightmap._typing import CheckpointTensor, PathLike

_FORMAT = "weightmap slices 1"


class SlicePart(Record):
    """Some elements of a tensor: from `offset` on, with this shape and these strides.

    All of them are counted in elements of the tensor, from its first one.
    """

    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class SlicePlan(Mapping[str, "tuple[SlicePart, ...] | None"]):
    """Names of tensors, and the parts of each that are needed; None for all of it. What has no
    parts is not among them.

    Checkpoint.warm() takes one, weightmap.torch.SliceRecorder makes one from a load.

    It does not change, so any thread may use it.
    """

    def __init__(self, tensors: Mapping[str, Collection[SlicePart] | None] = {}) -> None:
        self._tensors = {
            name: None if parts is None else tuple(parts)
            for name, parts in tensors.items()
            if parts is None or parts
        }

    def __getitem__(self, name: str) -> tuple[SlicePart, ...] | None:
        return self._tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def __repr__(self) -> str:
        return f"<weightmap.SlicePlan of {len(self)} tensors>"

    def save(self, path: PathLike) -> None:
        """Writes it as JSON. The file appears as a whole or not at all."""
        tensors = {
            name: parts and [[part.offset, part.shape, part.strides] for part in parts]
            for name, parts in self.items()
        }
        with Replacing(path, any_content=True) as new:
            with open(new, "w", encoding="ascii") as file:
                json.dump({"format": _FORMAT, "tensors": tensors}, file)

    @classmethod
    def load(cls, path: PathLike) -> SlicePlan:
        """Reads what save() wrote, or InvalidArgumentError says what in the file is wrong."""
        path = os.fsdecode(path)
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            try:
                return cls(_parsed(json.load(file)))
            except (ValueError, RecursionError) as error:
                raise InvalidArgumentError(f"is no slice plan: {error}", file=path) from error


def _parsed(document: Any) -> dict[str, list[SlicePart] | None]:
    if not isinstance(document, dict) or document.get("format") != _FORMAT:
        raise ValueError(f"its format is not {_FORMAT!r}")
    tensors = document.get("tensors")
    if not isinstance(tensors, dict):
        raise ValueError("tensors is not an object")
    return {
        name: None if parts is None else [_part(name, part) for part in _list(name, parts)]
        for name, parts in tensors.items()
    }


def _list(name: str, parts: Any) -> list[Any]:
    if not isinstance(parts, list):
        raise ValueError(f"the parts of tensor {name!r} are not a list")
    return parts


def _part(name: str, part: Any) -> SlicePart:
    def are_numbers(values: Any) -> bool:
        return isinstance(values, list) and all(type(value) is int for value in values)

    if isinstance(part, list) and len(part) == 3:
        offset, shape, strides = part
        if type(offset) is int and are_numbers(shape) and are_numbers(strides):
            return SlicePart(offset, tuple(shape), tuple(strides))
    raise ValueError(f"a part of tensor {name!r} is not an offset, a shape and strides")


def slices(tensors: Mapping[str, CheckpointTensor], plan: Mapping[str, Any]) -> list[_core.Tensor]:
    """The parts that a plan names, as views.

    plan: what is needed of a tensor: None for all of it, what a tensor takes in brackets, a
        SlicePart, or a list or tuple of SlicePart. TensorNotFoundError for a name that is not there,
        InvalidArgumentError for a part that a tensor has not.
    """
    found: list[_core.Tensor] = []
    for name, wanted in plan.items():
        tensor = tensors[name]
        try:
            parts = _parts(tensor, wanted)
        except (Error, IndexError, TypeError, ValueError) as error:
            if sys.version_info >= (3, 11):
                error.add_note(f"in a plan, of tensor {name!r}: {wanted!r}")
            raise
        for part in parts:
            found += parts_of(part)
    return found


def _parts(tensor: Any, wanted: Any) -> list[Any]:
    if wanted is None:
        return [tensor]
    if isinstance(wanted, SlicePart):
        wanted = [wanted]
    if not isinstance(wanted, (list, tuple)) or not _are_parts(wanted):
        return [tensor[wanted]]
    if not isinstance(tensor, _core.Tensor):
        raise InvalidArgumentError(
            f"tensor {tensor.name!r} lies in several chunks, so a part of it is what is in brackets"
        )
    return [_core.part_of(tensor, part.offset, part.shape, part.strides) for part in wanted]


def _are_parts(values: Any) -> bool:
    return len(values) > 0 and all(isinstance(value, SlicePart) for value in values)
