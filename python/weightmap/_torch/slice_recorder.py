"""Learns from a load which parts of a checkpoint's tensors it uses. Imports torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from weightmap._slice_plan import SlicePart, SlicePlan
from weightmap._torch import private
from weightmap._torch.wrapped import parts_of

if TYPE_CHECKING:
    from typing import Any

# Of more parts than that the whole tensor is noted: a plan is to stay small.
_MOST_PARTS = 4096


class SliceRecorder(private.TorchDispatchMode):
    """While it is entered, in this thread, notes which parts of the tensors that were add()ed any
    operation of torch reads: what plan() makes a SlicePlan of, for Checkpoint.warm().

        with weightmap.torch.SliceRecorder() as recorder:
            for name, tensor in checkpoint.torch().items():
                recorder.add(name, tensor)
                parameters[name].copy_(part_for_this_rank(tensor))

    What reads memory past torch (numpy(), a data_ptr() given to other code) is not seen: it is read
    when it is touched.
    """

    def __init__(self) -> None:
        super().__init__()
        # What was added, by the address of its storage, which views share.
        self._added: dict[int, list[tuple[str, torch.Tensor]]] = {}
        self._parts: dict[str, dict[SlicePart, None] | None] = {}  # None: all of the tensor

    def add(self, name: str, tensor: torch.Tensor) -> None:
        """A tensor whose memory is a checkpoint's, before it is used. Of one that wraps others
        those are noted, by the names that they have in the checkpoint."""
        for place, part in parts_of(tensor, name):
            if part.numel() != 0:
                storage = part.untyped_storage().data_ptr()
                self._added.setdefault(storage, []).append((place, part))

    def plan(self) -> SlicePlan:
        """What was read up to now, tensors in the order in which they were first read."""
        return SlicePlan(self._parts)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if not func.is_view:
            for value in private.tree_leaves((args, kwargs)):
                if isinstance(value, torch.Tensor):
                    for _, part in parts_of(value):
                        if part.numel() != 0:
                            self._note(part)
        return func(*args, **kwargs or {})

    def _note(self, read: torch.Tensor) -> None:
        try:
            storage = read.untyped_storage().data_ptr()
        except RuntimeError:  # it has no memory of its own
            return
        for name, tensor in self._added.get(storage, ()):
            skipped = read.data_ptr() - tensor.data_ptr()
            if 0 <= skipped < _reach(tensor):
                self._note_part(name, tensor, read, skipped)
                return

    def _note_part(
        self, name: str, tensor: torch.Tensor, read: torch.Tensor, skipped: int
    ) -> None:
        parts = self._parts.setdefault(name, {})
        if parts is None:
            return
        is_whole = read.numel() >= tensor.numel() or read.itemsize != tensor.itemsize
        if is_whole or skipped % tensor.itemsize != 0 or len(parts) == _MOST_PARTS:
            self._parts[name] = None
            return
        part = SlicePart(skipped // tensor.itemsize, tuple(read.shape), tuple(read.stride()))
        parts[part] = None


def _reach(tensor: torch.Tensor) -> int:
    """Bytes from the first element to the last."""
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    return (1 + sum((size - 1) * stride for size, stride in steps)) * tensor.itemsize
