"""A module of experts that takes its weights from leases, as the router has decided."""

from __future__ import annotations

import contextlib
import functools
import inspect
import mmap
import operator
import threading
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from weightmap._errors import LimitExceededError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from weightmap import _core
    from weightmap._transformers.expert_files import Place
    from weightmap.experts import ResidentSet


class _NotThere(UnsupportedError, AttributeError):
    """For hasattr(), too."""


class ExpertParameter:
    """Stands where a module of experts had a parameter: [expert] is what the parameter had there.

    The forward functions of transformers' "eager" need no more of it; everything else is refused.
    """

    _is_hf_initialized = True  # transformers does not fill it with random numbers

    def __init__(
        self, layer: ExpertLayer, name: str, place: Place, meta: torch.Tensor
    ) -> None:
        self._layer = layer
        self._name = name
        self._part, self._count, self._dequantize = place
        self.shape = meta.shape
        self.dtype = meta.dtype
        self.device = torch.device("cpu")

    def __getitem__(self, expert: Any) -> torch.Tensor:
        try:
            number = operator.index(expert) if getattr(expert, "ndim", 0) == 0 else None
        except TypeError:
            number = None
        if number is None or not 0 <= number < self.shape[0]:
            self._refuse(f"[{expert!r}]")
        lease = self._layer.lease(number)
        if self._dequantize is not None:
            parts = range(self._part, self._part + self._count)
            return self._dequantize([lease.torch(part, 1) for part in parts])
        made: torch.Tensor = lease.torch(self._part, self._count)
        return made

    def __len__(self) -> int:
        return self.shape[0]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        self._refuse(f".{name}")

    @classmethod
    def __torch_function__(cls, function: Any, *_: Any) -> NoReturn:
        raise _NotThere(
            f"{getattr(function, '__name__', function)}() takes the weights of all experts, which "
            'are read one by one: experts= is for experts_implementation="eager"'
        )

    def __reduce_ex__(self, _protocol: Any) -> NoReturn:
        raise UnsupportedError(
            "a model that reads its experts is neither copied nor pickled: load it again"
        )

    def __repr__(self) -> str:
        return f"<{self._name} of {self.shape[0]} experts, read when they are needed>"

    def _refuse(self, what: str) -> NoReturn:
        raise _NotThere(
            f"{self._name}{what} is not there: its experts are read one by one, for "
            'experts_implementation="eager"; load the model without experts= for more'
        )


class _Call:
    """A forward of one layer in one thread."""

    def __init__(self, hit: list[int]) -> None:
        self.hit = hit  # experts that were not leased yet, in the order in which they will be
        self.goes_in_waves = False
        self.leases: dict[int, _core.Lease] = {}

    def end(self) -> None:
        for lease in self.leases.values():
            lease.end()
        self.leases = {}


