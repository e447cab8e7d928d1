"""patch(): torch.load, torch.save and safetensors' safe_open by weightmap, for a block."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from typing import Any

from weightmap._errors import Error
from weightmap._patch_report import PatchReport, begun, lock, note, settings_of
from weightmap._safe_open import SafeOpen, safe_open

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_reports: list[PatchReport] = []  # of the blocks under way, in all threads
_original: Any = None  # safetensors' own class, while there are any


@contextlib.contextmanager
def patch() -> Iterator[PatchReport]:
    """Makes torch.load(path) and safetensors' safe_open() use weightmap, in the whole process, for
    a block: weightmap.torch.patch(files="all"), and files of any format by safe_open().

    Modules that have imported safe_open already get weightmap's, too (transformers, accelerate,
    vLLM, safetensors.torch, whose load_file() and load_model() call it); all have safetensors' own
    back when the last block ends. A file that weightmap refuses goes to safetensors, as does a
    framework other than "pt" and "np". What is not installed is left out; what is imported later,
    in the block, is patched, but for a torch that was not installed when it began.

    Tensors are views of the mapped file, as safetensors' are: weightmap.config says which
    (copy_on_write). What weightmap.config.patch() says where the block begins holds in it for this
    thread and for those that are started in it; other threads keep their own settings.

    Yields a PatchReport: who was served, and who was not and why.
    """
    with contextlib.ExitStack() as stack:
        report = PatchReport()
        if importlib.util.find_spec("torch") is not None:
            with contextlib.suppress(ImportError):  # one that is older than what is needed
                from weightmap import torch

                report = stack.enter_context(torch.patch(files="all"))
        if importlib.util.find_spec("safetensors") is not None:
            stack.enter_context(safe_open_patched(report))
        yield report


@contextlib.contextmanager
def safe_open_patched(report: PatchReport) -> Iterator[None]:
    """The part of patch() that is about safetensors, which must be installed."""
    import safetensors  # before the lock: under WEIGHTMAP_PATCH this begins a block of its own

    with lock():
        _reports.append(report)
        _follow_blocks()
    try:
        with begun(report):
            yield
    finally:
        with lock():
            _reports.remove(report)
            _follow_blocks()


def _follow_blocks() -> None:
    """Has safe_open replaced as long as there is a block."""
    global _original
    if _reports and _original is None:
        _original = sys.modules["safetensors"].safe_open
        _rebind(_original, _safe_open)
    elif not _reports and _original is not None:
        _rebind(_safe_open, _original)
        _original = None


def _rebind(old: Any, new: Any) -> None:
    """In every module that has `old` under some name."""
    for module in list(sys.modules.values()):
        names = getattr(module, "__dict__", None)
        if module is sys.modules[__name__] or not isinstance(names, dict):
            continue
        for name, value in list(names.items()):
            if value is old:
                names[name] = new


class _OfEither(type):
    """What programs ask of safe_open with isinstance() holds for both."""

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, (SafeOpen, _own_class()))


class _safe_open(metaclass=_OfEither):
    """What safetensors.safe_open is while a block is open: makes a SafeOpen, or safetensors' own."""

    def __new__(
        cls, filename: Any, framework: Any = "pt", device: Any = "cpu", **options: Any
    ) -> Any:
        try:
            with settings_of(_reports):
                opened = safe_open(filename, framework, device, **options)
        except (Error, TypeError) as error:
            why = error.message if isinstance(error, Error) else str(error)
            note(_reports, "safe_open", filename, why)
            return _own_class()(filename, framework, device, **options)
        note(_reports, "safe_open", filename, "")
        return opened


def _own_class() -> Any:
    """safetensors' own, also for who has kept the other beyond the last block."""
    from safetensors import _safetensors_rust

    return _original or _safetensors_rust.safe_open
