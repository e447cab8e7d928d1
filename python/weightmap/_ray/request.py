"""What hold() was asked for."""

from __future__ import annotations

from weightmap._record import Record

# Fewer nodes than this are served by a common store as fast as they can take it: docs/ray.md.
PEERS_FROM = 7

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    from weightmap._ray.stored import Opener


class Request(Record):
    url: str
    nodes: tuple[str, ...] | None  # None: all that there are and that will be
    source: Literal["auto", "peers", "store"]
    verify: bool
    chunk_bytes: int
    patience: float  # seconds
    opener: Opener | None

    def uses_peers(self, nodes: int) -> bool:
        """Where so many stage at a time."""
        return self.source == "peers" or (self.source == "auto" and nodes >= PEERS_FROM)
