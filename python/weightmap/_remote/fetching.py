"""metadata(), fetch(), and what they have in common with stage()."""

from __future__ import annotations

import os

from weightmap import _core
from weightmap._checkpoint import Checkpoint
from weightmap._errors import InvalidArgumentError
from weightmap._remote.source import core_source
from weightmap._staging import bytes_allowed
from weightmap.reports import FetchReport, ModelFile, ModelReport

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    from weightmap._remote.source import Source
    from weightmap._typing import PathLike, Progress, RangeSource


def order_of(order: Iterable[str]) -> list[str]:
    if isinstance(order, (str, bytes)):
        raise TypeError(f"order is a list of names: [{order!r}]")
    return list(order)


def chunk_size(chunk_bytes: int | None) -> int:
    return bytes_allowed("chunk_bytes", chunk_bytes)


def sums_of(sha256: str | Mapping[str, str] | None) -> dict[str, bytes]:
    """Digests by the names of files; "" is the only one."""
    texts = {} if sha256 is None else {"": sha256} if isinstance(sha256, str) else dict(sha256)
    for name, text in texts.items():
        if len(text) != 64 or not set(text.lower()) <= set("0123456789abcdef"):
            raise InvalidArgumentError(
                f"sha256 is {text!r}, expected 64 hexadecimal digits", file=name or None
            )
    return {name: bytes.fromhex(text) for name, text in texts.items()}


def fetch_report(fields: dict[str, Any]) -> FetchReport:
    return FetchReport(**{**fields, "path": os.fsdecode(fields["path"])})


def metadata(
    source: str | Source | RangeSource, *, connections: int = 0, unproven: bool = False
) -> Checkpoint:
    """The metadata of a remote checkpoint, or of a set by its index: names, shapes, dtypes, root().

    A few requests, whatever the size of the tensors. Their bytes are not there: what would read
    them raises UnsupportedError, and stage() and fetch() bring them.

    source, connections, unproven: as of stage(). Raises weightmap.Error. The GIL is released meanwhile.

    Any thread may call it, and a forked child; the result is safe to use from any thread.
    """
    core = _core.remote_metadata(core_source(source, connections, unproven))
    return Checkpoint(core, os.fsdecode(core.file()))


def model_files(
    source: str | Source | RangeSource, *, connections: int = 0, unproven: bool = False
) -> list[ModelFile]:
    """The files that fetch_model() of the same source brings, without bringing them.

        sum(file.bytes for file in weightmap.remote.model_files("hf://org/name"))

    Those beside the weights come first, and the one that leads to the others last. A few requests, and
    one for each file.

    source, connections, unproven: as of stage(). Raises weightmap.Error. The GIL is released meanwhile.

    Any thread may call it, and a forked child.
    """
    found = _core.model_files(core_source(source, connections, unproven))
    return [ModelFile(**{**fields, "sha256": fields["sha256"] and fields["sha256"].hex()})
            for fields in found]


def fetch(
    source: str | Source | RangeSource,
    path: PathLike,
    *,
    replace: bool = False,
    order: Iterable[str] = (),
    verify: bool = True,
    chunk_bytes: int | None = None,
    connections: int = 0,
    sha256: str | Mapping[str, str] | None = None,
    require_digest: bool = False,
    unproven: bool = False,
    progress: Progress | None = None,
) -> list[FetchReport]:
    """Fetches a remote checkpoint into a file, or, with all files of its set, into a folder.

    path: of the file, which must not be there yet; or of a folder, which is there or whose path ends
        with a slash. There files of the same version stay.
    replace: the file may be there.
    order, verify, chunk_bytes, connections, sha256, require_digest, unproven: as of stage(). The
        SHA-256s of a set are those of all its files, by their names beside the first.
    progress: is called with the bytes that have come and the bytes in all. What it raises, and
        Ctrl-C, ends the fetch.

    Until it is whole the file is `path`.part; a fetch that was ended or killed goes on where it was.
    One report for each file. A model of the hub, "hf://org/name@revision" or a file of it, is brought
    into a folder by huggingface_hub, which compares what it gets with the hub's SHA-256s; only `path`
    applies then. Raises weightmap.Error. The GIL is released meanwhile.

    Any thread may call it, and a forked child.
    """
    target = os.fsencode(path)
    is_folder = target.endswith(b"/") or os.path.isdir(target)
    if isinstance(source, str) and source.startswith("hf://"):
        from weightmap._remote.hub import fetch_from_hub

        given = {
            "replace": replace, "order": list(order), "verify": not verify, "sha256": sha256,
            "chunk_bytes": chunk_bytes, "connections": connections,
            "require_digest": require_digest, "unproven": unproven, "progress": progress,
        }  # fmt: skip
        return fetch_from_hub(source, target, is_folder, [name for name in given if given[name]])
    reports = _core.fetch(
        core_source(source, connections, unproven),
        target,
        is_folder,
        order_of(order),
        verify,
        chunk_size(chunk_bytes),
        replace,
        sums_of(sha256),
        require_digest,
        progress,
    )
    return [fetch_report(fields) for fields in reports]


def fetch_model(
    source: str | Source | RangeSource,
    link: PathLike,
    *,
    order: Iterable[str] = (),
    verify: bool = True,
    chunk_bytes: int | None = None,
    connections: int = 0,
    sha256: Mapping[str, str] | None = None,
    require_digest: bool = False,
    unproven: bool = False,
    progress: Progress | None = None,
    check: Callable[[str], object] | None = None,
) -> ModelReport:
    """Fetches a remote model as a new version beside those that are there, and then leads `link` to it.

        weightmap.remote.fetch_model("s3://bucket/llama/model.safetensors.index.json", "/models/llama")

    source: of the index of a set, or of model.safetensors, beside which config.json and the
        tokenizer are. "hf://org/name@revision" is brought by huggingface_hub; only `check` applies then.
    link: a symbolic link, or nothing yet. It leads to the folder `link`@VERSION, all of which is on
        the disk and compared, from one moment to the next; killed before, the old version stays and
        the next call goes on. Files that the store has not changed are not fetched again. The version
        before stays, older ones are removed: processes that have them mapped keep them.
    sha256: of all its files, by their names. The others as of fetch().
    check: is called, in a thread of the library, with the folder of a new version before the link
        leads to it: verify_signature(). What it raises is raised; the link stays as it was.

    Raises weightmap.Error. The GIL is released meanwhile. Any thread may call it, and a forked child.
    """
    target = os.fsencode(link)
    if isinstance(source, str) and source.startswith("hf://"):
        from weightmap._remote.hub import fetch_version

        return fetch_version(source, os.fsdecode(target), check)
    fields = _core.fetch_model(
        core_source(source, connections, unproven),
        target,
        order_of(order),
        verify,
        chunk_size(chunk_bytes),
        sums_of(sha256),
        require_digest,
        progress,
        check and (lambda folder: check(os.fsdecode(folder))),
    )
    return ModelReport(
        os.fsdecode(fields["folder"]),
        os.fsdecode(fields["previous"]) or None,
        fields["version"],
        fields["is_new"],
        tuple(fetch_report(each) for each in fields["files"]),
    )
