"""python -m weightmap: the command line tool."""

import os
import signal
import sys
from pathlib import Path


def main() -> None:
    tool = Path(__file__).with_name("bin") / "weightmap"
    if not tool.exists():
        sys.exit("weightmap: this package was built without the command line tool "
                 "(WEIGHTMAP_BUILD_TOOLS=OFF)")
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # by Python, and what is run would inherit it
        signal.signal(ignored, signal.SIG_DFL)
    os.execv(tool, ["weightmap", *_with_this_python(sys.argv[1:])])


def _with_this_python(arguments: list[str]) -> list[str]:
    """bench and doctor take this interpreter, where they take one and are not told which."""
    [command, *words] = arguments or [""]
    own = words[: words.index("--")] if "--" in words else words
    names = {word.partition("=")[0] for word in own}
    takes_one = {
        "bench": "--remote" not in names,
        "doctor": own == words,  # otherwise it watches a command
    }
    if not takes_one.get(command) or "--python" in names:
        return arguments
    return [command, "--python", sys.executable, *words]


if __name__ == "__main__":
    main()
