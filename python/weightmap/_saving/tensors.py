"""Tensors of torch as values that are to be written. Imported where torch is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from weightmap._errors import UnsupportedError
from weightmap._saving.names import PLAIN_DTYPES
from weightmap._torch import private

if TYPE_CHECKING:
    from collections.abc import Callable

    from weightmap._saving.values import Made, Values

# Those that no other function than torch's two for plain tensors rebuilds.
_PLAIN = {getattr(torch, name): name for name in PLAIN_DTYPES if hasattr(torch, name)}


class Tensors:
    """Teaches `values` what torch's tensors and storages are."""

    def __init__(
        self, values: Values, is_reserved: Callable[[], bool], reserves_meta: Callable[[], bool]
    ) -> None:
        self._values = values
        self._writer = values.writer
        self._is_reserved = is_reserved
        self._reserves_meta = reserves_meta
        self._numbers: dict[int, int] = {}
        self._kept: list[Any] = []  # storages, so that none is at the place of another
        self._dtypes: dict[int, torch.dtype] = {}  # by address
        self._untyped = private._new_dtypes()
        tags = [tag for _, tag, _ in private._package_registry]
        # Of storages on the CPU, unless others are to be asked first.
        self._location = "cpu" if tags and tags[0] is private._cpu_tag else None
        values.makers[torch.Tensor] = self._tensor
        values.makers[torch.nn.Parameter] = self._parameter
        values.makers[torch.UntypedStorage] = self._untyped_storage
        values.makers[torch.storage.TypedStorage] = self._typed_storage

    def maker_of(self, kind: type) -> Callable[[Any], Made] | None:
        if issubclass(kind, torch.storage.TypedStorage):
            return self._typed_storage
        if kind in private._storage_classes or issubclass(kind, torch.UntypedStorage):
            return self._untyped_storage
        # What wraps others has no elements of its own.
        return self._values.reduced if hasattr(kind, "__tensor_flatten__") else None

    def _tensor(self, thing: torch.Tensor) -> Made:
        made = self._plain(thing, thing.requires_grad)
        if made is None:
            return self._values.reduced(thing)
        return self._values.remember(thing, made)

    def _parameter(self, thing: torch.nn.Parameter) -> Made:
        made = self._plain(thing, False)
        if made is None:
            return self._values.reduced(thing)
        return self._values.remember(thing, self._writer.parameter(made, thing.requires_grad))

    def _plain(self, thing: torch.Tensor, requires_grad: bool) -> int | None:
        """Elements of a storage, and nothing more; None for any other tensor."""
        dtype = thing.dtype
        name = _PLAIN.get(dtype)
        if name is None or thing.layout is not torch.strided or thing.__dict__ or thing.is_nested:
            return None
        if not thing.is_cpu:
            return self._shape(thing, name, requires_grad) if thing.is_meta else None
        if thing._backward_hooks or thing.is_neg() or (dtype.is_complex and thing.is_conj()):
            return None
        if thing._is_zerotensor():  # which torch refuses
            return None
        storage = thing.untyped_storage()
        kind = torch.uint8 if dtype in self._untyped else dtype
        number = self._number(storage, kind, storage.data_ptr(), self._location)
        return self._writer.tensor(
            number, name, int(thing.storage_offset()), thing.size(), thing.stride(), requires_grad
        )

    def _shape(self, thing: torch.Tensor, name: str, requires_grad: bool) -> int | None:
        """A tensor without elements, if there is to be room for them."""
        if not self._reserves_meta():
            return None
        storage = thing.untyped_storage()
        number = self._numbers.get(storage._cdata)
        if number is None:
            self._kept.append(storage)
            number = self._writer.add_storage(0, storage.nbytes(), None, "cpu", True)
            self._numbers[storage._cdata] = number
        return self._writer.tensor(
            number, name, int(thing.storage_offset()), thing.size(), thing.stride(), requires_grad
        )

    def _typed_storage(self, thing: torch.storage.TypedStorage) -> int:
        kind = getattr(torch, thing._pickle_storage_type())
        number = self._number_of(thing._untyped_storage, thing.dtype, _device_of_fake(thing))
        return self._reference(number, kind, thing._size())

    def _untyped_storage(self, thing: torch.UntypedStorage) -> int:
        kind = private.normalize_storage_type(type(thing))
        number = self._number_of(thing, torch.uint8, _device_of_fake(thing))
        return self._reference(number, kind, thing.nbytes())

    def _reference(self, number: int, kind: type, numel: int) -> int:
        named = self._values.begin(kind)
        assert type(named) is int
        return self._writer.storage(number, named, numel)

    def _number_of(
        self, storage: torch.UntypedStorage, dtype: torch.dtype, location: str | None
    ) -> int:
        address = storage.data_ptr() if storage.device.type != "meta" else 0
        return self._number(storage, dtype, address, location)

    def _number(
        self, storage: torch.UntypedStorage, dtype: torch.dtype, address: int, location: str | None
    ) -> int:
        # As torch.save asks: a storage that is loaded has the type of its first tensor.
        if address and self._dtypes.setdefault(address, dtype) is not dtype:
            raise UnsupportedError(
                f"shares its elements with a tensor of another type, {self._dtypes[address]}, and "
                "torch loads a storage as one type only"
            )
        number = self._numbers.get(storage._cdata)
        if number is None:
            number = self._numbers[storage._cdata] = self._add(storage, address, location)
        return number

    def _add(self, storage: torch.UntypedStorage, address: int, location: str | None) -> int:
        self._kept.append(storage)
        if location is None:
            location = private.location_tag(storage)
        reserved = self._is_reserved()
        if location != "cpu" and not reserved and storage.device.type != "cpu":
            storage = storage.cpu()
            address = storage.data_ptr()
        return self._writer.add_storage(address, storage.nbytes(), storage, location, reserved)


def _device_of_fake(thing: Any) -> str | None:
    """Where a storage without bytes claims to be, under skip_data(materialize_fake_tensors=True)."""
    device = getattr(thing, "_fake_device", None)
    return None if device is None else str(device)
