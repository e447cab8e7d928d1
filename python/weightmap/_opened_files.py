"""The files that Python opens, from the start of the interpreter on.

weightmap_patch.pth imports this at the start of a Python that `weightmap run --template` has
started. So a template knows what it was made of without a permission that a user lacks.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

paths: set[str] = set()  # absolute, of what was opened to be read
started_with: dict[bytes, bytes] = {}  # the variables, before the program has changed any
_is_watching = True  # an audit hook stays for the life of the process


def stop() -> None:
    global _is_watching
    _is_watching = False


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if event != "open" or not _is_watching:
        return
    path, _, flags = arguments
    if isinstance(path, (str, bytes)) and flags & os.O_ACCMODE == os.O_RDONLY:
        try:
            paths.add(os.path.abspath(os.fsdecode(path)))
        except OSError:  # the working folder is gone; then the open fails as well
            pass


started_with.update(os.environb)
sys.addaudithook(_note)
