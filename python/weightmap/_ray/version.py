"""One generation of what a fleet holds."""

from __future__ import annotations

from weightmap._core import Tensor
from weightmap._ray.grid import ChunkGrid
from weightmap._ray.stored import Stored
from weightmap._record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


class Version(Record):
    """What a node must know to bring in the same bytes as all others."""

    generation: int  # greater with each publication
    stored: Stored
    chunk_bytes: int
    first: tuple[int, ...]  # chunks that are needed before the others
    verify: bool  # compare the checksums of the file
    patience: float  # seconds

    @property
    def key(self) -> str:
        """A part of the name of its copies."""
        return f"{self.generation}-{self.stored.digest}"

    @property
    def grid(self) -> ChunkGrid:
        return ChunkGrid(self.stored.size, self.chunk_bytes)

    def with_order(self, names: Iterable[str]) -> Version:
        """The chunks of these tensors, names or patterns, go first. Reads the metadata."""
        from weightmap.remote import metadata

        ranges = []
        with metadata(self.stored.open()) as checkpoint:
            for tensor in (checkpoint[name] for each in names for name in checkpoint.find(each)):
                if isinstance(tensor, Tensor):  # and not one that is put together of several
                    ranges.append((tensor.file_offset, tensor.nbytes))
        return self._with_first(tuple(self.grid.covering(ranges)))

    def without_order(self) -> Version:
        """For messages: the order may be long."""
        return self._with_first(())

    def _with_first(self, first: tuple[int, ...]) -> Version:
        return Version(
            self.generation, self.stored, self.chunk_bytes, first, self.verify, self.patience
        )
