"""Tensors that lie in several pieces, as torch.distributed.checkpoint saves them."""

from __future__ import annotations

import math
import operator

from weightmap._core import Tensor
from weightmap._errors import InvalidArgumentError, UnsupportedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    import torch as torch_module

    from weightmap import _core


class ChunkedTensor:
    """A tensor in several pieces, or a part of one. Nothing is copied until its elements are asked
    for, and then only those of this part, by reads of the files.

    Slicing with integers, slices and an ellipsis gives a weightmap.Tensor, which shares the bytes of
    the file, where one piece has all that is asked for; else another ChunkedTensor.

    Safe to use from any thread, and after a fork.
    """

    __slots__ = ("_core", "_whole", "_offsets", "_sizes", "_picked", "__weakref__")

    def __init__(
        self,
        core: _core.Checkpoint,
        whole: dict[str, Any],
        offsets: tuple[int, ...] = (),
        sizes: tuple[int, ...] | None = None,
        picked: tuple[int | None, ...] | None = None,
    ) -> None:
        self._core = core
        self._whole = whole
        self._sizes = whole["shape"] if sizes is None else sizes
        self._offsets = offsets or (0,) * len(self._sizes)
        # Of each dimension of the whole the step, or None where an integer picked one element.
        self._picked = (1,) * len(self._sizes) if picked is None else picked

    @property
    def name(self) -> str:
        """As of the whole tensor."""
        return str(self._whole["name"])

    @property
    def dtype(self) -> str:
        """As torch spells it, without the prefix."""
        return str(self._whole["dtype"])

    @property
    def requires_grad(self) -> bool:
        return bool(self._whole["requires_grad"])

    @property
    def location(self) -> str:
        """Where the first piece was when it was saved, as Tensor.location."""
        return self._first.location

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements along each dimension, outermost first."""
        return tuple(
            -(-size // step) for size, step in zip(self._sizes, self._picked) if step is not None
        )

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def numel(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def itemsize(self) -> int:
        """Bytes of one element; UnsupportedError for a blocked dtype, see block."""
        return self._first.itemsize

    @property
    def block(self) -> tuple[int, int]:
        """How many elements are stored together, in how many bytes, as Tensor.block."""
        return self._first.block

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self._bytes_of(self.numel)

    def _bytes_of(self, elements: int) -> int:
        count, nbytes = self.block
        return elements // count * nbytes

    @property
    def file_index(self) -> int:
        """Which of Checkpoint.files has the first piece of the whole tensor."""
        return self._first.file_index

    @property
    def file_offset(self) -> int:
        """Of the first piece of the whole tensor, in its file."""
        return self._first.file_offset

    @property
    def indices(self) -> range:
        """Positions of the pieces of the whole tensor among those of the checkpoint."""
        first = self._whole["first_part"]
        return range(first, first + self._whole["part_count"])

    @property
    def _first(self) -> Tensor:
        return self._core.at(self._whole["first_part"])

    @property
    def pieces(self) -> tuple[tuple[tuple[int, ...], Tensor], ...]:
        """Where each piece begins in this part, and the piece, clipped to it, in row-major order.

        All of a tensor, or of a part without steps and integers; else InvalidArgumentError.
        """
        if any(step != 1 for step in self._picked):
            raise InvalidArgumentError(
                f"{self.name!r} was sliced by a step or an integer; pieces are those of boxes"
            )
        return tuple(self._clipped())

    def parts(self) -> list[Tensor]:
        """What there is of each piece in the box that has all elements of this part."""
        return [part for _, part in self._clipped()]

    def _clipped(self) -> Iterator[tuple[tuple[int, ...], Tensor]]:
        for index, begin in zip(self.indices, self._whole["offsets"]):
            shape = self._core.shape_of_piece(index)
            box = [
                (max(at, offset), min(at + length, offset + size))
                for at, length, offset, size in zip(begin, shape, self._offsets, self._sizes)
            ]
            if all(low < high for low, high in box):
                key = tuple(slice(low - at, high - at) for (low, high), at in zip(box, begin))
                part = self._core.at(index)[key]
                yield tuple(low - offset for (low, _), offset in zip(box, self._offsets)), part

    def __getitem__(self, key: Any) -> Tensor | ChunkedTensor:
        offsets, sizes, picked = list(self._offsets), list(self._sizes), list(self._picked)
        steps = [(dim, step) for dim, step in enumerate(picked) if step is not None]
        for (dim, step), part in zip(steps, _full_key(key, len(steps))):
            length = -(-self._sizes[dim] // step)
            taken = None
            if isinstance(part, slice):
                start, stop, stride = part.indices(length)
                if stride < 1:
                    raise ValueError(
                        "a slice of a tensor goes forward; .numpy()[...] takes a step below 0, too"
                    )
                count = max(0, -(-(stop - start) // stride))
                taken = step * stride
            else:
                start, count = _index(part, length), 1
            if dim + 1 == len(picked) and taken != 1 and self.block[0] > 1:
                raise InvalidArgumentError(
                    f"a row of {self.dtype} is sliced by whole blocks of {self.block[0]} elements"
                )
            offsets[dim] += start * step if count else 0
            sizes[dim] = (count - 1) * (taken or 1) + 1 if count else 0
            picked[dim] = taken
        made = ChunkedTensor(self._core, self._whole, tuple(offsets), tuple(sizes), tuple(picked))
        found = list(made._clipped())
        if len(found) == 1:
            return found[0][1][tuple(0 if step is None else slice(None, None, step) for step in picked)]
        return made

    def _copied(self) -> bytearray:
        """The elements of the box, row-major."""
        memory = bytearray(self._bytes_of(math.prod(self._sizes)))
        self._core.gather(self.name, self._offsets, self._sizes, memory)
        return memory

    def _shape_of_copy(self) -> tuple[int, ...]:
        """Of the box; in bytes along the last dimension where the dtype is blocked."""
        if self.block[0] == 1:
            return self._sizes
        return (*self._sizes[:-1], self._bytes_of(self._sizes[-1]))

    def _pick(self, box: Any) -> Any:
        if all(step == 1 for step in self._picked):
            return box
        return box[tuple(0 if step is None else slice(None, None, step) for step in self._picked)]

    def gather(self, out: Any) -> None:
        """Copies the elements, row-major, into a writable buffer of nbytes bytes.

        FileError, and never a signal, if a file was truncated or written to since it was opened.
        """
        if all(step in (1, None) for step in self._picked):
            self._core.gather(self.name, self._offsets, self._sizes, out)
        else:
            memoryview(out).cast("B")[:] = self.numpy().tobytes()

    def numpy(self) -> Any:
        """The elements as a new numpy array, in this machine's byte order. Of a blocked dtype the bytes
        of its blocks, as those of Tensor.bits()."""
        import numpy

        from weightmap._core import numpy_word
        from weightmap._numpy import numpy_dtype

        word, is_ml_dtype = numpy_word("uint8" if self.block[0] > 1 else self.dtype)
        if not word:
            raise UnsupportedError(f"numpy has no type for {self.dtype}; .tobytes() gives its elements")
        dtype = numpy_dtype(word, is_ml_dtype, False)
        return self._pick(numpy.frombuffer(self._copied(), dtype).reshape(self._shape_of_copy()))

    def torch(self) -> torch_module.Tensor:
        """The elements as a new torch tensor; of a blocked dtype as numpy() has them."""
        import torch

        from weightmap._torch.dtypes import dtype_of

        dtype = dtype_of("uint8" if self.block[0] > 1 else self.dtype)
        shape = self._shape_of_copy()
        if math.prod(shape) == 0:
            box = torch.empty(shape, dtype=dtype)
        else:
            box = torch.frombuffer(self._copied(), dtype=dtype).reshape(shape)
        picked: torch_module.Tensor = self._pick(box)
        return picked

    def tobytes(self) -> bytes:
        """A copy of the elements, row-major and in this machine's byte order."""
        if all(step in (1, None) for step in self._picked):
            return bytes(self._copied())
        return bytes(self.numpy().tobytes())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        if copy is False:
            raise ValueError("a tensor in several pieces becomes an array by a copy")
        array = self.numpy()
        return array if dtype is None else array.astype(dtype)

    def __dlpack__(self, **_: Any) -> Any:
        raise BufferError(
            f"{self.name!r} lies in {len(self.parts())} pieces, and DLPack shares one; take .torch() or "
            ".numpy(), which copy"
        )

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a tensor without dimensions has no len()")
        return self.shape[0]

    def __repr__(self) -> str:
        shape = list(self.shape)
        count = len(self.parts())
        return f"<weightmap.ChunkedTensor {self.name!r} {self.dtype} {shape} in {count} pieces>"


