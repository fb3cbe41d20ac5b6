"""Records: dataclasses whose instances never change.

To type checkers `@record` is `@dataclass(frozen=True, slots=True)`. At run time nothing refuses an assignment, and the
methods are compiled when they are first looked up: Python takes half a millisecond to make a frozen dataclass, and a
tenth as long for a record; a program that runs its first operator makes forty and uses half of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
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

    @overload
    def mutable(cls: type[T], /) -> type[T]: ...
    @overload
    def mutable(*, eq: bool = True) -> Callable[[type[T]], type[T]]: ...
    @dataclass_transform(field_specifiers=(field,))
    def mutable(cls: Any = None, /, **options: Any) -> Any: ...

else:

    def mutable(cls=None, /, *, eq=True):
        """A class whose instances have fields that change, made as fast as a record. eq: they are equal if their
        fields are, and have no hashes; else if they are the same."""
        return record(cls, eq=eq, hashes=False)

    def record(cls=None, /, *, eq=True, order=False, hashes=True):
        """A class as a record.

        eq: instances are equal and have equal hashes if their fields do; else if they are the same.
        order: they are ordered by their fields.
        hashes: whether instances that are compared by their fields have hashes."""

        def make(cls):
            own = cls.__dict__
            needs_hash = eq and own.get("__hash__") is None
            if cls.__doc__ is None:
                cls.__doc__ = cls.__name__  # `dataclass` would write its signature, for which it compiles `__init__`
            if "__repr__" not in own:
                cls.__repr__ = _text
            if order:
                return dataclass(slots=True, repr=False, eq=eq, order=True, unsafe_hash=needs_hash)(cls)
            made = dataclass(slots=True, init=False, repr=False, eq=False)(cls)
            for name in ("__init__", *["__eq__"] * eq, *["__hash__"] * needs_hash):
                if name not in own or name == "__hash__":
                    setattr(made, name, _Method(made, name) if hashes or name != "__hash__" else None)
            return made

        return make if cls is None else make(cls)

    class _Method:
        """A method of a record, in whose place it is until the method is looked up."""

        __slots__ = ("_cls", "_name")

        def __init__(self, cls, name):
            self._cls, self._name = cls, name

        def __get__(self, instance, owner=None):
            method = _compiled(self._cls, self._name)
            setattr(self._cls, self._name, method)
            return method.__get__(instance, owner)

    def _compiled(cls, name):
        """The method that `dataclass` would write, in a third of the time."""
        names = {"_absent": _ABSENT}
        names.update((f"_default_{each.name}", each.default) for each in fields(cls))
        names.update((f"_factory_{each.name}", each.default_factory) for each in fields(cls))
        exec(_SOURCES[name](cls), names)  # of names of fields alone
        method = names[name]
        method.__module__, method.__qualname__ = cls.__module__, f"{cls.__qualname__}.{name}"
        if name == "__init__":
            method.__annotations__ = {each.name: each.type for each in fields(cls)} | {"return": None}
        return method

    def _init_source(cls):
        given = [each for each in fields(cls) if each.init]
        keywords = [_parameter(each) for each in given if each.kw_only]
        parameters = ["self", *(_parameter(each) for each in given if not each.kw_only)]
        parameters += ["*", *keywords] if keywords else []
        values = ((each.name, _value(each)) for each in fields(cls))
        statements = [f"self.{name} = {value}" for name, value in values if value]
        statements += ["self.__post_init__()"] if hasattr(cls, "__post_init__") else []
        return f"def __init__({', '.join(parameters)}):\n    {'; '.join(statements) or 'pass'}"

    def _parameter(each):
        if each.default_factory is not MISSING:
            return f"{each.name}=_absent"
        return each.name if each.default is MISSING else f"{each.name}=_default_{each.name}"

    def _value(each):
        """The value of a field in `__init__`; "" for one that `__post_init__` sets."""
        if each.default_factory is not MISSING:
            made = f"_factory_{each.name}()"
            return f"{made} if {each.name} is _absent else {each.name}" if each.init else made
        return each.name if each.init else "" if each.default is MISSING else f"_default_{each.name}"

    def _equality_source(cls):
        compared = [each.name for each in fields(cls) if each.compare]
        mine, others = ("".join(f"{of}.{name}, " for name in compared) for of in ("self", "other"))
        same = "other.__class__ is self.__class__"
        return f"def __eq__(self, other):\n    return ({mine}) == ({others}) if {same} else NotImplemented"

    def _hash_source(cls):
        hashed = (each.name for each in fields(cls) if (each.compare if each.hash is None else each.hash))
        return f"def __hash__(self):\n    return hash(({''.join(f'self.{name}, ' for name in hashed)}))"

    class _Absent:
        """The default of a parameter whose value a factory makes, as `dataclass` shows it."""

        def __repr__(self):
            return "<factory>"

    _ABSENT = _Absent()
    _SOURCES = {"__init__": _init_source, "__eq__": _equality_source, "__hash__": _hash_source}

    @recursive_repr()
    def _text(self):
        values = (f"{each.name}={getattr(self, each.name)!r}" for each in fields(self) if each.repr)
        return f"{type(self).__qualname__}({', '.join(values)})"
