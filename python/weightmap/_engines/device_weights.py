"""Tensors of files as tensors of a CUDA device, by way of pinned memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from weightmap import cuda
from weightmap._errors import Error, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from weightmap._checkpoint import Checkpoint
    from weightmap._core import Tensor

    # A name, the position of the tensor in the checkpoint, and what makes it of mapped memory.
    Maker = tuple[str, int | None, Callable[[], torch.Tensor]]
    # A name, and what gives the tensor: to be called once, at once.
    Made = tuple[str, Callable[[], torch.Tensor]]

# Of so many bytes at a time an upload is made, when all of them are in memory.
_GROUP_BYTES = 256 << 20


class DeviceWeights:
    """Uploads to the device that is torch's current one. UnsupportedError where there is none."""

    def __init__(self) -> None:
        if not torch.cuda.is_available():
            raise UnsupportedError("torch finds no CUDA device")
        self._uploader = cuda.Uploader(torch.cuda.current_device())

    def made(
        self,
        checkpoint: Checkpoint,
        makers: Iterable[Maker],
        wait_for: Callable[[int | None], None],
    ) -> Iterator[Made]:
        """In their order. What the uploader has no tensor for is made of mapped memory."""
        group: list[tuple[str, Tensor]] = []
        size = 0
        for name, index, make in makers:
            wait_for(index)
            tensor = None if index is None else checkpoint._core.at(index)
            if tensor is None or not _can_be_uploaded(tensor, make):
                yield from self._uploaded(checkpoint, group)
                group, size = [], 0
                yield name, make
                continue
            group.append((name, tensor))
            size += tensor.nbytes
            if size >= _GROUP_BYTES:
                yield from self._uploaded(checkpoint, group)
                group, size = [], 0
        yield from self._uploaded(checkpoint, group)

    def _uploaded(
        self, checkpoint: Checkpoint, group: list[tuple[str, Tensor]]
    ) -> Iterator[Made]:
        if not group:
            return
        with self._uploader.upload(checkpoint, [tensor for _, tensor in group]) as upload:
            for name, _ in group:
                yield name, lambda: next(upload)[1].torch()


def _can_be_uploaded(tensor: Tensor, make: Callable[[], torch.Tensor]) -> bool:
    """Not what torch has no dtype for, and no view that is not as its bytes are."""
    if tensor.block[0] > 1:
        return False
    try:
        view = make()
    except Error:  # who makes it later sees it, too
        return False
    return not (view.is_conj() or view.is_neg())
