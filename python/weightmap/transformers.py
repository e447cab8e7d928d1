"""Models of transformers whose parameters are pages of the files, which all processes share.

    model = weightmap.transformers.load("org/name")      # or a folder
    model.generate(...)
"""

from __future__ import annotations

import errno
import os
from typing import Any, Literal

from weightmap import config
from weightmap._errors import InvalidArgumentError, MissingFileError, MissingPackageError
from weightmap._open import open
from weightmap._patching.patch import patch

try:
    import huggingface_hub
    import transformers
except ImportError:
    raise MissingPackageError(
        "weightmap.transformers needs the package transformers: pip install transformers"
    ) from None

# transformers may be without it.
import torch

from weightmap._torch.served_model import finish, refuse_conversion

__all__ = ["load"]


def load(
    model: str | os.PathLike[str],
    *,
    cls: Any = None,
    copy_on_write: bool | Literal["small"] | None = None,
    **options: Any,
) -> Any:
    """What cls.from_pretrained(model, dtype="auto", **options) returns, over the mapped files.

    model: a folder, or "org/name" in the local cache of huggingface_hub. MissingFileError if it is
        not there: nothing is fetched, unless local_files_only=False leaves that to transformers.
    cls: the class; that which config.json names unless given.
    copy_on_write: as in weightmap.torch.load_model(): by default the parameters may be written to,
        and only what was written to costs memory. False: a write ends the process.
    options: of from_pretrained(). dtype is "auto" or the one that the file has; another, which would
        have each process convert all parameters into memory of its own, is an UnsupportedError.
    """
    options["dtype"] = _dtype(options.pop("torch_dtype", None) or options.get("dtype"))
    place = name = os.fspath(model)
    if options["dtype"] != "auto" or options.get("local_files_only", True):
        place = _folder_of(name, options)
    if options["dtype"] != "auto":
        below = options.get("subfolder")
        files = os.path.join(place, below) if below else place
        refuse_conversion(open(files, verify="chain"), options["dtype"])
    if cls is None:
        cls = _class_of(place, options)
    chosen = {} if copy_on_write is None else {"load.copy_on_write": copy_on_write}
    with config.override(chosen), patch():
        loaded = cls.from_pretrained(place, **options)
    _give_name(loaded, place, name)
    return finish(loaded)


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
