"""Models of transformers whose parameters are pages of the files, which all processes share.

    model = weightmap.transformers.load("org/name")      # or a folder
    model.generate(...)

docs/transformers.md is the manual.
"""

from __future__ import annotations

import builtins
import errno
import json
import logging
import os
from typing import TYPE_CHECKING, Any, Literal

from weightmap import config
from weightmap._checkpoint import Checkpoint
from weightmap._errors import (
    Error,
    InvalidArgumentError,
    MissingFileError,
    MissingPackageError,
    UnsupportedError,
)
from weightmap._open import open
from weightmap._patching.patch import patch
from weightmap._patching.report import settings_here

try:
    import huggingface_hub
    import transformers
except ImportError:
    raise MissingPackageError(
        "weightmap.transformers needs the package transformers: pip install transformers"
    ) from None

# transformers may be without it.
import torch

from weightmap._torch.served_memory import bytes_in_no_file
from weightmap._torch.served_model import finish, refuse_conversion

if TYPE_CHECKING:
    from weightmap.experts import ResidentSet

__all__ = ["load", "resident_set"]

_logger = logging.getLogger("weightmap")


def load(
    model: str | os.PathLike[str],
    *,
    cls: Any = None,
    copy_on_write: bool | Literal["small"] | None = None,
    experts: int | str | None = None,
    share: str | None = None,
    **options: Any,
) -> Any:
    """What cls.from_pretrained(model, **options) returns in the dtype of the files, over their mapping.

    When: the model is one of transformers, with or without PEFT's adapters.

    model: a folder, or "org/name" in the local cache of huggingface_hub. MissingFileError if it is
        not there: nothing is fetched, unless local_files_only=False leaves that to transformers.
        Of an adapter, as PEFT saves it: the model that it is for, found likewise, with the adapter.
    cls: the class; that which config.json names unless given.
    copy_on_write: as in weightmap.torch.load_model(): by default the parameters may be written to,
        and only what was written to costs memory. False: a write ends the process.
    experts: the experts of a mixture-of-experts model are not mapped, but read when the router asks,
        within this budget: a number of bytes, text such as "8GiB", or "auto" (weightmap.experts).
        Answers are bit-equal to those of experts_implementation="eager" with all in memory. Experts
        in mxfp4 and in fp8 by blocks stay so until they are used, and are dequantized then; other
        quantized models are an UnsupportedError. Such a model refuses to be saved, converted, moved
        and trained, and has no state_dict().
    share: with experts=, processes of one user that give the same name have one set of them.
    options: of from_pretrained(), variant="fp16" among them. dtype is "auto" or the one that the file
        has; another, which would have each process convert all parameters into memory of its own, is
        an UnsupportedError.
        "auto" is the dtype of the files, whatever config.json says; of files that mix several it is
        what from_pretrained() makes of it, and the logger `weightmap` warns of what is converted.

    Any thread may call it, also several at once. Children that are forked after it share the
    mapping.
    """
    if share is not None and experts is None:
        raise InvalidArgumentError("share= is about experts=")
    options["dtype"] = _dtype(options.pop("torch_dtype", None) or options.get("dtype"))
    place = name = os.fspath(model)
    if options["dtype"] != "auto" or options.get("local_files_only", True):
        place = _folder_of(name, options)
    adapter, of_adapter = None, {}
    base = _base_of(place)
    if base is not None:
        if experts is not None:
            raise UnsupportedError(
                "is an adapter, and experts= takes none: save the model with the adapter merged", file=name
            )
        adapter = place
        of_adapter = {key: options.pop(key) for key in _OF_THE_ADAPTER if key in options}
        # What chose a revision chose that of the adapter.
        options.update(revision=base[1]) if base[1] else options.pop("revision", None)
        place = name = base[0]
        if options.get("local_files_only", True):
            place = _folder_of(name, options)
    dtypes = _settle_dtype(place, options)
    if cls is None:
        cls = _class_of(place, options)
    with settings_here():
        chosen = config.load.copy_on_write if copy_on_write is None else copy_on_write
    # Always said, so that no other block that is open meanwhile says anything else.
    with config.override("load.copy_on_write", chosen), patch():
        if experts is None:
            loaded = cls.from_pretrained(place, **options)
        else:
            from weightmap._transformers.on_demand import from_pretrained

            loaded = from_pretrained(cls, place, options, experts, share)
        _warn_of_conversion(loaded, dtypes)
        if adapter is not None:
            loaded.load_adapter(adapter, **of_adapter)
    _give_name(loaded, place, name)
    return finish(loaded)


def resident_set(model: Any) -> ResidentSet:
    """The experts of a model that was loaded with experts=: what of them is in memory, its statistics
    and profiles."""
    from weightmap._transformers.on_demand import resident_set_of

    return resident_set_of(model)


_OF_THE_ADAPTER = ("adapter_name", "adapter_kwargs")


