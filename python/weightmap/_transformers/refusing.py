"""What a model that reads its experts does no more: by name, before anything is changed."""

from __future__ import annotations

import functools
from typing import Any, NoReturn

import torch

from weightmap._errors import UnsupportedError


def _refuse(what: str, way_out: str = "load the model without experts=") -> NoReturn:
    raise UnsupportedError(
        f"{what}: this model reads its experts when they are needed, and has none of them; {way_out}"
    )


@functools.lru_cache(maxsize=None)
def refusing_class(kind: type[torch.nn.Module]) -> type[torch.nn.Module]:
    """Of a module in which modules of experts are, or which is one. It has the dtype of their weights
    as `_weightmap_dtype`."""

    @functools.wraps(kind._apply)
    def _apply(self: Any, fn: Any, *rest: Any) -> Any:
        """What to(), half() and cuda() call for all modules; they may where they change nothing."""
        _check_unchanged(fn, self._weightmap_dtype)
        return kind._apply(self, fn, *rest)

    @functools.wraps(kind.train)
    def train(self: Any, mode: bool = True) -> Any:
        if mode:
            _refuse("no training", "load it without experts= to train it, or an adapter of it")
        return kind.train(self, mode)

    @functools.wraps(kind.state_dict)
    def state_dict(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse("no state_dict()", "weightmap.open() has the tensors of the files")

    @functools.wraps(kind.load_state_dict)
    def load_state_dict(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse("no load_state_dict()", "load the other files, or without experts=")

    def __reduce_ex__(self: Any, _protocol: Any) -> NoReturn:
        _refuse("no copy and no pickle", "load it again: the processes that do share its memory")

    functions = {"_apply": _apply, "train": train, "state_dict": state_dict,
                 "load_state_dict": load_state_dict, "__reduce_ex__": __reduce_ex__}
    if hasattr(kind, "save_pretrained"):

        @functools.wraps(kind.save_pretrained)
        def save_pretrained(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
            _refuse("no save_pretrained()", "load it without experts=, or copy its files")

        functions["save_pretrained"] = save_pretrained
    return type(kind.__name__, (kind,), {**functions, "__module__": kind.__module__})


def _check_unchanged(fn: Any, dtype: torch.dtype) -> None:
    changed = fn(torch.empty(0, dtype=dtype))
    way_out = "load it without experts=, or convert the files once"
    if changed.device.type != "cpu":
        _refuse(f"no move to {changed.device}", way_out)
    if changed.dtype != dtype:
        _refuse(f"no conversion to {str(changed.dtype).removeprefix('torch.')}", way_out)
