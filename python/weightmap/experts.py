"""Experts of models that are larger than memory: read when the router asks, within a budget.

    with weightmap.open("org/name") as checkpoint:
        resident = weightmap.experts.ResidentSet(checkpoint, budget="8GiB")
    with resident.acquire(["model.layers.0.mlp.experts.7"]) as leases:
        down = leases[0].torch(0)          # read-only, nothing is copied

weightmap.transformers.load(model, experts="8GiB") has models of transformers take theirs so.
docs/experts.md is the manual.
"""

from __future__ import annotations

import operator
import os

from weightmap import _core
from weightmap._errors import InvalidArgumentError
from weightmap._record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any, Literal

    import torch as torch_module
    from numpy.typing import NDArray

    from weightmap._checkpoint import Checkpoint
    from weightmap._typing import PathLike

__all__ = ["Lease", "Leases", "Part", "ResidentSet", "Stats", "Unit", "UnitHistory", "units"]


class Part(Record):
    """A tensor, or one slice of it along its first dimension."""

    tensor: str
    index: int | None = None  # of the slice; None: the whole tensor
    joined: bool = False  # its bytes follow those of the part before it: both are one tensor


class Unit(Record):
    """What is used together, and so comes and goes together: the matrices of one expert."""

    name: str
    parts: tuple[Part, ...]


class Stats(Record):
    """Of a ResidentSet since it was made, by all processes that share it. In bytes, and in units."""

    budget_bytes: int  # as of now
    slot_bytes: int  # of units in slots
    resident_units: int  # in slots
    mapped_units: int  # of this process: last handed out as a part of the mapping
    leased_units: int
    hits: int  # in slots or in the mapping
    misses: int
    missed_bytes: int
    read_bytes: int  # from the files, for misses and prefetches
    prefetched_units: int  # that were read
    evicted_units: int
    waited_seconds: float  # by threads in acquire(), all together
    processes: int  # that have the set now
    why_not_direct: str  # what the file system said to reads past the page cache; "" if it has them


class UnitHistory(Record):
    """Of the use of one unit. Times are numbers of calls of acquire()."""

    last_used: int  # 0: never
    entered: int  # when it became resident the last time
    uses: int  # calls that acquired it


def units(checkpoint: Checkpoint, pattern: str = "*") -> list[Unit]:
    """The experts of a checkpoint among the tensors that match a pattern, in the order of the file.

    Tensors of an expert each, "layers.0.experts.7.w1.weight", make a unit "layers.0.experts.7" of
    all that begin so; fused tensors, whose first dimension is that of the experts, such as
    "layers.0.experts.gate_up_proj" or GGUF's "blk.0.ffn_gate_exps.weight", a unit for each of their
    slices. Parts are in the order of their names.

    TensorNotFoundError if there is none; UnsupportedError if an expert has both a tensor of its own
    and a slice, of which the pattern is to match one kind.
    """
    return [
        Unit(name, tuple([Part(*part) for part in parts]))
        for name, parts in checkpoint._core.expert_units(pattern)
    ]


class Lease:
    """Keeps the bytes of one unit where they are, until it ends: ResidentSet.acquire().

    Arrays and tensors of it keep the unit in memory on their own, also beyond the end of the lease,
    until the last of them is gone: they never show other bytes, and the unit counts against the
    budget that long. A lease that has ended gives no more of them: InvalidArgumentError.

    They are read-only memory, which torch has no word for: a write to a tensor is seen by all who
    share the set, or ends the process.
    """

    __slots__ = ("_core", "_set")

    def __init__(self, core: _core.Lease, resident: ResidentSet) -> None:
        self._core = core
        self._set = resident

    @property
    def unit(self) -> Unit:
        """What it is a lease of."""
        return self._set.units[self._core.unit()]

    @property
    def is_mapped(self) -> bool:
        """Whether the bytes are pages of the mapping of the files, and not in a slot."""
        return self._core.is_mapped()

    def torch(self, part: int = 0, count: int = 1) -> torch_module.Tensor:
        """A part as a torch tensor of the tensor's dtype and of its shape, or that of its slice.

        count: so many parts as one tensor, of which all but the first are joined: their first
            dimensions are added up. Of a blocked dtype the bytes of its blocks, as Tensor.torch().
        """
        return self._core.torch(part, count)

    def numpy(self, part: int = 0, count: int = 1) -> NDArray[Any]:
        """Likewise as a numpy array, which may not be written to."""
        made: NDArray[Any] = self._core.numpy(part, count)
        return made

    def dlpack(self, part: int = 0, count: int = 1) -> Any:
        """Likewise as an object that has __dlpack__() and __dlpack_device__(), of read-only memory.

        BufferError for a dtype that DLPack has no word for.
        """
        return self._core.dlpack(part, count)

    def end(self) -> None:
        """Ends the lease. What was taken of it stays as it is."""
        self._core.end()


