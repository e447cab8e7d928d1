"""weightmap.open_for_filling(), and what it answers."""

from __future__ import annotations

import os
import sys

from weightmap import _core
from weightmap._errors import InvalidArgumentError
from weightmap._open import open as open_checkpoint
from weightmap.reports import ReservedStorage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from weightmap._checkpoint import Checkpoint
    from weightmap._core import Tensor
    from weightmap._typing import PathLike, Progress


class Filling:
    """A checkpoint whose reserved storages are being written, perhaps by other processes, too.

        with weightmap.open_for_filling("model.pt") as fill:
            fill["layers.0.weight"] = array          # of numpy, torch, ... of this dtype and shape

    Errors are those of weightmap.open(). Closing it, or leaving the with block, seals nothing.

    Any thread, and any process, may fill while others fill other tensors.
    """

    __slots__ = ("_fill", "_checkpoint")

    def __init__(self, fill: _core.Fill, checkpoint: Checkpoint) -> None:
        self._fill: _core.Fill | None = fill
        self._checkpoint = checkpoint

    def _opened(self) -> _core.Fill:
        fill = self._fill  # which another thread may close at any moment
        if fill is None:
            raise InvalidArgumentError("the filling was closed")
        return fill

    @property
    def checkpoint(self) -> Checkpoint:
        """The checkpoint, mapped shared and writable."""
        return self._checkpoint

    @property
    def storages(self) -> tuple[ReservedStorage, ...]:
        """The reserved storages as they are now. A list is made at each call."""
        return tuple([ReservedStorage(*place) for place in self._opened().storages()])

    def unwritten(self) -> list[str]:
        """Names of the tensors whose storages are not marked as written."""
        missing = {storage.key for storage in self.storages if not storage.written}
        core = self._checkpoint._core
        tensors = [core.at(index) for index in range(len(core))]
        return [tensor.name for tensor in tensors if tensor.storage in missing]

    def __setitem__(self, name: str, values: Any) -> None:
        """Writes a whole tensor, and marks it if it is all of its storage."""
        tensor = self._room(name)
        if _is_torch(values):
            _check(name, tensor, str(values.dtype).removeprefix("torch."), tuple(values.shape))
            tensor.torch().copy_(values.detach())
        else:
            source = values.bits().numpy() if hasattr(values, "bits") else _array(values)
            dtype = values.dtype if hasattr(values, "bits") else source.dtype.name
            _check(name, tensor, dtype, tuple(source.shape))
            tensor.bits().numpy()[...] = source.view(tensor.bits().numpy().dtype)
        self._mark_if_whole(tensor)

    def array(self, name: str) -> Any:
        """The tensor as a numpy array in the mapping, to be written to; mark it afterwards."""
        return self._room(name).numpy()

    def torch(self, name: str) -> Any:
        """The tensor as a torch tensor in the mapping, likewise."""
        return self._room(name).torch()

    def mark_written(self, name: str) -> None:
        """Says that the storage of this tensor has all its bytes."""
        self._opened().mark_written(name)

    def seal(self, *, progress: Progress | None = None) -> None:
        """Computes the checksums, writes everything to the disk, and marks the file as sealed.

        Raises InvalidArgumentError, naming them, while storages are not marked as written, and
        FileError while another process has the file open for filling.
        """
        self._opened().seal(progress)

    def close(self) -> None:
        """Lets others seal the file. Arrays that were handed out stay valid."""
        self._fill = None

    def __enter__(self) -> Filling:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _room(self, name: str) -> Tensor:
        self._opened().prepare(name)
        return self._checkpoint._core.get(name)

    def _mark_if_whole(self, tensor: Tensor) -> None:
        places = {storage.key: storage.nbytes for storage in self.storages}
        if places[tensor.storage] == tensor.nbytes:
            self._opened().mark_written(tensor.name)

    def __repr__(self) -> str:
        state = "closed" if self._fill is None else f"{len(self.storages)} reserved storages"
        return f"<weightmap.Filling {state}>"


def _is_torch(values: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(values, torch.Tensor)


def _array(values: Any) -> Any:
    import numpy

    return numpy.asarray(values)


def _check(name: str, tensor: Tensor, dtype: str, shape: tuple[int, ...]) -> None:
    if (dtype, shape) != (tensor.dtype, tensor.shape):
        raise InvalidArgumentError(
            f"tensor {name!r} is {tensor.dtype} {list(tensor.shape)}, "
            f"got {dtype} {list(shape)}"
        )


def open_for_filling(path: PathLike) -> Filling:
    """Opens a checkpoint that was made with reserved storages (save(..., reserve=...)).

    Any number of processes may do so at once, and fill what they like in any order; one of them
    seals the file when all are done. Raises InvalidArgumentError if nothing in it was reserved, or
    it is sealed.
    """
    fill = _core.open_fill(os.fsencode(path))
    return Filling(fill, open_checkpoint(path, sharing="shared", writable=True))
