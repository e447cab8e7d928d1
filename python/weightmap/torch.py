"""torch.load(mmap=True), only faster: the same objects, over a mapped file; and torch.save.

    state = weightmap.torch.load("model.pt")
    weightmap.torch.save(state, "model.pt")          # also over what is mapped

    with weightmap.patch():
        state = torch.load("model.pt", mmap=True)    # goes the same way

docs/python.md has a table of what differs from torch.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

# tensors says that torch is missing, or what this one lacks, so it comes before torch.
from weightmap import _open
from weightmap._checkpoint import Checkpoint
from weightmap._errors import InvalidArgumentError, UnsupportedError
from weightmap._files import protect
from weightmap._options import OpenOptions, shows_options
from weightmap._torch import tensors as _tensors

import torch
from torch import serialization

from weightmap._saving.save import OF_TORCH, refuse_other_names
from weightmap._torch import load as _torch_load
from weightmap._torch import save as _torch_save
from weightmap._torch import served_model as _served_model
from weightmap._torch.served_memory import summary
from weightmap._torch.slice_recorder import SliceRecorder
from weightmap._torch.weights_only import registered_globals

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from weightmap._typing import CanWrite, HasDescriptor, PathLike, Progress

# The one list of what is registered as safe is torch's own.
add_safe_globals = serialization.add_safe_globals
get_safe_globals = serialization.get_safe_globals
clear_safe_globals = serialization.clear_safe_globals
safe_globals = serialization.safe_globals

__all__ = [
    "SliceRecorder",
    "add_safe_globals",
    "clear_safe_globals",
    "get_safe_globals",
    "load",
    "load_model",
    "protect",
    "safe_globals",
    "save",
    "summary",
]


@shows_options
def load(
    f: PathLike | HasDescriptor | Checkpoint | int,
    map_location: Any = None,
    pickle_module: None = None,
    *,
    weights_only: bool | None = None,
    mmap: bool | None = None,
    only: _torch_load.Place | list[_torch_load.Place] | None = None,
    on_unknown: Literal["refuse", "object"] = "refuse",
    safe_globals: Iterable[Any] = (),
    variant: str | None = None,
    dtypes: Mapping[str, str] | None = None,
    access: Mapping[str, Literal["normal", "random"]] | None = None,
    **options: Unpack[OpenOptions],
) -> Any:
    """What torch.load(f, map_location, mmap=True, weights_only=True) returns: the same types in the
    same order, over the mapped file. docs/python.md has a table of what differs.

    When: a program of yours calls torch.load(), and this line of it may change.

    NEVER torch.save() to the path that you loaded: that cuts the file first, and the process and
    the checkpoint are lost. To resume and save: weightmap.torch.save(state, "model.pt").

    f: a path; a descriptor that is open for reading, or what has one (fileno()): a file, a
        StagedFile; or a Checkpoint, which tells afterwards what has become of the file (state()).
    map_location: as torch.load takes it: None, a device or its name, "meta", a dict, a function.
    pickle_module, weights_only, mmap: None, True and True are what there is; anything else is
        refused. The pickle is never given to a machine that could run code.
    only: the keys, joined by dots or as a tuple, on the way to the part that is wanted: "model",
        "optimizer.state". Nothing else is made, and no other name in the file matters. A list
        stands for several parts, as a dict: only=["model", "ema"] gives {"model": ..., "ema": ...}.
    on_unknown: "object" makes of what would be refused what Checkpoint.root() makes of it: plain
        data, or a weightmap.Object that only says what the file says.
    safe_globals: classes and functions, or (thing, "full.name"), that are safe for this call, in
        addition to those of torch.serialization.add_safe_globals().
    variant, dtypes, access and other options: as in weightmap.open(). By default a write to a tensor copies
        its page and stays in this process (sharing="private"). protection="guard" is refused, unless
        f is a Checkpoint.

    What torch's weights-only unpickler refuses, but for plain data of numpy, raises
    UnsafePickleError, a pickle.UnpicklingError that names everything that is refused.

    Of a safetensors file, or of a set of shards (an index, a folder): a dict of tensors by name.
    Of a TorchScript archive: what torch.jit.load(f).state_dict() has, without its code. Of a .pt2
    archive: UnsupportedError; weightmap.open(f).torch() has its tensors.

    Any thread may call it, also several at once, and a forked child. Children that are forked after
    it share the mapping.
    """
    _refuse_other_ways(pickle_module, weights_only, mmap)
    if on_unknown not in _torch_load.MACHINES:
        raise InvalidArgumentError(f"on_unknown is {on_unknown!r}, expected 'refuse' or 'object'")
    registered = registered_globals(safe_globals)
    chosen = {**options, "variant": variant, "dtypes": dtypes, "access": access}
    opened, file = _torch_load.open_for_load(f, chosen, registered)
    return _torch_load.loaded(opened, file, map_location, registered, only, on_unknown)


@shows_options
def load_model(
    factory: Callable[[], torch.nn.Module],
    f: PathLike,
    dtype: torch.dtype | None = None,
    *,
    strict: bool = True,
    variant: str | None = None,
    dtypes: Mapping[str, str] | None = None,
    access: Mapping[str, Literal["normal", "random"]] | None = None,
    **options: Unpack[OpenOptions],
) -> torch.nn.Module:
    """What factory() makes, with the tensors of a checkpoint as its parameters and buffers: load(),
    and load_state_dict(assign=True), in one.

        model = weightmap.torch.load_model(lambda: Model(config), "model.safetensors")

    Nothing is copied, and all processes share one copy: the module is made without memory
    (torch.device("meta")), then given the mapped tensors (load_state_dict(assign=True)).

    factory: a function without arguments. It is called once more, with parameters that are dropped
        one by one, where the module has tensors that no file has.
    f: what weightmap.open() takes: a file of any format, an index, a folder.
    dtype: of all floating tensors of the file, or UnsupportedError says what converting them would
        cost. None: they stay what they are.
    strict: RuntimeError, as torch's own, if names differ. With False what the file lacks stays on
        "meta".
    copy_on_write: as in weightmap.open(). By default the parameters may be written to, page by
        page; summary() says how much this process has copied. False: a write ends the process,
        after a line that names the tensor, and backward() raises UnsupportedError.
    variant, dtypes, access and other options: as in weightmap.open().

    Any thread may call it, and a forked child. Children that are forked after it share the mapping.
    """
    checkpoint = _open.open(f, variant=variant, dtypes=dtypes, access=access, **options)
    if dtype is not None:
        _served_model.refuse_conversion(checkpoint, dtype)
    return _served_model.finish(_served_model.make(factory, checkpoint, strict))


def _refuse_other_ways(pickle_module: Any, weights_only: Any, mmap: Any) -> None:
    """torch's ways of loading that are not those of weightmap."""
    if weights_only is not None and not weights_only:
        raise UnsupportedError(
            "weights_only=False would run code from the file, which weightmap never does"
        )
    if pickle_module is not None:
        name = getattr(pickle_module, "__name__", type(pickle_module).__name__)
        raise UnsupportedError(
            f"pickle_module={name} would run code from the file, which weightmap never does"
        )
    if mmap is not None and not mmap:
        raise UnsupportedError(
            "mmap=False would read the file into memory, which torch.load does; weightmap maps it"
        )


