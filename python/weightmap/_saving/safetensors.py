"""weightmap.save_safetensors(), and what it answers."""

from __future__ import annotations

import os
import sys

from weightmap import _core
from weightmap._checkpoint import Checkpoint
from weightmap._chunked import ChunkedTensor
from weightmap._errors import Error, InvalidArgumentError, UnsupportedError, about_file
from weightmap._left_out import warn_of_left_out
from weightmap._replacing import remove_abandoned
from weightmap._saving.save import OF_SAFETENSORS, refuse_other_names
from weightmap.reports import SafetensorsReport

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Literal

    from weightmap._typing import PathLike, Progress


def save_safetensors(
    tensors: Mapping[str, Any] | Checkpoint,
    path: PathLike,
    *,
    metadata: Mapping[str, str] | None = None,
    max_size: int | None = None,
    shared: Literal["refuse", "drop", "copy"] = "refuse",
    durable: bool = True,
    progress: Progress | None = None,
) -> SafetensorsReport:
    """Writes a safetensors file, or a set of files with its index. docs/writing.md has the layout.

    tensors: names and tensors of torch, arrays of numpy (with the types of ml_dtypes) or of
        whatever speaks DLPack, and weightmap.Tensor, which is written from its mapping. Or a
        Checkpoint: all its tensors by their names, and nothing else of it, which must not be all
        that it has; one that is a tensor alone gets the name of its file. Those of a Checkpoint,
        and arrays of numpy, are written row-major however they lie; another tensor that is not
        contiguous raises InvalidArgumentError, a ValueError.
    path: the file, which appears once it is whole; what was there stays until then, also if it is
        the checkpoint that is being saved. A name that ends in .pt, .pth, .ckpt, .bin, .gguf, .npz or
        .npy is an InvalidArgumentError.
    metadata: texts by their names, in this order. Default: that of the safetensors file, if
        `tensors` is one, with {"format": "pt"}, which transformers asks for; {"format": "pt"} for
        another Checkpoint, or if there is a tensor of torch; else none.
    max_size: bytes of tensors in one file. More of them become a set, whose files get their names
        together; remove what a longer set left. Default: one file.
    shared: of tensors that share their elements, which the format cannot say: "refuse" raises
        InvalidArgumentError, which names two of them; "drop" writes one under the first of its
        names and puts the others into the metadata, as safetensors.torch.save_model does; "copy"
        writes each.
    durable: wait until the files are on the disk.
    progress: is called with the bytes done and the bytes in all. What it raises, and Ctrl-C, ends
        the writing and leaves nothing of it.

    A type that the format does not have (complex128, quantized ones) raises UnsupportedError. The
    tensors must stay as they are until the call returns.

    Any thread may call it, also several at once, and a forked child.
    """
    refuse_other_names(path, *OF_SAFETENSORS)
    file = os.fsdecode(path)
    if max_size is not None and max_size <= 0:
        raise InvalidArgumentError(
            f"max_size is {max_size}, expected a number of bytes", file=file
        )
    adding = _Adding()
    left_out: tuple[str, ...] = ()
    remove_abandoned(path)
    try:
        if isinstance(tensors, Checkpoint):
            if not tensors and tensors.info.format != "safetensors" and tensors.root():
                raise UnsupportedError(
                    f"{tensors.path} has no tensors, so nothing would be written of what it holds; "
                    "root() reads it, and weightmap.save() keeps what a file of torch or a pickle has"
                )
            for name, tensor in tensors.items():
                if isinstance(tensor, _core.Tensor):
                    is_bare = not tensors._core.path(tensor.index)
                    adding.writer.add_mapped(_stem(tensors.path) if is_bare else name, tensor)
                else:
                    adding.writer.add_chunked(tensors._core, name)
        else:
            for name, tensor in tensors.items():
                adding.add(name, tensor)
        texts = _default_metadata(tensors, adding) if metadata is None else dict(metadata)
        files, tensor_bytes, dropped = adding.writer.write(
            os.fsencode(path), _checked(texts), max_size or 0, shared, durable, progress
        )
    except Error as error:
        about_file(error, file)
        raise
    if isinstance(tensors, Checkpoint):
        left_out = (*tensors.info.unsupported, *_plain_names(tensors))
        warn_of_left_out(file, left_out)
    return SafetensorsReport(
        [os.fsdecode(name) for name, _ in files],
        sum(size for _, size in files),
        tensor_bytes,
        dropped,
        left_out,
    )


def _stem(path: str) -> str:
    """The name of a tensor that is a file of its own, as `weightmap convert` gives it."""
    stem = os.path.splitext(os.path.basename(path))[0]
    return stem if stem.isprintable() else "tensor"


def _plain_names(checkpoint: Checkpoint) -> list[str]:
    """The names of values of a folder of torch.distributed.checkpoint that are no tensors."""
    if checkpoint.info.format != "dcp":
        return []
    names: list[str] = []
    waiting: list[tuple[str, Any]] = [("", checkpoint.root())]
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, (dict, list)) and (value or not name):
            items = value.items() if isinstance(value, dict) else enumerate(value)
            below = f"{name}." if name else ""
            waiting += reversed([(f"{below}{key}", item) for key, item in items])
        elif not isinstance(value, (_core.Tensor, ChunkedTensor)):
            names.append(name)
    return names


