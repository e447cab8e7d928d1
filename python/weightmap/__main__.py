"""python -m weightmap: the command line tool."""

import os
import sys
from pathlib import Path


def main() -> None:
    tool = Path(__file__).with_name("bin") / "weightmap"
    if not tool.exists():
        sys.exit("weightmap: this package was built without the command line tool "
                 "(WEIGHTMAP_BUILD_TOOLS=OFF)")
    os.execv(tool, ["weightmap", *_with_this_python(sys.argv[1:])])


def _with_this_python(arguments: list[str]) -> list[str]:
    """bench, doctor and ray take this interpreter, unless they are told which."""
    is_told = any(word.partition("=")[0] == "--python" for word in arguments)
    if arguments[:1] not in (["bench"], ["doctor"], ["ray"]) or is_told:
        return arguments
    return [arguments[0], "--python", sys.executable, *arguments[1:]]


if __name__ == "__main__":
    main()
