"""patch(): torch.load and torch.save by weightmap, for a block."""

from __future__ import annotations

import contextlib
import mmap
import os
import pickle
import stat
from collections.abc import Iterator
from typing import Any, Literal

import torch
from torch import serialization
from torch.utils.serialization import config as torch_config

from weightmap import _core, _torch_load
from weightmap._errors import Error, InvalidArgumentError, UnsupportedError
from weightmap._patch_report import PatchReport, begun, lock, note, settings_of
from weightmap._replacing import Replacing
from weightmap._weights_only import registered_globals


class _Block:
    """One patch() under way."""

    def __init__(self, save: bool, files: str, report: PatchReport) -> None:
        self.save = save
        self.files = files
        self.report = report


_blocks: list[_Block] = []  # in all threads
_originals: dict[str, Any] = {}  # torch's own functions by name, while they are replaced


@contextlib.contextmanager
def patch(
    *, save: bool | None = None, files: Literal["mmap", "all"] = "mmap"
) -> Iterator[PatchReport]:
    """Makes torch.load(path) use weightmap, in the whole process, for a block.

    files: "mmap": calls with mmap=True, or where torch.utils.serialization.config.load.mmap is set.
        "all": whatever they say of mmap, so that programs which read whole checkpoints into memory
        map them. Their tensors are then of the file: who writes over it in place, other than by
        torch.save in this block, ends the process. Files of less than 1 MiB, which programs may
        keep by the thousand, are left to torch, and so is what weightmap refuses.
    save: also torch.save(): a path keeps what it has until the new file is whole. Default True
        with files="all", since torch's own would cut what is mapped, and False otherwise.

    What weightmap does not do (weights_only=False, a file object, a path that ends with
    .safetensors, a TorchScript archive) still goes to torch. torch's default for mmap_options and
    torch.utils.serialization.config are followed, as is weightmap.config; what its patch() says
    where the block begins holds in it for this thread and for those that are started in it. Blocks
    may nest and overlap, in several threads: torch has its own functions back when the last of them
    ends.

    Yields a PatchReport: who was served, and who was not and why.
    """
    if files not in ("mmap", "all"):
        raise InvalidArgumentError(f"files is {files!r}, expected 'mmap' or 'all'")
    with patched(save, files, PatchReport()) as report:
        yield report


@contextlib.contextmanager
def patched(save: bool | None, files: str, report: PatchReport) -> Iterator[PatchReport]:
    """patch(), with this report."""
    block = _Block(files == "all" if save is None else bool(save), files, report)
    with lock():
        _blocks.append(block)
        _follow_blocks()
    try:
        with begun(report):
            yield report
    finally:
        with lock():
            _blocks.remove(block)
            _follow_blocks()


def _follow_blocks() -> None:
    """Has torch's functions replaced as long as a block wants it."""
    _replace("load", _load, bool(_blocks))
    _replace("save", _save, any(block.save for block in _blocks))


def _replace(name: str, function: Any, is_wanted: bool) -> None:
    if is_wanted == (name in _originals):
        return
    if is_wanted:
        _originals[name] = getattr(torch, name)
    else:
        function = _originals.pop(name)
    for module in (torch, serialization):
        setattr(module, name, function)


def _note(function: str, file: Any, why: str) -> None:
    note([block.report for block in _blocks], function, file, why)


def _load(
    f: Any,
    map_location: Any = None,
    pickle_module: Any = None,
    *,
    weights_only: bool | None = None,
    mmap: bool | None = None,
    **pickle_load_args: Any,
) -> Any:
    """What torch.load is while a block is open."""
    original = _originals.get("load", serialization.load)
    takes_all = any(block.files == "all" for block in _blocks)
    why = _why_not(f, pickle_module, weights_only, mmap, pickle_load_args, takes_all)
    if not why:
        try:
            registered = registered_globals(())
            with settings_of(block.report for block in _blocks):
                opened, file = _torch_load.open_for_load(f, _torch_options(), registered)
            # torch refuses TorchScript in words of its own, or runs it.
            if opened.info()["format"] == "torchscript":
                why = "is a TorchScript archive"
            else:
                loaded = _torch_load.loaded(opened, file, map_location, registered)
                _note("torch.load", f, "")
                return loaded
        except Error as error:
            if not takes_all:
                raise
            why = error.message
    _note("torch.load", f, why)
    return original(
        f,
        map_location,
        pickle_module,
        weights_only=weights_only,
        mmap=mmap,
        **pickle_load_args,
    )


