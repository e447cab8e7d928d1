"""accelerate's offloading out of a mapped checkpoint, without a copy of it in .dat files.

    with accelerate.init_empty_weights():
        model = Model(config)
    weightmap.accelerate.offload(model, "model.safetensors", {"layers.0": 0, "layers.1": "disk"})

docs/transformers.md is the manual.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from torch import nn

    from weightmap._typing import PathLike

__all__ = ["offload"]


def offload(
    model: nn.Module, x: PathLike, device_map: dict[str, Any], **options: Any
) -> nn.Module:
    """accelerate.dispatch_model(model, device_map), with the tensors of a checkpoint.

    What device_map leaves on "cpu" or "disk" lies in the read-only mapping of the files. It is
    copied while its layer runs, if that is on another device; no folder is needed, and no file is
    written.

    model: best made under accelerate.init_empty_weights(), so that it has no memory of its own.
    x: what weightmap.open() takes: a file of any format, an index, a folder. RuntimeError, as torch's
        own, if names differ from the model's.
    options: of dispatch_model(), but for state_dict, offload_dir and offload_index.
    Returns the model. backward() raises UnsupportedError at parameters that stay in the mapping, and a
    write to one ends the process, after a line on standard error that names the tensor.

    Call it before other threads use the model. Children that are forked after it share the mapping.
    """
    dispatch_model = _dispatch_model()
    from weightmap._open import open
    from weightmap._torch.served_model import refuse_gradients

    checkpoint = open(x, copy_on_write=False)
    checkpoint.load_into(model)
    refuse_gradients(model)
    # An empty index says that nothing is in .dat files, and so that no folder is needed for them.
    offloaded: nn.Module = dispatch_model(
        model, device_map, state_dict=checkpoint.torch(), offload_index={}, **options
    )
    return offloaded


def _dispatch_model() -> Any:
    from weightmap._errors import MissingPackageError

    try:
        from accelerate import dispatch_model
    except ImportError:
        raise MissingPackageError(
            "weightmap.accelerate needs the package accelerate: pip install accelerate"
        ) from None
    return dispatch_model
