"""Mapped bytes as torch tensors and storages. Imported when torch is wanted, not before."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from weightmap import _core
from weightmap._collector import collector_paused
from weightmap._errors import Error, MissingPackageError

try:
    import torch
except ImportError:
    raise MissingPackageError("torch tensors need the package torch: pip install torch") from None

from weightmap._torch import private
from weightmap._torch.dtypes import dtype_of

if TYPE_CHECKING:
    from weightmap._core import MappedBytes
    from weightmap._typing import CheckpointTensor


_MOST_PLACES = 3  # that an error names
private.check()
_core.use_torch(private.functions(private.importers()), torch, private.functions(private.BUSY))

_ORDERS = {"little": "big", "big": "little"}


def storage(memory: MappedBytes, offset: int, nbytes: int) -> torch.UntypedStorage:
    """The bytes [offset, offset + nbytes) of the file as a storage that keeps `memory`."""
    if nbytes == 0:
        return torch.UntypedStorage(0)
    part = torch.frombuffer(memory, dtype=torch.uint8, count=nbytes, offset=offset)
    return part.untyped_storage()


def alignment_of(dtype: torch.dtype) -> int:
    """Where torch wants elements to begin. Over a storage of uint8 there may be any."""
    return 8 if dtype == torch.uint8 else min(dtype.itemsize, 8)


def swapped(storage: torch.UntypedStorage, dtype: torch.dtype) -> torch.UntypedStorage:
    """A copy of `storage` in this machine's byte order."""
    copy = storage.clone()
    copy.byteswap(dtype)
    return copy


def view(
    memory: MappedBytes,
    offset: int,
    nbytes: int,
    dtype_name: str,
    storage_offset: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    conjugate: bool,
    negative: bool,
    foreign: bool,
) -> torch.Tensor:
    """A tensor over the storage at [offset, offset + nbytes). Strides are in elements."""
    dtype = dtype_of(dtype_name)
    whole = storage(memory, offset, nbytes)
    if foreign:
        whole = swapped(whole, dtype)
    elif (memory.address + offset) % min(dtype.itemsize, 8):
        whole = whole.clone()
    return _over(whole, dtype, storage_offset, shape, strides, conjugate, negative)


def _over(
    whole: torch.UntypedStorage,
    dtype: torch.dtype,
    storage_offset: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    conjugate: bool,
    negative: bool,
) -> torch.Tensor:
    if 0 in shape:
        storage_offset = 0
    tensor = torch.empty((0,), dtype=dtype).set_(whole, storage_offset, shape, strides)
    # torch asks only whether a key is there, not what it says.
    lazy = {"conj": conjugate, "neg": negative}
    if conjugate or negative:
        private.set_tensor_metadata(tensor, {bit: True for bit in lazy if lazy[bit]})
    return tensor


def state_dict(
    opened: _core.Checkpoint,
    named: Iterable[tuple[str, CheckpointTensor]],
    device: Any,
    dtype: Any,
) -> dict[str, torch.Tensor]:
    """Tensors of one checkpoint, by name; those in several pieces are copied.

    What shares a storage there has one storage object here, and what is the same tensor there is
    one object here, also after a conversion.
    """
    storages: dict[Any, torch.UntypedStorage] = {}
    made: dict[Any, torch.Tensor] = {}
    converts = device is not None or dtype is not None

    def storage_of(tensor: _core.Tensor, kind: torch.dtype) -> torch.UntypedStorage:
        offset, nbytes = opened.storage_place(tensor.storage_index)
        memory = opened.lend(nbytes)
        misaligned = (memory.address + offset) % min(kind.itemsize, 8) != 0
        foreign = tensor.byteorder == "foreign"  # of a set some files may be
        key = tensor.storage_index, kind if foreign or misaligned else None
        if key not in storages:
            whole = storage(memory, offset, nbytes)
            if foreign:
                whole = swapped(whole, kind)
            storages[key] = whole.clone() if misaligned and not foreign else whole
        return storages[key]

    is_guarded = opened.info()["protection"] == "guard"

    def mapped(tensor: _core.Tensor) -> tuple[torch.Tensor, bool]:
        """And whether it is a copy already."""
        if is_guarded:
            opened.check_unchanged(tensor)
        if tensor.block[0] > 1:
            return tensor.torch(), False
        kind = dtype_of(tensor.dtype)
        place = tensor.storage_offset, tensor.shape, tensor.strides
        lazy = tensor.is_conjugate, tensor.is_negative
        made = _over(storage_of(tensor, kind), kind, *place, *lazy)
        return made, (tensor.storage_index, kind) in storages

    def make(tensor: CheckpointTensor, direct: torch.Tensor | None) -> torch.Tensor:
        if not isinstance(tensor, _core.Tensor):  # a copy, which shares with no other
            return tensor.torch().to(device=device, dtype=dtype if tensor.block[0] == 1 else None)
        if direct is not None and not converts:
            return direct
        key = (tensor.storage_index, tensor.dtype, tensor.storage_offset, tensor.shape,
               tensor.strides, tensor.is_conjugate, tensor.is_negative)
        if key not in made:
            whole, is_copy = mapped(tensor) if direct is None else (direct, False)
            made[key] = whole.to(device=device, dtype=dtype if tensor.block[0] == 1 else None)
            if is_copy or made[key] is not whole:
                opened.check_unchanged(tensor)
        return made[key]

    with collector_paused():
        pairs = list(named)
        directly = _core.torch_at_once([tensor for _, tensor in pairs])
        return {name: make(tensor, direct) for (name, tensor), direct in zip(pairs, directly)}


