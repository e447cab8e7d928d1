"""Plain Python objects for what a pickle holds in addition to tensors."""

from __future__ import annotations

import collections

from weightmap._errors import CorruptError
from weightmap._objects import PERSISTENT_ID, Global, Object
from weightmap._plain import decoded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from weightmap._chunked import ChunkedTensor
    from weightmap._core import Tensor


def _tuple(elements: Any = ()) -> tuple[Any, ...]:
    if type(elements) not in (tuple, list, set, frozenset):
        raise ValueError
    return tuple(elements)


def _deque(elements: Any = (), most: Any = None) -> Any:
    if type(elements) not in (tuple, list) or type(most) not in (int, type(None)):
        raise ValueError
    return collections.deque(elements, most)


def _storage_key(thing: Any) -> str | None:
    """The key in a reference to a storage, ("storage", type, key, ...); None of anything else."""
    if type(thing) is not Object or thing.callable != PERSISTENT_ID:
        return None
    (identifier,) = thing.arguments
    is_reference = type(identifier) is tuple and len(identifier) > 2 and identifier[0] == "storage"
    return identifier[2] if is_reference and type(identifier[2]) is str else None


# What a defaultdict may make of a missing key.
FACTORIES = {"list": list, "dict": dict, "set": set, "int": int, "float": float, "str": str,
              "bool": bool, "tuple": tuple}


def _defaultdict(factory: Any = None) -> Any:
    if factory is None:
        return collections.defaultdict(None)
    if not isinstance(factory, Global) or factory.module not in ("builtins", "__builtin__"):
        raise ValueError
    if factory.name not in FACTORIES:
        raise ValueError
    return collections.defaultdict(FACTORIES[factory.name])


# Constructors of plain data that torch.save uses. Their arguments are checked by themselves.
_PLAIN: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("collections", "Counter"): collections.Counter,
    ("collections", "defaultdict"): _defaultdict,
    ("collections", "deque"): _deque,
    ("torch", "Size"): _tuple,
}
for _module in ("builtins", "__builtin__"):
    _PLAIN[_module, "tuple"] = _tuple
    for _kind in (dict, set, frozenset, complex):
        _PLAIN[_module, _kind.__name__] = _kind
# Arguments that these may have; anything else stays an Object. A Counter or a set of an unknown
# object would call that object's methods.
_DATA = (type(None), bool, int, float, str, bytes, list, tuple, dict, set, Global)


class PlainMachine:
    """Makes plain data, and Objects for the rest. See python/src/evaluator.hpp."""

    direct = None

    def __init__(self, chunked: Mapping[str, ChunkedTensor] | None = None) -> None:
        """`chunked`: tensors in several pieces, by the keys of the storages that stand for them."""
        self._chunked = chunked or {}

    @staticmethod
    def finish(made: Any) -> Any:
        is_call = type(made) is Object and type(made.callable) is Global
        return decoded(made) if is_call else made

    @staticmethod
    def tensor(tensor: Tensor) -> Tensor:
        return tensor

    @staticmethod
    def find_global(module: str, name: str) -> Global:
        return Global(module, name)

    def call(self, callable: Any, arguments: Any) -> Any:
        if isinstance(callable, Global) and type(arguments) is tuple:
            make = _PLAIN.get((callable.module, callable.name))
            is_data = all(type(argument) in _DATA for argument in arguments)
            if make is not None and is_data:
                try:
                    return make(*arguments)
                except (TypeError, ValueError):
                    pass
            if self._chunked and callable.module == "torch._utils" and arguments:
                whole = self._chunked.get(_storage_key(arguments[0]) or "")
                if whole is not None:
                    return whole
        return Object(callable, arguments)

    @staticmethod
    def create(callable: Any, arguments: Any) -> Object:
        return Object(callable, arguments, is_new=True)

    @staticmethod
    def extend(target: Any, elements: list[Any]) -> None:
        if isinstance(target, set):
            target.update(elements)
        elif isinstance(target, collections.deque):
            target.extend(elements)
        elif isinstance(target, Object):
            target.elements.extend(elements)

    @staticmethod
    def update(target: Any, flat: list[Any]) -> None:
        pairs = zip(flat[::2], flat[1::2])
        if isinstance(target, dict):
            try:
                for key, value in pairs:
                    target[key] = value
            except TypeError:
                raise CorruptError(
                    "the pickle has a dict with a key that cannot be one, such as a list"
                ) from None
        elif isinstance(target, Object):
            target.items.extend(pairs)

    @staticmethod
    def build(target: Any, state: Any) -> None:
        if isinstance(target, Object):
            target.state = state
        elif isinstance(target, collections.OrderedDict) and type(state) is dict:
            # A state dict's `_metadata`: the versions of its modules.
            target.__dict__.update(state)

    @staticmethod
    def persistent(identifier: Any) -> Object:
        return Object(PERSISTENT_ID, (identifier,))
