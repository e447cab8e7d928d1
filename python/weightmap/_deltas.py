"""Deltas of weights: write_delta() and apply_delta()."""

from __future__ import annotations

import os

from weightmap import _core
from weightmap._errors import InvalidArgumentError
from weightmap.reports import ApplyReport, DeltaReport

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Literal

    from weightmap._typing import PathLike, Progress


def write_delta(
    old: PathLike,
    new: PathLike,
    folder: PathLike,
    *,
    encoding: Literal["xor", "overwrite"] = "xor",
    sums: Literal["xxh3-128", "blake3", "adler32"] = "xxh3-128",
    level: int = 1,
    version: str | None = None,
    base_version: str | None = None,
    threads: int | None = None,
    durable: bool = True,
    progress: Progress | None = None,
) -> DeltaReport:
    """Writes what changed from the checkpoint `old` to `new` as a new folder.

    The format is that of slime, miles, SGLang and ModelExpress: safetensors with a frame of zstd
    for each tensor that changed. The folder appears when it is complete. Both checkpoints must have
    the same tensors, by name, type and shape, or InvalidArgumentError names one.

    encoding: what a frame holds: all bytes of the tensor, combined with the old ones, or the
        positions and values of those that differ.
    sums: by what a tensor is proven once it is changed. UnsupportedError if this build has no
        BLAKE3.
    level: of zstd, 1 to 19.
    version: of `new`; else as the folder is called (weight_v000002), or one more than `old` has.
    base_version: of `old`; else what its folder says, or "000000".
    threads: that compress; else one for each processor.
    durable: wait for the disk.
    progress: is called with the bytes of tensors done and those in all. What it raises before the
        end, and Ctrl-C, leave nothing behind.

    Any thread may call it, and a forked child. The GIL is released meanwhile.
    """
    found, base, files, *counts = _core.write_delta(
        os.fsencode(old),
        os.fsencode(new),
        os.fsencode(folder),
        encoding,
        sums,
        level,
        version,
        base_version,
        threads or 0,
        durable,
        progress,
    )
    return DeltaReport(found, base, [os.fsdecode(file) for file in files], *counts)


def apply_delta(
    base: PathLike,
    deltas: PathLike | Iterable[PathLike],
    folder: PathLike | None = None,
    *,
    in_place: bool = False,
    base_version: str | None = None,
    threads: int | None = None,
    durable: bool = True,
    once: bool = False,
    progress: Progress | None = None,
) -> ApplyReport:
    """Makes the next version of a model: the folder `base`, to which deltas are applied in order.

    `base` is only read, and who has it open keeps it. The new folder appears when all of it was
    compared with the sums in the deltas; of several deltas nothing between is written. Files have
    their names and places, so that it is what a change in place would have made. Follow it by
    publish(), which leads a symbolic link to it.

    What fails leaves nothing behind: InvalidArgumentError for deltas of another version,
    CorruptError for damage, naming file and tensor, NotACheckpointError for what is no delta.

    in_place: in place of a folder: change the files of `base`, for where there is no room for two
        versions. FileError if anybody has one of them open or mapped. All is proven before a byte
        is written, and the folder has another name meanwhile, so that nobody opens what is of two
        versions; after an end in the midst the same call goes on.
    base_version: of `base`; else what its folder says, or "000000".
    threads: that decompress; else one for each processor.
    durable: wait for the disk.
    once: make it once for all who ask for the same folder. One that is there already, of the
        version that the deltas lead to, is the answer; while another process makes it, this one
        waits, and takes over from one that dies.
    progress: is called with the bytes done and those in all. What it raises before the end, and
        Ctrl-C, leave nothing behind.

    Any thread may call it, and a forked child. The GIL is released meanwhile.
    """
    if (folder is None) != in_place:
        raise InvalidArgumentError("give the new folder, or in_place=True")
    several = [deltas] if isinstance(deltas, (str, bytes, os.PathLike)) else deltas
    version, base_found, made, files, *counts = _core.apply_delta(
        os.fsencode(base),
        [os.fsencode(delta) for delta in several],
        b"" if folder is None else os.fsencode(folder),
        in_place,
        base_version,
        threads or 0,
        durable,
        once,
        progress,
    )
    return ApplyReport(version, base_found, made, [os.fsdecode(file) for file in files], *counts)
