"""torch's own load and save, also while patch() has others in their places."""

from __future__ import annotations

from typing import Any

import torch
from torch import serialization

_replaced: dict[str, tuple[Any, Any]] = {}  # by name: what takes its place, and torch's own


def original(name: str) -> Any:
    found = getattr(serialization, name)
    replacement, own = _replaced.get(name, (None, None))
    return own if found is replacement else found


def replace(name: str, function: Any, is_wanted: bool) -> None:
    """Puts a function in the place of torch's, or takes it out again.

    Whichever it was to do the last time: Ctrl-C may have ended that half way.
    """
    if is_wanted:
        if getattr(serialization, name) is function:  # which is set last
            return
        if getattr(torch, name) is not function:
            _replaced[name] = function, getattr(torch, name)
    for module in (torch, serialization):
        if is_wanted:
            setattr(module, name, function)
        elif getattr(module, name) is function:
            setattr(module, name, _replaced[name][1])
