"""What values() and items() of a Checkpoint return: as of any Mapping, but without a lookup of each
name."""

from __future__ import annotations

from collections.abc import ItemsView, ValuesView

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from weightmap._checkpoint import Checkpoint
    from weightmap._typing import CheckpointTensor


class Values(ValuesView["CheckpointTensor"]):
    _mapping: Checkpoint

    def __iter__(self) -> Iterator[CheckpointTensor]:
        return (tensor for _, tensor in self._mapping.items())

    def __contains__(self, value: object) -> bool:
        return any(value is tensor for tensor in self)

    def __repr__(self) -> str:
        return f"ValuesView({self._mapping!r})"


class Items(ItemsView[str, "CheckpointTensor"]):
    _mapping: Checkpoint

    def __iter__(self) -> Iterator[tuple[str, CheckpointTensor]]:
        from weightmap._chunked import named_tensors

        return named_tensors(self._mapping._core, self._mapping._chunked)

    def __repr__(self) -> str:
        return f"ItemsView({self._mapping!r})"
