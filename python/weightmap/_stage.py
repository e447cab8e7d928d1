"""weightmap.stage(), of a path or a URL."""

from __future__ import annotations

import os

from weightmap import _core
from weightmap._errors import UnsupportedError
from weightmap._staging import StagedFile, bytes_allowed
from weightmap._urls import is_url, without_secrets

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from weightmap._typing import PathLike, Progress


def stage(
    path: PathLike,
    *,
    name: str = "",
    budget_bytes: int | None = None,
    pinnable: bool = False,
    sha256: str | None = None,
    progress: Progress | None = None,
) -> StagedFile:
    """Copies a checkpoint into shared memory, for file systems that are slow to map.

    path: of a file, or a URL, which is weightmap.remote.stage(path).finish().
    name: of a file to make in /dev/shm, mode 0600, which stays until remove_staged(). Default:
        memory without a name, sealed, which is gone with the last who has it open or mapped.
    budget_bytes: refuse a larger file. None: what the machine's memory has left.
    pinnable: keep the copy mapped for writing in this process, and seal it against every other way
        to write to it, for drivers that pin memory with write intent: see pinnable_memory(). Not
        together with a name.
    sha256: of a URL's file, in hexadecimal digits; it is compared before the copy is there.
    progress: is called with the bytes copied and the bytes in all. What it raises, and Ctrl-C, ends
        the copy and leaves nothing of it.

    What is not in the page cache is read past it. Raises weightmap.Error. The GIL is released
    meanwhile.

    Any thread may call it, and a forked child.
    """
    allowed = bytes_allowed("budget_bytes", budget_bytes)
    if is_url(path) and not os.path.lexists(path):
        url: Any = path
        if pinnable:
            raise UnsupportedError(
                "pinnable is for copies of local files", file=without_secrets(url)
            )
        from weightmap import remote

        with remote.stage(
            url, name=name, budget_bytes=budget_bytes, sha256=sha256, progress=progress
        ) as staging:
            return staging.finish()
    if sha256 is not None:
        raise UnsupportedError(
            "sha256 is for a URL; `weightmap verify --sha256` compares a file", file=os.fsdecode(path)
        )
    return StagedFile(
        _core.stage(os.fsencode(path), os.fsencode(name), allowed, pinnable, progress)
    )
