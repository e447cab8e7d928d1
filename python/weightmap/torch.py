"""torch.load(mmap=True), only faster: the same objects, over a mapped file; and torch.save.

    state = weightmap.torch.load("model.pt")
    weightmap.torch.save(state, "model.pt")          # also over what is mapped

    with weightmap.torch.patch():
        state = torch.load("model.pt", mmap=True)    # goes the same way
"""

from __future__ import annotations

import contextlib
import mmap as _mmap
import operator
import os
import pickle
import stat
import threading
from collections.abc import Iterable, Iterator
from typing import Any, Literal, Unpack

# _tensors says which package is missing where torch is, so it comes before torch.
from weightmap import _core, _open, _save, _tensors, config
from weightmap._checkpoint import Checkpoint
from weightmap._collector import collector_paused
from weightmap._errors import (
    Error,
    InvalidArgumentError,
    UnsafePickleError,
    UnsupportedError,
    about_file,
)
from weightmap._chunked import chunked_tensors, named_tensors
from weightmap._options import OpenOptions, shows_options
from weightmap._place import has_tensors_by_name_only, path_to

import torch

try:
    from torch import serialization
    from torch.utils.serialization import config as torch_config

    from weightmap import _direct
    from weightmap import _script as script
    from weightmap._weights_only import (
        LenientMachine,
        WeightsOnlyMachine,
        explained_refusal,
        registered_globals,
        sparse_tensors_to_validate,
        storage_loader,
        validate_sparse_tensors,
    )

    # Private names that are looked up late: one that is missing is said here, not in mid-load.
    for _owner, _names in (
        (torch, ("_tensor_classes", "_guards.detect_fake_mode")),
        (torch._utils, ("_element_size", "_rebuild_tensor_v3", "_validate_loaded_sparse_tensors",
                        "set_tensor_metadata")),
        (serialization, ("_cpu_tag", "_get_restore_location", "_get_storage_alignment",
                         "_is_meta_location", "_package_registry", "_serialization_tls",
                         "get_crc32_options", "get_default_load_endianness", "location_tag",
                         "normalize_storage_type")),
        (torch, ("_C._get_tensor_metadata", "storage._new_dtypes")),
    ):
        for _name in _names:
            operator.attrgetter(_name)(_owner)
    sparse_tensors_to_validate()
except (ImportError, AttributeError) as missing:
    raise ImportError(
        f"weightmap.torch needs torch 2.13, or a later one that has what it uses; torch "
        f"{torch.__version__} has not: {missing}"
    ) from missing

# The one list of what is registered as safe is torch's own.
add_safe_globals = serialization.add_safe_globals
get_safe_globals = serialization.get_safe_globals
clear_safe_globals = serialization.clear_safe_globals
safe_globals = serialization.safe_globals

__all__ = [
    "add_safe_globals",
    "clear_safe_globals",
    "get_safe_globals",
    "load",
    "patch",
    "safe_globals",
    "save",
]


