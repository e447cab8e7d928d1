"""weightmap.save(), and what it answers."""

from __future__ import annotations

import os
import sys

from weightmap import _core
from weightmap._collector import collector_paused
from weightmap._errors import Error, InvalidArgumentError, about_file
from weightmap._record import Record
from weightmap._left_out import warn_of_left_out
from weightmap._replacing import remove_abandoned
from weightmap._saving.checkpoints import Checkpoints, core_of
from weightmap._saving.values import Values
from weightmap.reports import SaveReport

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from typing import Any, Literal, TypeAlias

    from weightmap._typing import CanWrite, PathLike, Progress

    Reserve: TypeAlias = bool | Literal["meta"] | Callable[[str], bool] | Collection[str]

_DEFAULT_ALIGNMENT = 64


class ShapeOnly(Record):
    """What empty() makes."""

    shape: tuple[int, ...]
    dtype: str


def empty(shape: int | tuple[int, ...] | list[int], dtype: Any = "float32") -> ShapeOnly:
    """A tensor without elements, for save(): room in the file, which is filled in later.

    dtype: its name as in Tensor.dtype, or what is called so: torch.bfloat16, numpy.float32.
    """
    name = dtype.__name__ if isinstance(dtype, type) else str(dtype).removeprefix("torch.")
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    return ShapeOnly(sizes, name)


def save(
    obj: Any,
    path: PathLike | CanWrite,
    *,
    reserve: Reserve = False,
    alignment: int | None = None,
    crc: bool = True,
    durable: bool = True,
    progress: Progress | None = None,
) -> SaveReport:
    """Writes a checkpoint that torch.load(weights_only=True) reads, and that opens here.

    obj: what torch.save takes and weights_only=True reads; in it also arrays of numpy and of what
        speaks DLPack, which become tensors, weightmap.Tensor, Checkpoint and Subtree, which are
        written from their mapping, and empty(). What is one object, or one storage, stays one.
        Anything else raises UnsupportedError, which names the way to it, before a byte is written.
    path: the file, which appears once it is whole; what was there stays until then, also if it is
        the checkpoint that is being saved. Or what has a write(), which is given bytes. A name that
        ends in .safetensors, .gguf, .npz or .npy is an InvalidArgumentError.
    reserve: storages that get their room, and no bytes: True for all; "meta" for those of torch's
        meta tensors, which otherwise are saved without any; the names of tensors, or a function
        that is asked for each name.
    alignment: each storage begins at a multiple of it. Default: 64, or that of the Checkpoint that
        is saved; 4096 or 2 MiB are good for mapping.
    crc: give each record its checksum.
    durable: wait until the file is on the disk.
    progress: is called with the bytes done and the bytes in all. What it raises, and Ctrl-C, ends
        the writing and leaves nothing of it.

    The tensors must stay as they are until the call returns.

    Any thread may call it, also several at once, and a forked child. The GIL is released while
    bytes are written.
    """
    refuse_other_names(path, *OF_TORCH)
    return write(obj, path, False, reserve, alignment, crc, durable, progress)


_TORCH = "weightmap.save() writes what torch reads"
OF_TORCH = "a file of torch.save", (".pt", ".pth", ".ckpt", ".bin")
OF_SAFETENSORS = "safetensors", (".safetensors",)
_WRITERS = {
    ".safetensors": "weightmap.save_safetensors() writes safetensors",
    ".gguf": "the package gguf writes GGUF",
    ".npz": "numpy.savez() writes that",
    ".npy": "numpy.save() writes that",
    ".pt": _TORCH, ".pth": _TORCH, ".ckpt": _TORCH, ".bin": _TORCH,
}


def refuse_other_names(path: Any, kind: str, own: Collection[str]) -> None:
    """The names of files that no other program would read. `kind` is what would be written, and the
    first of `own` its name among the endings above."""
    if not isinstance(path, (str, bytes, os.PathLike)):
        return
    file = os.fsdecode(path)
    ending = os.path.splitext(file)[1].lower()
    if ending in _WRITERS and ending not in own:
        raise InvalidArgumentError(
            f"would be {kind} under a name for another format: {_WRITERS[ending]}, and {kind} is "
            f"called {next(iter(own))}",
            file=file,
        )


def write(
    obj: Any,
    path: PathLike | CanWrite,
    strict: bool,
    reserve: Reserve | Literal["data"],
    alignment: int | None,
    crc: bool,
    durable: bool,
    progress: Progress | None,
) -> SaveReport:
    """`strict`: as torch.save writes it. reserve="data": all but meta tensors."""
    opened = core_of(obj)
    info = {} if opened is None else opened.info()
    byte_order = info.get("byteorder", sys.byteorder)
    if alignment is None:
        alignment = info.get("storage_alignment") or _DEFAULT_ALIGNMENT
    writer = _core.Writer(alignment, crc, durable, byte_order, not strict)
    write_to = None if isinstance(path, (str, bytes, os.PathLike)) else getattr(path, "write", None)
    file = os.fsdecode(path) if write_to is None else None  # type: ignore[arg-type]
    left_out: list[str] = []
    try:
        root = _value(obj, writer, strict, reserve, byte_order, left_out)
        if write_to is None:
            remove_abandoned(path)  # type: ignore[arg-type]
            written = writer.write_file(root, os.fsencode(path), progress)  # type: ignore[arg-type]
        else:
            written = writer.write_through(root, write_to, progress)
    except Error as error:
        if file is not None:
            about_file(error, file)
        raise
    if write_to is not None and hasattr(path, "flush"):
        path.flush()
    warn_of_left_out(file, left_out)
    return SaveReport(file, written, tuple(left_out))


def _value(
    obj: Any,
    writer: _core.Writer,
    strict: bool,
    reserve: Reserve | Literal["data"],
    byte_order: str,
    left_out: list[str],
) -> int:
    values = _values(writer, strict, reserve, byte_order)
    values.left_out = left_out
    try:
        with collector_paused():
            return values.value(obj)
    finally:
        values.forget()


def _values(
    writer: _core.Writer, strict: bool, reserve: Reserve | Literal["data"], byte_order: str
) -> Values:
    """What makes values of objects: as torch.save would if `strict`, else as save() does."""
    values = Values(writer, strict)
    rule = _rule(reserve)

    def is_reserved() -> bool:
        return rule is not None and rule(values.name())

    def reserves_meta() -> bool:
        return reserve == "meta" or (reserve != "data" and is_reserved())

    makers = []
    Checkpoints(values, is_reserved, byte_order)
    if "torch" in sys.modules:
        from weightmap._saving.tensors import Tensors

        makers.append(Tensors(values, is_reserved, reserves_meta).maker_of)
    if not strict:
        from weightmap._saving.arrays import Arrays

        makers.append(Arrays(values, is_reserved).maker_of)
        values.makers[ShapeOnly] = lambda thing: values.remember(
            thing, writer.reserved_tensor(thing.dtype, thing.shape)
        )

    def maker_of(kind: type) -> Any:
        return next(filter(None, (find(kind) for find in makers)), None)

    values.maker_of = maker_of
    return values


def _rule(reserve: Reserve | Literal["data"]) -> Callable[[str], bool] | None:
    """Whether the storage of the tensor of a name is reserved."""
    if reserve is False or reserve == "meta":
        return None
    if reserve is True or reserve == "data":
        return lambda name: True
    if callable(reserve):
        return reserve
    if isinstance(reserve, str):
        raise InvalidArgumentError(
            f'reserve is {reserve!r}, expected True, "meta", names, or a function'
        )
    names = frozenset(reserve)
    return lambda name: name in names
