"""weightmap.open(), and what it takes."""

from __future__ import annotations

import os

from weightmap import _core, config
from weightmap._checkpoint import Checkpoint
from weightmap._errors import InvalidArgumentError
from weightmap._urls import file_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from inspect import Signature
    from typing import Any, Literal

    from typing_extensions import Buffer, Unpack

    from weightmap._options import OpenOptions
    from weightmap._typing import HasDescriptor, PathLike, Progress


def descriptor_of(source: Any) -> int | None:
    """None for a path, and for what is neither."""
    if isinstance(source, (str, bytes, bool, os.PathLike)):
        return None
    try:
        descriptor = source if isinstance(source, int) else source.fileno()
    except (AttributeError, OSError):  # io.BytesIO has the method, and no descriptor
        return None
    return descriptor if isinstance(descriptor, int) else None


def content_of(source: Any) -> memoryview | None:
    """What has a checkpoint in it; None for what leads to one. No path has a zero byte, and no
    checkpoint has none."""
    if isinstance(source, (str, os.PathLike)) or (isinstance(source, bytes) and 0 not in source):
        return None
    try:
        return memoryview(source)
    except TypeError:
        return None


def open(
    path: PathLike | Sequence[PathLike] | HasDescriptor | int | Buffer,
    *,
    trust: bool = False,
    progress: Progress | None = None,
    safe_globals: Iterable[str] = (),
    variant: str | None = None,
    dtypes: Mapping[str, str] | None = None,
    access: Mapping[str, Literal["normal", "random"]] | None = None,
    **options: Unpack[OpenOptions],
) -> Checkpoint:
    """Maps a checkpoint. Nothing is loaded and nothing in the file is run.

    When: you look at a file, or take single tensors of it, with or without torch and numpy.

    path: str, bytes or os.PathLike: a file of any format, the *.index.json of a set of shards, a
        folder with one checkpoint, "FILE//MEMBER" (as text: pathlib makes one slash of two) for
        what lies uncompressed in a tar or zip archive, such as
        "model.nemo//model_weights.ckpt", or "org/name" or "org/name@revision" of a model in the local
        cache of huggingface_hub, where there is no such file; a list of such files, which become
        one checkpoint; or a descriptor that is open for reading, or what has one
        (fileno()), which stays open and may be closed afterwards. Or what has the bytes of a
        checkpoint of one file: any contiguous object with the buffer protocol, which nothing is
        copied of, and which stays exported until the last tensor over it is gone. bytes are
        content if they have a zero byte, as every checkpoint and no path does.
    trust: takes a buffer that is writable, too: nobody may write to it as long as tensors lie in
        it. For torch tensors that are written to, copy_on_write=True copies all of a buffer.
    sharing: "shared" (default) or "private". Read-only, both share pages between processes. With
        writable=True, writes reach the file ("shared") or stay in this process ("private").
    writable: whether numpy arrays may be written to. Default False: writing to them raises.
    verify: "chain" (default) proves offsets from the archive's directory, "headers" also compares
        each with its local header, "crc" also reads every byte and compares the sums.
    endianness: byte order assumed for files that do not say; default "little".
    populate: fault every page in before open() returns.
    no_reserve: no swap accounting for a private writable mapping (MAP_NORESERVE).
    locked: mlock the mapping; needs RLIMIT_MEMLOCK.
    huge_pages: ask for huge pages where the file system has them; by default True, but not in a
        virtual machine whose host takes back free memory (docs/performance.md).
    protection: what becomes of the mapping when the file is truncated under it. "map" (default):
        the process ends with SIGBUS. "guard": zeros take its place and state() says "lost".
        "reflink": a reflink is opened, which nobody else can change; an error where the file
        system has none.
    copy_on_write: whether torch tensors made of this checkpoint may be written to: True (default):
        a write copies its page; False: they lie in the mapping that all processes share, and a
        write ends the process, after a line that names the tensor; "small": True for storages of
        less than 1 MiB, which is what engines write to. Without a say where writable=True.
    globals: "opaque" (default) keeps classes and functions that torch does not allow by default as
        their names; "torch_safe" refuses files that name such, but for those in safe_globals.
    safe_globals: names such as "argparse.Namespace".
    variant: "fp16": of a folder, the files that have it in their names. Without, those that have
        none come first; info["not_opened"] names other checkpoints of the folder.
    dtypes: the dtypes of arrays in an .npz or .npy file that are listed as "opaque[1]" or
        "opaque[2]", since numpy forgot them: {"a": "bfloat16"}.
    access: how the pages of the tensors are read whose names match a pattern, as advise() sets it:
        {"*ngram*": "random"} for tables of which scattered rows are read. The last pattern of a
        tensor's counts; one that matches nothing is an InvalidArgumentError.
    progress: is called with the bytes done and the bytes in all while verify="crc", populate or
        locked reads the file. What it raises, and Ctrl-C, ends the open.

    What is left None comes from weightmap.config, then the environment (WEIGHTMAP_SHARING, ...),
    then the default. Raises weightmap.Error; a missing file is also a FileNotFoundError, and so is
    a URL, for which there is weightmap.remote. The GIL is released meanwhile.

    Any thread may call it, also several at once, and a forked child.
    """
    completed = config._with_defaults(options)
    if safe_globals:
        completed["safe_globals"] = safe_globals
    completed |= {"variant": variant, "dtypes": dtypes, "access": access}
    if isinstance(path, (list, tuple)):
        files = [file_of(each) for each in path]
        if not files:
            raise TypeError("the list of files to open is empty")
        opened = _core.open_files(files, completed, False, progress)
        return Checkpoint(opened, os.fsdecode(files[0]))
    if (content := content_of(path)) is not None:
        return Checkpoint(_core.open_memory(content, trust, completed, progress), "memory")
    if trust:
        raise InvalidArgumentError("trust is about buffers, and this is none")
    descriptor = descriptor_of(path)
    if descriptor is None:
        file = file_of(path)  # type: ignore[arg-type]
        opened = _core.open(file, completed, False, progress)
        return Checkpoint(opened, os.fsdecode(file))
    opened = _core.open_descriptor(descriptor, completed, False, progress)
    return Checkpoint(opened, f"descriptor {descriptor}")


class _Shown:
    """open() as help() and editors see it, who alone need what it takes to tell."""

    __call__ = staticmethod(open)

    @property
    def __signature__(self) -> Signature:
        from weightmap._options import signature_with_options

        return signature_with_options(open)


open.__wrapped__ = _Shown()  # type: ignore[attr-defined]


def guard_is_active() -> bool:
    """Whether a SIGBUS comes to the guard first; False before the first guarded open."""
    return _core.guard_is_active()
