"""Arrays, numbers and dtypes of numpy, such as its random state, and dicts with a default, in what
weightmap.torch.load() loads.

torch's unpickler refuses them until numpy's own functions are registered as safe. Here numpy gets
what the file says once _plain.py, which Checkpoint.root() goes by, has found nothing wrong with it.
"""

from __future__ import annotations

import collections

from weightmap._objects import Global, Object
from weightmap._plain import decoded
from weightmap._values import FACTORIES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_DTYPE = Global("numpy", "dtype")
_ARRAY = Global("numpy.core.multiarray", "_reconstruct")
_NAMES = {
    ("builtins", "bytes"),  # without arguments: protocol 2's b"", as of an empty array
    ("collections", "defaultdict"),
    *(("builtins", name) for name in FACTORIES if name != "set"),  # which torch allows
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    *((f"numpy.{core}.multiarray", name) for core in ("core", "_core")
      for name in ("_reconstruct", "scalar")),
    *((f"numpy.{core}.numeric", "_frombuffer") for core in ("core", "_core")),
}


def find(module: str, name: str) -> Any:
    """What numpy has by this name, if it is one of its data; else None. It is not called."""
    if (module, name) not in _NAMES:
        return None
    if module == "builtins":
        return FACTORIES.get(name, bytes)
    if module == "collections":
        return collections.defaultdict
    try:
        import numpy
    except ImportError:
        return None
    if module == "numpy":
        return getattr(numpy, name)
    core = numpy._core if hasattr(numpy, "_core") else numpy.core
    return getattr(getattr(core, module.rpartition(".")[2]), name)


def called(function: Any, arguments: Any) -> Any:
    """What this call makes; None if it is none of these, or not as their own pickling writes it."""
    found = [name for name in _NAMES if function is find(*name)]
    if not found or type(arguments) is not tuple:
        return None
    module, name = found[0]
    if name == "defaultdict":
        is_plain = arguments == (None,) or len(arguments) == 1 and any(
            arguments[0] is factory for factory in FACTORIES.values())
        return collections.defaultdict(*arguments) if is_plain or not arguments else None
    if module == "builtins":
        return b"" if name == "bytes" and not arguments else None
    import numpy

    if name == "dtype":
        made = _dtype(arguments, (3, "|", None, None, None, -1, -1, 0))
        # One of its own, which build() may give another byte order.
        return None if made is None else numpy.dtype(made.str[1:], False, True)
    if name == "_reconstruct":
        are_plain = len(arguments) == 3 and type(arguments[1]) is tuple and type(arguments[2]) is bytes
        if not are_plain or arguments[0] is not numpy.ndarray or [*map(type, arguments[1])] != [int]:
            return None
        return numpy.ndarray((0,), "b") if arguments[1:] == ((0,), b"b") else None
    made = decoded(Object(Global(*found[0]), arguments))
    return made.copy() if isinstance(made, (numpy.ndarray, numpy.generic)) else None


def build(target: Any, state: Any) -> bool:
    """Gives what called() made its content; False if it is something else, or that is no content."""
    import numpy

    set_state: Any = getattr(target, "__setstate__", None)
    if isinstance(target, numpy.dtype):
        made = _dtype((target.str[1:], False, True), state)
        if made is None:
            return False
        set_state((3, state[1], None, None, None, made.itemsize, made.alignment, made.flags))
        return True
    if type(target) is not numpy.ndarray:
        return False
    array = decoded(Object(_ARRAY, (Global("numpy", "ndarray"), (0,), b"b"), state=state))
    if type(array) is not numpy.ndarray:
        return False
    set_state((1, array.shape, array.dtype, bool(state[3]), state[4]))
    return True


def _dtype(arguments: tuple[Any, ...], state: Any) -> Any:
    import numpy

    made = decoded(Object(_DTYPE, arguments, state=state))
    return made if isinstance(made, numpy.dtype) else None
