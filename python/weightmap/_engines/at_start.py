"""An engine whose load format is weightmap has its model read from the start of Python on, while it
imports: weightmap_patch.pth imports this where the command line has a load format. The engine itself
finds weightmap when it has imported nearly all.
"""

from __future__ import annotations

import os
import sys

from weightmap._read_ahead import read_named_models


def asks_for_weightmap(words: list[str]) -> bool:
    if any('"access"' in word for word in words):
        return False  # only the loader knows what is not to be read as a whole
    following = [*words[1:], ""]
    return "--load-format=weightmap" in words or ("--load-format", "weightmap") in zip(
        words, following
    )


# With WEIGHTMAP_PATCH it was read already.
is_patched = os.environ.get("WEIGHTMAP_PATCH") not in ("", "0", None)
if asks_for_weightmap(sys.orig_argv) and not is_patched:
    read_named_models()
