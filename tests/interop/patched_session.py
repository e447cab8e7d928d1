"""A plug-in of pytest: the whole run is a block of weightmap.patch(), which serves small files, too.

The last line has the number of calls that were served, by the function that was called.
"""
import collections

import weightmap
import weightmap.torch
from weightmap._patching import torch_patch

torch_patch._is_small = lambda path: False
block = weightmap.patch()
report = block.__enter__()


def pytest_unconfigure():
    block.__exit__(None, None, None)
    served = collections.Counter(call.function for call in report.served)
    print("served:", *(f"{function} {count}" for function, count in sorted(served.items())))
