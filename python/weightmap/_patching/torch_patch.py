"""torch.load and torch.save by weightmap, for a block: the part of patch() that is about torch."""

from __future__ import annotations

import contextlib
import io
import mmap
import os
import pickle
import stat
from collections.abc import Iterator
from typing import Any, cast

from torch import serialization

from weightmap import _core
from weightmap._errors import Error, UnsupportedError
from weightmap._options import OpenOptions
from weightmap._patching.report import PatchReport, lock, note, settings_of
from weightmap._torch import private
from weightmap._torch.load import loaded, open_for_load
from weightmap._torch.originals import original, replace
from weightmap._torch.save import is_default_save, save, save_by_torch
from weightmap._torch.weights_only import registered_globals


class _Block:
    """A patch() under way."""

    def __init__(self, save: bool, files: str, report: PatchReport) -> None:
        self.save = save
        self.files = files
        self.report = report


_blocks: list[_Block] = []  # in all threads


@contextlib.contextmanager
def torch_patched(save: bool, files: str, report: PatchReport) -> Iterator[None]:
    """The part of patch() that is about torch."""
    block = _Block(save, files, report)
    try:
        with lock():
            _blocks.append(block)
            _follow_blocks()
        yield
    finally:
        with lock():
            if block in _blocks:
                _blocks.remove(block)
            _follow_blocks()


def _follow_blocks() -> None:
    """Has torch's functions replaced as long as a block wants it."""
    replace("load", _load, bool(_blocks))
    replace("save", _save, any(block.save for block in _blocks))


def _note(function: str, file: Any, why: str) -> None:
    note([block.report for block in _blocks], function, _path_of_stream(file) or file, why)


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
    torch_load = original("load")
    takes_all = any(block.files == "all" for block in _blocks)
    why = _why_not(f, pickle_module, weights_only, mmap, pickle_load_args, takes_all)
    if not why:
        try:
            registered = registered_globals(())
            with settings_of(block.report for block in _blocks):
                opened, file = open_for_load(f, _torch_options(), registered)
            # torch refuses TorchScript in words of its own, or runs it.
            if opened.info()["format"] == "torchscript":
                why = "is a TorchScript archive"
            else:
                made = loaded(opened, file, map_location, registered)
                _note("torch.load", f, "")
                return made
        except Error as error:
            if not takes_all:
                raise
            why = error.message
    _note("torch.load", f, why)
    return torch_load(
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
    if not (takes_all or (_maps_by_default() if mmap is None else mmap)):
        return "does not ask for mmap"
    if weights_only is False:
        return "asks for weights_only=False"
    if _forces_unsafe(weights_only):
        return "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD is set"
    if private._serialization_tls.skip_data and private.is_older((2, 7)):
        return "is called under skip_data()"
    if pickle_module is not None or pickle_load_args:
        return "has arguments for a pickle module"
    path: Any = f
    if not isinstance(f, (str, os.PathLike)):
        path = None if mmap else _path_of_stream(f)  # of which torch maps none
        if path is None:
            return f"is a {type(f).__name__}, no path"
        if f.tell() != 0:
            return f"is a {type(f).__name__} at byte {f.tell()}"
    if os.fspath(path).endswith(".safetensors"):
        return "ends with .safetensors, which torch gives to that package"
    if takes_all and _is_small(path):
        return "is smaller than 1 MiB"
    return ""


def _path_of_stream(f: Any) -> str | None:
    """Of what open(path, "rb") gives, also within fsspec's opener, through which Lightning loads;
    None of anything else, such as what decompresses a file."""
    if type(f).__module__ == "fsspec.implementations.local":
        f = getattr(f, "f", None)
    if type(f) is io.BufferedReader and type(f.raw) is io.FileIO and not f.closed:
        return f.name if isinstance(f.name, str) else None
    return None


def _maps_by_default() -> bool:
    """What torch is set to, from 2.7 on."""
    try:
        from torch.utils.serialization import config
    except ImportError:
        return False
    return bool(config.load.mmap)


def _is_small(path: str | os.PathLike[str]) -> bool:
    try:
        return os.stat(path).st_size < _core.small_storage
    except OSError:
        return False


def _forces_unsafe(weights_only: bool | None) -> bool:
    """Whether torch's environment variable turns an unspecified weights_only into False."""
    forced = os.environ.get("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "0").lower()
    return weights_only is None and forced in ("1", "y", "yes", "true")


def _torch_options() -> OpenOptions:
    """torch's own settings in our words."""
    options: dict[str, Any] = {}
    if serialization.get_default_mmap_options() == mmap.MAP_SHARED:
        options = {"sharing": "shared", "writable": True}
    endianness = serialization.get_default_load_endianness()
    if endianness is not None:
        options["endianness"] = endianness.name.lower()
    return cast("OpenOptions", options)


def _save(
    obj: Any,
    f: Any,
    pickle_module: Any = pickle,
    pickle_protocol: int = serialization.DEFAULT_PROTOCOL,
    _use_new_zipfile_serialization: bool = True,
    _disable_byteorder_record: bool = False,
) -> None:
    """What torch.save is while a block with save=True is open."""
    given = (pickle_module, pickle_protocol, _use_new_zipfile_serialization,
             _disable_byteorder_record)
    torch_save = original("save")
    no_file = _why_no_file(f)
    if no_file:
        _note("torch.save", f, no_file)
        torch_save(obj, f, *given)
        return
    why = "has arguments of its own"
    if is_default_save(*given):
        try:
            save(obj, f)
            _note("torch.save", f, "")
            return
        except UnsupportedError as error:
            why = error.message  # nothing is written yet
    _note("torch.save", f, why)
    save_by_torch(obj, f, *given)


def _why_no_file(f: Any) -> str:
    """What f is that torch alone saves to; empty for others."""
    if not isinstance(f, (str, os.PathLike)):
        return "" if callable(getattr(f, "write", None)) else "has no write()"
    try:
        # These have no new version to take their place.
        return "" if stat.S_ISREG(os.stat(f).st_mode) else "is a device or a pipe"
    except (OSError, ValueError):  # there is none, or none can be called so
        return ""
