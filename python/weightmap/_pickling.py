"""What of checkpoints and tensors is pickled: where they are in which file, and never their bytes.

pickle writes what is one object once. So all that is pickled of one checkpoint refers to one
_core.Checkpoint, and who unpickles it opens the file once.
"""

from __future__ import annotations

import os
import threading
from weakref import WeakValueDictionary

from weightmap import _core
from weightmap._errors import FileError, InvalidArgumentError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# By the identity of what they have opened.
_known: WeakValueDictionary[int, _core.Checkpoint] = WeakValueDictionary()
_lock = threading.Lock()
os.register_at_fork(
    before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release
)


def one_of(core: _core.Checkpoint) -> _core.Checkpoint:
    """The one that stands for all that have opened the same."""
    with _lock:
        return _known.setdefault(core.id(), core)


def reduce_core(core: _core.Checkpoint) -> Any:
    """Path, options and generation. The path is that of the open, whatever directory it is now."""
    paths, options = core.origin()
    if not paths:
        raise InvalidArgumentError(
            "cannot be pickled, since only this process knows what it is", file=os.fsdecode(core.file())
        )
    versions = [generation[:4] for _, generation in core.files()]
    return open_again, ([os.fsdecode(path) for path in paths], options, versions)


def open_again(
    paths: list[str], options: dict[str, Any], versions: list[tuple[int, ...]]
) -> _core.Checkpoint:
    """The time of a change of its inode does not count: a rename or another mode changes it."""
    opened = _core.open_files([os.fsencode(path) for path in paths], options)
    if [generation[:4] for _, generation in opened.files()] != versions:
        raise FileError(
            "is not the file that was pickled: it was replaced or written to since", file=paths[0]
        )
    return opened


def reduce_tensor(core: _core.Checkpoint, tensor: _core.Tensor) -> Any:
    """The tensor of the file, and which of its elements these are."""
    try:
        whole = core.at(tensor.index)
    except IndexError:
        raise InvalidArgumentError(
            f'tensor "{tensor.name}" cannot be pickled or copied, since it is not listed: a module has '
            "it and does not save it (a buffer that is not persistent); take tensor.numpy() or "
            "tensor.torch()", file=os.fsdecode(core.file())
        ) from None
    part = None
    if (tensor.storage_offset, tensor.shape, tensor.strides) != (
        whole.storage_offset, whole.shape, whole.strides
    ):
        part = tensor.storage_offset - whole.storage_offset, tensor.shape, tensor.strides
    is_bits = _kind(tensor) != _kind(whole)
    return tensor_again, (one_of(core), _key_of(core, tensor), part, is_bits)


def _kind(tensor: _core.Tensor) -> tuple[str, bool, bool]:
    return tensor.dtype, tensor.is_conjugate, tensor.is_negative


def _key_of(core: _core.Checkpoint, tensor: _core.Tensor) -> str | tuple[str | int, ...] | int:
    """Its name, its path where others have the same name, its position where that is no text."""
    for key in (tensor.name, core.path(tensor.index)):
        try:
            if _look_up(core, key).index == tensor.index:
                return key
        except InvalidArgumentError:
            pass
    return tensor.index


def _look_up(core: _core.Checkpoint, key: str | tuple[str | int, ...] | int) -> _core.Tensor:
    if isinstance(key, int):
        return core.at(key)
    return core.get(key) if isinstance(key, str) else core.get_path(key)


def tensor_again(
    core: _core.Checkpoint,
    key: str | tuple[str | int, ...] | int,
    part: tuple[int, tuple[int, ...], tuple[int, ...]] | None,
    is_bits: bool,
) -> _core.Tensor:
    tensor = _look_up(core, key)
    if is_bits:
        tensor = tensor.bits()
    return tensor if part is None else _core.part_of(tensor, *part)
