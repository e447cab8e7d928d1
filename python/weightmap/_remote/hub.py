"""Models of the Hugging Face hub, which huggingface_hub fetches."""

from __future__ import annotations

import os
import re
from urllib.parse import unquote

from weightmap._errors import FileError, InvalidArgumentError, UnsupportedError
from weightmap._remote.bridge import tell
from weightmap.reports import FetchReport

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def fetch_model(url: str, target: bytes, is_folder: bool, given: list[str]) -> list[FetchReport]:
    """Into the folder. `given`: the options that are set, none of which the package would honour."""
    named = re.fullmatch(r"hf://([^/@]+/[^/@]+)(?:@([^/]+))?(?:/(.+))?", url)
    if named is None:
        raise InvalidArgumentError(
            "expected hf://org/name, hf://org/name@revision or hf://org/name/file", file=url
        )
    model, revision, file = named.groups()
    if given:
        raise InvalidArgumentError(f"huggingface_hub fetches it, which has no {given[0]}", file=url)
    if not is_folder:
        raise InvalidArgumentError(
            "is fetched into a folder, which is there or whose path ends with a slash", file=url
        )
    try:
        import huggingface_hub
    except ImportError:
        raise UnsupportedError(
            "models of the hub are fetched by huggingface_hub, which compares what it gets with the "
            "hub's SHA-256s and is not installed (pip install huggingface_hub)",
            file=url,
        ) from None
    folder = os.fsdecode(target)
    where: dict[str, Any] = {"revision": unquote(revision) if revision else None, "local_dir": folder}
    try:
        if file:
            paths = [huggingface_hub.hf_hub_download(model, unquote(file), **where)]
        else:
            huggingface_hub.snapshot_download(model, **where)
            paths = _files(folder)
    except Exception as error:
        raise FileError(tell(error)[0], file=url) from error
    return [_report(path) for path in paths]


def _files(folder: str) -> list[str]:
    found = []
    for at, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name != ".cache"]
        found += [os.path.join(at, name) for name in names]
    return sorted(found)


def _report(path: str) -> FetchReport:
    """Of a file whose requests are not known."""
    unknown: dict[str, Any] = dict.fromkeys(FetchReport.__annotations__, 0)
    known = {"path": path, "file_bytes": os.path.getsize(path), "tag": "", "version_id": ""}
    return FetchReport(**{**unknown, **known, "in_one_request": False, "seconds": 0.0})
