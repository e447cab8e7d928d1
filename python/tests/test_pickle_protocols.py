"""Every pickle protocol: what root() makes of a pickle is what pickle.loads makes of it."""

import collections
import math
import pickle
import random
import struct

import pytest

import weightmap

TEXTS = (
    "", "weight", "a.b", "ü", "中文", "🙂", "\\", "\\u0041", "'", '"', "\n", "\r\n", "\0", "\x1a",
    "\ud83d", "\udc80x", "\x7f\x80\xff", "x" * 300, "é" * 200,
)
INTEGERS = (
    0, 1, -1, 255, 256, 65535, 65536, -129, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**63 - 1,
    2**63, -(2**63), -(2**63) - 1, 2**64, -(2**64), 2**71 - 1, 2**71, -(2**71), 10**100, -(10**99),
    256**255, 256**256,
)
REALS = (
    0.0, -0.0, 0.1, -1e300, 5e-324, 1.7976931348623157e308, math.inf, -math.inf, math.nan, 1e16,
)
BYTES = (b"", b"a", b"\0\xff\x80", b"'\\\n", bytes(range(256)), b"x" * 300)


class RandomValue:
    """Builds plain values, parts of which are one object."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.pool = []

    def leaf(self):
        return self.random.choice(
            [
                self.random.choice(TEXTS),
                self.random.choice(INTEGERS),
                self.random.getrandbits(self.random.randrange(1, 200)) - 2**90,
                self.random.choice(REALS),
                struct.unpack("<d", self.random.randbytes(8))[0],
                self.random.choice(BYTES),
                self.random.choice([None, True, False, (), 1 + 2j]),
                bytearray(self.random.choice(BYTES)),
            ]
        )

    def hashable(self, depth):
        if depth > 0 and self.random.random() < 0.2:
            return tuple(self.hashable(depth - 1) for _ in range(self.random.randrange(5)))
        if depth > 0 and self.random.random() < 0.1:
            return frozenset(self.hashable(0) for _ in range(self.random.randrange(4)))
        while True:
            leaf = self.leaf()
            if type(leaf) is not bytearray and leaf == leaf:
                return leaf

    def value(self, depth=4):
        if self.pool and self.random.random() < 0.1:
            return self.random.choice(self.pool)
        if depth == 0 or self.random.random() < 0.4:
            return self.leaf()
        count = self.random.choice([0, 1, 1, 2, 3, 4, 7, 1001 if depth == 1 else 5])
        values = [self.value(depth - 1) for _ in range(count)]
        items = [(self.hashable(2), value) for value in values]
        made = self.random.choice(
            [
                values,
                values,
                tuple(values),
                dict(items),
                dict(items),
                collections.OrderedDict(items),
                {self.hashable(1) for _ in values},
                frozenset(self.hashable(1) for _ in values),
            ]
        )
        self.pool.append(made)
        return made


def difference(left, right, where="root", seen=None):
    """Where two values differ first: in type, value, order, or in what is one object."""
    seen = {} if seen is None else seen
    if type(left) is not type(right):
        return f"{where}: {type(left)} and {type(right)}"
    # Which bytearrays are one object is not kept.
    if isinstance(left, (list, dict, set)):
        if seen.setdefault(id(left), right) is not right:
            return f"{where}: one is shared where the other is not"
    if isinstance(left, dict):
        if len(left) != len(right):
            return f"{where}: {len(left)} and {len(right)} items"
        pairs = zip(left.items(), right.items())
    elif isinstance(left, (list, tuple)):
        if len(left) != len(right):
            return f"{where}: {len(left)} and {len(right)} elements"
        pairs = zip(left, right)
    elif isinstance(left, float):
        return None if struct.pack("<d", left) == struct.pack("<d", right) or (
            left != left and right != right) else f"{where}: {left!r} and {right!r}"
    else:
        return None if left == right else f"{where}: {left!r} and {right!r}"
    for index, pair in enumerate(pairs):
        fault = difference(*pair, f"{where}[{index}]", seen)
        if fault:
            return fault
    return None


@pytest.fixture
def root_of(archive):
    def root(pickled):
        with weightmap.open(archive(pickled)) as checkpoint:
            return checkpoint.root()

    return root


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("dumps", [pickle.dumps, pickle._dumps], ids=["C", "Python"])
def test_random_values_are_what_pickle_makes_of_them(root_of, protocol, dumps):
    for seed in range(60):
        value = RandomValue(seed).value()
        pickled = dumps([value, value], protocol)
        fault = difference(pickle.loads(pickled), root_of(pickled))
        assert fault is None, f"seed {seed}: {fault}"


@pytest.mark.parametrize("protocol", range(6))
def test_every_leaf_is_what_pickle_makes_of_it(root_of, protocol):
    value = [TEXTS, INTEGERS, REALS, BYTES, [bytearray(one) for one in BYTES]]
    pickled = pickle.dumps(value, protocol)
    assert difference(pickle.loads(pickled), root_of(pickled)) is None


class WithKeywords:
    """An instance that is made with keyword arguments: NEWOBJ_EX from protocol 4 on."""

    def __new__(cls, *arguments, **keywords):
        return super().__new__(cls)

    def __getnewargs_ex__(self):
        return (1,), {"key": [2]}


def test_keyword_arguments_are_kept(root_of):
    made = root_of(pickle.dumps(WithKeywords(), 4))
    assert made.callable == weightmap.Global("copyreg", "__newobj_ex__")
    assert made.arguments == (weightmap.Global(__name__, "WithKeywords"), (1,), {"key": [2]})


def test_an_instance_of_each_protocol_is_kept(root_of):
    class_name = weightmap.Global(__name__, "RandomValue")
    for protocol in range(6):
        made = root_of(pickle.dumps(RandomValue(1), protocol))
        assert type(made) is weightmap.Object
        assert class_name in (made.callable, made.arguments[0] if made.arguments else None)
        assert made.state["pool"] == []


# What Python 2.7 wrote: pickle.dumps(value, protocol) of {'w\xc3\xa9': [1L, u'\xe9', True, 2**70],
# 'raw': '\xff\x00', None: 0.5}.
PYTHON_2 = [
    b"(dp0\nS'w\\xc3\\xa9'\np1\n(lp2\nL1L\naV\xe9\np3\naI01\naL1180591620717411303424L\nasS'raw'\np4\n"
    b"S'\\xff\\x00'\np5\nsNF0.5\ns.",
    b"}q\x00(U\x03w\xc3\xa9q\x01]q\x02(L1L\nX\x02\x00\x00\x00\xc3\xa9q\x03I01\n"
    b"L1180591620717411303424L\neU\x03rawq\x04U\x02\xff\x00q\x05NG?\xe0\x00\x00\x00\x00\x00\x00u.",
    b"\x80\x02}q\x00(U\x03w\xc3\xa9q\x01]q\x02(\x8a\x01\x01X\x02\x00\x00\x00\xc3\xa9q\x03\x88\x8a\t"
    b"\x00\x00\x00\x00\x00\x00\x00\x00@eU\x03rawq\x04U\x02\xff\x00q\x05NG?\xe0\x00\x00\x00\x00\x00"
    b"\x00u.",
]


@pytest.mark.parametrize("protocol", range(3))
def test_pickles_of_python_2(root_of, protocol):
    assert root_of(PYTHON_2[protocol]) == {"wé": [1, "é", True, 2**70], "raw": b"\xff\0", None: 0.5}


def test_a_class_of_python_2(root_of):
    made = root_of(b"(imodule\nOld\np0\n(dp1\nS'lr'\np2\nF0.5\nsb.")
    assert (made.callable, made.arguments, made.is_new) == (
        weightmap.Global("module", "Old"), (), True
    )
    assert made.state == {"lr": 0.5}


# --- torch


def test_torch_of_protocol_0_names_its_storages_by_text(tmp_path):
    torch = pytest.importorskip("torch", reason="saves with torch")
    path = tmp_path / "m.pt"
    torch.save({"w": torch.zeros(2)}, path, pickle_protocol=0)
    with pytest.raises(AssertionError):  # torch cannot read it either
        torch.load(path, weights_only=False)
    with pytest.raises(weightmap.CorruptError, match="storage"):
        weightmap.open(path)
