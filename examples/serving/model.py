"""One version of the checkpoint that is served, and how the server follows its file."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import matrix

Description = dict[str, Any]  # of a tensor: name, dtype, shape


class Refused(Exception):
    """Why a file cannot be served."""


@dataclass(frozen=True)
class Generation:
    """What tells one version of a file from another."""

    inode: int
    size: int
    mtime_ns: int


def generation_of(path: str) -> Generation:
    status = os.stat(path)
    return Generation(status.st_ino, status.st_size, status.st_mtime_ns)


class Model(Protocol):
    """What the two ways to open a file answer."""

    matrix: matrix.PlainMatrix | matrix.NumpyMatrix

    def tensors(self) -> list[Description]: ...

    def is_whole(self) -> bool:
        """False: the file was cut short or written to while it was mapped.

        What was read from it since this was last asked may be wrong.
        """


class MappedModel:
    """Tensors that lie in the file: opening copies nothing, and processes share what they read."""

    def __init__(self, path: str, tensor: str | None) -> None:
        import weightmap

        try:
            self._checkpoint = weightmap.open(path, protection="guard")
            found = self._checkpoint[tensor] if tensor else self._first_matrix(path)
        except weightmap.Error as error:
            raise Refused(str(error)) from None
        if not matrix.is_matrix(found.dtype, found.shape):
            raise Refused(f"{path}: {found.name} is not a matrix of real numbers with rows in it")
        if not found.is_contiguous or found.byteorder != "native":
            raise Refused(f"{path}: {found.name} cannot be read in place")
        self.matrix = matrix.Matrix(
            found.name, found.dtype, found.shape, memoryview(found.bits()).cast("B")
        )

    def is_whole(self) -> bool:
        return self._checkpoint.state() not in ("lost", "modified")

    def tensors(self) -> list[Description]:
        return [describe(t.name, t.dtype, t.shape) for t in self._checkpoint.values()]

    def _first_matrix(self, path: str) -> Any:
        for tensor in self._checkpoint.values():
            if matrix.is_matrix(tensor.dtype, tensor.shape):
                return tensor
        raise Refused(f"{path}: there is no matrix of real numbers")


class LoadedModel:
    """The same by torch.load without mmap: a copy of the whole file in each process. To compare."""

    def __init__(self, path: str, tensor: str | None) -> None:
        import torch

        try:
            self._state = torch.load(path, mmap=False, weights_only=True)
        except Exception as error:  # whatever its unpickler stumbles over
            raise Refused(f"{path}: {error}") from None
        for name, found in self._state.items():
            dtype = str(found.dtype).removeprefix("torch.")
            if name == (tensor or name) and matrix.is_matrix(dtype, tuple(found.shape)):
                stored = found.contiguous().view(torch.uint8).numpy()
                self.matrix = matrix.Matrix(name, dtype, tuple(found.shape), stored)
                return
        raise Refused(f"{path}: there is no such matrix of real numbers")

    def is_whole(self) -> bool:
        return True

    def tensors(self) -> list[Description]:
        return [
            describe(name, str(tensor.dtype).removeprefix("torch."), tensor.shape)
            for name, tensor in self._state.items()
        ]


def describe(name: str, dtype: str, shape: Any) -> Description:
    return {"name": name, "dtype": dtype, "shape": list(shape)}


class ServedModel:
    """The model that answers come from. Not for several threads."""

    def __init__(self, path: str, open_model: Callable[[str], Model]) -> None:
        """Raises Refused or OSError if the file cannot be served."""
        self._path = path
        self._open = open_model
        # Before the file is opened: if it is replaced in between, the model looks older than it
        # is, and is opened once more.
        self.generation = generation_of(path)
        self.model = open_model(path)
        self.refusal: str | None = None
        self._refused: Generation | None = None

    def is_current(self) -> bool:
        try:
            return generation_of(self._path) == self.generation
        except OSError:
            return False

    def follow(self) -> None:
        """If the file was replaced, opens the new one and then serves that.

        One that cannot be served is refused: the old one stays, and `refusal` says why. It is not
        tried again until it is replaced in turn.
        """
        found = None
        try:
            found = generation_of(self._path)
            if found == self._refused:
                return
            # What was lost stays lost, though the file be whole again.
            if found != self.generation or not self.model.is_whole():
                self.model = self._open(self._path)
                self.generation = found
        except (Refused, OSError) as error:
            self._refused, self.refusal = found, str(error)
        else:
            self._refused, self.refusal = None, None

    def retry(self) -> None:
        """The same, and tries again what was refused."""
        self._refused = None
        self.follow()
