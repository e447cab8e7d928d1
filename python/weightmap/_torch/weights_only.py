"""Calls what torch's weights-only unpickler would call, and nothing else.

Which names are allowed, and what they stand for, is asked of torch itself: its built-in list and
what add_safe_globals() and safe_globals() registered. The rules for REDUCE, NEWOBJ, BUILD, APPENDS
and SETITEMS are those of torch/_weights_only_unpickler.py; docs/python.md lists them.
"""

from __future__ import annotations

import collections
import types
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import torch

from weightmap import _core
from weightmap._errors import Error, InvalidArgumentError, UnsafePickleError
from weightmap._objects import Global, Object
from weightmap._torch import dtypes as _dtypes
from weightmap._torch import plain_calls as _plain_calls
from weightmap._torch import private
from weightmap._torch.refusals import (
    BLOCKED,
    blocked,
    listed,
    refused,
    shown,
    unexpected,
    unknown_globals,
)
from weightmap._torch.storages import rebuild_foreign
from weightmap._values import PlainMachine

if TYPE_CHECKING:
    from weightmap._torch.direct import DirectTensors

_MUST_IMPORT_NESTED = (
    "torch.nested._internal.nested_tensor.NestedTensor",
    "torch.nested._internal.nested_tensor._rebuild_njt",
    "torch._dynamo.decorators._DimRange",
) if private.is_older((2, 15)) else ()  # later ones never allow them
_MUST_IMPORT_DTENSOR = ("torch.distributed.tensor.", "torch.distributed.device_mesh.")
_UNLIKE_NUMPY = (
    "Unsupported data of numpy: only its arrays, numbers and dtypes of numbers and text are loaded "
    "unless numpy's functions are registered with `torch.serialization.add_safe_globals()`"
)
_LATER_DTYPES = ("float8_e8m0fnu", "float4_e2m1fn_x2")  # than the oldest torch that is supported


def sparse_tensors_to_validate() -> Any:
    """torch's list of those that were made unchecked: from torch 2.15 on, each thread's own."""
    if private.has("_get_sparse_tensors_to_validate"):
        return private._get_sparse_tensors_to_validate()
    return private._sparse_tensors_to_validate


def validate_sparse_tensors() -> None:
    """Checks them as torch.load does: from torch 2.15 on, whatever torch is set to."""
    validate: Any = private._validate_loaded_sparse_tensors
    if "weights_only" in validate.__code__.co_varnames:
        validate(weights_only=True)
    else:
        validate()


# What rebuilds tensors of the dtypes that torch has no typed storage for.
_REBUILD_UNTYPED = "torch._utils._rebuild_tensor_v3"


def registered_globals(more: Iterable[Any] = ()) -> dict[str, Any]:
    """By name what torch has been told to allow, and `more` in the same forms: classes and
    functions, or (thing, name)."""
    named = dict(private._get_user_allowed_globals())
    for thing in more:
        if isinstance(thing, tuple) and len(thing) == 2 and type(thing[1]) is str:
            named[thing[1]] = thing[0]
        elif callable(thing):
            named[f"{thing.__module__}.{thing.__qualname__}"] = thing
        else:
            raise InvalidArgumentError(
                f"safe_globals has {thing!r}, expected a class, a function, or a tuple of one and "
                "its full name"
            )
    return named


