"""weightmap.patch() for programs that cannot be edited: weightmap_patch.pth imports this at the start
of every Python in which WEIGHTMAP_PATCH is set. docs/python.md says what that means.

"1" patches; "report" also prints the PatchReport to standard error when the program ends.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.machinery
import os
import sys
from typing import Any

from weightmap._patch_report import PatchReport

_WAITS_FOR = ("torch", "safetensors")
_blocks = contextlib.ExitStack()  # which ends with the process
_reports: list[PatchReport] = []


class _AfterImport:
    """A finder that has `patch` called once one of the packages was imported."""

    waiting = set(_WAITS_FOR)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in self.waiting:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return spec
        self.waiting.discard(name)
        exec_module = spec.loader.exec_module

        def exec_and_patch(module: Any) -> None:
            exec_module(module)
            _patch(name)

        setattr(spec.loader, "exec_module", exec_and_patch)
        return spec


def _patch(package: str) -> None:
    report = PatchReport()
    if package == "torch":
        with contextlib.suppress(ImportError):  # one that is older than what is needed
            from weightmap import torch

            report = _blocks.enter_context(torch.patch(files="all"))
    else:
        from weightmap._patch import safe_open_patched

        _blocks.enter_context(safe_open_patched(report))
    _reports.append(report)


def _print_reports() -> None:
    for report in _reports:
        if report.calls:
            print(report, file=sys.stderr)


if os.environ.get("WEIGHTMAP_PATCH") not in ("", "0", None):
    sys.meta_path.insert(0, _AfterImport())  # type: ignore[arg-type]
    if os.environ["WEIGHTMAP_PATCH"] == "report":
        atexit.register(_print_reports)