def _why_not(
    f: Any,
    pickle_module: Any,
    weights_only: bool | None,
    mmap: bool | None,
    pickle_load_args: dict[str, Any],
    takes_all: bool,
) -> str:
    """Why this call goes to torch; empty if it does not."""
    if not (takes_all or (torch_config.load.mmap if mmap is None else mmap)):
        return "does not ask for mmap"
    if weights_only is False:
        return "asks for weights_only=False"
    if _forces_unsafe(weights_only):
        return "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD is set"
    if pickle_module is not None or pickle_load_args:
        return "has arguments for a pickle module"
    if not isinstance(f, (str, os.PathLike)):
        return f"is a {type(f).__name__}, no path"
    if os.fspath(f).endswith(".safetensors"):
        return "ends with .safetensors, which torch gives to that package"
    if takes_all and _is_small(f):
        return "is smaller than 1 MiB"
    return ""


def _is_small(path: str | os.PathLike[str]) -> bool:
    try:
        return os.stat(path).st_size < _core.small_storage
    except OSError:
        return False


def _forces_unsafe(weights_only: bool | None) -> bool:
    """Whether torch's environment variable turns an unspecified weights_only into False."""
    forced = os.environ.get("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "0").lower()
    return weights_only is None and forced in ("1", "y", "yes", "true")


def _torch_options() -> dict[str, Any]:
    """torch's own settings in our words."""
    options: dict[str, Any] = {}
    if torch_config.load.mmap_flags == mmap.MAP_SHARED:
        options = {"sharing": "shared", "writable": True}
    endianness = serialization.get_default_load_endianness()
    if endianness is not None:
        options["endianness"] = endianness.name.lower()
    return options


def is_default_save(
    pickle_module: Any, pickle_protocol: int, is_zip: bool, has_no_byte_order: bool
) -> bool:
    return pickle_module is pickle and pickle_protocol == 2 and is_zip and not has_no_byte_order


def _save(
    obj: Any,
    f: Any,
    pickle_module: Any = pickle,
    pickle_protocol: int = serialization.DEFAULT_PROTOCOL,
    _use_new_zipfile_serialization: bool = True,
    _disable_byteorder_record: bool = False,
) -> None:
    """What torch.save is while a block with save=True is open."""
    from weightmap import torch as own

    given = (pickle_module, pickle_protocol, _use_new_zipfile_serialization,
             _disable_byteorder_record)
    original = _originals.get("save", serialization.save)
    if _is_special_file(f):
        _note("torch.save", f, "is a device or a pipe")
        return original(obj, f, *given)
    why = "has arguments of its own"
    if is_default_save(*given):
        try:
            own.save(obj, f)
            return _note("torch.save", f, "")
        except UnsupportedError as error:
            why = error.message  # nothing is written yet
    _note("torch.save", f, why)
    save_by_torch(obj, f, *given)


def save_by_torch(obj: Any, f: Any, *given: Any) -> None:
    """torch.save as it is; a path keeps what it has until the new file is whole."""
    original = _originals.get("save", serialization.save)
    if not isinstance(f, (str, bytes, os.PathLike)):
        return original(obj, f, *given)
    with Replacing(f, any_content=True) as new:
        original(obj, new, *given)


def _is_special_file(f: Any) -> bool:
    """A device or a pipe, which has no new version to take its place."""
    try:
        return isinstance(f, (str, os.PathLike)) and not stat.S_ISREG(os.stat(f).st_mode)
    except (OSError, ValueError):  # there is none, or none can be called so
        return False
