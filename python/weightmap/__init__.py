"""Map model weights instead of loading them.

    import weightmap

    with weightmap.open("model.pt") as checkpoint:
        weight = checkpoint["layers.0.attn.wq.weight"]   # a weightmap.Tensor, nothing was read
        array = weight[:1024].numpy()                    # the same bytes, read-only
    model = weightmap.torch.load("model.pt")             # as torch.load(mmap=True), only faster

Five ways in: open() gives the tensors of a checkpoint by name, safe_open() does so in the words of
safetensors, weightmap.torch.load() answers what torch.load() would, weightmap.transformers.load()
what from_pretrained() would, and patch() has code that you do not change map its files.
save() writes a checkpoint, weightmap.torch.save() what torch.save() would, and save_safetensors()
safetensors files; write_delta() and apply_delta() bring new weights as what changed. weightmap.config has the defaults, weightmap.cuda copies tensors to CUDA devices,
weightmap.remote brings checkpoints from stores.
"""

from __future__ import annotations

import os

from weightmap import config
from weightmap._checkpoint import Checkpoint
from weightmap._core import Tensor
from weightmap._core import version as __version__
from weightmap._errors import (
    CancelledError,
    CorruptError,
    Error,
    FileError,
    FilePermissionError,
    InvalidArgumentError,
    LimitExceededError,
    MissingFileError,
    MissingPackageError,
    NotACheckpointError,
    TensorNotFoundError,
    UnsafePickleError,
    UnsupportedError,
)
from weightmap._open import guard_is_active, open

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from weightmap import (
        accelerate,
        cuda,
        experts,
        ray,
        remote,
        reports,
        sglang,
        torch,
        transformers,
        vllm,
    )
    from weightmap._chunked import ChunkedTensor
    from weightmap._deltas import apply_delta, write_delta
    from weightmap._files import evict, processes, publish, unsafe_globals
    from weightmap._filling import Filling, open_for_filling
    from weightmap._follow import Follow, Version, follow
    from weightmap._objects import Global, Object
    from weightmap._patching.patch import patch
    from weightmap._read_ahead import prefetch
    from weightmap._replacing import Replacing, replacing
    from weightmap._rows import Rows
    from weightmap._safetensors.safe_open import SafeOpen, safe_open
    from weightmap._saving.safetensors import save_safetensors
    from weightmap._saving.save import empty, save
    from weightmap._slice_plan import SlicePart, SlicePlan
    from weightmap._snapshot import snapshot_here
    from weightmap._stage import stage
    from weightmap._staging import StagedFile, remove_staged
    from weightmap._subtree import Subtree
    from weightmap._typing import CheckpointTensor
    from weightmap._watch import Watch, watch

__all__ = [
    "CancelledError",
    "Checkpoint",
    "CheckpointTensor",
    "ChunkedTensor",
    "CorruptError",
    "Error",
    "FileError",
    "FilePermissionError",
    "Filling",
    "Follow",
    "Global",
    "InvalidArgumentError",
    "LimitExceededError",
    "MissingFileError",
    "MissingPackageError",
    "NotACheckpointError",
    "Object",
    "Replacing",
    "Rows",
    "SafeOpen",
    "SlicePart",
    "SlicePlan",
    "StagedFile",
    "Subtree",
    "Tensor",
    "TensorNotFoundError",
    "UnsafePickleError",
    "UnsupportedError",
    "Version",
    "Watch",
    "__version__",
    "apply_delta",
    "config",
    "empty",
    "evict",
    "follow",
    "guard_is_active",
    "open",
    "open_for_filling",
    "patch",
    "prefetch",
    "processes",
    "publish",
    "remove_staged",
    "replacing",
    "safe_open",
    "save",
    "save_safetensors",
    "snapshot_here",
    "stage",
    "unsafe_globals",
    "watch",
    "write_delta",
]


# Imported when they are asked for.
_MODULE_OF = {
    "CheckpointTensor": "_typing",
    "ChunkedTensor": "_chunked",
    "Filling": "_filling",
    "Follow": "_follow",
    "Global": "_objects",
    "Object": "_objects",
    "Replacing": "_replacing",
    "Rows": "_rows",
    "SafeOpen": "_safetensors.safe_open",
    "SlicePart": "_slice_plan",
    "SlicePlan": "_slice_plan",
    "StagedFile": "_staging",
    "Subtree": "_subtree",
    "Version": "_follow",
    "Watch": "_watch",
    "apply_delta": "_deltas",
    "empty": "_saving.save",
    "evict": "_files",
    "follow": "_follow",
    "open_for_filling": "_filling",
    "patch": "_patching.patch",
    "prefetch": "_read_ahead",
    "processes": "_files",
    "publish": "_files",
    "remove_staged": "_staging",
    "replacing": "_replacing",
    "safe_open": "_safetensors.safe_open",
    "save": "_saving.save",
    "save_safetensors": "_saving.safetensors",
    "snapshot_here": "_snapshot",
    "stage": "_stage",
    "unsafe_globals": "_files",
    "watch": "_watch",
    "write_delta": "_deltas",
}


_SUBMODULES = (
    "accelerate",
    "cuda",
    "experts",
    "ray",
    "remote",
    "reports",
    "sglang",
    "torch",
    "transformers",
    "vllm",
)


def __getattr__(name: str) -> Any:
    import importlib

    # Most import packages that take seconds, and need not be installed.
    if name in _SUBMODULES:
        return importlib.import_module(f"weightmap.{name}")
    if name in _MODULE_OF:
        module = importlib.import_module(f"weightmap.{_MODULE_OF[name]}")
        return globals().setdefault(name, getattr(module, name))
    raise AttributeError(f"module 'weightmap' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *_SUBMODULES})


# Where weightmap_patch.pth is not run at the start: docs/python.md.
if os.environ.get("WEIGHTMAP_PATCH"):
    from weightmap import _patch_at_start
