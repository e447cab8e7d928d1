"""The warning of what a file is written or loaded without."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


def warn_of_left_out(file: str | None, names: Sequence[str]) -> None:
    """By the logger `weightmap`, which prints it unless the program has said otherwise."""
    if names:
        import logging

        more = ", ..." if len(names) > 1 else ""
        logging.getLogger("weightmap").warning(
            "%s%d name%s left out, of what is no array, pickled, compressed, of no dtype of a tensor or "
            "without elements of whole bytes: %r%s", f"{file}: " if file else "", len(names), "s" if more else "", names[0], more,
        )
