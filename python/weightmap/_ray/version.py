"""One generation of what a fleet holds."""

from __future__ import annotations

from weightmap._ray.grid import ChunkGrid
from weightmap._ray.stored import Stored
from weightmap._record import Record


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

    def without_order(self) -> Version:
        """For messages: the order may be long."""
        return Version(
            self.generation, self.stored, self.chunk_bytes, (), self.verify, self.patience
        )
