"""What Fleet.status() says of a node."""

from __future__ import annotations

from weightmap._record import Record


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
