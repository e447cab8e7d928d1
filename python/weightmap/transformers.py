"""Models of transformers whose parameters lie in the one mapping that all processes share.

    model = weightmap.transformers.load("org/name")      # or a folder
    model.generate(...)
"""

from __future__ import annotations

import os
from typing import Any, Literal

from weightmap import config
from weightmap._errors import InvalidArgumentError, MissingPackageError
from weightmap._patch import patch

try:
    import transformers
except ImportError:
    raise MissingPackageError(
        "weightmap.transformers needs the package transformers: pip install transformers"
    ) from None

# It imports torch, which transformers may be without.
from weightmap._served_model import refuse_gradients

__all__ = ["load"]


def load(
    model: str | os.PathLike[str],
    *,
    cls: Any = None,
    copy_on_write: bool | Literal["small"] = False,
    **options: Any,
) -> Any:
    """What cls.from_pretrained(model, dtype="auto", **options) returns, over the mapped files.

    model: a folder, or a name on the hub, which transformers may download.
    cls: the class; that which config.json names unless given.
    copy_on_write: as in weightmap.open(). False: the parameters lie in the read-only mapping, so any
        number of processes has one copy of them, and backward() raises UnsupportedError at them,
        since a step of an optimizer would end the process.
    options: of from_pretrained(), but for dtype, which would have each process convert all
        parameters into memory of its own.
    """
    given = [name for name in ("dtype", "torch_dtype") if options.get(name, "auto") != "auto"]
    if given:
        raise InvalidArgumentError(
            f"{given[0]}={options[given[0]]!r} would convert the parameters into anonymous memory of "
            "every process; convert the files once, or call from_pretrained() under "
            "weightmap.patch()"
        )
    options.pop("torch_dtype", None)
    options["dtype"] = "auto"
    if cls is None:
        cls = _class_of(model, options)
    with config.patch("load.copy_on_write", copy_on_write), patch():
        loaded = cls.from_pretrained(model, **options)
    return loaded if copy_on_write is True else refuse_gradients(loaded)


_OF_THE_CONFIG = ("cache_dir", "force_download", "local_files_only", "revision", "subfolder", "token",
                  "trust_remote_code")


def _class_of(model: str | os.PathLike[str], options: dict[str, Any]) -> Any:
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
