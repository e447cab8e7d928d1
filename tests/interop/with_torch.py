#!/usr/bin/env python3
"""Runs a script with the interpreter that has torch, or says that there is none.

    with_torch.py SCRIPT [ARGUMENTS]

Takes .venv (made by scripts/test), else the interpreter it runs under. Exit 77 means skipped:
WEIGHTMAP_WITHOUT_TORCH is set, or neither interpreter has torch.
"""

import os
import pathlib
import subprocess
import sys

SKIPPED = 77
ROOT = pathlib.Path(__file__).resolve().parents[2]


def has_torch(interpreter):
    command = [interpreter, "-c", "import numpy, torch"]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def main():
    reason = os.environ.get("WEIGHTMAP_WITHOUT_TORCH")
    if reason:
        print(f"SKIPPED: WEIGHTMAP_WITHOUT_TORCH={reason}")
        sys.exit(SKIPPED)
    for interpreter in (str(ROOT / ".venv" / "bin" / "python"), sys.executable):
        if has_torch(interpreter):
            sys.stdout.flush()
            os.execv(interpreter, [interpreter, *sys.argv[1:]])
    print("SKIPPED: no torch in .venv or in this Python; scripts/test installs it")
    sys.exit(SKIPPED)


if __name__ == "__main__":
    main()
