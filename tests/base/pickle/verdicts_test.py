"""verdicts_test.py PICKLE_ANSWERS [COUNT [SEED]]: our pickle machine against Python's.

Takes pickles apart with pickletools, changes them at random (the same each time), and gives them to
both. What ours takes, Python's machine, with names that stand for themselves in place of what they
name, must take too, and make the same values of it.
"""

import collections
import pickle
import pickletools
import random
import struct
import subprocess
import sys

MOST_WORDS = 5000  # pickle_answers.cpp has the same
OPCODES = pickletools.opcodes
NAMES = (b"torch._utils\n_rebuild_tensor_v2\n", b"collections\nOrderedDict\n", b"builtins\nset\n",
         b"a\nb\n", b"\n\n", b"\xc3\xbc\nx.y\n", b"\xff\nz\n")
LINES = (b"0\n", b"1\n", b"00\n", b"01\n", b"-1\n", b"12L\n", b"1.5\n", b"nan\n", b"1e400\n",
         b" 7 \n", b"1_0\n", b"'a'\n", b'"\\x41"\n', b"'\\n\\777'\n", b"\\u00e9\n", b"\\ud800\n",
         b"99999999999999999999\n", b"\n", b"2\n", b"5\n")
TEXTS = (b"", b"a", b"storage", b"0", b"\xc3\xbc", b"\xff", b"\xed\xa0\x80", b"x" * 70)


class Refused(Exception):
    pass


class Node:
    """What a call or a container stands for: elements and items, in the order they came."""

    def __init__(self, kind, *head):
        self.kind = kind
        self.head = head
        self.values = []
        self.pairs = []
        self.state = None  # or a tuple with one value

    def append(self, value):
        if self.kind not in ("list", "object"):
            raise Refused("append")
        self.values.append(value)

    def extend(self, values):
        for value in values:
            self.append(value)

    def __setitem__(self, key, value):
        if self.kind not in ("dict", "object"):
            raise Refused("setitem")
        self.pairs.append((key, value))


Global = collections.namedtuple("Global", "module name")
Persistent = collections.namedtuple("Persistent", "id")


def handles(opcode):
    def add(function):
        Machine.dispatch[opcode[0]] = function
        return function

    return add


def spelled_bytes(callable, arguments):
    """What Python makes of the calls that stand for bytes in older protocols."""
    if not isinstance(callable, Global):
        return None
    module = callable.module.replace("__builtin__", "builtins")
    is_latin1 = len(arguments) == 2 and arguments[1] in ("latin1", "latin-1")
    kinds = [type(argument) for argument in arguments]
    is_text = kinds == [str, str] and is_latin1
    try:
        if (module, callable.name) == ("_codecs", "encode") and is_text:
            return arguments[0].encode("latin-1")
        if (module, callable.name) == ("builtins", "bytes") and not arguments:
            return b""
        if (module, callable.name) == ("builtins", "bytearray") and (is_text or kinds in ([], [bytes])):
            return bytearray(*arguments)
    except UnicodeEncodeError:
        pass
    return None


class Machine(pickle._Unpickler):
    """Python's own, with nodes for what it would make or call."""

    dispatch = dict(pickle._Unpickler.dispatch)

    def find_class(self, module, name):
        return Global(module, name)

    def persistent_load(self, pid):
        return Persistent(pid)

    def _decode_string(self, value):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            return value

    def get_extension(self, code):
        raise Refused("extension")

    def container(self, kind, values=()):
        node = Node(kind)
        if kind == "dict":
            if len(values) % 2:
                raise Refused("a key without a value")
            node.pairs = list(zip(values[::2], values[1::2]))
        else:
            node.values = list(values)
        self.append(node)

    def call(self, callable, arguments, is_new):
        # A name, or what getattr(name, text) stands for.
        is_named = isinstance(callable, Global) or (
            isinstance(callable, Node) and callable.kind == "object")
        if not is_named or type(arguments) is not tuple:
            raise Refused("a call of no name")
        spelled = None if is_new else spelled_bytes(callable, arguments)
        self.append(spelled if spelled is not None else Node("object", "new" if is_new else "call", callable, arguments))


