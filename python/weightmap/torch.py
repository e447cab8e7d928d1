"""torch.load(mmap=True), only faster: the same objects, over a mapped file.

    state = weightmap.torch.load("model.pt")

    with weightmap.torch.patch():
        state = torch.load("model.pt", mmap=True)    # goes the same way
"""

from __future__ import annotations

import contextlib
import gc
import mmap as _mmap
import operator
import os
import threading
import zipfile
from collections.abc import Iterator
from typing import Any, Unpack

# _tensors says which package is missing where torch is, so it comes before torch.
from weightmap import _checkpoint, _core, _tensors, config  # noqa: F401
from weightmap._errors import (
    InvalidArgumentError,
    NotACheckpointError,
    UnsupportedError,
)
from weightmap._options import OpenOptions, shows_options

import torch

try:
    from torch import serialization
    from torch.utils.serialization import config as torch_config

    from weightmap import _direct
    from weightmap._weights_only import (
        WeightsOnlyMachine,
        sparse_tensors_to_validate,
        storage_loader,
        validate_sparse_tensors,
    )

    # Private names that are looked up late: one that is missing is said here, not in mid-load.
    for _owner, _names in (
        (torch, ("_tensor_classes", "_guards.detect_fake_mode")),
        (torch._utils, ("_element_size", "_rebuild_tensor_v3", "_validate_loaded_sparse_tensors",
                        "set_tensor_metadata")),
        (serialization, ("_get_restore_location", "_is_meta_location", "_serialization_tls",
                         "get_default_load_endianness")),
    ):
        for _name in _names:
            operator.attrgetter(_name)(_owner)
    sparse_tensors_to_validate()
except (ImportError, AttributeError) as missing:
    raise ImportError(
        f"weightmap.torch needs torch 2.13, or a later one that has what it uses; torch "
        f"{torch.__version__} has not: {missing}"
    ) from missing

__all__ = ["load", "patch"]


@shows_options
def load(
    f: _checkpoint.PathLike,
    map_location: Any = None,
    *,
    weights_only: bool = True,
    **options: Unpack[OpenOptions],
) -> Any:
    """What torch.load(f, map_location, mmap=True, weights_only=True) returns.

    The same types in the same order: OrderedDict with its _metadata, Parameter, torch.Size;
    tensors that share a storage still do; strides, requires_grad, quantized, sparse and nested
    tensors, tensor subclasses, classes registered with torch.serialization.add_safe_globals().
    Tensors lie in the page cache; a write to one copies its page and stays in this process
    (sharing="private", the default here). With sharing="shared", writable=True writes reach the
    file, as with torch's MAP_SHARED.

    map_location: as torch.load takes it: None, a device or its name, "meta", a dict, a function.
    weights_only: must be True; the pickle is never given to a machine that could run code.
    Other options: as in weightmap.open().

    Python's cyclic garbage collector rests meanwhile, as gc.disable() would have it, and goes on
    afterwards if it was enabled before.

    Refuses what torch's weights-only unpickler refuses, with UnsafePickleError, which is a
    pickle.UnpicklingError. TorchScript archives raise UnsupportedError.
    """
    if not weights_only:
        raise UnsupportedError(
            "weights_only=False would run code from the file, which weightmap never does"
        )
    if not isinstance(f, (str, bytes, os.PathLike)):
        raise InvalidArgumentError(f"a file is mapped by its path, not by a {type(f).__name__}")
    opened = _core.open_like_torch(os.fsencode(f), config._with_defaults(options))
    is_meta = serialization._is_meta_location(map_location)
    restore = None if is_meta else serialization._get_restore_location(map_location)
    is_foreign = _tensors.is_foreign(opened.info()["byteorder"])
    persistent, adopt = storage_loader(opened, restore)
    direct = _direct.settings(map_location, is_foreign, adopt)
    machine = WeightsOnlyMachine(persistent, is_foreign, direct)
    thread_state = serialization._serialization_tls
    thread_state.map_location = map_location
    try:
        with _collector_paused():
            loaded = opened.evaluate(machine)
    finally:
        thread_state.map_location = None
    validate_sparse_tensors()
    return loaded


@contextlib.contextmanager
def _collector_paused() -> Iterator[None]:
    """Keeps Python's cyclic garbage collector from running, in all threads.

    What is being built is not garbage, and with torch imported each of the collector's walks over
    everything else costs more than a thousand tensors.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


_patch_lock = threading.Lock()
_open_patches = 0  # blocks of patch() under way, in all threads
_torch_load: Any = None  # torch's own, while there are any


@contextlib.contextmanager
def patch() -> Iterator[None]:
    """Makes torch.load(path, mmap=True) use weightmap, in the whole process, for a block.

    What weightmap does not do (weights_only=False, a file object, the format of before torch 1.6)
    still goes to torch. torch.serialization.set_default_mmap_options() and
    torch.utils.serialization.config are followed. Blocks may nest and overlap, in several threads:
    torch has its own function back when the last of them ends.
    """
    global _open_patches, _torch_load
    with _patch_lock:
        if _open_patches == 0:
            _torch_load = torch.load
            torch.load = serialization.load = _load_for_torch
        _open_patches += 1
    try:
        yield
    finally:
        with _patch_lock:
            _open_patches -= 1
            if _open_patches == 0:
                torch.load = serialization.load = _torch_load


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
        and not _forces_unsafe(weights_only)
    )
    if is_ours:
        try:
            return load(f, map_location, **_torch_options())
        except (NotACheckpointError, UnsupportedError):
            if zipfile.is_zipfile(f):
                raise
            # torch has a way, or a word, of its own for older formats.
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
