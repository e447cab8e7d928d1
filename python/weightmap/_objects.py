"""What a pickle names and calls, and nobody looked up or called."""

from __future__ import annotations

import reprlib

from weightmap._record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Global(Record):
    """A name in a pickle, such as torch.float32. It was not looked up."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


PERSISTENT_ID = Global("weightmap", "persistent_id")


class Object:
    """A call that a pickle asks for and that was not made: callable(*arguments).

    elements, items and state are what the pickle wanted to give to the result. is_new says that it
    was to be made with callable.__new__ instead.
    """

    __slots__ = __match_args__ = (
        "callable",
        "arguments",
        "is_new",
        "elements",
        "items",
        "state",
    )

    def __init__(
        self,
        callable: Any,
        arguments: tuple[Any, ...],
        is_new: bool = False,
        elements: list[Any] | None = None,
        items: list[tuple[Any, Any]] | None = None,
        state: Any = None,
    ) -> None:
        self.callable = callable
        self.arguments = arguments
        self.is_new = is_new
        self.elements: list[Any] = [] if elements is None else elements
        self.items: list[tuple[Any, Any]] = [] if items is None else items
        self.state = state

    @reprlib.recursive_repr()
    def __repr__(self) -> str:
        fields = ", ".join(f"{field}={getattr(self, field)!r}" for field in self.__slots__)
        return f"Object({fields})"
