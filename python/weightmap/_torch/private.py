"""The private names of torch that weightmap uses. Each is looked up in torch when it is used:

    private._element_size(dtype)  # what torch._utils._element_size is just now

A torch without one that it should have is refused by check(), and not in mid-load.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

import torch

OLDEST = (2, 6)  # that is supported, and has these
_NAMES = (
    "_guards.detect_fake_mode",
    "_storage_classes",
    "_tensor_classes",
    "_utils.IMPORT_MAPPING",
    "_utils.NAME_MAPPING",
    "_utils._element_size",
    "_utils._rebuild_sparse_tensor",
    "_utils._rebuild_tensor",
    "_utils._rebuild_tensor_v2",
    "_utils._rebuild_tensor_v3",
    "_utils._validate_loaded_sparse_tensors",
    "_utils.set_tensor_metadata",
    "nn.Module._load_from_state_dict",
    "_weights_only_unpickler._blocklisted_modules",
    "_weights_only_unpickler._get_allowed_globals",
    "_weights_only_unpickler._get_user_allowed_globals",
    "serialization._cpu_deserialize",
    "serialization._cpu_tag",
    "serialization._get_restore_location",
    "serialization._package_registry",
    "serialization._serialization_tls",
    "serialization.default_restore_location",
    "serialization.location_tag",
    "serialization.normalize_storage_type",
    "storage._new_dtypes",
    "utils._python_dispatch.TorchDispatchMode",
    "utils._pytree.tree_leaves",
    # Of objects, beside TypedStorage._untyped_storage and Module._buffers, which no class shows.
    "ScriptObject._has_method",
    "Tensor._backward_hooks",
    "Tensor._is_zerotensor",
    "UntypedStorage._cdata",
    "storage.TypedStorage._pickle_storage_type",
    "storage.TypedStorage._size",
)
# What came with one of these versions, or was there before one of them.
_SINCE = {
    "_utils._restore_device_fake_mode": (2, 7),
    "serialization._get_storage_alignment": (2, 7),
    "_utils._get_sparse_tensors_to_validate": (2, 15),
}
_BEFORE = {"_utils._sparse_tensors_to_validate": (2, 15)}
_PATHS = {path.rpartition(".")[2]: path for path in (*_NAMES, *_SINCE, *_BEFORE)}

# Without these weightmap takes another way. From DLPack capsules to tensors, the best first; the
# second is public, and torch.frombuffer() takes the place of both.
_IMPORTERS = ("_C._from_dlpack", "utils.dlpack.from_dlpack")
# Something true if a mode, a trace or a transform would see how a tensor is made. All are needed.
BUSY = ("_C._len_torch_dispatch_stack", "_C._len_torch_function_stack",
         "_C._get_tracing_state", "_C._functorch.peek_interpreter_stack")


def __getattr__(name: str) -> Any:
    if name not in _PATHS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return operator.attrgetter(_PATHS[name])(torch)


def has(name: str) -> bool:
    """Whether this torch has one of them."""
    return bool(functions([_PATHS[name]]))


def importers() -> list[str]:
    """Those that may be used here; none where it cannot be known who else would see the tensor."""
    is_known = len(functions(BUSY)) == len(BUSY)
    return [path for path in _IMPORTERS if is_known and functions([path])]


def functions(paths: Iterable[str]) -> tuple[Any, ...]:
    """Those of torch's that this one has."""
    found = []
    for path in paths:
        try:
            found.append(operator.attrgetter(path)(torch))
        except AttributeError:
            pass
    return tuple(found)


def is_older(than: tuple[int, int]) -> bool:
    return tuple(int(number) for number in torch.__version__.split(".")[:2]) < than


def owner_of(name: str) -> Any:
    """The module of torch that has it."""
    return operator.attrgetter(_PATHS[name].rpartition(".")[0])(torch)


def check() -> None:
    """ImportError, if this torch is too old, or has lost a name."""
    wanted = [*_NAMES, *(path for path, since in _SINCE.items() if not is_older(since)),
              *(path for path, end in _BEFORE.items() if is_older(end))]
    missing = [f"torch.{path}" for path in wanted if not functions([path])]
    if missing or is_older(OLDEST):
        why = f"has not: {', '.join(missing)}" if missing else "is older"
        raise ImportError(
            f"weightmap.torch needs torch {OLDEST[0]}.{OLDEST[1]}, or a later one that has what it "
            f"uses; torch {torch.__version__} {why}"
        )
