"""Opened checkpoints, and what they are made of, as values that are to be written again."""

from __future__ import annotations

import os

from weightmap._checkpoint import Checkpoint
from weightmap._chunked import ChunkedTensor
from weightmap._core import Tensor
from weightmap._errors import UnsupportedError
from weightmap._objects import PERSISTENT_ID, Global, Object
from weightmap._place import has_tensors_by_name_only, root_at
from weightmap._subtree import Subtree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from weightmap import _core
    from weightmap._saving.values import Made, Values


class _FileGlobal(Global):
    """A name as the file has it. Since the file has it, nobody asks whether torch reads it."""


class _FileObject(Object):
    """A call as the file has it, likewise."""


class _FileText(str):
    """A text of the file. Python has one str for each letter; the file may have more."""


class _FileStorage:
    """A reference to a storage of an opened checkpoint."""

    def __init__(self, opened: _core.Checkpoint, identifier: Any) -> None:
        self.opened = opened
        self.identifier = identifier


class _Verbatim:
    """A machine (python/src/evaluator.hpp) that keeps what the pickle says as it is."""

    tensor = direct = finish = None
    text = _FileText
    find_global = _FileGlobal

    def __init__(self, opened: _core.Checkpoint) -> None:
        self._opened = opened

    def persistent(self, identifier: Any) -> _FileStorage:
        return _FileStorage(self._opened, identifier)

    @staticmethod
    def call(callable: Any, arguments: Any) -> _FileObject:
        return _FileObject(callable, arguments)

    @staticmethod
    def create(callable: Any, arguments: Any) -> _FileObject:
        return _FileObject(callable, arguments, is_new=True)

    @staticmethod
    def extend(target: _FileObject, elements: list[Any]) -> None:
        target.elements.extend(elements)

    @staticmethod
    def update(target: _FileObject, flat: list[Any]) -> None:
        target.items.extend(zip(flat[::2], flat[1::2]))

    @staticmethod
    def build(target: _FileObject, state: Any) -> None:
        target.state = state


def core_of(thing: Any) -> _core.Checkpoint | None:
    """What is opened of a Checkpoint or a Subtree; None of anything else."""
    if isinstance(thing, Checkpoint):
        return thing._core
    return thing._opened if isinstance(thing, Subtree) else None


class Checkpoints:
    """Teaches `values` what a checkpoint is, as a whole and in parts."""

    def __init__(self, values: Values, is_reserved: Callable[[], bool], byte_order: str) -> None:
        self._values = values
        self._is_reserved = is_reserved
        self._byte_order = byte_order
        for kind, make in (
            (Tensor, self._tensor),
            (ChunkedTensor, self._chunked),
            (Checkpoint, self._checkpoint),
            (Subtree, self._checkpoint),
            (Global, self._global),
            (Object, self._object),
        ):
            values.makers[kind] = self._own(make)
        values.makers[_FileText] = values.writer.leaf
        values.makers[_FileGlobal] = self._file_global
        values.makers[_FileObject] = self._file_object
        values.makers[_FileStorage] = self._file_storage

    def _own(self, make: Callable[[Any], Made]) -> Callable[[Any], Made]:
        def made(thing: Any) -> Made:
            self._values.has_own = True
            return make(thing)

        return made

    def _tensor(self, thing: Tensor) -> int:
        if thing.dtype.startswith(("qint", "quint")):
            raise UnsupportedError(
                f"is a {thing.dtype} tensor without its scales; save the Checkpoint that it is of"
            )
        made = self._values.writer.mapped_tensor(thing, self._is_reserved())
        return self._values.remember(thing, made)

    def _chunked(self, thing: ChunkedTensor) -> Made:
        if thing.block[0] > 1:
            raise UnsupportedError(
                f"torch has no dtype {thing.dtype}; save tensor.torch(), the bytes of its blocks"
            )
        return self._values.begin(thing.torch())

    def _checkpoint(self, thing: Checkpoint | Subtree) -> Made:
        opened = core_of(thing)
        assert opened is not None
        kind = opened.info()["format"]
        if kind in ("torchscript", "pt2"):
            raise UnsupportedError(f"is a {kind} archive, which holds a program; save its tensors")
        order = opened.info()["byteorder"]
        if order != self._byte_order:
            raise UnsupportedError(
                f"is a checkpoint of {order}-endian elements, in a file of {self._byte_order}-endian "
                "ones"
            )
        if isinstance(thing, Checkpoint) and has_tensors_by_name_only(opened):
            self._values.left_out.extend(opened.info()["unsupported"])
            return self._values.begin(dict(thing.items()))
        path = thing.path if isinstance(thing, Subtree) else ()
        if kind == "dcp":  # tensors in pieces are put together
            plain = root_at(opened, path, os.fsdecode(opened.file()))
            self._values.left_out.extend(opened.left_out_values())
            return self._values.begin(plain)
        return self._values.begin(opened.evaluate(_Verbatim(opened), path))

    def _global(self, thing: Global) -> int:
        if not self._values.reads(str(thing)):
            raise UnsupportedError(f"is the name {thing}, {self._values.unread(str(thing))}")
        return self._values.remember(thing, self._values.named(thing.module, thing.name))

    def _object(self, thing: Object) -> Made:
        if thing.callable == PERSISTENT_ID:
            raise UnsupportedError(
                "is a storage without a tensor, which root() only names; it is written from a "
                "Checkpoint, or from what weightmap.torch.load() made of it"
            )
        if thing.elements and not self._values.is_strict:
            raise UnsupportedError(
                f"is {thing.callable} with elements, which torch.load(weights_only=True) gives to "
                "lists only"
            )
        items = thing.items or None
        return self._values.call(
            thing, thing.callable, thing.arguments, thing.state, items, thing.is_new,
            thing.elements,
        )

    def _file_global(self, thing: _FileGlobal) -> int:
        made = self._values.writer.global_name(thing.module, thing.name)
        return self._values.remember(thing, made)

    def _file_object(self, thing: _FileObject) -> Made:
        return self._values.call(
            thing, thing.callable, thing.arguments, thing.state, thing.items, thing.is_new,
            thing.elements,
        )

    def _file_storage(self, thing: _FileStorage) -> Made:
        identifier = thing.identifier
        if type(identifier) is not tuple or len(identifier) not in (5, 6):
            raise UnsupportedError("is a reference that is not one to a storage")
        if len(identifier) == 6 and identifier[5] is not None:
            raise UnsupportedError("is a reference to a part of a storage")
        tag, kind, key, location, numel = identifier[:5]
        are_texts = all(isinstance(text, str) for text in (tag, key, location))
        if not are_texts or type(kind) is not _FileGlobal or type(numel) is not int:
            raise UnsupportedError("is a reference to a storage that torch.save does not write")
        writer = self._values.writer
        number = writer.mapped_storage(thing.opened, tag, key, location, self._is_reserved())
        return writer.storage(number, self._file_global(kind), numel)
