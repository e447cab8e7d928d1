"""How long a keeper waits for a chunk of a peer before it reads the chunk from the store."""

from __future__ import annotations

from collections import deque
from statistics import median

_FIRST = 10.0  # seconds, until a chunk has arrived: the workers that read chunks start meanwhile
_MEDIANS = 3
_REMEMBERED = 63


class Deadline:
    """Three times the median of what the last chunks took, and `patience` seconds. Each method is
    one step for other threads."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._seconds: deque[float] = deque(maxlen=_REMEMBERED)

    def note(self, seconds: float) -> None:
        """What a chunk took that came in time."""
        self._seconds.append(seconds)

    def limit(self) -> float:
        """For the next chunk, in seconds."""
        seconds = list(self._seconds)
        usual = _MEDIANS * median(seconds) if seconds else _FIRST
        return usual + self._patience
