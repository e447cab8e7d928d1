"""patch(): torch.load, torch.save and safetensors' safe_open by weightmap, for a block."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from typing import Any

from weightmap._errors import Error, InvalidArgumentError
from weightmap._patching.report import PatchReport, begun, lock, note, settings_of
from weightmap._safetensors.safe_open import SafeOpen, safe_open

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Literal

_reports: list[PatchReport] = []  # of the blocks under way, in all threads
_original: Any = None  # safetensors' own class, since the first of them


@contextlib.contextmanager
def patch(
    *, files: Literal["mmap", "all"] = "all", save: bool | None = None
) -> Iterator[PatchReport]:
    """Makes torch.load(path) and safetensors' safe_open() use weightmap, in the whole process, for
    a block; safe_open() for files of any format. docs/python.md says what goes to torch and
    safetensors all the same, and how blocks and settings of several threads go together.

    When: torch.load() or safe_open() is called by code that you do not change.

    files: which calls of torch.load. "all": whatever they say of mmap, so that programs which read
        whole checkpoints into memory map them; what weightmap refuses, and files of less than
        1 MiB, are left to torch. The tensors are then of the file: who writes over it in place,
        other than by torch.save in this block, ends the process. "mmap": those with mmap=True, or
        where torch.utils.serialization.config.load.mmap is set; what weightmap refuses raises.
    save: also torch.save(): a path keeps what it has until the new file is whole. Default True
        with files="all", since torch's own would cut what is mapped, and False otherwise.

    Yields a weightmap.reports.PatchReport: who was served, and who was not and why.

    A child that is forked in the block is patched, too, until it leaves the block itself.
    """
    if files not in ("mmap", "all"):
        raise InvalidArgumentError(f"files is {files!r}, expected 'mmap' or 'all'")
    report = PatchReport()
    with contextlib.ExitStack() as stack:
        stack.enter_context(begun(report))
        if importlib.util.find_spec("torch") is not None:
            with contextlib.suppress(ImportError):  # one that is older than what is needed
                import weightmap.torch  # which says what an older torch lacks
                from weightmap._patching.torch_patch import torch_patched

                saves = files == "all" if save is None else bool(save)
                stack.enter_context(torch_patched(saves, files, report))
        if importlib.util.find_spec("safetensors") is not None:
            stack.enter_context(safe_open_patched(report))
        yield report


@contextlib.contextmanager
def safe_open_patched(report: PatchReport) -> Iterator[None]:
    """The part of patch() that is about safetensors, which must be installed."""
    import safetensors  # before the lock: under WEIGHTMAP_PATCH this begins a block of its own

    try:
        with lock():
            _reports.append(report)
            _follow_blocks()
        yield
    finally:
        with lock():
            if report in _reports:
                _reports.remove(report)
            _follow_blocks()


def _follow_blocks() -> None:
    """Has safe_open replaced as long as there is a block, each time in all modules: Ctrl-C may have
    ended the last time half way."""
    global _original
    found = sys.modules["safetensors"].safe_open
    if found is not _safe_open:
        _original = found
    old, new = (_original, _safe_open) if _reports else (_safe_open, _original)
    _rebind(old, new)


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
    from safetensors._safetensors_rust import safe_open as own

    return _original or own
