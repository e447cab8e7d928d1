"""Opcodes of pickle, one function each, and what torch makes of them.

A pickle is a concatenation: pickle(tuple_of(integer(1), text("a"))). Nothing is checked.
`Pickled` makes pickles by Python's own pickler, so that they are opcode for opcode, memo and all,
what torch.save writes.
"""

import io
import pickle as python_pickle
import struct
import sys
import types


def op(name):
    """The one byte of an opcode: op("REDUCE")."""
    return getattr(python_pickle, name)


PROTO2 = b"\x80\x02"
STOP = b"."
MARK = b"("
NONE, TRUE, FALSE = b"N", b"\x88", b"\x89"
EMPTY_TUPLE, EMPTY_LIST, EMPTY_DICT, EMPTY_SET = b")", b"]", b"}", b"\x8f"
REDUCE, BUILD, NEWOBJ, PERSID = b"R", b"b", b"\x81", b"Q"
APPEND, APPENDS, SETITEM, SETITEMS = b"a", b"e", b"s", b"u"


def pickle(*body, proto=PROTO2, stop=STOP):
    return proto + b"".join(body) + stop


def text(value):
    data = value if isinstance(value, bytes) else value.encode("utf-8", "surrogatepass")
    return b"X" + struct.pack("<I", len(data)) + data


def short_text(value):
    data = value.encode()
    return b"\x8c" + bytes([len(data)]) + data


def integer(value):
    if 0 <= value < 256:
        return b"K" + bytes([value])
    if -2**31 <= value < 2**31:
        return b"J" + struct.pack("<i", value)
    bits = (value if value >= 0 else ~value).bit_length()
    return long1(value.to_bytes(bits // 8 + 1, "little", signed=True))


def long1(data):
    return b"\x8a" + bytes([len(data)]) + data


def real(value):
    return b"G" + struct.pack(">d", value)


def name(module, attribute):
    """GLOBAL."""
    return b"c" + module.encode() + b"\n" + attribute.encode() + b"\n"


def stack_name(module, attribute):
    return short_text(module) + short_text(attribute) + b"\x93"


def tuple_of(*items):
    if not items:
        return EMPTY_TUPLE
    if len(items) <= 3:
        return b"".join(items) + (b"\x85", b"\x86", b"\x87")[len(items) - 1]
    return MARK + b"".join(items) + b"t"


def list_of(*items):
    return EMPTY_LIST + MARK + b"".join(items) + APPENDS


def dict_of(*pairs):
    return EMPTY_DICT + MARK + b"".join(k + v for k, v in pairs) + SETITEMS


def call(function, *arguments):
    return function + tuple_of(*arguments) + REDUCE


def put(slot):
    return b"r" + struct.pack("<I", slot)


def get(slot):
    return b"j" + struct.pack("<I", slot)


# What torch's names mean.

HOOKS = call(name("collections", "OrderedDict"))
REBUILD = name("torch._utils", "_rebuild_tensor_v2")


def storage(key="0", numel=12, kind="FloatStorage", module="torch", location="cpu"):
    """The persistent id of a storage; a bytes argument is taken for opcodes."""
    raw = lambda value, make: value if isinstance(value, bytes) else make(value)
    kind = kind if isinstance(kind, bytes) else name(module, kind)
    return tuple_of(text("storage"), kind, raw(key, text), raw(location, text),
                    raw(numel, integer)) + PERSID


def integers(values):
    if isinstance(values, bytes):
        return values
    return tuple_of(*(v if isinstance(v, bytes) else integer(v) for v in values))


def row_major(shape):
    strides, step = [], 1
    for size in reversed(shape):
        strides.insert(0, step)
        step *= max(size, 1) if isinstance(size, int) else 1
    return strides


def tensor(source=None, offset=0, shape=(3, 4), strides=None, requires_grad=FALSE, hooks=HOOKS,
           more=(), function=REBUILD, **of_storage):
    source = storage(**of_storage) if source is None else source
    strides = row_major(shape) if strides is None else strides
    offset = offset if isinstance(offset, bytes) else integer(offset)
    return call(function, source, offset, integers(shape), integers(strides), requires_grad, hooks,
                *more)


def one(value):
    """{"w": value} as a whole pickle."""
    return pickle(dict_of((text("w"), value)))


# Python's own pickler, with classes that are called like torch's.

def _fake(module, attribute, is_class=False):
    made = sys.modules.get(module)
    if made is None:
        made = sys.modules[module] = types.ModuleType(module)
    if not hasattr(made, attribute):
        thing = type(attribute, (), {}) if is_class else types.FunctionType(
            (lambda *_: None).__code__, {}, attribute)
        thing.__module__, thing.__qualname__, thing.__name__ = module, attribute, attribute
        setattr(made, attribute, thing)
    return getattr(made, attribute)


class Storage:
    def __init__(self, key, numel, kind="FloatStorage", location="cpu"):
        self.id = ("storage", _fake("torch", kind, True), key, location, numel)


class Tensor:
    """Pickled as torch pickles a tensor, whatever the arguments are."""

    def __init__(self, source, offset, shape, strides, requires_grad=False):
        import collections
        self.arguments = (source, offset, tuple(shape), tuple(strides), requires_grad,
                          collections.OrderedDict())

    def __reduce_ex__(self, protocol):
        return _fake("torch._utils", "_rebuild_tensor_v2"), self.arguments


class _Pickler(python_pickle.Pickler):
    def persistent_id(self, thing):
        return thing.id if isinstance(thing, Storage) else None


def pickled(thing, protocol=2):
    out = io.BytesIO()
    _Pickler(out, protocol).dump(thing)
    return out.getvalue()
