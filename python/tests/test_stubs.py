"""The type stubs that are checked in are those of the module that is tested.

`python python/tests/test_stubs.py` writes them anew.
"""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys
import tempfile

import pytest

# Another version may write the same types in other words. scripts/test installs this one.
NANOBIND = "3.1.0"
nanobind = pytest.importorskip("nanobind", reason="writes stubs with nanobind, which is not installed")

PYTHON = pathlib.Path(__file__).resolve().parents[1]
STUBS = PYTHON / "weightmap" / "_core.pyi"


def written_stubs() -> str:
    """What nanobind writes, without the empty lines between functions of one line, and with a docstring
    on one line where it has room there."""
    with tempfile.TemporaryDirectory() as folder:
        written = pathlib.Path(folder, "_core.pyi")
        command = [sys.executable, "-m", "nanobind.stubgen", "-q", "-m", "weightmap._core"]
        command += ["-p", PYTHON / "stub_patterns.txt", "--exclude-values", "-o", written]
        subprocess.run(command, check=True, cwd=folder)
        text = written.read_text()
    text = re.sub(r"(?m)^( *)(def .*: \.\.\.\n)\n(?=\1(?:def|@))", r"\1\2", text)
    return re.sub(r'(?m)^( *""")\n *(\S.{0,85}[^"\n])\n *"""$', r'\1\2"""', text)


@pytest.mark.skipif(
    sys.version_info >= (3, 12), reason="from Python 3.12 on, what has a buffer has __buffer__(), too"
)
@pytest.mark.skipif(
    nanobind.__version__ != NANOBIND, reason=f"the stubs were written by nanobind {NANOBIND}"
)
def test_the_stubs_say_what_the_module_has():
    assert written_stubs() == STUBS.read_text()


if __name__ == "__main__":
    STUBS.write_text(written_stubs())