@shows_options
def load(
    f: _open.PathLike | _open.HasDescriptor | Checkpoint | int,
    map_location: Any = None,
    pickle_module: None = None,
    *,
    weights_only: bool | None = None,
    mmap: bool | None = None,
    only: str | tuple[str | int, ...] | None = None,
    on_unknown: Literal["refuse", "object"] = "refuse",
    safe_globals: Iterable[Any] = (),
    **options: Unpack[OpenOptions],
) -> Any:
    """What torch.load(f, map_location, mmap=True, weights_only=True) returns.

    NEVER torch.save() to the path that you loaded: that cuts the file first, and the process and
    the checkpoint are lost. To resume and save:

        state = weightmap.torch.load("model.pt")
        ...
        with weightmap.replacing("model.pt") as new:
            torch.save(state, new)

    The same types in the same order: OrderedDict with its _metadata, Parameter, torch.Size;
    tensors that share a storage still do; strides, requires_grad, quantized, sparse and nested
    tensors, tensor subclasses, classes registered with torch.serialization.add_safe_globals().
    Tensors lie in the page cache; a write to one copies its page and stays in this process
    (sharing="private", the default here). With sharing="shared", writable=True writes reach the
    file, as with torch's MAP_SHARED. With copy_on_write=False or "small" the mapping is shared and
    read-only: a write to a tensor in it ends the process.

    f: a path; a descriptor that is open for reading, or what has one (fileno()): a file, a
        StagedFile; or a Checkpoint, which tells afterwards what has become of the file (state()).
    map_location: as torch.load takes it: None, a device or its name, "meta", a dict, a function.
    pickle_module, weights_only, mmap: None, True and True are what there is; anything else is
        refused. The pickle is never given to a machine that could run code.
    only: the keys, joined by dots or as a tuple, on the way to the part that is wanted: "model",
        "optimizer.state". Nothing else is made, and no other name in the file matters.
    on_unknown: "object" makes of what would be refused what Checkpoint.root() makes of it: plain
        data, or a weightmap.Object that only says what the file says.
    safe_globals: classes and functions, or (thing, "full.name"), that are safe for this call, in
        addition to those of torch.serialization.add_safe_globals(), which is add_safe_globals()
        here, too.
    Other options: as in weightmap.open(). protection="guard" is refused, unless f is a Checkpoint.

    Python's cyclic garbage collector rests meanwhile, as gc.disable() would have it, and goes on
    afterwards if it was enabled before.

    Refuses what torch's weights-only unpickler refuses, with UnsafePickleError, which is a
    pickle.UnpicklingError and names everything that is refused.

    Of a safetensors file, or of a set of shards (an index, a folder): a dict of tensors by name.
    Of a TorchScript archive: what torch.jit.load(f).state_dict() has, without its code. Of a .pt2
    archive: UnsupportedError; weightmap.open(f).torch() has its tensors.
    """
    _refuse_other_ways(pickle_module, weights_only, mmap)
    if on_unknown not in _MACHINES:
        raise InvalidArgumentError(f"on_unknown is {on_unknown!r}, expected 'refuse' or 'object'")
    registered = registered_globals(safe_globals)
    opened, file = _opened(f, options, registered)
    return _loaded(opened, file, map_location, registered, only, on_unknown)


def _loaded(
    opened: _core.Checkpoint,
    file: str,
    map_location: Any,
    registered: dict[str, Any],
    only: str | tuple[str | int, ...] | None = None,
    on_unknown: str = "refuse",
) -> Any:
    kind = opened.info()["format"]
    if has_tensors_by_name_only(opened):
        return _flat(opened, file, map_location, only)
    if kind == "pt2" or (kind == "torchscript" and only is not None):
        raise UnsupportedError(_HAS_OTHER_WAYS[kind], file=file)
    path = () if only is None else path_to(opened, only, file)
    is_meta = serialization._is_meta_location(map_location)
    restore = None if is_meta else serialization._get_restore_location(map_location)
    is_foreign = _tensors.is_foreign(opened.info()["byteorder"])
    persistent, adopt = storage_loader(opened, restore)
    direct = _direct.settings(map_location, is_foreign, adopt)
    machine = _MACHINES[on_unknown](persistent, is_foreign, direct, registered)
    thread_state = serialization._serialization_tls
    thread_state.map_location = map_location
    try:
        with collector_paused():
            if kind == "torchscript":
                loaded = script.state_dict(opened, persistent, is_foreign)
            else:
                loaded = opened.evaluate(machine, path)
    except UnsafePickleError as error:
        raise about_file(machine.explained(error, opened, path), file) from None
    except Error as error:
        raise about_file(error, file)
    finally:
        thread_state.map_location = None
    validate_sparse_tensors()
    return loaded


def _flat(
    opened: _core.Checkpoint, file: str, map_location: Any, only: Any
) -> dict[str, torch.Tensor]:
    """The tensors of a file of another format than torch's, or of a set of files, by name."""
    if only is not None:
        raise UnsupportedError(
            "has tensors by name and no tree, of which only= would choose a part", file=file
        )
    named = list(named_tensors(opened, chunked_tensors(opened)))
    is_meta = serialization._is_meta_location(map_location)
    try:
        state = _tensors.state_dict(opened, named, "meta" if is_meta else None, None)
    except Error as error:
        raise about_file(error, file)
    if is_meta or map_location is None:
        return state
    restore = serialization._get_restore_location(map_location)
    moved: dict[int, Any] = {}

    def moved_storage(tensor: torch.Tensor, location: str) -> Any:
        storage = tensor.untyped_storage()
        if storage._cdata not in moved:
            moved[storage._cdata] = restore(storage, location)
        return moved[storage._cdata]

    for name, tensor in named:
        made = state[name]
        storage = moved_storage(made, tensor.location)
        if storage.device != made.device:
            empty = torch.empty((0,), dtype=made.dtype, device=storage.device)
            state[name] = empty.set_(storage, made.storage_offset(), made.shape, made.stride())
    return state


