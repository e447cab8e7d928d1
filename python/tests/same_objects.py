"""Whether two objects that torch loaded are the same: types, values, bytes, and what is shared.

And how torch saves and loads what tests compare.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from typing import Any

import torch


class Comparison:
    """difference() answers where two objects differ first, or None.

    Two objects, or two storages, that are one on the left must be one on the right and the other
    way round.
    """

    def __init__(self) -> None:
        self._partners: dict[int, int] = {}
        self._taken: dict[int, int] = {}
        self._kept: list[Any] = []  # so that no id is used twice
        self.tensors = 0

    def _is_partner(self, left: Any, right: Any) -> tuple[bool, bool]:
        """(whether the pairing holds, whether it was known)."""
        self._kept += [left, right]
        known = self._partners.get(id(left))
        if known is not None:
            return known == id(right), True
        if id(right) in self._taken:
            return False, False
        self._partners[id(left)] = id(right)
        self._taken[id(right)] = id(left)
        return True, False

    def difference(self, left: Any, right: Any, where: str = "root") -> str | None:
        if type(left) is not type(right):
            return f"{where}: {type(left)} and {type(right)}"
        if isinstance(left, (torch.Tensor, list, dict, set)):
            holds, known = self._is_partner(left, right)
            if not holds:
                return f"{where}: one is shared where the other is not"
            if known:
                return None
        if isinstance(left, torch.Tensor):
            return self._tensors_differ(left, right, where)
        if isinstance(left, (dict, OrderedDict, Counter)):
            return self._dicts_differ(left, right, where)
        if isinstance(left, (list, tuple)):
            return self._sequences_differ(left, right, where)
        if isinstance(left, (torch.UntypedStorage, torch.storage.TypedStorage)):
            return self._storages_differ(left, right, where)
        if isinstance(left, float) and math.isnan(left):
            return None if math.isnan(right) else f"{where}: nan and {right}"
        if hasattr(left, "__dict__") and type(left).__eq__ is object.__eq__:
            return self.difference(vars(left), vars(right), where + ".__dict__")
        return None if left == right else f"{where}: {left!r} and {right!r}"

    def _sequences_differ(self, left: Any, right: Any, where: str) -> str | None:
        if len(left) != len(right):
            return f"{where}: {len(left)} and {len(right)} elements"
        for index, pair in enumerate(zip(left, right)):
            fault = self.difference(*pair, f"{where}[{index}]")
            if fault:
                return fault
        return None

    def _dicts_differ(self, left: Any, right: Any, where: str) -> str | None:
        if [(type(key), key) for key in left] != [(type(key), key) for key in right]:
            return f"{where}: keys {list(left)[:9]} and {list(right)[:9]}"
        for key in left:
            fault = self.difference(left[key], right[key], f"{where}[{key!r}]")
            if fault:
                return fault
        if hasattr(left, "__dict__"):
            return self.difference(vars(left), vars(right), where + ".__dict__")
        return None

    def _storages_differ(self, left: Any, right: Any, where: str) -> str | None:
        if isinstance(left, torch.storage.TypedStorage):
            if left.dtype != right.dtype:
                return f"{where}: storages of {left.dtype} and {right.dtype}"
            left, right = left._untyped_storage, right._untyped_storage
        if left.nbytes() != right.nbytes() or left.device != right.device:
            return f"{where}: storages {left.nbytes()} {left.device}, {right.nbytes()} {right.device}"
        if left.nbytes() == 0 or left.device.type == "meta":
            return None
        if left.resizable() != right.resizable() or left.filename != right.filename:
            return f"{where}: only one storage is resizable, or of a named file"
        pair = self._partners.setdefault(("storage", left._cdata), right._cdata)  # type: ignore
        back = self._taken.setdefault(("storage", right._cdata), left._cdata)  # type: ignore
        if pair != right._cdata or back != left._cdata:
            return f"{where}: a storage is shared in one and not in the other"
        return None if bytes(left) == bytes(right) else f"{where}: other bytes"

    def _tensors_differ(self, left: Any, right: Any, where: str) -> str | None:
        self.tensors += 1
        if left.is_nested != right.is_nested:
            return f"{where}: only one is nested"
        facts = ("dtype", "layout", "device", "requires_grad", "is_quantized", "grad_fn", "is_leaf",
                 "_backward_hooks")
        for fact in facts if left.is_nested else (*facts, "shape"):
            if getattr(left, fact) != getattr(right, fact):
                return f"{where}.{fact}: {getattr(left, fact)} and {getattr(right, fact)}"
        for fact in ("_is_view", "is_inference"):
            if getattr(left, fact)() != getattr(right, fact)():
                return f"{where}.{fact}: {getattr(left, fact)()} and {getattr(right, fact)()}"
        if vars(left).keys() != vars(right).keys():
            return f"{where}: attributes {list(vars(left))} and {list(vars(right))}"
        fault = self.difference(vars(left), vars(right), where + ".__dict__")
        if fault:
            return fault
        left, right = left.detach(), right.detach()
        if left.layout == torch.sparse_coo:
            if left.is_coalesced() != right.is_coalesced():
                return f"{where}: only one is coalesced"
            return self._parts_differ(left, right, ("_indices", "_values"), where)
        if left.layout in (torch.sparse_csr, torch.sparse_bsr):
            return self._parts_differ(left, right, ("crow_indices", "col_indices", "values"), where)
        if left.layout in (torch.sparse_csc, torch.sparse_bsc):
            return self._parts_differ(left, right, ("ccol_indices", "row_indices", "values"), where)
        if left.is_nested:
            parts = ("_nested_tensor_size", "_nested_tensor_strides",
                     "_nested_tensor_storage_offsets")
            return self._parts_differ(left, right, parts, where) or self._storages_differ(
                left.untyped_storage(), right.untyped_storage(), where
            )
        if left.is_quantized:
            fault = self._quantizers_differ(left, right, where)
            if fault:
                return fault
        for fact in ("stride", "storage_offset", "is_conj", "is_neg"):
            if getattr(left, fact)() != getattr(right, fact)():
                return f"{where}.{fact}: {getattr(left, fact)()} and {getattr(right, fact)()}"
        return self._storages_differ(left.untyped_storage(), right.untyped_storage(), where)

    def _parts_differ(self, left: Any, right: Any, parts: Any, where: str) -> str | None:
        for part in parts:
            fault = self.difference(
                getattr(left, part)(), getattr(right, part)(), f"{where}.{part}()"
            )
            if fault:
                return fault
        return None

    def _quantizers_differ(self, left: Any, right: Any, where: str) -> str | None:
        if left.qscheme() != right.qscheme():
            return f"{where}: {left.qscheme()} and {right.qscheme()}"
        if left.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
            facts = ("q_scale", "q_zero_point")
        else:
            facts = ("q_per_channel_scales", "q_per_channel_zero_points", "q_per_channel_axis")
        for fact in facts:
            a, b = getattr(left, fact)(), getattr(right, fact)()
            same = torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b
            if not same:
                return f"{where}.{fact}: {a} and {b}"
        return None


def by_torch(path, **options):
    return torch.load(path, mmap=True, weights_only=True, **options)


def assert_same(left, right):
    comparison = Comparison()
    assert comparison.difference(left, right) is None
    return comparison


def save(value, folder, name="model.pt", **options):
    path = folder / name
    torch.save(value, path, **options)
    return path
