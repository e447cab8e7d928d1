"""Models of the Hugging Face hub, which huggingface_hub fetches."""

from __future__ import annotations

import os
import re
import shutil
from urllib.parse import unquote

from weightmap._errors import FileError, InvalidArgumentError, UnsupportedError
from weightmap._files import publish
from weightmap._remote.bridge import tell
from weightmap.reports import FetchReport, ModelReport

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def fetch_from_hub(url: str, target: bytes, is_folder: bool, given: list[str]) -> list[FetchReport]:
    """Into the folder. `given`: the options that are set, none of which the package would honour."""
    model, revision, file = _parts(url)
    if given:
        raise InvalidArgumentError(f"huggingface_hub fetches it, which has no {given[0]}", file=url)
    if not is_folder:
        raise InvalidArgumentError(
            "is fetched into a folder, which is there or whose path ends with a slash", file=url
        )
    hub = _hub(url)
    folder = os.fsdecode(target)
    try:
        if file:
            paths = [hub.hf_hub_download(model, file, revision=revision, local_dir=folder)]
        else:
            hub.snapshot_download(model, revision=revision, local_dir=folder)
            paths = _files(folder)
    except Exception as error:
        raise FileError(tell(error)[0], file=url) from error
    return [_report(path) for path in paths]


def fetch_version(
    url: str, link: str, check: Callable[[str], object] | None = None
) -> ModelReport:
    """As a version beside the others, named by its commit, once `check` has nothing to raise."""
    model, revision, file = _parts(url)
    if file:
        raise InvalidArgumentError("names a file of a model, and a version has all of it", file=url)
    hub = _hub(url)
    link = os.path.abspath(link)
    previous = os.path.realpath(link) if os.path.exists(link) else None
    own = os.path.join(os.path.realpath(os.path.dirname(link)), os.path.basename(link)) + "@"
    if previous and not previous.startswith(own):
        raise InvalidArgumentError(f"leads to {previous}, which is no version of it", file=link)
    try:
        commit = hub.HfApi().model_info(model, revision=revision).sha
        folder = f"{link}@{commit[:16]}"
        if not os.path.isdir(folder):
            incoming = f"{link}@incoming"
            hub.snapshot_download(model, revision=commit, local_dir=incoming)
            shutil.rmtree(os.path.join(incoming, ".cache"), ignore_errors=True)
            os.rename(incoming, folder)
    except Exception as error:
        raise FileError(tell(error)[0], file=url) from error
    if check and previous != os.path.realpath(folder):
        check(folder)
    publish(folder, link, any_format=True)
    return ModelReport(folder, previous, commit[:16], previous != os.path.realpath(folder),
                       tuple(_report(path) for path in _files(folder)))


def _parts(url: str) -> tuple[str, str | None, str | None]:
    """Model, revision and file."""
    named = re.fullmatch(r"hf://([^/@]+/[^/@]+)(?:@([^/]+))?(?:/(.+))?", url)
    if named is None:
        raise InvalidArgumentError(
            "expected hf://org/name, hf://org/name@revision or hf://org/name/file", file=url
        )
    model, revision, file = named.groups()
    return model, unquote(revision) if revision else None, unquote(file) if file else None


def _hub(url: str) -> Any:
    try:
        import huggingface_hub
    except ImportError:
        raise UnsupportedError(
            "models of the hub are fetched by huggingface_hub, which compares what it gets with the "
            "hub's SHA-256s and is not installed (pip install huggingface_hub)",
            file=url,
        ) from None
    return huggingface_hub


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
    nothing = {"sum_from": "", "has_composite_sum": False, "in_one_request": False, "seconds": 0.0}
    return FetchReport(**{**unknown, **known, **nothing})
