"""How many threads read files that come from a server."""

from __future__ import annotations

_FEWEST = 2  # keep a disk busy while one of them waits for it
# Less than what hung a network mount when all ranks of a node read with so many: 16.
_MOST = 8
_LEAST_GAIN = 1.1


class ReadingThreads:
    """Twice as many for the next batch, as long as the last one came faster by it.

    A server's answers take their time, so that more questions at once bring more; how many it
    takes only trying tells. Only the one reader of a node asks with more than two threads.
    """

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self.count = _FEWEST
        self._rate = 0.0  # of the last batch, in bytes per second
        self._is_settled = False

    def learn(self, was_reader: bool, size: int, seconds: float) -> None:
        """Of a batch that was read with `count` threads.

        was_reader: of all of it. Else another read, and what this process reads next, if it has
            to, it reads with two threads.
        """
        if not was_reader:
            self._begin()
        elif not self._is_settled:
            rate = size / max(seconds, 1e-9)
            if rate < _LEAST_GAIN * self._rate:
                self.count //= 2
                self._is_settled = True
            else:
                self._rate = rate
                self._is_settled = self.count == _MOST
                self.count = min(2 * self.count, _MOST)
