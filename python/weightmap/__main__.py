"""python -m weightmap: the command line tool."""

import os
import sys
from pathlib import Path


def main() -> None:
    tool = Path(__file__).with_name("bin") / "weightmap"
    if not tool.exists():
        sys.exit("weightmap: this package was built without the command line tool "
                 "(WEIGHTMAP_BUILD_TOOLS=OFF)")
    os.execv(tool, ["weightmap", *_with_interpreter(sys.argv[1:])])


def _with_interpreter(arguments: list[str]) -> list[str]:
    """`bench` measures the libraries of this very interpreter, unless it is told of another."""
    if arguments[:1] != ["bench"] or any(a.split("=")[0] == "--python" for a in arguments):
        return arguments
    return ["bench", "--python", sys.executable, *arguments[1:]]


if __name__ == "__main__":
    main()