def _full_key(key: Any, ndim: int) -> list[Any]:
    """A part of the key for each dimension."""
    parts = list(key) if isinstance(key, tuple) else [key]
    dots = [at for at, part in enumerate(parts) if part is Ellipsis]
    if len(dots) > 1:
        raise IndexError("an index can only have one ellipsis")
    missing = ndim - len(parts) + len(dots)
    if missing < 0:
        raise IndexError(f"too many indices: the tensor has {ndim} dimensions")
    at = dots[0] if dots else len(parts)
    return parts[:at] + [slice(None)] * missing + parts[at + len(dots) :]


def _index(part: Any, length: int) -> int:
    if isinstance(part, bool):
        raise TypeError("a tensor is sliced by integers, slices and an ellipsis")
    try:
        asked = operator.index(part)
    except TypeError:
        raise TypeError("a tensor is sliced by integers, slices and an ellipsis") from None
    index = asked + length if asked < 0 else asked
    if not 0 <= index < length:
        raise IndexError(f"index {asked} is out of bounds for a dimension of size {length}")
    return index


def parts_of(tensor: Any) -> list[Tensor]:
    """What a tensor of a Checkpoint lies in: its pieces, or itself."""
    return tensor.parts() if isinstance(tensor, ChunkedTensor) else [tensor]


def chunked_tensors(core: _core.Checkpoint) -> dict[str, ChunkedTensor]:
    """Those of a checkpoint, by name."""
    if not core.has_chunks():
        return {}
    return {
        whole["name"]: ChunkedTensor(core, whole)
        for whole in core.composed()
        if whole["form"] == "chunked"
    }


def named_tensors(
    core: _core.Checkpoint, chunked: dict[str, ChunkedTensor]
) -> Iterator[tuple[str, Tensor | ChunkedTensor]]:
    """All tensors in the order of the file, with the whole in place of its pieces."""
    if not chunked:
        yield from ((core.name(index), core.at(index)) for index in range(len(core)))
        return
    begins = {tensor.indices.start: tensor for tensor in chunked.values()}
    index = 0
    while index < len(core):
        if index in begins:
            yield begins[index].name, begins[index]
            index = begins[index].indices.stop
        else:
            yield core.name(index), core.at(index)
            index += 1


def names_of(
    core: _core.Checkpoint, chunked: dict[str, ChunkedTensor], pattern: str
) -> list[str]:
    """The names that match a shell pattern, of which pieces have those of their wholes."""
    if pattern in chunked:
        return [pattern]
    whole_at = {index: tensor.name for tensor in chunked.values() for index in tensor.indices}
    names = (whole_at.get(index) or core.name(index) for index in core.match(pattern))
    return list(dict.fromkeys(names))
