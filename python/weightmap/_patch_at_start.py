"""weightmap.patch() for programs that cannot be edited: weightmap_patch.pth imports this at the start
of every Python in which WEIGHTMAP_PATCH is set. docs/python.md says what that means. A model that
the command line names is read ahead, too.

"1" patches; "report" also prints the PatchReport to standard error when the program ends.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
from typing import Any

from weightmap._patching.report import PatchReport
from weightmap._read_ahead import read_named_models

_PACKAGES = ("torch", "safetensors")
_blocks = contextlib.ExitStack()  # which ends with the process
_reports: dict[str, PatchReport] = {}  # of the packages that are patched


class _Finder:
    """Has the packages patched once they were imported, whichever finder knows them."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in _PACKAGES or name in _reports:
            return None
        for finder in sys.meta_path:
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec = find and find(name, path, target)
            if spec:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(spec.loader)
                return spec
        return None


class _Loader:
    """Another loader, until it has run the module. A spec that is only looked at patches nothing."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        if name == "_loader":  # of a copy that is not filled yet
            raise AttributeError(name)
        return getattr(self._loader, name)

    def exec_module(self, module: Any) -> None:
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        _patch(module.__name__)


def _patch(package: str) -> None:
    if package in _reports:
        return
    # What weightmap.config.override() says where a program imports them first is none of theirs.
    report = _reports[package] = PatchReport({})
    if package == "torch":
        try:
            import weightmap.torch  # which checks torch, and may be what imports it just now
            from weightmap._patching.torch_patch import torch_patched

            _blocks.enter_context(torch_patched(True, "all", report))
        except ImportError as error:  # one that is older than what is needed
            print(f"weightmap: WEIGHTMAP_PATCH leaves torch alone: {error}", file=sys.stderr)
    else:
        from weightmap._patching.patch import safe_open_patched

        _blocks.enter_context(safe_open_patched(report))


def _print_reports() -> None:
    for report in _reports.values():
        if report.calls:
            print(report, file=sys.stderr)
    for package in _PACKAGES:
        if package in sys.modules and package not in _reports:
            print(
                f"weightmap: WEIGHTMAP_PATCH has not patched {package}: another finder of modules "
                "was put before weightmap's and imported it",
                file=sys.stderr,
            )


def _begin() -> None:
    for package in _PACKAGES:
        if package in sys.modules:
            _patch(package)
    sys.meta_path.insert(0, _Finder())
    read_named_models()
    if os.environ["WEIGHTMAP_PATCH"] == "report":
        atexit.register(_print_reports)


if os.environ.get("WEIGHTMAP_PATCH") not in ("", "0", None):
    _begin()
