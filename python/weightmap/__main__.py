"""python -m weightmap: the command line tool."""

import os
import sys
from pathlib import Path


def main() -> None:
    tool = Path(__file__).with_name("bin") / "weightmap"
    if not tool.exists():
        sys.exit("weightmap: this package was built without the command line tool "
                 "(WEIGHTMAP_BUILD_TOOLS=OFF)")
    os.execv(tool, ["weightmap", *sys.argv[1:]])


if __name__ == "__main__":
    main()
