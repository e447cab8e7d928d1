"""The type stubs that are checked in are those of the module that is tested.

To write them anew, from the root of the repository:

    python -m nanobind.stubgen -q -m weightmap._core -p python/stub_patterns.txt --exclude-values \\
        -o python/weightmap/_core.pyi
"""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

# Another version may write the same types in other words. scripts/test installs this one.
NANOBIND = "3.1.0"
nanobind = pytest.importorskip("nanobind", reason="writes stubs with nanobind, which is not installed")

PYTHON = pathlib.Path(__file__).resolve().parents[1]


@pytest.mark.skipif(
    sys.version_info >= (3, 12), reason="from Python 3.12 on, what has a buffer has __buffer__(), too"
)
@pytest.mark.skipif(
    nanobind.__version__ != NANOBIND, reason=f"the stubs were written by nanobind {NANOBIND}"
)
def test_the_stubs_say_what_the_module_has(tmp_path):
    written = tmp_path / "_core.pyi"
    command = [sys.executable, "-m", "nanobind.stubgen", "-q", "-m", "weightmap._core"]
    command += ["-p", PYTHON / "stub_patterns.txt", "--exclude-values", "-o", written]
    subprocess.run(command, check=True, cwd=tmp_path)
    assert written.read_text() == (PYTHON / "weightmap" / "_core.pyi").read_text()