class WeightsOnlyMachine:
    """See python/src/evaluator.hpp for when each method is called."""

    tensor = None  # tensors are made by torch's rebuild functions, like everything else
    finish: Any = None

    def __init__(
        self,
        persistent: Callable[[Any], Any],
        is_foreign: bool,
        direct: DirectTensors | None,
        registered: dict[str, Any] | None = None,
    ) -> None:
        self.persistent = persistent
        self.direct = direct  # but for those that can be made without
        self._is_foreign = is_foreign  # in the other byte order
        self._allowed = private._get_allowed_globals()
        self._user_allowed = registered_globals() if registered is None else registered
        self._registered: list[str] = []  # what the file has used of them
        self._has_unknown = False

    def explained(
        self, error: UnsafePickleError, opened: _core.Checkpoint, path: tuple[str | int, ...]
    ) -> UnsafePickleError:
        """The error of a load that ended with it, with all that there is to say."""
        what = error.message
        ran = "Nothing was run."
        if self._registered:
            ran = f"Of what is registered as safe, this may have run: {listed(self._registered)}."
        if self._has_unknown:
            what = refused(unknown_globals(self._unknown_in(opened, path))).message
        rest = (
            'on_unknown="object" loads the rest, only="KEY" what does not need these names, and '
            "weightmap.open() the tensors"
        )
        return UnsafePickleError(f"{what}. {ran} {rest}", file=error.file)

    def _unknown_in(
        self, opened: _core.Checkpoint, path: tuple[str | int, ...]
    ) -> list[str]:
        """All names in what was asked for that are refused for not being registered, in its order."""
        names = _Names()
        try:
            opened.evaluate(names, path)
        except Error:
            pass  # the names up to there
        unknown = []
        for module, name in names.found:
            try:
                self.find_global(module, name)
            except UnsafePickleError:
                module, name = _renamed(module, name)
                if module not in BLOCKED:
                    unknown.append(shown(f"{module}.{name}"))
        return unknown

    def find_global(self, module: str, name: str) -> Any:
        module, name = _renamed(module, name)
        path = f"{module}.{name}"
        if module in BLOCKED:
            raise refused(blocked(module, path))
        if path == _REBUILD_UNTYPED and self._is_foreign:
            return rebuild_foreign
        if path in self._allowed:
            return self._allowed[path]
        if path in self._user_allowed:
            self._registered.append(shown(path))
            return self._user_allowed[path]
        if (of_plain := _plain_calls.find(module, name)) is not None:
            return of_plain
        if path in _MUST_IMPORT_NESTED:
            raise refused(
                "``torch.nested`` and ``torch._dynamo`` must be imported to load nested jagged "
                "tensors (NJTs)"
            )
        if path.startswith(_MUST_IMPORT_DTENSOR):
            raise refused("``torch.distributed.tensor`` must be imported to load DTensors")
        if module == "torch" and name in _LATER_DTYPES:
            _dtypes.dtype_of(name)  # which says that this torch has none
        self._has_unknown = True
        raise refused(unknown_globals([shown(path)]))

    def _is_allowed(self, thing: Any) -> bool:
        # Compared one by one, as torch does: what a file made of calls need not be hashable. A bound
        # method is another object each time it is asked for.
        is_method = isinstance(thing, (types.BuiltinMethodType, types.MethodType))
        return any(thing is known for known in self._allowed.values()) or any(
            thing is known or (is_method and thing == known)
            for known in self._user_allowed.values()
        )

    def call(self, function: Any, arguments: Any) -> Any:
        if not self._is_allowed(function):
            if (of_plain := _plain_calls.called(function, arguments)) is not None:
                return of_plain
            if _of_numpy(function):
                raise refused(_UNLIKE_NUMPY)
            owner = getattr(function, "__self__", None)
            of = "" if owner is None else f" which belongs to {owner}"
            raise unexpected(f"Trying to call reduce for unrecognized function {function}{of}")
        made = function(*arguments)
        self._note_sparse(function, made)
        return made

    def create(self, type_: Any, arguments: Any) -> Any:
        if type_ is torch.nn.Parameter:
            return torch.nn.Parameter(*arguments)
        if not self._is_allowed(type_):
            raise unexpected(
                "Can only create new object for nn.Parameter or classes allowlisted via "
                f"`add_safe_globals` but got {type_}"
            )
        made = type_.__new__(type_, *arguments)
        self._note_sparse(type_, made)
        return made

    @staticmethod
    def _note_sparse(type_: Any, made: Any) -> None:
        if isinstance(type_, type) and type_ in private._tensor_classes and "sparse" in type_.__module__:
            sparse_tensors_to_validate().append(made)

    def extend(self, target: Any, elements: list[Any]) -> None:
        # Lists are made without asking, so this is something else.
        raise unexpected(f"Can only extend lists, but got {type(target)}")

    def update(self, target: Any, flat: list[Any]) -> None:
        plain = (dict, collections.OrderedDict, collections.Counter, collections.defaultdict)
        if type(target) not in plain:
            raise unexpected(
                "Can only SETITEMS for dict, collections.OrderedDict, collections.Counter, but got "
                f"{type(target)}"
            )
        for key, value in zip(flat[::2], flat[1::2]):
            target[key] = value

    def build(self, target: Any, state: Any) -> None:
        kind = type(target)
        if kind is torch.Tensor:
            target.set_(*state)  # how torch before 0.4 wrote tensors
        elif kind is torch.nn.Parameter:
            target.__setstate__(state)
        elif kind is collections.OrderedDict:
            target.__dict__.update(state)
        elif not self._is_allowed(kind):
            if _of_numpy(kind):
                if _plain_calls.build(target, state):
                    return
                raise refused(_UNLIKE_NUMPY)
            raise unexpected(
                "Can only build Tensor, Parameter, OrderedDict or types allowlisted via "
                f"`add_safe_globals`, but got {kind}"
            )
        elif hasattr(target, "__setstate__"):
            target.__setstate__(state)
        else:
            _set_attributes(target, state)