def _base_of(place: str) -> tuple[str, str | None] | None:
    """The model that the adapter in a folder is for, and its revision; None for another folder."""
    file = os.path.join(place, "adapter_config.json")
    if os.path.exists(os.path.join(place, "config.json")) or not os.path.exists(file):
        return None
    try:
        with builtins.open(file, encoding="utf-8") as text:
            read = json.load(text)
        base, revision = read["base_model_name_or_path"], read.get("revision")
    except (ValueError, KeyError, TypeError, AttributeError):
        base = revision = None
    if not isinstance(base, str) or not isinstance(revision, (str, type(None))):
        raise InvalidArgumentError(
            "does not say which model the adapter is for: expected base_model_name_or_path", file=file
        )
    return base, revision


def _settle_dtype(place: str, options: dict[str, Any]) -> list[str]:
    """Sets that of the files, if they have one, where none is asked for; refuses another. Returns
    all that they have."""
    asked = options["dtype"]
    try:
        files = _open_weights(place, options)
    except Error:
        if asked != "auto":
            raise
        return []  # from_pretrained() knows where they are, or says that there are none
    if asked != "auto":
        refuse_conversion(files, asked)
    found = sorted({each.dtype for each in files.values() if _is_floating(each.dtype)})
    if asked == "auto" and len(found) == 1 and found[0] in _OF_MODELS:
        options["dtype"] = getattr(torch, found[0])
    return found


_OF_MODELS = ("bfloat16", "float16", "float32", "float64")


def _is_floating(dtype: str) -> bool:
    found = getattr(torch, dtype, None)
    return isinstance(found, torch.dtype) and found.is_floating_point


def _open_weights(place: str, options: dict[str, Any]) -> Checkpoint:
    """What from_pretrained() takes of a folder that may have more than one kind of them."""
    folder = os.path.join(place, options.get("subfolder") or "")
    variant = f".{options['variant']}" if options.get("variant") else ""
    kinds = [("pytorch_model", "bin")]
    if options.get("use_safetensors") is not False:
        kinds.insert(0, ("model", "safetensors"))
    for stem, ending in kinds:
        for name in (f"{stem}{variant}.{ending}", f"{stem}.{ending}.index{variant}.json"):
            path = os.path.join(folder, name)
            if os.path.exists(path):
                return open(path, verify="chain")
    return open(folder, verify="chain")


def _warn_of_conversion(loaded: Any, dtypes: list[str]) -> None:
    own = bytes_in_no_file([each for each in loaded.parameters() if each.is_floating_point()])
    if own == 0 or not dtypes:
        return
    _logger.warning(
        "%s: %s bytes of parameters are in memory of this process alone, since they were converted or "
        "made anew; the files have %s, the model takes %s",
        type(loaded).__name__, f"{own:,}", " and ".join(dtypes),
        str(getattr(loaded, "dtype", "several")).removeprefix("torch."),
    )


def _give_name(loaded: Any, place: str, name: str) -> None:
    """Instead of the folder's, since an adapter of the model is saved with it."""
    read = getattr(loaded, "config", None)
    for whose, attribute in ((loaded, "name_or_path"), (read, "_name_or_path")):
        if getattr(whose, attribute, None) == place:
            setattr(whose, attribute, name)


def _dtype(given: Any) -> torch.dtype | Literal["auto"]:
    if given is None or given == "auto":
        return "auto"
    if isinstance(given, str):
        found = getattr(torch, given.removeprefix("torch."), None)
    else:
        found = given
    if not isinstance(found, torch.dtype):
        raise InvalidArgumentError(f"dtype is {given!r}, expected 'auto', a torch.dtype or its name")
    return found


def _folder_of(name: str, options: dict[str, Any]) -> str:
    """Of the model's files; from_pretrained() would ask the network, time and again."""
    if os.path.isdir(name):
        return name
    if os.path.isfile(name):
        raise InvalidArgumentError(
            "is a file; weightmap.transformers.load() takes the folder that it is in with its "
            "config.json, and weightmap.torch.load_model(factory, file) takes files",
            file=name,
        )
    chosen = {key: options[key] for key in ("cache_dir", "revision") if key in options}
    try:
        return str(huggingface_hub.snapshot_download(name, local_files_only=True, **chosen))
    except (FileNotFoundError, ValueError):  # there is none, or none can be called so
        raise MissingFileError(
            "there is no such folder, and no such model in the local cache of huggingface_hub; "
            "nothing is fetched from the network (`hf download` does, and local_files_only=False)",
            file=name, errno=errno.ENOENT,
        ) from None


_OF_THE_CONFIG = ("cache_dir", "force_download", "local_files_only", "revision", "subfolder", "token",
                  "trust_remote_code")


def _class_of(model: str, options: dict[str, Any]) -> Any:
    chosen = {name: options[name] for name in _OF_THE_CONFIG if name in options}
    read = options.get("config") or transformers.AutoConfig.from_pretrained(model, **chosen)
    names = getattr(read, "architectures", None) or []
    for name in names:
        if hasattr(transformers, name):
            return getattr(transformers, name)
    raise InvalidArgumentError(
        f"config.json names {', '.join(names) or 'no architecture'}, which transformers has no class "
        "for; give cls="
    )
