"""What the long calls of a Checkpoint did."""

from __future__ import annotations

from weightmap._record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


def warn_of_left_out(file: str | None, names: Sequence[str]) -> None:
    """By the logger `weightmap`, which prints it unless the program has said otherwise."""
    if names:
        import logging

        more = ", ..." if len(names) > 1 else ""
        logging.getLogger("weightmap").warning(
            "%s%d name%s left out, of what is pickled, compressed or has no elements of whole bytes: "
            "%r%s", f"{file}: " if file else "", len(names), "s" if more else "", names[0], more,
        )


class CrcReport(Record):
    """What verify_crc() read."""

    storages_checked: int
    storages_without_crc: int  # the writer did not compute their sums
    bytes: int


class WarmReport(Record):
    """What warm() did."""

    bytes: int  # brought into memory
    bytes_left_out: int  # by the budget
    budget_reason: str  # what set it: "MemAvailable", "memory.max of /pod"; "" if it was given
    method: str  # that was used
    method_reason: str  # why it is not the default; "" if it is
    storages_checked: int  # against their CRC-32
    seconds: float
    was_reader: bool = False  # with one_reader: this process was elected
    takeovers: int = 0  # 1 if it was elected after it had waited for another
    bytes_read: int = 0  # by this process: what was not cached when its turn came
    bytes_waited_for: int = 0  # that another process read meanwhile
    why_alone: str = ""  # why it read for itself; "" if it did not have to
    budget_bytes: int = 0  # that was kept to; 2**64 - 1: there was none


class LoadReport(Record):
    """What load_into() found different."""

    missing: list[str]  # names of the model that the checkpoint has not
    unexpected: list[str]  # names of the checkpoint that the model has not
