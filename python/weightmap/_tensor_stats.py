"""What Tensor.stats() answers."""

from __future__ import annotations

from weightmap._record import Record


class TensorStats(Record):
    """What the numbers of a tensor are like. A bool counts as 0 or 1, and -0.0 as a zero."""

    count: int  # elements
    min: int | float | None  # of the finite elements, as are the next three; None if there is none
    max: int | float | None
    mean: float | None
    std: float | None  # divided by their number, as numpy does, not by one less
    nan: int  # how many are no number
    infinite: int  # of either sign
    zeros: int
