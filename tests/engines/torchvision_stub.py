"""Lets SGLang be imported where there is no torchvision: a module of its name that has nothing.

Import it before SGLang.
"""

import sys
import types

from transformers.utils import is_torchvision_available

NAMES = ("torchvision", "torchvision.transforms", "torchvision.transforms.functional")

# transformers remembers the answer, and so asks nothing of the stub.
if not is_torchvision_available():
    for name in NAMES:
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].InterpolationMode = None
        parent, _, leaf = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], leaf, sys.modules[name])
