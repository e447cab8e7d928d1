"""Map model weights instead of loading them.

    import weightmap

    with weightmap.open("model.pt") as checkpoint:
        weight = checkpoint["layers.0.attn.wq.weight"]   # a weightmap.Tensor, nothing was read
        array = weight[:1024].numpy()                    # the same bytes, read-only
    model = weightmap.torch.load("model.pt")             # as torch.load(mmap=True), only faster

open() gives the tensors of a checkpoint by name, safe_open() does so in the words of safetensors,
weightmap.torch.load() answers what torch.load() would, and weightmap.config has the defaults.
save() writes a checkpoint, weightmap.torch.save() what torch.save() would, and save_safetensors()
safetensors files. weightmap.cuda copies tensors to CUDA devices.
"""

from __future__ import annotations

import os

from weightmap import config
from weightmap._checkpoint import Checkpoint
from weightmap._core import Tensor
from weightmap._core import version as __version__
from weightmap._errors import (
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

    from weightmap import accelerate, cuda, torch, transformers
    from weightmap._chunked import ChunkedTensor
    from weightmap._composed import ComposedTensor
    from weightmap._files import EvictReport, PublishReport, evict, publish
    from weightmap._filling import Filling, ReservedStorage, open_for_filling
    from weightmap._globals import unsafe_globals
    from weightmap._info import Generation, Info, Stats
    from weightmap._patch import patch
    from weightmap._patch_report import PatchedCall, PatchReport
    from weightmap._processes import MappedCheckpoint, Processes, processes
    from weightmap._replacing import Replacing, replacing
    from weightmap._reports import CrcReport, LoadReport, WarmReport
    from weightmap._residency import RangeResidency, Residency
    from weightmap._prefetch import PrefetchLoader
    from weightmap._safe_open import SafeOpen, TensorMeta, safe_open
    from weightmap._save import SavedStorage, SaveReport, empty, save
    from weightmap._save_safetensors import SafetensorsReport, save_safetensors
    from weightmap._slice_plan import SlicePart, SlicePlan
    from weightmap._staging import StagedFile, StageReport, remove_staged, stage
    from weightmap._subtree import Subtree
    from weightmap._summary import Summary
    from weightmap._tensor_stats import TensorStats
    from weightmap._values import Global, Object

__all__ = [
    "Checkpoint",
    "ChunkedTensor",
    "ComposedTensor",
    "CorruptError",
    "CrcReport",
    "Error",
    "EvictReport",
    "FileError",
    "FilePermissionError",
    "Filling",
    "Generation",
    "Global",
    "Info",
    "InvalidArgumentError",
    "LimitExceededError",
    "LoadReport",
    "MappedCheckpoint",
    "MissingFileError",
    "MissingPackageError",
    "NotACheckpointError",
    "Object",
    "PatchReport",
    "PatchedCall",
    "PrefetchLoader",
    "PublishReport",
    "Processes",
    "RangeResidency",
    "Replacing",
    "ReservedStorage",
    "Residency",
    "SafeOpen",
    "SafetensorsReport",
    "SaveReport",
    "SavedStorage",
    "SlicePart",
    "SlicePlan",
    "StageReport",
    "StagedFile",
    "Stats",
    "Subtree",
    "Summary",
    "Tensor",
    "TensorMeta",
    "TensorNotFoundError",
    "TensorStats",
    "UnsafePickleError",
    "UnsupportedError",
    "WarmReport",
    "__version__",
    "config",
    "empty",
    "evict",
    "guard_is_active",
    "open",
    "open_for_filling",
    "patch",
    "publish",
    "processes",
    "remove_staged",
    "replacing",
    "safe_open",
    "save",
    "save_safetensors",
    "stage",
    "unsafe_globals",
]


# Imported when they are asked for.
_MODULE_OF = {
    "ChunkedTensor": "_chunked",
    "ComposedTensor": "_composed",
    "CrcReport": "_reports",
    "EvictReport": "_files",
    "Filling": "_filling",
    "Generation": "_info",
    "Global": "_values",
    "Info": "_info",
    "LoadReport": "_reports",
    "MappedCheckpoint": "_processes",
    "Object": "_values",
    "PatchReport": "_patch_report",
    "PatchedCall": "_patch_report",
    "PrefetchLoader": "_prefetch",
    "Processes": "_processes",
    "PublishReport": "_files",
    "RangeResidency": "_residency",
    "Replacing": "_replacing",
    "ReservedStorage": "_filling",
    "Residency": "_residency",
    "SafeOpen": "_safe_open",
    "SafetensorsReport": "_save_safetensors",
    "SaveReport": "_save",
    "SavedStorage": "_save",
    "SlicePart": "_slice_plan",
    "SlicePlan": "_slice_plan",
    "StageReport": "_staging",
    "StagedFile": "_staging",
    "Stats": "_info",
    "Subtree": "_subtree",
    "Summary": "_summary",
    "TensorMeta": "_safe_open",
    "TensorStats": "_tensor_stats",
    "WarmReport": "_reports",
    "empty": "_save",
    "evict": "_files",
    "open_for_filling": "_filling",
    "patch": "_patch",
    "processes": "_processes",
    "publish": "_files",
    "remove_staged": "_staging",
    "replacing": "_replacing",
    "safe_open": "_safe_open",
    "save": "_save",
    "save_safetensors": "_save_safetensors",
    "stage": "_staging",
    "unsafe_globals": "_globals",
}


_SUBMODULES = ("accelerate", "cuda", "torch", "transformers")


def __getattr__(name: str) -> Any:
    import importlib

    # They import packages that take seconds, and need not be installed.
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
