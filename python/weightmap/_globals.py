"""weightmap.unsafe_globals()."""

from __future__ import annotations

import os
import sys

from weightmap import _core

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from weightmap._open import PathLike

_NOT_TOLD = "(a name that is made while the pickle runs)"


def unsafe_globals(path: PathLike, *, safe_globals: Iterable[str] = ()) -> list[str]:
    """The classes and functions in a file that torch.load(weights_only=True) would refuse.

    What torch.serialization.get_unsafe_globals_in_checkpoint() answers, each name once, in the
    order of the file; also of pickles of every protocol, of pickles that hide elsewhere in the
    file, of bare pickles, and of files that weightmap.open() refuses. Nothing is imported or run.

    safe_globals: names such as "argparse.Namespace" that are safe in addition to those that torch
        allows by default and, where the program has imported torch, those registered with
        torch.serialization.add_safe_globals().
    """
    allowed = [*safe_globals, *_registered()]
    found = _core.list_globals(os.fsencode(path), {"safe_globals": allowed})
    unsafe = (
        f"{module}.{name}" if module or name else _NOT_TOLD
        for module, name, verdict in found
        if verdict in ("unknown", "harmful")
    )
    return list(dict.fromkeys(unsafe))


def _registered() -> list[str]:
    """With torch, if the program uses it."""
    if "torch" not in sys.modules:
        return []
    from torch._weights_only_unpickler import _get_user_allowed_globals

    return [*_get_user_allowed_globals()]
