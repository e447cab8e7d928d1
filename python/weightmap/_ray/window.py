"""Which chunk a node asks for next."""

from __future__ import annotations

import itertools
import random

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

# Nodes that all ask in file order wait for the same chunk and have nothing to give to one another.
# At random within this many they come close to the bound, and keep the order roughly.
WIDTH = 32


class RandomWindow:
    """Gives each chunk once, at random among the next WIDTH of an order. For one thread at a time."""

    def __init__(self, order: Iterable[int], chooser: random.Random | None = None) -> None:
        self._behind = iter(order)
        self._window = list(itertools.islice(self._behind, WIDTH))
        self._chooser = chooser or random.Random()

    def next(self) -> int | None:
        """None: each was given."""
        if not self._window:
            return None
        chosen = self._window.pop(self._chooser.randrange(len(self._window)))
        self._window.extend(itertools.islice(self._behind, 1))
        return chosen