handles(pickle.EMPTY_LIST)(lambda self: self.container("list"))
handles(pickle.EMPTY_DICT)(lambda self: self.container("dict"))
handles(pickle.EMPTY_SET)(lambda self: self.container("set"))
handles(pickle.LIST)(lambda self: self.container("list", self.pop_mark()))
handles(pickle.DICT)(lambda self: self.container("dict", self.pop_mark()))
handles(pickle.FROZENSET)(lambda self: self.container("frozen_set", self.pop_mark()))


@handles(pickle.ADDITEMS)
def add_items(self):
    items = self.pop_mark()
    if not isinstance(self.stack[-1], Node) or self.stack[-1].kind not in ("set", "object"):
        raise Refused("additems")
    self.stack[-1].values.extend(items)


@handles(pickle.REDUCE)
def reduce(self):
    arguments, callable = self.stack.pop(), self.stack.pop()
    self.call(callable, arguments, False)


@handles(pickle.NEWOBJ)
def new_object(self):
    arguments, callable = self.stack.pop(), self.stack.pop()
    self.call(callable, arguments, True)


@handles(pickle.NEWOBJ_EX)
def new_object_ex(self):
    keywords, arguments, callable = self.stack.pop(), self.stack.pop(), self.stack.pop()
    self.call(Global("copyreg", "__newobj_ex__"), (callable, arguments, keywords), False)


@handles(pickle.INST)
def instance(self):
    module = self.readline()[:-1].decode("utf-8")
    name = self.readline()[:-1].decode("utf-8")
    arguments = tuple(self.pop_mark())
    self.call(Global(module, name), arguments, not arguments)


@handles(pickle.OBJ)
def obj(self):
    values = self.pop_mark()
    callable = values.pop(0)
    self.call(callable, tuple(values), not values)


@handles(pickle.GLOBAL)
def name(self):
    module = self.readline()[:-1].decode("utf-8")
    self.append(Global(module, self.readline()[:-1].decode("utf-8")))


@handles(pickle.BUILD)
def build(self):
    state = self.stack.pop()
    if not isinstance(self.stack[-1], Node) or self.stack[-1].kind != "object":
        raise Refused("build")
    self.stack[-1].state = (state,)


def words_of(root):
    """The tree, as pickle_answers.cpp prints it."""
    words, seen = [], {}
    text = lambda value: value.encode("utf-8", "surrogatepass").hex()

    def add(value):
        if len(words) > MOST_WORDS:
            return
        if value is None or value is True or value is False:
            words.append(str(value))
        elif type(value) is int:
            words.append("i" + pickle.encode_long(value).hex())
        elif type(value) is float:
            words.append("d" + struct.pack("<d", value).hex())
        elif type(value) is str:
            words.append("s" + text(value))
        elif type(value) is bytes:
            words.append("b" + value.hex())
        elif type(value) is bytearray:
            words.append("a" + value.hex())
        elif type(value) is Global:
            words.append("g" + text(value.module) + "." + text(value.name))
        elif type(value) is Persistent:
            words.append("persistent_id")
            add(value.id)
        elif type(value) is tuple:
            words.extend(("tuple", str(len(value))))
            for element in value:
                add(element)
            words.append("0")
        else:
            add_node(value)

    def add_node(node):
        if id(node) in seen:
            words.append(f"#{seen[id(node)]}")
            return
        seen[id(node)] = len(seen)
        words.append(node.kind)
        if node.head:
            words.append(node.head[0])
            add(node.head[1])
            add(node.head[2])
        words.append(str(len(node.values)))
        for value in node.values:
            add(value)
        words.append(str(len(node.pairs)))
        for pair in node.pairs:
            for value in pair:
                add(value)
        if node.state:
            words.append("state")
            add(node.state[0])

    add(root)
    return " ".join(words) + " "


class File:
    def __init__(self, data):
        self.data = memoryview(data)
        self.at = 0

    def read(self, size):
        found = bytes(self.data[self.at:self.at + size])
        self.at += len(found)
        return found

    def readline(self):
        end = bytes(self.data[self.at:]).find(b"\n")
        return self.read(len(self.data) - self.at if end < 0 else end + 1)

    def readinto(self, into):
        found = self.read(len(into))
        into[:len(found)] = found
        return len(found)


def python_answer(data):
    try:
        return words_of(Machine(File(data)).load())
    except RecursionError:
        raise
    except Exception as error:
        return f"refused: {type(error).__name__}: {error}"