def save(
    obj: Any,
    f: PathLike | CanWrite,
    pickle_module: Any = pickle,
    pickle_protocol: int = serialization.DEFAULT_PROTOCOL,
    _use_new_zipfile_serialization: bool = True,
    _disable_byteorder_record: bool = False,
    *,
    durable: bool = True,
    progress: Progress | None = None,
) -> None:
    """Writes what torch.save(obj, f) writes, byte for byte, also over the file that is mapped.

    A path has its new file once that is whole and, with durable, on the disk; until then it keeps
    what it has, also if tensors of `obj` are mapped from it. What pickle cannot write (a lambda, a
    local class, an open file) raises UnsupportedError, which names all such places, before a byte
    is written. Only weights_only=False reads back what weights_only=True refuses.

    obj: also with weightmap.Tensor, Checkpoint, Subtree, Global and Object in it, so that what
        Checkpoint.root() gives may be changed and saved, without importing anything.
    f: a path, or what has a write(). A name that ends in .safetensors, .gguf, .npz or .npy is an
        InvalidArgumentError, which says what writes those.
    pickle_module, pickle_protocol and the two behind them: what torch.save takes by default, or
        UnsupportedError.
    progress: as in weightmap.save(). What torch.save writes itself, beside the path, is not told.

    Any thread may call it, also several at once, and a forked child.
    """
    if not _torch_save.is_default_save(
        pickle_module, pickle_protocol, _use_new_zipfile_serialization, _disable_byteorder_record
    ):
        raise UnsupportedError(
            "only what torch.save writes by default is written: pickle_module=pickle, "
            "pickle_protocol=2, a zip file, with the record byteorder"
        )
    refuse_other_names(f, *OF_TORCH)
    _torch_save.save(obj, f, durable, progress)
