"""Version.copy_into(): the tensors of a version into a module that is there."""

from __future__ import annotations

import torch as _torch

from weightmap._errors import InvalidArgumentError
from weightmap.torch import load


def copy_into(folder: str, module: _torch.nn.Module) -> None:
    new = load(folder)
    targets = module.state_dict()
    places = {tensor.data_ptr() for name, tensor in targets.items() if name in new}
    for name, tensor in targets.items():
        if name not in new and tensor.data_ptr() not in places:
            raise InvalidArgumentError(f"{folder}: has no tensor {name!r}, which the module has")
    for name, tensor in new.items():
        if name not in targets:
            raise InvalidArgumentError(f"{folder}: has a tensor {name!r}, which the module has not")
        if tensor.shape != targets[name].shape:
            raise InvalidArgumentError(
                f"{folder}: the tensor {name!r} has the shape {list(tensor.shape)}, and in the "
                f"module {list(targets[name].shape)}"
            )
    with _torch.no_grad():
        for name, tensor in new.items():
            targets[name].copy_(tensor)