class ExpertLayer:
    """The experts of one module: leases of those that a call has hit, a part of them at a time where
    the budget does not have all. Any number of threads may call the module."""

    def __init__(self, resident: ResidentSet, positions: Sequence[int]) -> None:
        self.resident = resident
        self._positions = positions  # in the set, by expert
        self._calls = threading.local()
        page = mmap.PAGESIZE
        # What a slot takes at most: each of its parts may begin and end within a page.
        self._costs = [
            resident.unit_bytes[each] + page * (2 * len(resident.units[each].parts) + 1)
            for each in positions
        ]
        self._budget = 0

    @contextlib.contextmanager
    def call(self, ids: torch.Tensor) -> Iterator[None]:
        """While the module goes through these experts, in this thread."""
        before = getattr(self._calls, "now", None)
        self._calls.now = call = _Call(_experts_in(ids, len(self._positions)))
        try:
            yield
        finally:
            self._calls.now = before
            call.end()

    def lease(self, expert: int) -> _core.Lease:
        call: _Call | None = getattr(self._calls, "now", None)
        if call is None:
            raise UnsupportedError(
                f"expert {expert} is read when its module is called, and not otherwise: its weights "
                "are in weightmap.open(model), and in the model that is loaded without experts="
            )
        found = call.leases.get(expert)
        return self._next(call, expert) if found is None else found

    def _next(self, call: _Call, expert: int) -> _core.Lease:
        """Leases this expert, with those that will be asked for after it. Nothing of the call is
        leased meanwhile, so that calls cannot wait for each other."""
        call.end()
        if expert in call.hit:
            call.hit = call.hit[call.hit.index(expert):]
        else:
            call.hit.insert(0, expert)
        call.goes_in_waves = call.goes_in_waves or not self._fits(call.hit)
        wave = self._half(call.hit) if call.goes_in_waves else call.hit
        try:
            leases = self._acquire(wave)
        except LimitExceededError:  # others hold too much, or the machine gives less than before
            self._look_at_budget()
            smaller = self._half(call.hit)
            if len(smaller) >= len(wave):
                raise
            call.goes_in_waves, wave = True, smaller
            leases = self._acquire(wave)
        call.leases = dict(zip(wave, leases))
        call.hit = call.hit[len(wave):]
        if call.hit:
            self.resident._core.prefetch(self._found(self._half(call.hit)))
        return leases[0]

    def _acquire(self, experts: list[int]) -> list[_core.Lease]:
        return self.resident._core.acquire(self._found(experts))

    def _found(self, experts: list[int]) -> list[int]:
        return [self._positions[each] for each in experts]

    def _fits(self, hit: list[int]) -> bool:
        """Whether all of them have room at once."""
        need = sum(self._costs[each] for each in hit)
        if need > self._budget:
            self._look_at_budget()
        return need <= self._budget

    def _half(self, hit: list[int]) -> list[int]:
        """As many of the first ones as half of the budget has room for, so that those after them can
        be read meanwhile."""
        end, room = 1, self._budget // 2 - self._costs[hit[0]]
        while end < len(hit) and self._costs[hit[end]] <= room:
            room -= self._costs[hit[end]]
            end += 1
        return hit[:end]

    def _look_at_budget(self) -> None:
        self._budget = self.resident.stats().budget_bytes


def _experts_in(ids: torch.Tensor, count: int) -> list[int]:
    """In the order in which transformers goes through them; a number beyond them stands for none."""
    return [each for each in torch.unique(ids.detach()).tolist() if 0 <= each < count]


class _WithoutGradient(torch.autograd.Function):
    """Runs a function in which nothing is recorded: what is recorded keeps the leases."""

    @staticmethod
    def forward(ctx: Any, run: Callable[..., Any], *arguments: Any) -> Any:
        return run(*arguments)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> NoReturn:
        raise UnsupportedError(
            "experts that are read when they are needed have no backward(): load the model without "
            "experts= to train it, or an adapter of it"
        )


@functools.lru_cache(maxsize=None)
def on_demand_class(kind: type[torch.nn.Module]) -> type[torch.nn.Module]:
    """A module of experts of this class, whose own forward runs over leases. It has its ExpertLayer
    as `_weightmap_layer`."""
    name_of_ids = list(inspect.signature(kind.forward).parameters)[2]

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        layer: ExpertLayer = self._weightmap_layer
        ids = args[1] if len(args) > 1 else kwargs[name_of_ids]
        values = (*args, *kwargs.values())

        def run(*given: Any) -> Any:
            return kind.forward(self, *given[:len(args)], **dict(zip(kwargs, given[len(args):])))

        is_recorded = torch.is_grad_enabled() and any(
            isinstance(each, torch.Tensor) and each.requires_grad for each in values
        )
        with layer.call(ids):
            return _WithoutGradient.apply(run, *values) if is_recorded else run(*values)

    functools.update_wrapper(forward, kind.forward)
    return type(kind.__name__, (kind,), {"forward": forward, "__module__": kind.__module__})
