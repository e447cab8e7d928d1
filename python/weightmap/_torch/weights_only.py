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
from weightmap._errors import (
    CorruptError,
    Error,
    InvalidArgumentError,
    UnsafePickleError,
    UnsupportedError,
)
from weightmap._objects import Global, Object
from weightmap._torch import dtypes as _dtypes
from weightmap._torch import numpy_calls as _numpy_calls
from weightmap._torch import private
from weightmap._torch import tensors as _tensors
from weightmap._values import PlainMachine

if TYPE_CHECKING:
    from weightmap._torch.direct import DirectTensors

_BLOCKED = frozenset(private._blocklisted_modules)
_MUST_IMPORT_NESTED = (
    "torch.nested._internal.nested_tensor.NestedTensor",
    "torch.nested._internal.nested_tensor._rebuild_njt",
    "torch._dynamo.decorators._DimRange",
) if private.is_older((2, 15)) else ()  # later ones never allow them
_MUST_IMPORT_DTENSOR = ("torch.distributed.tensor.", "torch.distributed.device_mesh.")


# Classes that torch's rules never fill, so that registering them does not help.
_NEVER_FILLED = ("collections.defaultdict", "collections.deque")
_UNLIKE_NUMPY = (
    "Unsupported data of numpy: only its arrays, numbers and dtypes of numbers and text are loaded "
    "unless numpy's functions are registered with `torch.serialization.add_safe_globals()`"
)
_LATER_DTYPES = ("float8_e8m0fnu", "float4_e2m1fn_x2")  # than the oldest torch that is supported
_MOST_NAMES = 50  # that an error lists
_LONGEST_NAME = 200


def refused(what: str) -> UnsafePickleError:
    return UnsafePickleError(f"Weights only load failed. {what}")


def unexpected(what: str) -> UnsafePickleError:
    """For what torch asks to be told of, in the words that its users know."""
    return refused(
        "Please file an issue with the following so that we can make `weights_only=True` "
        f"compatible with your use case: WeightsUnpickler error: {what}"
    )


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


def storage_loader(
    opened: _core.Checkpoint, restore: Any
) -> tuple[Callable[[Any], Any], Callable[[str, Any, torch.Tensor], None]]:
    """A function from persistent ids to storages, each of which is made at its first use, and one
    that tells it of a tensor which was made with its storage: adopt(key, type, tensor).

    restore(storage, location) moves one to its device; None for map_location="meta", where storages
    have no bytes at all. A function and not a class, since it runs once for each tensor.
    """
    load = _bytes_loader(opened, restore)
    if opened.has_chunks():
        load = _with_chunks(opened, restore, load)
    made: dict[str, torch.storage.TypedStorage] = {}
    typed_storage = torch.storage.TypedStorage
    untyped = torch.UntypedStorage
    element_size = private._element_size
    sizes: dict[Any, tuple[torch.dtype, int]] = {}

    def dtype_of(kind: Any) -> torch.dtype:
        return torch.uint8 if kind is untyped else kind.dtype

    def adopt(key: str, kind: Any, tensor: torch.Tensor) -> None:
        made[key] = typed_storage(
            wrap_storage=tensor.untyped_storage(), dtype=dtype_of(kind), _internal=True
        )

    def persistent(identifier: Any) -> torch.storage.TypedStorage:
        if type(identifier) is not tuple or len(identifier) != 5:
            raise unexpected(f"a persistent id of type {type(identifier)} is not one of a storage")
        tag, kind, key, location, numel = identifier
        storage = made.get(key)
        if storage is not None:
            return storage
        if tag != "storage" and tag != b"storage":
            raise unexpected(f"Only persistent_load of storage is allowed, but got {tag!r}")
        if kind not in sizes:
            dtype = dtype_of(kind)
            sizes[kind] = dtype, element_size(dtype)
        dtype, size = sizes[kind]
        nbytes = numel * size
        wrapped = load(key, dtype, nbytes, location)
        storage = typed_storage(wrap_storage=wrapped, dtype=dtype, _internal=True)
        # As torch: a storage without bytes is made anew each time.
        if wrapped.data_ptr() != 0:
            made[key] = storage
        return storage

    def part_of(storage: Any, key: str, offset: int, size: int) -> Any:
        if key not in made:
            unit = element_size(storage.dtype)
            part = storage._untyped_storage[offset * unit : (offset + size) * unit]
            made[key] = typed_storage(wrap_storage=part, dtype=storage.dtype, _internal=True)
        return made[key]

    def persistent_of_stream(identifier: Any) -> torch.storage.TypedStorage:
        if type(identifier) is not tuple or len(identifier) != 6:
            raise refused(f"a persistent id of type {type(identifier)} is not one of a storage")
        storage = persistent(identifier[:5])
        return storage if identifier[5] is None else part_of(storage, *identifier[5])

    is_stream = opened.info()["format"] == "torch_legacy"
    return persistent_of_stream if is_stream else persistent, adopt


