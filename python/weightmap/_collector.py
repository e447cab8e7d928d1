"""Python's cyclic garbage collector."""

from __future__ import annotations

import contextlib
import gc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """Keeps Python's cyclic garbage collector from running, in all threads.

    What is being built is not garbage, and with torch imported each of the collector's walks over
    everything else costs more than a thousand tensors.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
