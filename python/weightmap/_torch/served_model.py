"""weightmap.torch.load_model(): a module over mapped tensors; weightmap.transformers.load(), too."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.utils.hooks import unserializable_hook

from weightmap._checkpoint import Checkpoint
from weightmap._errors import UnsupportedError
from weightmap._place import root_at
from weightmap._torch import tensors as _tensors
from weightmap._torch.load import loaded
from weightmap._torch.served_memory import mappings_of, summary
from weightmap._torch.weights_only import registered_globals
from weightmap._torch.wrapped import addresses_of

Factory = Callable[[], torch.nn.Module]


def refuse_conversion(checkpoint: Checkpoint, dtype: torch.dtype) -> None:
    """Unless all floating tensors of the file have this dtype."""
    other = {}
    for tensor in checkpoint.values():
        kind = getattr(torch, tensor.dtype, None)
        if isinstance(kind, torch.dtype) and kind.is_floating_point and kind != dtype:
            other[tensor.name] = tensor
    if not other:
        return
    name, first = next(iter(other.items()))
    mebibytes = sum(tensor.numel for tensor in other.values()) * dtype.itemsize / 2**20
    word = str(dtype).removeprefix("torch.")
    raise UnsupportedError(
        f"has {len(other)} of {len(checkpoint)} tensors in another dtype than {word}, such as "
        f"{name!r} in {first.dtype}: converting them would take {mebibytes:,.0f} MiB of anonymous "
        "memory in every worker. Convert the file once, by a load, .to() and a save, or "
        "leave dtype= out",
        file=checkpoint.path,
    )


def make(factory: Factory, checkpoint: Checkpoint, strict: bool) -> torch.nn.Module:
    """What factory() makes, with the tensors of the checkpoint in the place of its own."""
    with torch.device("meta"):
        model = factory()
    # The file as it is, for who finds that the model is a part of it.
    _tensors.load_into(
        model, _state_for(model, checkpoint), strict, checkpoint.path,
        opened=f"weightmap.open({checkpoint.path!r})",
    )
    if any(True for _ in _unsaved(model)):
        _take_unsaved(model, _with_buffers_only(factory))
    return model


def _state_for(model: torch.nn.Module, checkpoint: Checkpoint) -> dict[str, torch.Tensor]:
    """The tensors by name. A file of torch has those within one that wraps others under names of
    their own; where the model wants the wrapper, it is made as torch.load makes it."""
    state = _tensors.state_for(
        model, checkpoint.torch(), checkpoint.items(),
        lambda path: root_at(checkpoint._core, path, checkpoint.path),
    )
    lacking = [name for name in model.state_dict() if name not in state]
    beginnings = tuple(f"{name}." for name in lacking)
    if not any(name.startswith(beginnings) for name in state):
        return state
    whole = loaded(checkpoint._core, checkpoint.path, None, registered_globals())
    if not isinstance(whole, dict) or not all(name in whole for name in lacking):
        return state
    return {name: each for name, each in whole.items() if isinstance(each, torch.Tensor)}


_logger = logging.getLogger("weightmap")


def finish(model: torch.nn.Module) -> torch.nn.Module:
    """The model, once its parameters are where they are to be."""
    refuse_gradients(model)
    if _logger.isEnabledFor(logging.INFO):
        _logger.info("%s", summary(model).first_line())
    return model


def refuse_gradients(model: torch.nn.Module) -> None:
    """backward() raises UnsupportedError at what lies in a mapping that is only read, as long as it
    does.

    Without requires_grad there were no gradients either. But then torch multiplies an input that is
    not contiguous by a copy of the weight, if that has half precision and is on the CPU, one for
    each row of the batch: with each answer of a model of transformers, of its largest matrix.
    """
    parameters = [(each, addresses_of(each)) for each in model.parameters() if each.requires_grad]
    flat = [address for _, addresses in parameters for address in addresses]
    mappings = iter(mappings_of(flat, counted=False))
    for parameter, addresses in parameters:
        places = [next(mappings) for _ in addresses]
        if any(mapping is not None and not mapping.writable for mapping in places):
            parameter.register_hook(_refusal(weakref.ref(parameter), addresses))


def _refusal(
    parameter: weakref.ref[torch.nn.Parameter], addresses: tuple[int, ...]
) -> Callable[..., None]:
    @unserializable_hook
    def refuse(_gradient: torch.Tensor) -> None:
        held = parameter()
        if held is not None and addresses_of(held) == addresses:
            raise UnsupportedError(
                "a parameter in a read-only mapping has no gradient, since a step of an optimizer "
                "would end the process: load the model without copy_on_write=False to train it"
            )

    return refuse


def _unsaved(model: torch.nn.Module) -> Iterator[tuple[str, dict[str, Any], str]]:
    """What no state dict has, and so is on "meta" still: buffers that are not persistent, and
    tensors that are plain attributes. The name of the module, and where the tensor stands."""
    for name, module in model.named_modules():
        for place in (module._buffers, vars(module)):
            for key, value in place.items():
                if isinstance(value, torch.Tensor) and value.is_meta:
                    yield name, place, key


def _take_unsaved(model: torch.nn.Module, other: torch.nn.Module) -> None:
    for name, place, key in list(_unsaved(model)):
        place[key] = getattr(other.get_submodule(name), key)


def _with_buffers_only(factory: Factory) -> torch.nn.Module:
    """What factory() makes on the CPU; each parameter is let go of as soon as it was made."""
    this_thread = threading.get_ident()

    def drop(module: torch.nn.Module, name: str, parameter: Any) -> Any:
        if threading.get_ident() != this_thread or parameter is None:
            return parameter
        return torch.nn.Parameter(parameter.to("meta"), parameter.requires_grad)

    hook = register_module_parameter_registration_hook(drop)
    try:
        return factory()
    finally:
        hook.remove()
