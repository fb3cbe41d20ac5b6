"""Records: dataclasses whose instances never change.

To type checkers `@record` is `@dataclass(frozen=True, slots=True)`. At run time nothing refuses an assignment: Python
takes half a millisecond to make a frozen class, and half of that without the refusal; a program that runs its first
operator makes thirty."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, TypeVar, overload

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform

    T = TypeVar("T")

    @overload
    def record(cls: type[T], /) -> type[T]: ...
    @overload
    def record(*, eq: bool = True, order: bool = False) -> Callable[[type[T]], type[T]]: ...
    @dataclass_transform(frozen_default=True, field_specifiers=(field,))
    def record(cls: Any = None, /, **options: Any) -> Any: ...

else:

    def record(cls=None, /, *, eq=True, order=False):
        """A class as a record.

        eq: instances are equal and have equal hashes if their fields do; else if they are the same.
        order: they are ordered by their fields."""

        def make(cls):
            has_hash = cls.__dict__.get("__hash__") is not None
            if "__repr__" not in cls.__dict__:
                cls.__repr__ = _text
            return dataclass(slots=True, repr=False, eq=eq, order=order, unsafe_hash=eq and not has_hash)(cls)

        return make if cls is None else make(cls)

    @recursive_repr()
    def _text(self):
        values = (f"{each.name}={getattr(self, each.name)!r}" for each in fields(self) if each.repr)
        return f"{type(self).__qualname__}({', '.join(values)})"