class Leases:
    """What ResidentSet.acquire() answers: a lease for each unit, which end with a `with` block."""

    __slots__ = ("_leases",)

    def __init__(self, leases: list[Lease]) -> None:
        self._leases = leases

    def __len__(self) -> int:
        return len(self._leases)

    def __getitem__(self, position: int) -> Lease:
        return self._leases[position]

    def __iter__(self) -> Iterator[Lease]:
        return iter(self._leases)

    def __enter__(self) -> Leases:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Ends all of them."""
        for lease in self._leases:
            lease.end()


class ResidentSet:
    """Units of a checkpoint, of which as many are in memory as a budget allows.

    units: of experts.units(), or one's own. Default: all experts.
    budget: memory for them: a number of bytes, or text such as "8GiB". None or "auto": what this
        machine and the cgroups of this process can give, which is asked anew all the time.
    share: processes of one user that give the same name, units and files use one set of slots.
    policy: which unit makes room: "lru" (what was not used for the longest time), "lfu", "sieve" or
        "s3fifo".
    wait: seconds that acquire() waits for leases of others to end if they leave it no room.

    Keeps the mapping of the checkpoint. Safe to use from any thread; a child that is forked makes a
    set of its own, with `share`. InvalidArgumentError for units that the checkpoint does not have,
    or a checkpoint that is writable; LimitExceededError if the largest unit does not fit the budget.
    """

    __slots__ = ("_opened", "_positions", "units", "unit_bytes", "__weakref__")

    units: tuple[Unit, ...]
    """Those that it was made of."""
    unit_bytes: tuple[int, ...]
    """Of all parts of each, in memory."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        units: Iterable[Unit] | None = None,
        *,
        budget: int | str | None = None,
        share: str | None = None,
        policy: Literal["lru", "lfu", "sieve", "s3fifo"] = "lru",
        wait: float = 10.0,
    ) -> None:
        core = checkpoint._core
        self.units = tuple(_experts_of(checkpoint) if units is None else units)
        given = [
            (unit.name, [(part.tensor, part.index, part.joined) for part in unit.parts])
            for unit in self.units
        ]
        self._opened: _core.ResidentSet | None = core.resident_set(
            given, budget_bytes(budget), share or "", _milliseconds(wait), policy
        )
        self.unit_bytes = tuple(self._opened.unit_bytes())
        self._positions = {unit.name: position for position, unit in enumerate(self.units)}

    @property
    def _core(self) -> _core.ResidentSet:
        opened = self._opened  # which another thread may close at any moment
        if opened is None:
            raise InvalidArgumentError("the set of units is closed")
        return opened

    def __len__(self) -> int:
        """The number of units."""
        return len(self.units)

    def position(self, name: str) -> int:
        """The position in `units` of the one that is called so."""
        try:
            return self._positions[name]
        except KeyError:
            raise InvalidArgumentError(f"there is no unit {name!r}") from None

    def acquire(self, units: Iterable[int | str]) -> Leases:
        """A lease for each of these units, in this order, once all of them are in memory.

        units: positions in `units`, or names. What is not in memory is read, all at once, with the
            GIL released. All or none: no call holds some while it waits for others.

        LimitExceededError if they do not fit the budget together, or if leases of others leave no
        room for `wait` seconds; FileError, which names the unit, if a file was truncated or written
        to since it was opened, or cannot be read.
        """
        return Leases([Lease(each, self) for each in self._core.acquire(self._found(units))])

    def prefetch(self, units: Iterable[int | str]) -> None:
        """Reads units that may be wanted soon, in this order, when nobody waits for others. Returns
        at once; what of the last call was not begun yet is given up: [] cancels. So is what is not
        there when an acquire() has to wait for room."""
        self._core.prefetch(self._found(units))

    def _found(self, units: Iterable[int | str]) -> list[int]:
        if isinstance(units, str):
            raise InvalidArgumentError(f"units are a list of positions or names, not {units!r}")
        found = [self.position(each) if isinstance(each, str) else operator.index(each)
                 for each in units]
        for each in found:
            if not 0 <= each < len(self.units):
                raise InvalidArgumentError(f"there is no unit {each} of {len(self.units)}")
        return found

    def stats(self) -> Stats:
        """What it did so far."""
        return Stats(**self._core.stats())

    def cached_bytes(self) -> int:
        """How many bytes of the units that are in no slot the page cache has: acquire() need not read
        them. Looks at each page of their files.

        FileError, which names the file, if the system does not tell.
        """
        return self._core.cached_bytes()

    def history(self) -> list[UnitHistory]:
        """That of each unit, as of now."""
        return [UnitHistory(*each) for each in self._core.history()]

    def save_profile(self, path: PathLike) -> None:
        """Writes which units were used how often, those that were used last at the end, as text."""
        self._core.save_profile(os.fsencode(path))

    def load_profile(self, path: PathLike) -> None:
        """Prefetches the last units of a profile that the budget has room for. Names of no unit are
        left out; CorruptError for a file that is no profile."""
        self._core.load_profile(os.fsencode(path))

    def close(self) -> None:
        """Gives up the set, never a lease, an array or a tensor: those keep its memory."""
        self._opened = None

    def __enter__(self) -> ResidentSet:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = ", closed" if self._opened is None else ""
        return f"<weightmap.experts.ResidentSet of {len(self.units)} units{state}>"


_experts_of = units  # which the arguments of ResidentSet() hide


_SIZES = {"KiB": 10, "MiB": 20, "GiB": 30, "TiB": 40}


def budget_bytes(budget: int | str | None) -> int:
    """0 for what the machine can give."""
    if budget is None or budget == "auto":
        return 0
    found = None
    if isinstance(budget, str):
        number, shift = budget[:-3].strip(), _SIZES.get(budget[-3:])
        if shift is not None and number.replace(".", "", 1).isdecimal():
            found = int(float(number) * (1 << shift))
    elif not isinstance(budget, bool):
        found = operator.index(budget)
    if found is None or not 0 < found < 1 << 63:
        raise InvalidArgumentError(
            f"the budget is {budget!r}, expected a number of bytes, text such as '8GiB', or 'auto'"
        )
    return found


def _milliseconds(wait: float) -> int:
    if not 0 <= wait < 1 << 40:
        raise InvalidArgumentError(f"wait is {wait!r}, expected seconds")
    return round(wait * 1000)