_SECTIONS = {"_parameters", "_buffers", "_modules"}


def state_for(
    model: torch.nn.Module, state: dict[str, torch.Tensor],
    named: Iterable[tuple[str, CheckpointTensor]], at: Callable[[tuple[str, ...]], Any],
) -> dict[str, torch.Tensor]:
    """The state as load_state_dict() would get it from torch.load(); at(()) is where it lies in the
    file. With the versions of its modules, if one looks at them; and without what the model does not
    know and a pickled module has as plain attributes, such as the anchors of a detector: its
    state_dict() leaves them out, too."""
    expected = model.state_dict()
    unknown = state.keys() - expected.keys()
    extra = {name for name, tensor in named
             if name in unknown and isinstance(tensor, _core.Tensor)
             and not (tensor.is_parameter or tensor.is_buffer)}
    reads = private._load_from_state_dict
    has_versions = any(type(each)._load_from_state_dict is not reads for each in model.modules())
    if not extra and not has_versions:
        return state
    made: OrderedDict[str, torch.Tensor] = OrderedDict(state)
    versions = _found(at, "_metadata")
    if isinstance(versions, dict):
        made._metadata = versions  # type: ignore[attr-defined]
    elif _is_module(at(())):
        made = OrderedDict((name, each) for name, each in state.items() if name not in extra)
        made._metadata = expected._metadata  # type: ignore[attr-defined]
    return made


def _found(at: Callable[[tuple[str, ...]], Any], name: str) -> Any:
    try:
        return at((name,))
    except Error:
        return None


def _is_module(value: Any) -> bool:
    insides = (getattr(value, "state", None), *getattr(value, "arguments", ()))  # of torch.fx
    return any(isinstance(inside, dict) and _SECTIONS <= inside.keys() for inside in insides)


def load_into(
    model: torch.nn.Module, state: dict[str, torch.Tensor], strict: bool, file: str, base: str = "",
    opened: str = "checkpoint",
) -> tuple[list[str], list[str]]:
    """The tensors of `state` become those of the model. Names that it misses, and that it does not
    know. What errors say: `state` is what the file has below `base`, and how the file is opened."""
    tied = _tied_parameters(model)
    try:
        answer = model.load_state_dict(state, strict=strict, assign=True)
    except RuntimeError as error:
        _explain_what_lies_deeper(error, model, state, file, base, opened)
        raise
    for names in tied:
        # assign=True makes a Parameter for each name, over the same bytes where they were tied.
        if len({id(state.get(name)) for name in names}) == 1:
            first = model.get_parameter(names[0])
            for name in names[1:]:
                owner, _, last = name.rpartition(".")
                setattr(model.get_submodule(owner), last, first)
    return list(answer.missing_keys), list(answer.unexpected_keys)


def _shape(thing: Any) -> Any:
    return getattr(thing, "shape", None)


def _explain_what_lies_deeper(
    error: RuntimeError, model: torch.nn.Module, state: dict[str, torch.Tensor], file: str,
    base: str, opened: str,
) -> None:
    """For the checkpoint of a training, in which the model is a part: torch lists all names."""
    wanted = {name: _shape(tensor) for name, tensor in model.state_dict().items()}
    places = _places_of_most(wanted, state)
    if not places:
        return
    fits = [place for place in places if not _differences(wanted, state, place)]
    below = [f'"{base}{place}"' for place in (fits or places)[:_MOST_PLACES]]
    more = " and elsewhere" if len(fits or places) > len(below) else ""
    where = f"below {' and below '.join(below)}{more}: take {opened}.load_into(model, {below[0]})"
    if fits:
        raise RuntimeError(f"{file}: the tensors of the model are all {where}") from error
    differing = _differences(wanted, state, places[0])
    rest = len(differing) - _MOST_PLACES
    listed = ", ".join(differing[:_MOST_PLACES]) + (f" and {rest} more" if rest > 0 else "")
    raise RuntimeError(
        f"{file}: most tensors of the model are {where}, where others differ: {listed}"
    ) from error


def _places_of_most(wanted: dict[str, Any], state: dict[str, torch.Tensor]) -> list[str]:
    """Below which most of the names are, if that is more than half of them and than are here."""
    counts: dict[str, int] = {}
    for name in state:
        end = name.find(".")
        while end != -1:
            if name[end + 1 :] in wanted:
                counts[name[:end]] = counts.get(name[:end], 0) + 1
            end = name.find(".", end + 1)
    most = max(counts.values(), default=0)
    here = sum(name in state for name in wanted)
    if most <= here or 2 * most <= len(wanted):
        return []
    return [place for place, count in counts.items() if count == most]


def _differences(
    wanted: dict[str, Any], state: dict[str, torch.Tensor], place: str
) -> list[str]:
    found = []
    for name, shape in wanted.items():
        tensor = state.get(f"{place}.{name}")
        if tensor is None:
            found.append(f"{name!r} is missing")
        elif _shape(tensor) != shape:
            found.append(f"{name!r} is {list(tensor.shape)} there and {list(shape or ())} in the model")
    return found


def _tied_parameters(model: torch.nn.Module) -> list[list[str]]:
    names: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    return [group for group in names.values() if len(group) > 1]


def is_foreign(byteorder: str) -> bool:
    return byteorder == _ORDERS[sys.byteorder]
