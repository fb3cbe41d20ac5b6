"""Records: dataclasses whose instances never change.

To type checkers `@record` is `@dataclass(frozen=True, slots=True)`. At run time nothing refuses an assignment, and the
methods are compiled when they are first looked up: Python takes half a millisecond to make a frozen dataclass, and a
tenth as long for a record; a program that runs its first operator makes sixty and uses a third of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, field
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, TypeVar, overload

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform

    T = TypeVar("T")

    @overload
    def record(cls: type[T], /) -> type[T]: ...
    @overload
    def record(*, eq: bool = True) -> Callable[[type[T]], type[T]]: ...
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

    def record(cls=None, /, *, eq=True, hashes=True):
        """A class as a record.

        eq: instances are equal and have equal hashes if their fields do; else if they are the same.
        hashes: whether instances that are compared by their fields have hashes."""

        def make(cls):
            members = {name: member for name, member in cls.__dict__.items() if name not in _OF_INSTANCES}
            kinds = {name: kind for name, kind in cls.__annotations__.items() if "ClassVar" not in str(kind)}
            inherited = {name for base in cls.__mro__[1:] for name in getattr(base, "__slots__", ())}
            needs_hash = eq and members.get("__hash__") is None
            members["_own_fields"] = {name: (kind, members.pop(name, MISSING)) for name, kind in kinds.items()}
            members["__slots__"] = tuple(name for name in kinds if name not in inherited)
            members["__qualname__"], members["__doc__"] = cls.__qualname__, cls.__doc__ or cls.__name__
            members.setdefault("__repr__", _text)
            for name in ("__init__", *_OF_DATACLASSES, *["__eq__"] * eq):
                members.setdefault(name, _Late())
            if needs_hash:
                members["__hash__"] = _Late() if hashes else None
            return type(cls)(cls.__name__, cls.__bases__, members)

        return make if cls is None else make(cls)

    _OF_INSTANCES = ("__dict__", "__weakref__")
    _OF_DATACLASSES = ("__dataclass_fields__", "__dataclass_params__", "__match_args__")

    class _Late:
        """A method of a record, or what the functions of `dataclasses` read, in whose place it is until it is looked
        up."""

        __slots__ = ("_cls", "_name")

        def __set_name__(self, cls, name):
            self._cls, self._name = cls, name

        def __get__(self, instance, owner=None):
            is_method = self._name in _SOURCES
            value = _compiled(self._cls, self._name) if is_method else getattr(_dataclass(self._cls), self._name)
            setattr(self._cls, self._name, value)
            return value.__get__(instance, owner) if is_method else value

    def _fields(cls):
        """The fields of a record, after the fields of the records that it derives from."""
        found = {}
        for base in reversed(cls.__mro__):
            for name, (kind, value) in vars(base).get("_own_fields", {}).items():
                found[name] = value if isinstance(value, Field) else field(default=value)
                found[name].name, found[name].type = name, kind
        return found.values()

    def _dataclass(cls):
        """A dataclass with the fields of a record."""
        members = {each.name: each for each in _fields(cls)}
        kinds = {name: each.type for name, each in members.items()}
        # Without a text, `dataclass` would write the signature.
        facts = {"__module__": cls.__module__, "__doc__": cls.__doc__, "__annotations__": kinds}
        return dataclass(init=False, repr=False, eq=False)(type(cls.__name__, (), {**facts, **members}))

    def _compiled(cls, name):
        """The method that `dataclass` would write, in a third of the time."""
        members = _fields(cls)
        names = {"_absent": _ABSENT}
        for each in members:
            names[f"_default_{each.name}"], names[f"_factory_{each.name}"] = each.default, each.default_factory
        exec(_SOURCES[name](cls, members), names)  # of names of fields alone
        method = names[name]
        method.__module__, method.__qualname__ = cls.__module__, f"{cls.__qualname__}.{name}"
        if name == "__init__":
            method.__annotations__ = {each.name: each.type for each in members} | {"return": None}
        return method

    def _init_source(cls, members):
        given = [each for each in members if each.init]
        keywords = [_parameter(each) for each in given if each.kw_only is True]
        parameters = ["self", *(_parameter(each) for each in given if each.kw_only is not True)]
        parameters += ["*", *keywords] if keywords else []
        values = ((each.name, _value(each)) for each in members)
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

    def _equality_source(_, members):
        compared = [each.name for each in members if each.compare]
        mine, others = ("".join(f"{of}.{name}, " for name in compared) for of in ("self", "other"))
        same = "other.__class__ is self.__class__"
        return f"def __eq__(self, other):\n    return ({mine}) == ({others}) if {same} else NotImplemented"

    def _hash_source(_, members):
        hashed = (each.name for each in members if (each.compare if each.hash is None else each.hash))
        return f"def __hash__(self):\n    return hash(({''.join(f'self.{name}, ' for name in hashed)}))"

    class _Absent:
        """The default of a parameter whose value a factory makes, as `dataclass` shows it."""

        def __repr__(self):
            return "<factory>"

    _ABSENT = _Absent()
    _SOURCES = {"__init__": _init_source, "__eq__": _equality_source, "__hash__": _hash_source}

    @recursive_repr()
    def _text(self):
        values = (f"{each.name}={getattr(self, each.name)!r}" for each in _fields(type(self)) if each.repr)
        return f"{type(self).__qualname__}({', '.join(values)})"
