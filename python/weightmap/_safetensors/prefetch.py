"""What SafeOpen.prefetch() returns."""

from __future__ import annotations

import threading

from weightmap._errors import InvalidArgumentError
from weightmap._slice_plan import slices

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from weightmap._checkpoint import Checkpoint


class PrefetchLoader:
    """Tensors that a thread brings into memory, in the order of the plan; a context manager.

    Each is handed out once: by take(), or by going through the loader, which gives (name, tensor).
    One that the thread has not come to is read at once, before what the thread would have read.

    For one thread at a time, and not for a forked child, which lacks the thread that reads.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        plan: dict[str, slice | None],
        threads: int,
        take: Callable[[str, slice | None], Any],
    ) -> None:
        """`take`: makes what is handed out of a tensor, or of a part of it."""
        self._checkpoint = checkpoint
        self._plan = plan
        self._made = take
        self._cancelled = False
        self._thread = threading.Thread(
            target=self._warm, args=(dict(plan), threads), name="weightmap-prefetch", daemon=True
        )
        self._thread.start()

    def _warm(self, plan: dict[str, slice | None], threads: int) -> None:
        def go_on(_done: int, _all: int) -> None:
            if self._cancelled:
                raise _Cancelled

        try:
            if parts := slices(self._checkpoint, plan):
                self._checkpoint._core.warm([], parts, threads, 0, False, False, go_on)
        except Exception:
            pass  # tensors are read when they are looked at

    def names(self) -> list[str]:
        """Of the tensors that have not been handed out."""
        return list(self._plan)

    def __len__(self) -> int:
        return len(self._plan)

    def take(self, name: str) -> Any:
        """The tensor of this name, or the part of it that the plan has."""
        if name not in self._plan:
            raise InvalidArgumentError(f"{name!r} is not in the plan, or was taken before")
        part = self._plan.pop(name)
        tensor = self._checkpoint[name]
        self._checkpoint.demand(tensor if part is None else tensor[part])
        return self._made(name, part)

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        while self._plan:
            name = next(iter(self._plan))
            yield name, self.take(name)

    def close(self) -> None:
        """Ends the reading; tensors that were taken stay."""
        self._cancelled = True
        self._thread.join()
        self._plan.clear()

    def __enter__(self) -> PrefetchLoader:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class _Cancelled(Exception):
    pass
