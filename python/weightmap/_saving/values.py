"""From Python objects to the values of a checkpoint that is to be written.

What an object becomes is what pickle would make of it for torch.save: the same parts in the same
order, so that the file comes out the same, byte for byte. Two places that hold one object hold one
value. Nothing recurses, however deep the objects nest.
"""

from __future__ import annotations

import _compat_pickle
import copyreg
import itertools
import reprlib
import sys
from pickle import PicklingError, whichmodule  # type: ignore[attr-defined]  # its stubs lack one
from types import BuiltinFunctionType, FunctionType

from weightmap import _core
from weightmap._errors import Error, UnsupportedError
from weightmap._saving.names import SavableNames

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Any, TypeAlias

    # A value's number, or what asks for the numbers of its parts and then answers its own.
    Made: TypeAlias = int | Generator["Made", int, int]

_MOST_DEPTH = 1000
_LONGEST_WAY = 20  # that an error shows
_BEGUN = -1  # instead of the number of a value whose parts are not made yet
_LARGEST = 1 << 2039  # an int beyond, of more than 255 bytes, is one that torch does not read
_MOST_REFUSED = 50  # that an error lists
# What torch's reader does not fill, or not run, whatever is registered.
_NEVER_READ = ("collections.defaultdict", "collections.deque", "builtins.getattr")
# Types that no module has by their names, so pickle asks for the type of what they are of.
_TYPES_OF = {type(thing): thing for thing in (None, ..., NotImplemented)}
_LEAVES = frozenset({str, float, bool, type(None)})


class Step(str):
    """On the way to an object, what is no key or index."""


def type_name(kind: type) -> str:
    name = kind.__qualname__
    return name if kind.__module__ == "builtins" else f"{kind.__module__}.{name}"


def _module_of(thing: Any, name: str) -> str:
    """pickle.whichmodule(), which from Python 3.14 on raises where the module lacks the name."""
    try:
        module: str = whichmodule(thing, name)
        return module
    except PicklingError:
        return getattr(thing, "__module__", None) or "__main__"


def _listed(errors: list[UnsupportedError]) -> str:
    listed = "; ".join([error.message for error in errors[:_MOST_REFUSED]])
    rest = len(errors) - _MOST_REFUSED
    return f"{listed}; and {rest} more" if rest > 0 else listed


class OnlyForPickle(UnsupportedError):
    """For what torch.save writes, and this does not: no tree of values, or one that weights_only=True
    does not read."""