class LenientMachine(WeightsOnlyMachine):
    """The same, where what is not allowed becomes what Checkpoint.root() makes of it."""

    finish = staticmethod(PlainMachine.finish)
    _plain = PlainMachine()

    def find_global(self, module: str, name: str) -> Any:
        try:
            return super().find_global(module, name)
        except UnsafePickleError:
            self._has_unknown = False
            return Global(module, name)

    def call(self, function: Any, arguments: Any) -> Any:
        if type(function) in (Global, Object):
            return self._plain.call(function, arguments)
        return super().call(function, arguments)

    def create(self, type_: Any, arguments: Any) -> Any:
        if type(type_) in (Global, Object):
            return self._plain.create(type_, arguments)
        return super().create(type_, arguments)

    def extend(self, target: Any, elements: list[Any]) -> None:
        if not isinstance(target, (Object, collections.deque, set)):
            super().extend(target, elements)
        self._plain.extend(target, elements)

    def update(self, target: Any, flat: list[Any]) -> None:
        if not isinstance(target, (Object, collections.defaultdict)):
            return super().update(target, flat)
        self._plain.update(target, flat)

    def build(self, target: Any, state: Any) -> None:
        if not isinstance(target, (Object, collections.deque, collections.defaultdict)):
            return super().build(target, state)
        self._plain.build(target, state)


class _Names:
    """A machine that makes nothing, and notes the names that a pickle uses."""

    tensor = direct = finish = None

    def __init__(self) -> None:
        self.found: list[tuple[str, str]] = []

    def find_global(self, module: str, name: str) -> None:
        self.found.append((module, name))

    def call(self, function: Any, arguments: Any) -> None:
        pass

    create = extend = update = build = call

    def persistent(self, identifier: Any) -> None:
        pass


def _of_numpy(thing: Any) -> bool:
    return str(getattr(thing, "__module__", "")).partition(".")[0] == "numpy"


def _renamed(module: str, name: str) -> tuple[str, str]:
    """What Python 2 wrote has other names; torch renames them as it reads."""
    if (module, name) in private.NAME_MAPPING:
        return private.NAME_MAPPING[(module, name)]
    return private.IMPORT_MAPPING.get(module, module), name


def _set_attributes(target: Any, state: Any) -> None:
    """As pickle does for classes without __setstate__: attributes, or (attributes, slots)."""
    slots = None
    if isinstance(state, tuple) and len(state) == 2:
        state, slots = state
    if state:
        target.__dict__.update(state)
    if slots:
        for name, value in slots.items():
            setattr(target, name, value)
