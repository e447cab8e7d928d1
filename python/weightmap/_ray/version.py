"""One generation of what a fleet holds."""

from __future__ import annotations

from weightmap._ray.stored import Stored
from weightmap._record import Record


class Version(Record):
    """What a node must know to bring in the same bytes as all others."""

    generation: int  # greater with each publication
    stored: Stored
    chunk_bytes: int
    verify: bool  # compare the checksums of the file
    patience: float  # seconds

    @property
    def key(self) -> str:
        """A part of the name of its copies."""
        return f"{self.generation}-{self.stored.digest}"

    def ranges(self) -> list[tuple[int, int]]:
        """The chunks in which it is read: offset and length, the last one may be shorter."""
        size, step = self.stored.size, self.chunk_bytes
        return [(offset, min(step, size - offset)) for offset in range(0, size, step)]
