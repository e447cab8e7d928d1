"""The options of an open, for type checkers and help(). A test compares them with the table of the
C++ library."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Literal, TypedDict, TypeVar, get_type_hints

Open = TypeVar("Open", bound=Callable[..., Any])


class OpenOptions(TypedDict, total=False):
    """Keyword arguments of weightmap.open() and weightmap.torch.load(). None is as if not given."""

    sharing: Literal["shared", "private"] | None
    verify: Literal["chain", "headers", "crc"] | None
    endianness: Literal["little", "big", "native"] | None
    protection: Literal["map", "guard", "reflink"] | None
    writable: bool | None
    populate: bool | None
    no_reserve: bool | None
    locked: bool | None
    huge_pages: bool | None
    zero_copy_only: bool | None
    copy_on_write: bool | Literal["small"] | None
    globals: Literal["opaque", "torch_safe"] | None
    repeats: Literal["bounded", "any"] | None


def signature_with_options(function: Callable[..., Any]) -> inspect.Signature:
    """Each option instead of **options."""
    signature = inspect.signature(function, follow_wrapped=False)
    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=type_)
        for name, type_ in get_type_hints(OpenOptions).items()
    ]
    shown = [*signature.parameters.values()][:-1] + options
    return signature.replace(parameters=shown)


def shows_options(function: Open) -> Open:
    """Has help() and editors show each option instead of **options."""
    setattr(function, "__signature__", signature_with_options(function))
    return function