class Values:
    """Makes values with a writer. `makers` are functions of objects, by their type; `maker_of` is
    asked for one for any other type, and answers None for those that pickle is to take apart.

    is_strict: whatever torch.save writes, as it writes it; else what weights_only=True reads."""

    def __init__(self, writer: _core.Writer, is_strict: bool) -> None:
        self.writer = writer
        self.is_strict = is_strict
        self.left_out: list[str] = []  # what checkpoints among the values do not list
        self.has_own = False  # what is weightmap's, and pickle would write as something else
        self._names = SavableNames()
        self._refused: list[UnsupportedError] = []
        self.makers: dict[type, Callable[[Any], Made]] = {
            int: self._integer,
            bytes: self._bytes,
            bytearray: self._bytearray,
            tuple: self._tuple,
            list: self._list,
            dict: self._dict,
            set: self._set,
            FunctionType: self._global,
            type: self._type,
        }
        self.maker_of: Callable[[type], Callable[[Any], Made] | None] = lambda kind: None
        self._leaf = writer.leaf
        self._memo: dict[int, int] = {}
        # Of calls whose elements, items or state are made: the callable, the arguments, is_new.
        self._called: dict[int, tuple[int, int, bool]] = {}
        self._kept: list[Any] = []  # so that no id is used twice
        self._path: list[Any] = []  # keys, indices and Steps on the way to what is made now

    def value(self, root: Any) -> int:
        """The number of the value of `root`. An Error names the ways to all objects to blame."""
        try:
            made = self._value(root)
        except Error as error:
            error.message = f"{self.where()} {error.message}"
            error.args = (error.message,)
            raise
        if self._refused:
            raise self._refusal()
        return made

    def _refusal(self) -> UnsupportedError:
        for_nobody = [error for error in self._refused if type(error) is not OnlyForPickle]
        if for_nobody:
            return UnsupportedError(_listed(for_nobody if self.is_strict else self._refused))
        if not self.is_strict:
            way = "; weightmap.torch.save() writes whatever torch.save writes"
        elif self.has_own:
            way = "; torch.save writes this, and none of weightmap's tensors: give it tensor.torch()"
        else:
            return OnlyForPickle(_listed(self._refused))
        return UnsupportedError(_listed(self._refused) + way)

    def _refuse(self, error: UnsupportedError) -> int:
        """Notes it with its place, and goes on, so that all are told at once."""
        error.message = f"{self.where()} {error.message}"
        self._refused.append(error)
        return self._leaf(None)

    def forget(self) -> None:
        """Lets go of all objects now: makers and values refer to each other."""
        self.makers.clear()
        self.maker_of = lambda kind: None
        self._memo.clear()
        self._kept.clear()

    def _value(self, root: Any) -> int:
        stack: list[Generator[Made, int, int]] = []
        path = self._path
        made = self.begin(root)
        while True:
            answer = None
            if type(made) is not int and len(stack) == _MOST_DEPTH:
                made = self._refuse(UnsupportedError(f"is nested deeper than {_MOST_DEPTH} levels"))
            if type(made) is not int:
                stack.append(made)  # type: ignore[arg-type]
                path.append(None)
            elif not stack:
                return made
            else:
                answer = made
            try:
                made = stack[-1].send(answer)  # type: ignore[arg-type]
            except StopIteration as ended:
                stack.pop()
                path.pop()
                made = ended.value
            except UnsupportedError as error:
                stack.pop()
                path.pop()
                made = self._refuse(error)

    def begin(self, thing: Any) -> Made:
        """The value of an object, or the beginning of one that has parts."""
        kind = type(thing)
        if kind in _LEAVES:
            return self._leaf(thing)
        known = self._memo.get(id(thing))
        if known is not None:
            return self._within_itself(thing) if known == _BEGUN else known
        make = self.makers.get(kind)
        if make is None:
            make = self.makers[kind] = self._maker(kind)
        try:
            return make(thing)
        except UnsupportedError as error:
            return self.remember(thing, self._refuse(error))

    def _within_itself(self, thing: Any) -> Made:
        """Of what holds itself: made empty now, and filled when its parts are there."""
        kind = type(thing)
        if kind is tuple and self.is_strict:  # torch.load(weights_only=True) reads none
            return self._tuple(thing)
        if kind is list:
            made = self.writer.list_of([])
        elif kind is dict:
            made = self.writer.dict_of([])
        elif id(thing) in self._called:
            callable, given, is_new = self._called[id(thing)]
            made = self.writer.call_of(callable, given, [], [], None, is_new)
        else:
            what = f"is a {type_name(kind)} that holds itself in what it is made of"
            return self._refuse(OnlyForPickle(what))
        return self.remember(thing, made)

    def _maker(self, kind: type) -> Callable[[Any], Made]:
        if issubclass(kind, type):
            return self._global
        return self.maker_of(kind) or self.reduced

    def remember(self, thing: Any, made: int) -> int:
        """The number, which `thing` will have wherever it is met again."""
        self._memo[id(thing)] = made
        self._kept.append(thing)
        return made

    def name(self) -> str:
        """What opening the file will call the tensor that is made now."""
        keys = itertools.takewhile(lambda step: type(step) is not Step, self._path)
        return ".".join(map(str, keys))

    def where(self) -> str:
        shown = reprlib.Repr()
        shown.maxstring = shown.maxother = 80
        way = [
            step if type(step) is Step else f"[{shown.repr(step)}]" for step in self._path
        ]
        if len(way) > _LONGEST_WAY:
            way[_LONGEST_WAY // 2 : -_LONGEST_WAY // 2] = ["..."]
        if not way or way[0].startswith("."):
            way.insert(0, "what is to be saved")
        return "".join(way)

    # What follows makes values of one kind of objects each.

    def _integer(self, thing: int) -> int:
        if -_LARGEST <= thing < _LARGEST:
            return self._leaf(thing)
        raise OnlyForPickle(
            f"is an int of {thing.bit_length()} bits, and torch reads no more than 255 bytes"
        )

    def _list(self, thing: list[Any]) -> Generator[Made, int, int]:
        numbers = yield from self._parts(thing)
        made = self._memo[id(thing)]
        if made == _BEGUN:
            return self.remember(thing, self.writer.list_of(numbers))
        self.writer.fill(made, numbers, [], None)
        return made

    def _tuple(self, thing: tuple[Any, ...]) -> Generator[Made, int, int]:
        numbers = yield from self._parts(thing)
        made = self._memo[id(thing)]
        return self.remember(thing, self.writer.tuple_of(numbers)) if made == _BEGUN else made

    def _parts(self, thing: Any) -> Generator[Made, int, list[int]]:
        self._memo[id(thing)] = _BEGUN
        return (yield from self._elements(thing))

    def _elements(self, elements: Any) -> Generator[Made, int, list[int]]:
        numbers = []
        for index, element in enumerate(elements):
            self._path[-1] = index
            made = self.begin(element)
            numbers.append(made if type(made) is int else (yield made))
        return numbers

    def _dict(self, thing: dict[Any, Any]) -> Generator[Made, int, int]:
        self._memo[id(thing)] = _BEGUN
        numbers = yield from self._items(thing.items())
        made = self._memo[id(thing)]
        if made == _BEGUN:
            return self.remember(thing, self.writer.dict_of(numbers))
        self.writer.fill(made, [], numbers, None)
        return made

    def _items(self, items: Any) -> Generator[Made, int, list[int]]:
        begin, path = self.begin, self._path
        numbers = []
        for key, element in items:
            path[-1] = key
            made = begin(key)
            numbers.append(made if type(made) is int else (yield made))
            made = begin(element)
            numbers.append(made if type(made) is int else (yield made))
        return numbers

    def _set(self, thing: set[Any]) -> Made:
        return self.call(thing, set, (list(thing),))

    def _bytes(self, thing: bytes) -> Made:
        # As protocol 2 spells bytes; it has another spelling for b"", which torch does not read.
        import _codecs

        if not thing and self.is_strict:
            return self.call(thing, bytes, ())
        return self.call(thing, _codecs.encode, (thing.decode("latin-1"), sys.intern("latin1")))

    def _bytearray(self, thing: bytearray) -> Made:
        return self.call(thing, bytearray, (bytes(thing),) if thing else ())

    def _type(self, thing: type) -> Made:
        if self.is_strict and thing in _TYPES_OF:
            return self.call(thing, type, (_TYPES_OF[thing],))
        return self._global(thing)

    def _global(self, thing: Any, name: str | None = None) -> int:
        """A class, a function, or what says that it is a constant."""
        if name is None:
            name = getattr(thing, "__qualname__", None) or thing.__name__
        module = _module_of(thing, name)
        if not self.reads(f"{module}.{name}"):
            self.refuse_name(thing, f"{module}.{name}")
        found = sys.modules.get(module)
        for part in name.split("."):
            found = getattr(found, part, None)
        if found is not thing:
            raise UnsupportedError(
                f"is {module}.{name}, and no module has it by this name, so pickle cannot write it"
            )
        if "." in name:
            raise OnlyForPickle(f"is {module}.{name}, which has its name in a class")
        return self.remember(thing, self.named(module, name))

    def reads(self, name: str) -> bool:
        return self.is_strict or name in self._names

    def refuse_name(self, thing: Any, name: str) -> None:
        what = f"is {name}" if isinstance(thing, (type, FunctionType)) else (
            f"is of type {type_name(type(thing))}, for which the file would need {name}"
        )
        raise OnlyForPickle(f"{what}, {self.unread(name)}")

    def unread(self, name: str) -> str:
        unless = "" if name in _NEVER_READ else (
            " unless it is registered with torch.serialization.add_safe_globals()"
        )
        return f"which torch.load(weights_only=True) does not read{unless}"

    def named(self, module: str, name: str) -> int:
        """A global, by the name that protocol 2 has for it."""
        if (module, name) in _compat_pickle.REVERSE_NAME_MAPPING:
            module, name = _compat_pickle.REVERSE_NAME_MAPPING[module, name]
        else:
            module = _compat_pickle.REVERSE_IMPORT_MAPPING.get(module, module)
        return self.writer.global_name(module, name)

    def call(
        self,
        thing: Any,
        function: Any,
        arguments: tuple[Any, ...],
        state: Any = None,
        items: Any = None,
        is_new: bool = False,
        elements: Any = (),
    ) -> Generator[Made, int, int]:
        """`thing` as function(*arguments), which then gets the elements, the items, the state."""
        self._memo[id(thing)] = _BEGUN
        path = self._path
        self._kept.append(arguments)
        path[-1] = Step("")
        made = self.begin(function)
        callable = made if type(made) is int else (yield made)
        path[-1] = Step(".__reduce__()[1]")
        made = self.begin(arguments)
        given = made if type(made) is int else (yield made)
        self._called[id(thing)] = callable, given, is_new
        extra = (yield from self._elements(elements)) if elements else []
        pairs = [] if items is None else (yield from self._items(items))
        attributes = None
        if state is not None:
            path[-1] = Step(".__dict__" if type(state) is dict else ".__getstate__()")
            made = self.begin(state)
            attributes = made if type(made) is int else (yield made)
        del self._called[id(thing)]
        number = self._memo[id(thing)]
        if number != _BEGUN:
            self.writer.fill(number, extra, pairs, attributes)
            return number
        return self.remember(
            thing, self.writer.call_of(callable, given, extra, pairs, attributes, is_new)
        )

    def reduced(self, thing: Any) -> Made:
        """What pickle would make of an object by asking it."""
        kind = type(thing)
        reduce = copyreg.dispatch_table.get(kind)
        try:
            parts = thing.__reduce_ex__(2) if reduce is None else reduce(thing)
        except Error:
            raise
        except Exception as error:
            raise UnsupportedError(f"is of type {type_name(kind)}: {error}") from error
        if type(parts) is str:
            return self._global(thing, parts)
        if type(parts) is not tuple or not 2 <= len(parts) <= 6:
            raise OnlyForPickle(f"is of type {type_name(kind)}, whose __reduce__() is no call")
        return self._taken_apart(thing, *parts)

    def _taken_apart(
        self,
        thing: Any,
        function: Any,
        arguments: tuple[Any, ...],
        state: Any = None,
        elements: Any = None,
        items: Any = None,
        setter: Any = None,
    ) -> Made:
        made_by = getattr(function, "__name__", "")
        if made_by == "__newobj_ex__" or setter is not None:
            raise OnlyForPickle(f"is of type {type_name(type(thing))}, which takes more than a call")
        is_new = made_by == "__newobj__"
        if is_new:
            function, arguments = arguments[0], arguments[1:]
        if not self.is_strict:
            self._check_is_read(thing, function, state, elements, items)
        return self.call(thing, function, arguments, state, items, is_new, elements or ())

    def _check_is_read(
        self, thing: Any, function: Any, state: Any, elements: Any, items: Any
    ) -> None:
        """Whether torch.load(weights_only=True) makes this of it."""
        kind = type(thing)
        if isinstance(function, (type, FunctionType, BuiltinFunctionType)):
            name = f"{_module_of(function, function.__qualname__)}.{function.__qualname__}"
            if not self.reads(name):
                self.refuse_name(thing, name)
        is_dict = type_name(kind) in ("dict", "collections.OrderedDict", "collections.Counter")
        if elements is not None and next(iter(elements), self) is not self:
            self._refuse_contents(kind, "elements")
        if items is not None and not is_dict:
            self._refuse_contents(kind, "items")
        if state is not None and not self._names.may_have_state(kind):
            self._refuse_contents(kind, "attributes")

    def _refuse_contents(self, kind: type, what: str) -> None:
        raise OnlyForPickle(
            f"is of type {type_name(kind)} with {what}, which torch.load(weights_only=True) gives to no "
            "object of that type"
        )


