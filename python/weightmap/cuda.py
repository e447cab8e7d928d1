"""Copies tensors from a checkpoint into the memory of a CUDA device.

    uploader = weightmap.cuda.Uploader()
    with weightmap.open("model.safetensors") as checkpoint:
        for name, tensor in uploader.upload(checkpoint):
            model.load_weight(name, tensor.torch())

The driver, libcuda.so.1, is loaded when an Uploader is made; neither torch nor anything of CUDA is
needed to import this. docs/cuda.md says by which ways the bytes go.
"""

from __future__ import annotations

import os

from weightmap import _core
from weightmap._core import DeviceTensor, Tensor
from weightmap._errors import UnsupportedError
from weightmap._record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Literal

    import torch

    from weightmap._checkpoint import Checkpoint
    from weightmap._typing import CheckpointTensor

__all__ = ["DeviceTensor", "Upload", "UploadReport", "Uploader"]


class UploadReport(Record):
    """What an upload did so far."""

    tensors: int  # that were given
    bytes: int  # copied to the device: the sum of the three that follow
    mapping_bytes: int
    registered_bytes: int
    slot_bytes: int
    registrations: int  # that succeeded
    refused_registrations: int  # the slots were used instead
    refusal: str  # what the driver said to the first of these
    driver_calls: int  # by all who use this uploader and its tensors
    seconds_waiting_for_fill: float  # nothing was there to be copied
    seconds_waiting_for_copies: float  # in the driver, until a copy was done


class Uploader:
    """A device, a stream on it, and pinned slots, for one upload after the other.

    device: the driver's ordinal, which CUDA_VISIBLE_DEVICES has a say in.
    slots: how many parts of an upload may be under way at a time, each in pinned memory; 2 to 64.
    slot_bytes: of each; 4096 to 1 GiB.
    threads: that fill slots, or bring pages in; 1 to 64.
    register_bytes: the most that one call registers; up to 64 GiB.
    way: "mapping", "registered" or "slots". Default: what the device's attributes say.
    library: the driver's file. Default: libcuda.so.1.

    Raises UnsupportedError where there is no driver, weightmap.Error if it refuses. Nothing is
    pinned before the first upload that needs it. Not for use in a forked child.
    """

    def __init__(
        self,
        device: int = 0,
        *,
        slots: int = 4,
        slot_bytes: int = 64 << 20,
        threads: int = 4,
        register_bytes: int = 1 << 30,
        way: Literal["mapping", "registered", "slots"] | None = None,
        library: str | os.PathLike[str] = "",
    ) -> None:
        self._uploader = _core.cuda_uploader(
            device, slots, slot_bytes, threads, register_bytes, way, os.fsencode(library)
        )

    @property
    def way(self) -> str:
        """By which way the bytes go of tensors that need no gathering."""
        return self._uploader.way()

    def upload(
        self,
        checkpoint: Checkpoint,
        tensors: Iterable[str | tuple[str | int, ...] | Tensor] | None = None,
    ) -> Upload:
        """Begins to copy these tensors to the device, and gives them one after the other.

        tensors: names, paths, or tensors of the checkpoint, such as slices; in this order. Default:
            all of it.

        One at a time: the next upload begins when this one has ended, was closed, or is gone.
        """
        if tensors is None:
            named = list(checkpoint.items())
        else:
            named = [_named(checkpoint, tensor) for tensor in tensors]
        parts: list[Tensor] = []
        for name, tensor in named:
            if not isinstance(tensor, Tensor):
                raise UnsupportedError(f"tensor {name!r} lies in several pieces; upload these")
            parts.append(tensor)
        names = [name for name, _ in named]
        return Upload(names, self._uploader.start(checkpoint._core, parts))


class Upload:
    """Tensors on their way to a device: an iterator over (name, DeviceTensor).

    Each is given when all of it is there, while others are read and copied behind it. A context
    manager, which close() ends. Raises weightmap.Error if the driver refuses, or if the file was
    cut or written to; then the upload is over.
    """

    def __init__(self, names: list[str], upload: _core.CudaUpload) -> None:
        self._names = iter(names)
        self._upload: _core.CudaUpload | None = upload
        self._report = UploadReport(**upload.report())

    def __iter__(self) -> Iterator[tuple[str, DeviceTensor]]:
        return self

    def __next__(self) -> tuple[str, DeviceTensor]:
        try:
            tensor = None if self._upload is None else self._upload.next()
        except BaseException:
            self.close()
            raise
        if tensor is None:
            self.close()
            raise StopIteration
        return next(self._names), tensor

    @property
    def report(self) -> UploadReport:
        """Up to now, or to the end."""
        if self._upload is not None:
            self._report = UploadReport(**self._upload.report())
        return self._report

    def close(self) -> None:
        """Drops what was not given yet; the tensors that were given stay."""
        self._report = self.report
        self._upload = None

    def __enter__(self) -> Upload:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _named(
    checkpoint: Checkpoint, tensor: str | tuple[str | int, ...] | Tensor
) -> tuple[str, CheckpointTensor]:
    found = tensor if isinstance(tensor, Tensor) else checkpoint[tensor]
    return found.name, found


# What torch takes by DLPack in every version; all else goes as its bits.
_PLAIN = ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8",
          "bool", "complex128", "complex64")


def _to_torch(tensor: DeviceTensor) -> torch.Tensor:
    from weightmap._torch import tensors as _tensors  # says it where there is no torch
    from weightmap._torch.dtypes import dtype_of

    import torch

    from_dlpack: Callable[[DeviceTensor], torch.Tensor] = getattr(torch, "from_dlpack")
    dtype = dtype_of(tensor.dtype)
    if tensor.dtype in _PLAIN:
        return from_dlpack(tensor)
    return from_dlpack(tensor.bits()).view(dtype)