def samples():
    shared = [1, 2.5, "x"]
    cycle = []
    cycle.append(cycle)
    values = (
        None, True, 5, -1, 300, 70000, 2**40, -(2**80), 1.5, "text", "ü\ud800", b"bytes", b"\xff",
        (), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), [], [1], list(range(40)), {}, {"a": 1, 2: "b"},
        {1, 2}, frozenset({3}), bytearray(b"ab"), [shared, shared, (shared,)], cycle,
        collections.OrderedDict(a=[1], b={"c": (None, False)}), complex(1, 2), range(3),
    )
    for value in values:
        for protocol in range(6):
            yield pickle.dumps(value, protocol)
    yield (b"\x80\x02}q\0(X\1\0\0\0wq\1ctorch._utils\n_rebuild_tensor_v2\nq\2((X\7\0\0\0storageq\3"
           b"ctorch\nFloatStorage\nq\4X\1\0\0\0000q\5X\3\0\0\0cpuq\6K\4tq\7QK\0K\2K\2\x86q\x08K\2K\1"
           b"\x86q\t\x89ccollections\nOrderedDict\nq\n)Rq\x0btq\x0cRq\ru.")
    yield b"(lp0\n(dp1\nS'a'\np2\nI01\nsa(i__main__\nC\n(dbaL5L\naF2.5\naVx\\u00e9\na(c__main__\nD\noa."


def split(data):
    """Opcodes with their operands."""
    ends = [position for _, _, position in pickletools.genops(data)] + [len(data)]
    return [data[begin:end] for begin, end in zip(ends, ends[1:])]


def random_operation(rng):
    opcode = rng.choice(OPCODES)
    code = opcode.code.encode("latin-1")
    if opcode.arg is None:
        return code
    n = opcode.arg.n
    if n > 0:
        return code + rng.choice([rng.randbytes(n), rng.randrange(6).to_bytes(n, "little")])
    if n == pickletools.UP_TO_NEWLINE:
        return code + rng.choice(NAMES if opcode.name in ("GLOBAL", "INST") else LINES)
    width = {pickletools.TAKEN_FROM_ARGUMENT1: 1, pickletools.TAKEN_FROM_ARGUMENT4: 4,
             pickletools.TAKEN_FROM_ARGUMENT4U: 4, pickletools.TAKEN_FROM_ARGUMENT8U: 8}[n]
    text = rng.choice(TEXTS)
    return code + len(text).to_bytes(width, "little") + text


def change(operations, rng):
    at = rng.randrange(len(operations))
    what = rng.randrange(6)
    if what == 0:
        operations.insert(at, random_operation(rng))
    elif what == 1:
        del operations[at]
    elif what == 2:
        operations[at] = random_operation(rng)
    elif what == 3:
        other = rng.randrange(len(operations))
        operations[at], operations[other] = operations[other], operations[at]
    elif what == 4:
        operations.insert(at, rng.choice(operations))
    else:
        changed = bytearray(operations[at])
        changed[rng.randrange(len(changed))] = rng.randrange(256)
        operations[at] = bytes(changed)


def changed_pickles(count, seed):
    rng = random.Random(seed)
    whole = [split(data) for data in samples()]
    yield from map(b"".join, whole)
    for _ in range(count):
        operations = list(rng.choice(whole))
        for _ in range(rng.randrange(1, 5)):
            if operations:
                change(operations, rng)
        # Frames would have to be of the new lengths.
        yield b"".join(operation for operation in operations if operation[:1] != pickle.FRAME)


def main(program, count=20000, seed=1):
    pickles = list(changed_pickles(int(count), int(seed)))
    asked = b"".join(struct.pack("<I", len(data)) + data for data in pickles)
    answers = subprocess.run([program], input=asked, stdout=subprocess.PIPE, check=True)
    lines = answers.stdout.decode().splitlines()
    assert len(lines) == len(pickles), (len(lines), len(pickles))
    taken = refused = faults = 0
    for data, ours in zip(pickles, lines):
        if ours.startswith("refused: "):
            refused += 1
            continue
        taken += 1
        theirs = python_answer(data)
        if theirs != ours:
            faults += 1
            print(f"{data!r}\n  ours:   {ours}\n  Python: {theirs}")
    print(f"{taken} pickles taken, {refused} refused, {faults} read otherwise than Python reads them")
    return faults != 0 or taken * 20 < len(pickles)


if __name__ == "__main__":
    if not 2 <= len(sys.argv) <= 4:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
