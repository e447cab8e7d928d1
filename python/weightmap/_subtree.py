"""A part of a checkpoint, such as the model in a training checkpoint."""

from __future__ import annotations

from collections.abc import Mapping

from weightmap._chunked import chunked_tensors, named_tensors
from weightmap._core import Tensor
from weightmap._errors import TensorNotFoundError
from weightmap._pickling import one_of
from weightmap._place import root_at, tensors_below
from weightmap.reports import LoadReport

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    import torch as torch_module

    from weightmap import _core
    from weightmap._chunked import ChunkedTensor
    from weightmap._typing import CheckpointTensor


class Subtree(Mapping[str, "CheckpointTensor"]):
    """What Checkpoint.subtree() returns: the tensors below a key, by the rest of their names.

    Keeps the mapping, whatever becomes of the Checkpoint.

    Safe to use from any thread, and after a fork.
    """

    def __init__(self, opened: _core.Checkpoint, file: str, path: tuple[str | int, ...]) -> None:
        self._opened = opened
        self._file = file
        self.path = path
        self._indices: dict[str, int] = {}
        self._ambiguous: set[str] = set()
        self._pieced: dict[str, ChunkedTensor] = {}
        begin = "".join(f"{part}." for part in path)
        wholes = chunked_tensors(opened)
        if wholes:
            for name, tensor in named_tensors(opened, wholes):
                rest = name[len(begin) :]
                if not name.startswith(begin):
                    continue
                if isinstance(tensor, Tensor):
                    self._indices[rest] = tensor.index
                else:
                    self._indices[rest] = tensor.indices[0]
                    self._pieced[rest] = tensor
        for index in () if wholes else tensors_below(opened, path):
            name = ".".join(map(str, opened.path(index)[len(path) :]))
            if self._indices.setdefault(name, index) != index:
                self._ambiguous.add(name)
        if not self._indices:
            raise TensorNotFoundError(f"has no tensors below {self._shown}", file=file)

    def __reduce__(self) -> Any:
        return Subtree, (one_of(self._opened), self._file, self.path)

    @property
    def _shown(self) -> str:
        return ".".join(map(str, self.path))

    def __getitem__(self, name: str) -> CheckpointTensor:
        if name in self._ambiguous:
            why = "has more than one tensor"
        elif name in self._pieced:
            return self._pieced[name]
        elif name in self._indices:
            return self._opened.at(self._indices[name])
        else:
            why = "has no tensor"
        raise TensorNotFoundError(f"{why} {name!r} below {self._shown}", file=self._file)

    # Two of them are not compared tensor by tensor; one is equal to itself.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __len__(self) -> int:
        return len(self._indices)

    def __iter__(self) -> Iterator[str]:
        return iter(self._indices)

    def root(self) -> Any:
        """Everything below this key as plain Python objects; see Checkpoint.root()."""
        return root_at(self._opened, self.path, self._file)

    def torch(self, device: Any = None, dtype: Any = None) -> dict[str, torch_module.Tensor]:
        """A state dict of the tensors below this key; see Checkpoint.torch()."""
        from weightmap._torch import tensors

        return tensors.state_dict(self._opened, self.items(), device, dtype)

    def load_into(self, model: torch_module.nn.Module, *, strict: bool = True) -> LoadReport:
        """Makes these tensors the model's; see Checkpoint.load_into()."""
        from weightmap._torch import tensors

        state = tensors.state_for(
            model, self.torch(), self.items(),
            lambda below: root_at(self._opened, (*self.path, *below), self._file),
        )
        base = f"{self._shown}."
        return LoadReport(*tensors.load_into(model, state, strict, self._file, base))

    def __repr__(self) -> str:
        tensors = f"{len(self)} tensor{'' if len(self) == 1 else 's'}"
        return f"<weightmap.Subtree {self._shown!r} of {self._file!r}, {tensors}>"
