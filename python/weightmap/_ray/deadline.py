"""How long a keeper waits for a chunk of a peer before it reads the chunk from the store."""

from __future__ import annotations

from collections import deque
from statistics import median

_FIRST = 10.0  # seconds, until a chunk has arrived: the workers that read chunks start meanwhile
_MEDIANS = 3
_REMEMBERED = 63


class Deadline:
    """Three times the median of what the last chunks took, and `patience` seconds.

    A peer that was late is not waited for in the next so many seconds: what a dead node had would
    otherwise be late chunk by chunk. Each method may be called from any thread.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._seconds: deque[float] = deque(maxlen=_REMEMBERED)
        self._late_until: dict[str | None, float] = {}  # by peer

    def note(self, seconds: float) -> None:
        """What a chunk took that came in time."""
        self._seconds.append(seconds)

    def limit(self) -> float:
        """For the next chunk, in seconds."""
        seconds = list(self._seconds)
        usual = _MEDIANS * median(seconds) if seconds else _FIRST
        return usual + self._patience

    def is_over(self, peer: str | None, began: float, now: float) -> bool:
        """For a chunk that the peer reads, and that was asked for at `began`; None: this node."""
        if now < self._late_until.get(peer, now):
            return True
        limit = self.limit()
        if now - began < limit:
            return False
        if peer is not None:
            self._late_until[peer] = now + limit
        return True
