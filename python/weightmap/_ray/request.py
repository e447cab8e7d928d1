"""What hold() was asked for."""

from __future__ import annotations

from weightmap._record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    from weightmap._ray.stored import Opener


class Request(Record):
    url: str
    nodes: tuple[str, ...] | None  # None: all that there are and that will be
    source: Literal["auto", "peers", "store"]
    verify: bool
    order: tuple[str, ...]  # names of tensors, or patterns
    chunk_bytes: int
    patience: float  # seconds
    opener: Opener | None
