"""What signatures name, for type checkers: no other module imports it when it runs."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    import torch as torch_module

PathLike: TypeAlias = str | bytes | os.PathLike[str] | os.PathLike[bytes]
# What a long call tells: the bytes done, the bytes in all. What it raises ends the call; the last
# time, when the two are equal, the work is done already.
Progress: TypeAlias = Callable[[int, int], object]


class RangeSource(Protocol):
    """A remote file that is read by ranges; weightmap.remote says what each of these does, and
    which methods it may have beside them."""

    @property
    def name(self) -> str: ...
    @property
    def size(self) -> int: ...
    @property
    def tag(self) -> str: ...
    def read_into(self, offset: int, buffer: memoryview, /) -> object: ...


class HasDescriptor(Protocol):
    """A file, a socket, a StagedFile."""

    def fileno(self) -> int: ...


class CanWrite(Protocol):
    """A file that is open for writing, io.BytesIO, a socket's file."""

    def write(self, content: bytes, /) -> object: ...


class CheckpointTensor(Protocol):
    """What a Checkpoint has under a name: a Tensor, or a ChunkedTensor where
    torch.distributed.checkpoint saved it in several pieces. isinstance() tells which.

    Both have what is here, with the same meaning; a ChunkedTensor copies where a Tensor shares the
    mapped bytes.
    """

    @property
    def name(self) -> str: ...
    @property
    def dtype(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def ndim(self) -> int: ...
    @property
    def numel(self) -> int: ...
    @property
    def itemsize(self) -> int: ...
    @property
    def block(self) -> tuple[int, int]: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def requires_grad(self) -> bool: ...
    @property
    def location(self) -> str: ...
    @property
    def file_index(self) -> int: ...
    @property
    def file_offset(self) -> int: ...
    def numpy(self) -> Any: ...
    def torch(self) -> torch_module.Tensor: ...
    def tobytes(self) -> bytes: ...
    def __getitem__(self, key: Any, /) -> CheckpointTensor: ...
    def __len__(self) -> int: ...
    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any: ...
