"""weightmap.torch.protect() and what it returns."""

from __future__ import annotations

import os

from weightmap import _core
from weightmap._record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from weightmap._open import PathLike


class WriteProtection(Record):
    """What protect() made read-only."""

    mappings: int
    bytes: int  # of address space
    anonymous_bytes: int  # of these, what had been written to before, and stays this process's own


def protect(path: PathLike) -> WriteProtection:
    """Makes read-only what this process has mapped of a file, whoever mapped it.

        state = torch.load("model.pt", mmap=True)     # or safetensors' load_file()
        weightmap.torch.protect("model.pt")

    torch and safetensors map files for writing, privately, and a driver that pins such memory copies
    every page of it. Afterwards nothing does, and a write to one of these tensors ends the process
    with SIGSEGV. What is mapped later is not protected. For code that cannot be changed; what can be
    takes copy_on_write=False.
    """
    return WriteProtection(*_core.protect(os.fsencode(path)))