_MACHINES = {"refuse": WeightsOnlyMachine, "object": LenientMachine}
_HAS_OTHER_WAYS = {
    "pt2": "is a .pt2 archive, which holds a program; weightmap.open() has its tensors",
    "torchscript": "is a TorchScript archive, of which only= chooses no part",
}


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


def _opened(
    f: Any, options: OpenOptions, registered: dict[str, Any]
) -> tuple[_core.Checkpoint, str]:
    """The checkpoint, and what errors call it."""
    if isinstance(f, Checkpoint):
        given = [name for name, value in options.items() if value is not None]
        if given:
            raise InvalidArgumentError(
                f"is open already, so {', '.join(given)} cannot be chosen any more", file=f.path
            )
        return f._core, f.path
    completed = config._with_defaults(options)
    completed["safe_globals"] = [*registered]
    descriptor = _open.descriptor_of(f)
    if descriptor is not None:
        file = f"descriptor {descriptor}"
        at = f.tell() if hasattr(f, "tell") else 0
        if at != 0:
            raise InvalidArgumentError(
                f"is at byte {at}, where torch.load would begin to read; files are mapped from "
                "their beginning",
                file=file,
            )
        path = b"/proc/self/fd/%d" % descriptor
        try:
            opened = _core.open_descriptor(descriptor, completed, True)
        except UnsafePickleError as error:
            raise explained_refusal(error, path, registered) from None
    elif isinstance(f, (str, bytes, os.PathLike)):
        path = os.fsencode(f)
        file = os.fsdecode(f)
        try:
            opened = _core.open(path, completed, True)
        except UnsafePickleError as error:
            raise explained_refusal(error, path, registered) from None
    else:
        raise InvalidArgumentError(
            f"a file is mapped by its path or descriptor, and a {type(f).__name__} has neither"
        )
    if opened.info()["protection"] == "guard":
        raise UnsupportedError(
            'protection="guard" puts zeros in the place of a lost file, which only a Checkpoint '
            "can tell you: load(checkpoint) what weightmap.open() made with this option, and look "
            "at checkpoint.state()",
            file=file,
        )
    return opened, file


def save(
    obj: Any,
    f: _open.PathLike | _save.CanWrite,
    pickle_module: Any = pickle,
    pickle_protocol: int = serialization.DEFAULT_PROTOCOL,
    _use_new_zipfile_serialization: bool = True,
    _disable_byteorder_record: bool = False,
    *,
    durable: bool = True,
    progress: _open.Progress | None = None,
) -> None:
    """Writes what torch.save(obj, f) writes, byte for byte, of all that weights_only=True reads.

    Anything else raises UnsupportedError, which names the way to it, before a byte is written. A
    path has its new file once that is whole and, with durable, on the disk; until then it keeps
    what it has, also if tensors of `obj` are mapped from it.

    f: a path, or what has a write().
    pickle_module, pickle_protocol and the two behind them: what torch.save takes by default, or
        UnsupportedError.
    progress: as in weightmap.save(), which takes more than torch.save does.

    Follows torch.utils.serialization.config.save and torch.serialization.skip_data().
    """
    if not _is_default_save(
        pickle_module, pickle_protocol, _use_new_zipfile_serialization, _disable_byteorder_record
    ):
        raise UnsupportedError(
            "only what torch.save writes by default is written: pickle_module=pickle, "
            "pickle_protocol=2, a zip file, with the record byteorder"
        )
    _save._write(
        obj,
        f,
        strict=True,
        reserve="data" if serialization._serialization_tls.skip_data else False,
        alignment=serialization._get_storage_alignment(),
        crc32=serialization.get_crc32_options(),
        durable=durable,
        progress=progress,
    )