def _bytes_loader(opened: _core.Checkpoint, restore: Any) -> Callable[..., Any]:
    """load(key, dtype, nbytes, location): one storage, where it is wanted."""

    find_storage = opened.find_storage
    is_dcp = opened.info()["format"] == "dcp"

    def missing(key: str, nbytes: int) -> CorruptError:
        return CorruptError(f"the archive has no record data/{key} of {nbytes} bytes")

    def place_of(key: str, nbytes: int) -> int:
        place = find_storage(key)
        if place is None or nbytes > place[1]:
            raise missing(key, nbytes)
        return place[0]

    def offset_of(key: str, nbytes: int) -> int:
        offset = place_of(key, nbytes)
        if offset >= opened.info()["file_bytes"]:
            raise UnsupportedError(
                f"storage data/{key} is compressed, so its elements have no place in the file"
            )
        return offset

    def load_meta(key: str, dtype: torch.dtype, nbytes: int, location: Any) -> Any:
        storage = torch.UntypedStorage(nbytes, device="meta")
        if is_dcp:  # of several files
            place_of(key, nbytes)
        else:
            storage._checkpoint_offset = offset_of(key, nbytes)
        if restore is not None:
            storage._fake_device = _text(location)
        return storage

    def load_skipped(key: str, dtype: torch.dtype, nbytes: int, location: Any) -> Any:
        place_of(key, nbytes)
        return restore(torch.UntypedStorage(nbytes), _text(location))

    if restore is None or private.detect_fake_mode(None) is not None:
        return load_meta
    if private._serialization_tls.skip_data:
        return load_skipped

    small, large = (
        _tensors.storage(memory, 0, len(memory))
        for memory in (opened.lend(0), opened.lend(_core.small_storage))
    )
    foreign_dtypes = _foreign_dtypes(opened)
    # Storages of a stream or of items lie anywhere, as those in memory do; those of an archive do
    # where its writer wanted it.
    lies_anywhere = is_dcp or opened.info()["format"] == "torch_legacy" or bool(
        (small.data_ptr() | large.data_ptr()) & 7
    )

    def load_mapped(key: str, dtype: torch.dtype, nbytes: int, location: Any) -> Any:
        place = find_storage(key)  # place_of(), without another call for each tensor
        if place is None or nbytes > place[1]:
            raise missing(key, nbytes)
        offset = place[0]
        whole = small if place[1] < _core.small_storage else large
        storage = whole[offset : offset + nbytes]
        if lies_anywhere and storage.data_ptr() % _tensors.alignment_of(dtype):
            storage = storage.clone()
        if foreign_dtypes is not None:
            return _restore_foreign(storage, foreign_dtypes.get(key, [dtype]), restore, location)
        return restore(storage, location if type(location) is str else _text(location))

    return load_mapped


def _with_chunks(
    opened: _core.Checkpoint, restore: Any, load: Callable[..., Any]
) -> Callable[..., Any]:
    """The same for a checkpoint some of whose storages are put together from pieces."""
    from weightmap._chunked import chunked_tensors

    chunked = chunked_tensors(opened)

    def load_whole(key: str, dtype: torch.dtype, nbytes: int, location: Any) -> Any:
        if key not in chunked:
            return load(key, dtype, nbytes, location)
        if restore is None or private.detect_fake_mode(None) is not None:
            storage = torch.UntypedStorage(nbytes, device="meta")
            if restore is not None:
                storage._fake_device = _text(location)
            return storage
        if private._serialization_tls.skip_data:
            return restore(torch.UntypedStorage(nbytes), _text(location))
        return restore(chunked[key].torch().untyped_storage(), _text(location))

    return load_whole


def _restore_foreign(
    storage: torch.UntypedStorage, dtypes: list[torch.dtype], restore: Any, location: Any
) -> Any:
    """A storage of the other byte order, where it is wanted: swapped, if its tensors agree on how.

    If they do not, each has to swap a copy for itself; see rebuild_foreign().
    """
    if len(dtypes) == 1:
        return restore(_tensors.swapped(storage, dtypes[0]), _text(location))
    copies: dict[int, Any] = {}

    def in_order_of(dtype: torch.dtype) -> Any:
        unit = _swap_unit(dtype)
        if unit not in copies:
            copies[unit] = restore(_tensors.swapped(storage, dtype), _text(location))
        return copies[unit]

    made = restore(storage, _text(location))
    made._weightmap_in_order_of = in_order_of
    return made


def rebuild_foreign(
    storage: Any, offset: Any, size: Any, stride: Any, requires_grad: Any, hooks: Any,
    dtype: torch.dtype, metadata: Any = None,
) -> torch.Tensor:
    """torch's _rebuild_tensor_v3() for storages that tensors of several dtypes share."""
    in_order_of = getattr(storage._untyped_storage, "_weightmap_in_order_of", None)
    if in_order_of is not None:
        storage = torch.storage.TypedStorage(
            wrap_storage=in_order_of(dtype), dtype=torch.uint8, _internal=True
        )
    return private._rebuild_tensor_v3(
        storage, offset, size, stride, requires_grad, hooks, dtype, metadata
    )