def _default_metadata(tensors: Any, adding: _Adding) -> dict[str, str]:
    if isinstance(tensors, Checkpoint):
        is_one_file = tensors.info.format == "safetensors" and len(tensors.files) == 1
        return {**(tensors.root() if is_one_file else {}), "format": "pt"}
    return {"format": "pt"} if adding.has_torch else {}


def _checked(metadata: dict[str, str]) -> dict[str, str]:
    for key, text in metadata.items():
        if not isinstance(key, str) or not isinstance(text, str):
            raise InvalidArgumentError(f"the metadata {key!r}: {text!r} is not text")
    return metadata


class _Adding:
    """Gives tensors of all kinds to a writer. Imports nothing that is not imported already."""

    def __init__(self) -> None:
        self.writer = _core.SafetensorsWriter()
        self.has_torch = False
        self._fetched: dict[Any, Any] = {}  # copies of what is on a device

    def add(self, name: Any, thing: Any) -> None:
        if not isinstance(name, str):
            raise InvalidArgumentError(f"the name {name!r} is not text")
        try:
            self._add(name, thing)
        except Error as error:
            if not error.message.startswith("the tensor "):
                error.message = f'the tensor "{name}" {error.message}'
            raise

    def _add(self, name: str, thing: Any) -> None:
        torch = sys.modules.get("torch")
        numpy = sys.modules.get("numpy")
        if isinstance(thing, _core.Tensor):
            if not thing.is_contiguous:
                from weightmap._saving.arrays import check_repeats

                check_repeats(thing.shape, thing.strides)
            _check_contiguous(thing.is_contiguous, "save tensor.numpy(), or all of its Checkpoint")
            self.writer.add_mapped(name, thing)
        elif isinstance(thing, ChunkedTensor):
            self._add_chunked(name, thing)
        elif torch is not None and isinstance(thing, torch.Tensor):
            self.has_torch = True
            self._add_torch(name, thing)
        elif numpy is not None and isinstance(thing, (numpy.ndarray, numpy.generic)):
            self._add_array(name, thing)
        elif hasattr(thing, "__dlpack__") and hasattr(thing, "__dlpack_device__"):
            from weightmap._saving.arrays import from_dlpack

            self._add(name, from_dlpack(thing))
        else:
            raise UnsupportedError(f"is of type {type(thing).__name__}, which is no tensor")

    def _add_torch(self, name: str, thing: Any) -> None:
        import torch

        if type(thing) not in (torch.Tensor, torch.nn.Parameter):
            raise UnsupportedError(
                f"is a {type(thing).__name__}, which is more than its elements; save a plain tensor"
            )
        if thing.layout is not torch.strided or thing.is_nested:
            raise UnsupportedError(f"is of the layout {thing.layout}; save a dense tensor of it")
        if thing.is_meta:
            raise UnsupportedError("is on the meta device and has no elements")
        if thing.is_conj() or thing.is_neg():
            raise UnsupportedError(
                "is a lazy conjugate or negative; save tensor.resolve_conj().resolve_neg()"
            )
        _check_contiguous(thing.is_contiguous(), "save tensor.contiguous()")
        dtype = str(thing.dtype).removeprefix("torch.")
        placed = thing.detach() if thing.is_cpu else self._fetch(thing)
        self.writer.add(
            name, dtype, tuple(placed.shape), placed.data_ptr(), placed.nbytes, placed
        )

    def _fetch(self, thing: Any) -> Any:
        """A copy on the CPU: the same one of what is the same on the device."""
        place = (thing.device, thing.data_ptr(), thing.dtype, tuple(thing.shape))
        if place not in self._fetched or thing.numel() == 0:
            self._fetched[place] = (thing.detach().cpu(), thing)
        return self._fetched[place][0]

    def _add_chunked(self, name: str, thing: ChunkedTensor) -> None:
        import numpy

        elements = numpy.frombuffer(thing.tobytes(), numpy.uint8)
        address = elements.__array_interface__["data"][0]
        self.writer.add(name, thing.dtype, thing.shape, address, elements.nbytes, elements)

    def _add_array(self, name: str, thing: Any) -> None:
        import numpy

        from weightmap._saving.arrays import DTYPES, check_repeats

        if isinstance(thing, numpy.ndarray) and type(thing) not in (numpy.ndarray, numpy.memmap):
            raise UnsupportedError(
                f"is a numpy {type(thing).__name__}, which is more than its elements; save an array"
            )
        array = numpy.asarray(thing)
        dtype = array.dtype.name
        if dtype not in DTYPES:
            raise UnsupportedError(f"is an array of {array.dtype}, which safetensors has not")
        check_repeats(array.shape, [step / array.itemsize for step in array.strides])
        if not array.dtype.isnative:
            array = array.astype(array.dtype.newbyteorder("="))
        if not array.flags.c_contiguous:
            array = array.copy(order="C")
        address = array.__array_interface__["data"][0]
        self.writer.add(name, dtype, array.shape, address, array.nbytes, array)


def _check_contiguous(is_contiguous: bool, way: str) -> None:
    if not is_contiguous:
        raise InvalidArgumentError(f"is not contiguous, as safetensors has it; {way}")