def _is_default_save(
    pickle_module: Any, pickle_protocol: int, is_zip: bool, has_no_byte_order: bool
) -> bool:
    return pickle_module is pickle and pickle_protocol == 2 and is_zip and not has_no_byte_order


_patch_lock = threading.Lock()
_open_patches = 0  # blocks of patch() under way, in all threads
_open_save_patches = 0  # those of them with save=True
_torch_load: Any = None  # torch's own, while there are any
_torch_save: Any = None


@contextlib.contextmanager
def patch(*, save: bool = False) -> Iterator[None]:
    """Makes torch.load(path, mmap=True) use weightmap, in the whole process, for a block.

    What weightmap does not do (weights_only=False, a file object, a path that ends with
    .safetensors, mmap=False, a TorchScript archive) still goes to torch. torch.serialization.set_default_mmap_options() and
    torch.utils.serialization.config are followed. Blocks may nest and overlap, in several threads:
    torch has its own function back when the last of them ends.

    save: also torch.save(). What save() above refuses still goes to torch.
    """
    global _open_patches, _open_save_patches, _torch_load, _torch_save
    with _patch_lock:
        if _open_patches == 0:
            _torch_load = torch.load
            torch.load = serialization.load = _load_for_torch
        if save and _open_save_patches == 0:
            _torch_save = torch.save
            torch.save = serialization.save = _save_for_torch
        _open_patches += 1
        _open_save_patches += save
    try:
        yield
    finally:
        with _patch_lock:
            _open_patches -= 1
            _open_save_patches -= save
            if _open_patches == 0:
                torch.load = serialization.load = _torch_load
            if save and _open_save_patches == 0:
                torch.save = serialization.save = _torch_save


def _save_for_torch(
    obj: Any,
    f: Any,
    pickle_module: Any = pickle,
    pickle_protocol: int = serialization.DEFAULT_PROTOCOL,
    _use_new_zipfile_serialization: bool = True,
    _disable_byteorder_record: bool = False,
) -> None:
    """What torch.save is while a block of patch(save=True) is open."""
    given = (pickle_module, pickle_protocol, _use_new_zipfile_serialization,
             _disable_byteorder_record)
    original = _torch_save
    if _is_default_save(*given) and not _is_special_file(f):
        try:
            return save(obj, f)
        except UnsupportedError:
            pass  # nothing is written yet
    original(obj, f, *given)


def _is_special_file(f: Any) -> bool:
    """A device or a pipe, which has no new version to take its place."""
    try:
        return isinstance(f, (str, os.PathLike)) and not stat.S_ISREG(os.stat(f).st_mode)
    except OSError:
        return False


def _load_for_torch(
    f: Any,
    map_location: Any = None,
    pickle_module: Any = None,
    *,
    weights_only: bool | None = None,
    mmap: bool | None = None,
    **pickle_load_args: Any,
) -> Any:
    """What torch.load is while a block of patch() is open."""
    original = _torch_load
    wants_mmap = torch_config.load.mmap if mmap is None else mmap
    is_ours = (
        wants_mmap
        and weights_only is not False
        and pickle_module is None
        and not pickle_load_args
        and isinstance(f, (str, os.PathLike))
        and not os.fspath(f).endswith(".safetensors")
        and not _forces_unsafe(weights_only)
    )
    if is_ours:
        registered = registered_globals(())
        opened, file = _opened(f, _torch_options(), registered)
        # torch refuses TorchScript in words of its own, or runs it.
        if opened.info()["format"] != "torchscript":
            return _loaded(opened, file, map_location, registered)
    return original(
        f,
        map_location,
        pickle_module,
        weights_only=weights_only,
        mmap=mmap,
        **pickle_load_args,
    )


def _forces_unsafe(weights_only: bool | None) -> bool:
    """Whether torch's environment variable turns an unspecified weights_only into False."""
    forced = os.environ.get("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "0").lower()
    return weights_only is None and forced in ("1", "y", "yes", "true")


def _torch_options() -> dict[str, Any]:
    """torch's own settings in our words."""
    options: dict[str, Any] = {}
    if torch_config.load.mmap_flags == _mmap.MAP_SHARED:
        options = {"sharing": "shared", "writable": True}
    endianness = serialization.get_default_load_endianness()
    if endianness is not None:
        options["endianness"] = endianness.name.lower()
    return options