def _text(location: Any) -> str:
    return location.decode("ascii") if type(location) is bytes else location


def _swap_unit(dtype: torch.dtype) -> int:
    """How many bytes change places with one another."""
    return dtype.itemsize // (2 if dtype.is_complex else 1)


def _foreign_dtypes(opened: _core.Checkpoint) -> dict[str, list[torch.dtype]] | None:
    """How to swap each storage, by its tensors' dtypes: an untyped storage does not know. One for
    each unit; None if the file has this machine's byte order."""
    if not _tensors.is_foreign(opened.info()["byteorder"]):
        return None
    dtypes: dict[str, list[torch.dtype]] = {}
    for index in range(len(opened)):
        tensor = opened.at(index)
        dtype = getattr(torch, tensor.dtype, None)
        if dtype is not None:
            known = dtypes.setdefault(tensor.storage, [])
            if all(_swap_unit(dtype) != _swap_unit(other) for other in known):
                known.append(dtype)
    return dtypes


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


def explained_refusal(
    error: UnsafePickleError, path: bytes, registered: Iterable[str]
) -> UnsafePickleError:
    """The error of an open that was refused for what the pickle names, in torch's words."""
    try:
        found = _core.list_globals(path, {"safe_globals": [*registered]})
    except Error:
        found = []
    harmful = [(module, name) for module, name, verdict in found if verdict == "harmful"]
    unknown = [f"{module}.{name}" for module, name, verdict in found if verdict == "unknown"]
    if harmful:
        module, name = harmful[0]
        full = _shown(f"{module}.{name}")
        what = (
            _blocked(_shown(module), full)
            if module in _BLOCKED
            else f"Unsupported global: GLOBAL {full} was not an allowed global by default, and is "
            "refused whether it is registered or not, since it can only do harm"
        )
        explained = refused(f"{what}. Nothing was run.")
    elif unknown:
        explained = refused(_unknown_globals([_shown(name) for name in unknown]))
    else:
        explained = unexpected(error.message)
    explained.file, explained.file_offset = error.file, error.file_offset
    return explained


def _blocked(module: str, path: str) -> str:
    return f"Trying to load unsupported GLOBAL {path} whose module {module} is blocked"


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
            ran = f"Of what is registered as safe, this may have run: {_listed(self._registered)}."
        if self._has_unknown:
            what = refused(_unknown_globals(self._unknown_in(opened, path))).message
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
                if module not in _BLOCKED:
                    unknown.append(_shown(f"{module}.{name}"))
        return unknown

    def find_global(self, module: str, name: str) -> Any:
        module, name = _renamed(module, name)
        path = f"{module}.{name}"
        if module in _BLOCKED:
            raise refused(_blocked(module, path))
        if path == _REBUILD_UNTYPED and self._is_foreign:
            return rebuild_foreign
        if path in self._allowed:
            return self._allowed[path]
        if path in self._user_allowed:
            self._registered.append(_shown(path))
            return self._user_allowed[path]
        if (of_numpy := _numpy_calls.find(module, name)) is not None:
            return of_numpy
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
        raise refused(_unknown_globals([_shown(path)]))

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
            if (of_numpy := _numpy_calls.called(function, arguments)) is not None:
                return of_numpy
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
        if type(target) not in (dict, collections.OrderedDict, collections.Counter):
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
                if _numpy_calls.build(target, state):
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


def _shown(path: str) -> str:
    path = path.removeprefix("builtins.")
    path = path if path.isprintable() else repr(path)
    return path if len(path) <= _LONGEST_NAME else path[:_LONGEST_NAME] + "..."


def _listed(names: list[str]) -> str:
    names = list(dict.fromkeys(names))
    rest = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {rest} more" if rest > 0 else "")


def _unknown_globals(names: list[str]) -> str:
    names = list(dict.fromkeys(names))
    others = f", nor {_listed(names[1:])}" if len(names) > 1 else ""
    text = f"Unsupported global: GLOBAL {names[0]} was not an allowed global by default{others}. "
    hopeless = [name for name in names if name in _NEVER_FILLED]
    usable = [name for name in names if name not in _NEVER_FILLED]
    if usable:
        listed = _listed(usable)
        text += (
            f"Please use `torch.serialization.add_safe_globals([{listed}])` or the "
            f"`torch.serialization.safe_globals([{listed}])` context manager to allowlist "
            f"{'this global' if len(usable) == 1 else 'these globals'} if you trust "
            f"{'this class/function' if len(usable) == 1 else 'these classes/functions'}"
        )
    if hopeless:
        verb = "is" if len(hopeless) == 1 else "are"
        text += ". " if usable else ""
        text += f"{_listed(hopeless)} {verb} not loaded even if registered"
    return text


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
