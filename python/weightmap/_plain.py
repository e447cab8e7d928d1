"""Plain data that a pickle describes by calls: numbers of numpy, namespaces, paths, dates.

Each is made here, from the arguments and the state in the file, after these were checked; the
modules that are imported for it are those of this table, and nothing that a file names is called.
Whatever does not look as its own pickler writes it stays an Object. What is made is not larger than
what the file says of it.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from weightmap._objects import Object

_LONGEST_NUMBER = 4300  # digits, as in int(text)
_MOST_DIMENSIONS = 64
_MOST_PARTS = 4096  # of a path
# Kinds of numpy's dtypes that are numbers or text of a fixed size; objects would be references.
_KINDS = frozenset("biufcSU")


class _Unlike(Exception):
    """It is not what its own pickler writes."""


def decoded(thing: Object) -> Any:
    """What this call stands for, if it is plain data; else the same Object."""
    decode = _DECODERS.get((thing.callable.module, thing.callable.name))
    if decode is None:
        return thing
    try:
        return decode(thing)
    except (_Unlike, TypeError, ValueError, ArithmeticError, ImportError, AttributeError):
        return thing


def _require(condition: bool) -> None:
    if not condition:
        raise _Unlike


def _arguments(thing: Object, most: int) -> tuple[Any, ...]:
    """Of a call without anything else."""
    arguments = thing.arguments
    _require(type(arguments) is tuple and len(arguments) <= most)
    _require(not thing.elements and not thing.items and thing.state is None)
    return arguments


def _state(thing: Object) -> dict[str, Any]:
    """Of an instance that has attributes only."""
    _require(thing.arguments == () and not thing.elements and not thing.items)
    state = {} if thing.state is None else thing.state
    _require(type(state) is dict and all(type(name) is str for name in state))
    return state


def _are(kind: type, values: tuple[Any, ...]) -> bool:
    return all(type(value) is kind for value in values)


def _attributes(module: str, name: str) -> Callable[[Object], Any]:
    """Makes an instance of a class that takes no arguments, with the attributes of the state."""

    def make(thing: Object) -> Any:
        made = getattr(import_module(module), name)()
        vars(made).update(_state(thing))
        return made

    return make


def _call(module: str, name: str, most: int, *kinds: type | str) -> Callable[[Object], Any]:
    """Makes what a class answers to arguments of these kinds, one after the other, of which the last
    is that of all that follow; a text is the name of a class of the same module."""

    def make(thing: Object) -> Any:
        found = import_module(module)
        arguments = _arguments(thing, most)
        wanted = [getattr(found, kind) if isinstance(kind, str) else kind for kind in kinds]
        for number, argument in enumerate(arguments):
            _require(type(argument) is wanted[min(number, len(wanted) - 1)])
        return getattr(found, name)(*arguments)

    return make


def _slice(thing: Object) -> slice:
    arguments = _arguments(thing, 3)
    _require(all(type(part) in (int, type(None)) for part in arguments))
    return slice(*arguments)


def _with_zone(name: str) -> Callable[[Object], Any]:
    make = _call("datetime", name, 2, bytes, "timezone")

    def checked(thing: Object) -> Any:
        _require(len(thing.arguments) > 0)  # without any it is midnight, which no pickler writes so
        return make(thing)

    return checked


def _decimal(thing: Object) -> Any:
    from decimal import Decimal

    (text,) = _arguments(thing, 1)
    _require(type(text) is str and len(text) <= _LONGEST_NUMBER)
    return Decimal(text)


def _fraction(thing: Object) -> Any:
    from fractions import Fraction

    arguments = _arguments(thing, 2)
    if len(arguments) == 1 and type(arguments[0]) is str:
        # Fraction("1e999999999") would be computed.
        parts = arguments[0].removeprefix("-").split("/")
        _require(len(arguments[0]) <= _LONGEST_NUMBER and all(part.isdigit() for part in parts))
        return Fraction(arguments[0])
    _require(_are(int, arguments))
    _require(all(number.bit_length() <= 4 * _LONGEST_NUMBER for number in arguments))
    return Fraction(*arguments)


def _uuid(thing: Object) -> Any:
    from uuid import UUID

    number = _state(thing).get("int")
    _require(type(number) is int)
    return UUID(int=number)


def _dtype(thing: Object) -> Any:
    import numpy

    arguments, state = thing.arguments, thing.state
    text = arguments[0] if type(arguments) is tuple and len(arguments) == 3 else None
    _require(type(text) is str and text[:1] in _KINDS and text[1:].isdigit() and len(text) < 9)
    # Version, byte order, then what structures, subarrays and dates have.
    _require(type(state) is tuple and len(state) == 8 and state[1] in ("<", ">", "|", "="))
    _require(state[2:5] == (None, None, None) and not thing.elements and not thing.items)
    made = numpy.dtype(text)
    _require(made.itemsize > 0)
    return made if state[1] in ("|", "=") else made.newbyteorder(state[1])


def _is_dtype(thing: Any) -> bool:
    import numpy

    return isinstance(thing, numpy.dtype)


def _scalar(thing: Object) -> Any:
    import numpy

    dtype, content = _arguments(thing, 2)
    _require(_is_dtype(dtype) and type(content) is bytes and len(content) == dtype.itemsize)
    return numpy.frombuffer(content, dtype)[0]


def _array(thing: Object) -> Any:
    """A view of the bytes of the pickle, so read-only."""
    _require(type(thing.arguments) is tuple and len(thing.arguments) == 3)
    kind = thing.arguments[0]
    _require(getattr(kind, "module", None) == "numpy" and getattr(kind, "name", None) == "ndarray")
    _require(type(thing.state) is tuple and len(thing.state) == 5)
    _, shape, dtype, is_fortran, content = thing.state
    _require(type(is_fortran) in (bool, int) and type(content) is bytes)
    return _view(content, dtype, shape, "F" if is_fortran else "C")


def _array_of_protocol_5(thing: Object) -> Any:
    content, dtype, shape, order = _arguments(thing, 4)
    _require(type(content) in (bytes, bytearray) and order in ("C", "F"))
    return _view(content, dtype, shape, order)


def _view(content: Any, dtype: Any, shape: Any, order: Any) -> Any:
    import numpy

    _require(type(shape) is tuple and len(shape) <= _MOST_DIMENSIONS and _are(int, shape))
    _require(_is_dtype(dtype))
    size = dtype.itemsize
    for length in shape:
        _require(0 <= length < 1 << 48)
        size *= length
    _require(size == len(content))
    return numpy.ndarray(shape, dtype, content, order=order)


_DECODERS: dict[Any, Callable[[Object], Any]] = {
    ("argparse", "Namespace"): _attributes("argparse", "Namespace"),
    ("types", "SimpleNamespace"): _attributes("types", "SimpleNamespace"),
    ("builtins", "range"): _call("builtins", "range", 3, int),
    ("__builtin__", "range"): _call("builtins", "range", 3, int),
    ("__builtin__", "xrange"): _call("builtins", "range", 3, int),
    ("builtins", "slice"): _slice,
    ("__builtin__", "slice"): _slice,
    ("datetime", "date"): _call("datetime", "date", 1, bytes),
    ("datetime", "time"): _with_zone("time"),
    ("datetime", "datetime"): _with_zone("datetime"),
    ("datetime", "timedelta"): _call("datetime", "timedelta", 3, int),
    ("datetime", "timezone"): _call("datetime", "timezone", 2, "timedelta", str),
    ("decimal", "Decimal"): _decimal,
    ("fractions", "Fraction"): _fraction,
    ("uuid", "UUID"): _uuid,
    ("numpy", "dtype"): _dtype,
}
for _module in ("numpy.core.multiarray", "numpy._core.multiarray"):
    _DECODERS[_module, "scalar"] = _scalar
    _DECODERS[_module, "_reconstruct"] = _array
for _module in ("numpy.core.numeric", "numpy._core.numeric"):
    _DECODERS[_module, "_frombuffer"] = _array_of_protocol_5
for _module in ("pathlib", "pathlib._local"):
    for _kind in ("PosixPath", "PurePosixPath", "PureWindowsPath"):
        _DECODERS[_module, _kind] = _call("pathlib", _kind, _MOST_PARTS, str)
    _DECODERS[_module, "WindowsPath"] = _call("pathlib", "PureWindowsPath", _MOST_PARTS, str)
