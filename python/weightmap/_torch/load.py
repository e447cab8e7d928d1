"""What weightmap.torch.load() and the patch of torch.load do, once it is clear that they may."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, TypeAlias

import torch

from weightmap import _core, _open, config
from weightmap._checkpoint import Checkpoint
from weightmap._chunked import chunked_tensors, named_tensors
from weightmap._collector import collector_paused
from weightmap._errors import (
    CorruptError,
    Error,
    InvalidArgumentError,
    UnsafePickleError,
    UnsupportedError,
    about_file,
)
from weightmap._left_out import warn_of_left_out
from weightmap._place import has_tensors_by_name_only, missing_path, path_to
from weightmap._torch import direct as _direct
from weightmap._torch import private, script
from weightmap._torch import tensors as _tensors
from weightmap._torch.refusals import explained_refusal
from weightmap._torch.storages import storage_loader
from weightmap._torch.weights_only import (
    LenientMachine,
    WeightsOnlyMachine,
    validate_sparse_tensors,
)
from weightmap._urls import file_of

Place: TypeAlias = str | tuple[str | int, ...]
MACHINES = {"refuse": WeightsOnlyMachine, "object": LenientMachine}
_HAS_OTHER_WAYS = {
    "pt2": "is a .pt2 archive, which holds a program; weightmap.open() has its tensors",
    "torchscript": "is a TorchScript archive, of which only= chooses no part",
}


def loaded(
    opened: _core.Checkpoint,
    file: str,
    map_location: Any,
    registered: dict[str, Any],
    only: Place | list[Place] | None = None,
    on_unknown: str = "refuse",
) -> Any:
    kind = opened.info()["format"]
    if opened.info()["protection"] == "guard":
        for index in range(len(opened)):
            opened.check_unchanged(opened.at(index))
    if has_tensors_by_name_only(opened):
        return _flat(opened, file, map_location, only)
    if kind == "pt2" or (kind == "torchscript" and only is not None):
        raise UnsupportedError(_HAS_OTHER_WAYS[kind], file=file)
    places = only if isinstance(only, list) else [only]
    paths = [() if place is None else path_to(opened, place, file) for place in places]
    is_meta = _is_meta(map_location)
    restore = None if is_meta else private._get_restore_location(map_location)
    is_foreign = _tensors.is_foreign(opened.info()["byteorder"])
    persistent, adopt = storage_loader(opened, restore)
    # The items of a DCP folder begin anywhere, and some of its storages are made of pieces.
    direct = None if kind == "dcp" else _direct.settings(map_location, is_foreign, adopt)
    machine = MACHINES[on_unknown](persistent, is_foreign, direct, registered)
    thread_state = private._serialization_tls
    thread_state.map_location = map_location
    parts: list[Any] = []
    try:
        with collector_paused():
            if kind == "torchscript":
                parts = [script.state_dict(opened, persistent, is_foreign)]
            else:
                # One machine for all, so that parts share the storages that they share in the file.
                for path in paths:
                    parts.append(opened.evaluate(machine, path))
    except UnsafePickleError as error:
        raise about_file(machine.explained(error, opened, paths[len(parts)]), file) from None
    except Error as error:
        if error.message == "has nothing at this path":
            raise missing_path(opened, paths[len(parts)], file) from None
        raise about_file(error, file)
    except (TypeError, RuntimeError) as error:
        if _is_about_metadata(error):
            raise CorruptError(
                "a tensor's metadata is not what torch takes: true or false, by texts", file=file
            ) from error
        raise
    finally:
        thread_state.map_location = None
    validate_sparse_tensors()
    if kind == "dcp":
        warn_of_left_out(file, [*opened.info()["unsupported"], *opened.left_out_values()])
    return dict(zip(places, parts)) if isinstance(only, list) else parts[0]


def _is_meta(map_location: Any) -> bool:
    if isinstance(map_location, torch.device):
        return map_location.type == "meta"
    return isinstance(map_location, str) and map_location == "meta"


def _is_about_metadata(error: BaseException) -> bool:
    """Whether torch has refused what it gives a tensor beside its elements."""
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code is private.set_tensor_metadata.__code__:
            return True
        trace = trace.tb_next
    return False


def _flat(
    opened: _core.Checkpoint, file: str, map_location: Any, only: Any
) -> dict[str, torch.Tensor]:
    """The tensors of a file of another format than torch's, or of a set of files, by name."""
    if only is not None:
        raise UnsupportedError(
            "has tensors by name and no tree, of which only= would choose a part", file=file
        )
    warn_of_left_out(file, opened.info()["unsupported"])
    named = list(named_tensors(opened, chunked_tensors(opened)))
    is_meta = _is_meta(map_location)
    try:
        state = _tensors.state_dict(opened, named, "meta" if is_meta else None, None)
    except Error as error:
        raise about_file(error, file)
    if is_meta or map_location is None:
        return state
    restore = private._get_restore_location(map_location)
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


def open_for_load(
    f: Any, options: Mapping[str, Any], registered: dict[str, Any]
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
    elif isinstance(f, (str, bytes, os.PathLike)):
        path = file_of(f)
        file = os.fsdecode(f)
    else:
        raise InvalidArgumentError(
            f"a file is mapped by its path or descriptor, and a {type(f).__name__} has neither"
        )
    try:
        if descriptor is None:
            opened = _core.open(path, completed, True)
        else:
            opened = _core.open_descriptor(descriptor, completed, True)
    except UnsafePickleError as error:
        raise explained_refusal(error, path, registered) from None
    if opened.info()["protection"] == "guard":
        raise UnsupportedError(
            'protection="guard" puts zeros in the place of a lost file, which only a Checkpoint '
            "can tell you: load(checkpoint) what weightmap.open() made with this option, and look "
            "at checkpoint.state()",
            file=file,
        )
    return opened, file
