"""What acts on files that need not be open: evict(), publish(), processes(), unsafe_globals(),
protect()."""

from __future__ import annotations

import os
import sys

from weightmap import _core
from weightmap.reports import (
    EvictReport,
    Generation,
    MappedCheckpoint,
    Processes,
    PublishReport,
    WriteProtection,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from weightmap._typing import PathLike, Progress

_NOT_TOLD = "(a name that is made while the pickle runs)"


def evict(path: PathLike, *, progress: Progress | None = None) -> EvictReport:
    """Asks the system to drop a file from the page cache, so that the next read is a cold one.

    progress: is called with how far into the file the request has come, and its size. What it
        raises, and Ctrl-C, ends the call; what is dropped is dropped.

    Any thread may call it, and a forked child.
    """
    file_bytes, before, after, unwritten, lives_in_memory = _core.evict(
        os.fsencode(path), progress
    )
    reason = ""
    if after > 0:
        reason = "memory_file_system" if lives_in_memory else "unwritten" if unwritten else "in_use"
    return EvictReport(file_bytes, before, after, reason)


def publish(
    new: PathLike,
    target: PathLike,
    *,
    copy: bool = False,
    crc: bool = False,
    any_format: bool = False,
    progress: Progress | None = None,
) -> PublishReport:
    """Makes `target` name the checkpoint `new`, at once and durably.

    Whoever opens `target` finds the old file or the new one, whole; who has the old one open keeps
    it. Within a file system the file is renamed, else it is copied beside `target` first. A folder
    stays where it is: `target` is a symbolic link, or is made one, and then leads to it.

    copy: leave `new` where it is. Not of a folder.
    crc: compare every byte with its CRC-32 first.
    any_format: of the new file, which otherwise has that of the old one, and that which a name in
        .safetensors, .gguf or .npz promises, or InvalidArgumentError says so.
    progress: is called with the bytes done and the bytes in all while sums are compared, then while
        the file is copied. What it raises before the end, and Ctrl-C, leaves `target` as it was.

    Any thread may call it, and a forked child. The GIL is released meanwhile.
    """
    generation, replaced, copied, size, previous = _core.publish(
        os.fsencode(new), os.fsencode(target), copy, crc, False, any_format, progress
    )
    return PublishReport(
        Generation(*generation), replaced, copied, size, os.fsdecode(previous) or None
    )


def processes(*paths: PathLike) -> Processes:
    """The processes that have one of these files mapped, or, without any, any checkpoint.

    Those on an older file that lost the name are found, too. A staged copy is found by its path.

    Any thread may call it, and a forked child.
    """
    mapped, unreadable = _core.processes([os.fsencode(path) for path in paths])
    return Processes([_mapped(fields) for fields in mapped], unreadable)


def _mapped(fields: dict[str, Any]) -> MappedCheckpoint:
    for name in ("command", "file"):
        fields[name] = os.fsdecode(fields[name])
    return MappedCheckpoint(**fields)


def unsafe_globals(path: PathLike, *, safe_globals: Iterable[str] = ()) -> list[str]:
    """The classes and functions in a file that torch.load(weights_only=True) would refuse.

    What torch.serialization.get_unsafe_globals_in_checkpoint() answers, each name once, in the
    order of the file; also of pickles of every protocol, of pickles that hide elsewhere in the
    file, of bare pickles, and of files that weightmap.open() refuses. Nothing is imported or run.

    safe_globals: names such as "argparse.Namespace" that are safe in addition to those that torch
        allows by default and, where the program has imported torch, those registered with
        torch.serialization.add_safe_globals().

    Any thread may call it, and a forked child.
    """
    allowed = [*safe_globals, *_registered()]
    found = _core.list_globals(os.fsencode(path), {"safe_globals": allowed})
    unsafe = (
        f"{module}.{name}" if module or name else _NOT_TOLD
        for module, name, verdict in found
        if verdict in ("plain_data", "unknown", "harmful")
    )
    return list(dict.fromkeys(unsafe))


def _registered() -> list[str]:
    """With torch, if the program uses it."""
    if "torch" not in sys.modules:
        return []
    from weightmap._torch import private

    return [*private._get_user_allowed_globals()]


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
