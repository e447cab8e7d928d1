"""What the processes of a fleet tell one another."""

from __future__ import annotations

from weightmap._ray.stored import Stored
from weightmap._record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    from weightmap._ray.stored import Opener

# Fewer nodes than this are served by a common store as fast as they can take it: docs/ray.md.
PEERS_FROM = 7


class Request(Record):
    """What hold() was asked for."""

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


class NodeStatus(Record):
    """Of one node, and of the version that it brought in last."""

    node: str  # Ray's id
    state: str  # "waiting", "staging", "ready", "failed" or "silent" (it gave no answer)
    generation: int  # of the copy that is used there; 0: none
    tag: str  # of the version that the rest is about; empty: of none since the keeper started
    bytes_from_store: int  # that this node read itself, also for others
    bytes_from_peers: int
    retries: int  # chunks that came from the store since no peer gave them in time
    seconds: float  # that it took
    error: str  # why it failed; else empty
