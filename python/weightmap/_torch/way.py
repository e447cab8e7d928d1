"""How tensors over mapped bytes are made with this torch: what `weightmap doctor` says of it."""

from __future__ import annotations

from contextlib import suppress

import torch

from weightmap._torch import private

# What came after the oldest one that is supported.
_LATER = {
    (2, 7): "float8_e8m0fnu and torch.load under skip_data()",
    (2, 8): "float4_e2m1fn_x2",
    (2, 9): "torch.from_dlpack() of read-only tensors",
    (2, 10): "float8 by DLPack",
}
_SLOWEST = "frombuffer"


def taken() -> str:
    """The first function of torch's that works here."""
    for path in private.importers():
        with suppress(Exception):
            [function] = private.functions([path])
            function(torch.zeros(1).__dlpack__())
            return path
    return _SLOWEST


def tell() -> None:
    """Prints the state, what is found and the advice, a line for each."""
    print(*_finding(), sep="\n")


def _finding() -> tuple[str, str, str]:
    try:
        import weightmap.torch
    except ImportError as error:
        return "slow", str(error), _advice()
    later = [f"{what} ({version[0]}.{version[1]})" for version, what in _LATER.items()
             if private.is_older(version)]
    newer = f"; a newer one has {', '.join(later)}" if later else ""
    way = taken()
    found = f"torch {torch.__version__} makes tensors by torch.{way}{newer}"
    return ("slow", found, _advice()) if way == _SLOWEST else ("good", found, "")


def _advice() -> str:
    if private.is_older(private.OLDEST):
        return f"python -m pip install 'torch>={private.OLDEST[0]}.{private.OLDEST[1]}'"
    return "python -m pip install --upgrade weightmap"
