"""Records: what a call answers, in named fields.

dataclasses would do, but to import them takes longer than the rest of the package.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from inspect import Signature
    from typing import Any, ClassVar, dataclass_transform
else:

    def dataclass_transform(**_):
        return lambda kind: kind


@dataclass_transform(frozen_default=True)
class _RecordType(type):
    """Makes the annotations of a class its fields, and what they are set to their defaults."""

    _fields: tuple[str, ...]
    _defaults: dict[str, Any]

    def __new__(
        kind: type[_RecordType], name: str, bases: tuple[type, ...], namespace: dict[str, Any]
    ) -> _RecordType:
        own = tuple(namespace.get("__annotations__", ()))
        defaults = {field: namespace.pop(field) for field in own if field in namespace}
        namespace["__slots__"] = own
        made = super().__new__(kind, name, bases, namespace)
        made._fields = getattr(made, "_fields", ()) + own
        made._defaults = {**getattr(made, "_defaults", {}), **defaults}
        setattr(made, "__match_args__", made._fields)
        return made

    @property
    def __signature__(cls) -> Signature:
        from inspect import Parameter, Signature

        return Signature(
            [
                Parameter(
                    field,
                    Parameter.POSITIONAL_OR_KEYWORD,
                    default=cls._defaults.get(field, Parameter.empty),
                )
                for field in cls._fields
            ]
        )


class Record(metaclass=_RecordType):
    """Fields that stay as they are. Records of one kind are equal if all their fields are."""

    if TYPE_CHECKING:
        _fields: ClassVar[tuple[str, ...]]
        _defaults: ClassVar[dict[str, Any]]

    def __init__(self, *values: Any, **named: Any) -> None:
        fields = self._fields
        given = {**self._defaults, **dict(zip(fields, values)), **named}
        is_twice = not named.keys().isdisjoint(fields[: len(values)])
        if is_twice or len(values) > len(fields) or given.keys() != set(fields):
            raise TypeError(f"{type(self).__name__}() takes {', '.join(fields)}")
        for field in fields:
            object.__setattr__(self, field, given[field])

    def _values(self) -> tuple[Any, ...]:
        return tuple([getattr(self, field) for field in self._fields])

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{name!r} of a {type(self).__name__} stays as it is")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{name!r} of a {type(self).__name__} stays as it is")

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self._values() == other._values()

    def __hash__(self) -> int:
        return hash(self._values())

    def __repr__(self) -> str:
        fields = ", ".join(f"{field}={getattr(self, field)!r}" for field in self._fields)
        return f"{type(self).__qualname__}({fields})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._values()
