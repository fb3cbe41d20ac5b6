"""Arguments of public constructors and functions, checked by their annotations before they are used.

    class Dropout(Model):                       # Model derives from CheckedArguments
        def build(self, p: float = 0.5) -> None: ...

    Dropout("x")                                # [Dropout] p is 'x'; expected a float or an int

An annotation accepts what the argument type of the same meaning accepts in a schema: an int may be NumPy's, a float may
be an int, a bool is neither. Annotations that say nothing at run time (Any, type variables, protocols, names that only
type checkers import) accept everything.
"""

from __future__ import annotations

import inspect
import os
import types as python_types
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from meta import spellings
from meta.errors import ArgumentError, MetaError, value_text
from meta.records import record
from meta.schema import _dsl as types
from meta.schema._dsl import ArgType, Reject, TensorLike, is_numpy_scalar
from meta.tree import is_sequence

F = TypeVar("F", bound=Callable[..., Any])

_PACKAGE = __name__.partition(".")[0] + "."
_PLAIN = frozenset({int, float, bool, str, tuple, list, python_types.NoneType})
_SCALARS = {int: types.Int, float: types.Float, bool: types.Bool, str: types.Str}
_PLURALS = {"an int": "ints", "a float or an int": "numbers", "a string": "strings", "a tensor": "tensors"}


@record
class _Expected:
    """The values that an annotation accepts. kinds: noun phrases for its alternatives; plural: one for items of a
    sequence."""

    accepts: Callable[[Any], bool]
    kinds: tuple[str, ...]
    plural: str = ""

    @property
    def text(self) -> str:
        *first, last = dict.fromkeys(self.kinds)
        return f"{', '.join(first)} or {last}" if first else last


class CheckedArguments:
    """Base of classes whose constructors (`__init__` and `build`) check their arguments.

    Classes outside of this package may derive from it; their annotations are their authors' and are not enforced."""

    __slots__ = ()

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        if cls.__module__.startswith(_PACKAGE):
            for name in ("__init__", "build"):
                constructor = vars(cls).get(name)
                if constructor is not None and not _takes_anything(constructor):
                    setattr(cls, name, checked(constructor, is_constructor=True))


def checked(function: F, *, is_constructor: bool = False) -> F:
    """`function`, which raises ArgumentError for missing, surplus and unknown arguments and for values that its
    annotations exclude. is_constructor: the first argument is the instance, whose class the error names."""
    parameters: _Parameters | None = None

    @wraps(function)
    def run(*args: object, **kwargs: object) -> Any:
        nonlocal parameters
        if parameters is None:  # at the first call: annotations may name classes that are defined later
            parameters = _Parameters(function, skipped=int(is_constructor))
        subject = type(args[0]).__name__ if is_constructor else function.__name__
        try:
            args, kwargs = parameters.check(subject, args, kwargs)
        except ArgumentError as error:
            error.remedy = (is_constructor and as_input(args[0], args[1:])) or error.remedy
            raise
        return function(*args, **kwargs)

    return run  # type: ignore[return-value]


def as_input(layer: object, args: Sequence[Any]) -> str:
    """What to write for tensors that are passed to the constructor of a layer, "" without any."""
    forward: Any = getattr(layer, "forward", None)
    if forward is None or not any(isinstance(each, TensorLike) for each in args):
        return ""
    names = list(inspect.signature(forward).parameters)[: len(args)]
    return f"call the layer: {type(layer).__name__}()({', '.join(names)})"


def explained(function: F) -> F:
    """`function`, which raises ArgumentError for missing, surplus and unknown arguments. A call that fits costs nothing
    but the call: values are not looked at."""

    @wraps(function)
    def run(*args: object, **kwargs: object) -> Any:
        try:
            return function(*args, **kwargs)
        except MetaError:
            raise
        except TypeError:
            skipped = int(function.__code__.co_varnames[:1] == ("self",))
            check_signature(function.__name__, function, args[skipped:], kwargs, skipped)
            raise

    return run  # type: ignore[return-value]


def bound_by_schema(function: F) -> F:
    """`function` with the default REQUIRED for its required parameters: a call without them reaches the schema, which
    says what is missing, or what to write for another name. Type checkers see the function as it is written."""
    code, defaults = function.__code__, function.__defaults__ or ()
    required = code.co_argcount - len(defaults) - (code.co_varnames[0] == "self")
    function.__defaults__ = (*(types.REQUIRED,) * required, *defaults)
    return function


def check_signature(
    subject: str, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], skipped: int = 0
) -> None:
    """Raise ArgumentError for missing, surplus and unknown arguments of a call that failed. skipped: the number of
    first parameters that the caller does not pass."""
    parameters = _Parameters(function, skipped)
    try:
        parameters.check_names(subject, args, kwargs)
        parameters.check_complete(subject, args, kwargs)
    except ArgumentError as error:
        raise error from None  # Python's words for the same are of no use


def refuse_signature(subject: str, name: str, function: Callable[..., Any], args: Sequence[Any], passed: str) -> None:
    """Raise ArgumentError if the user's function, the argument `name`, does not take what it is called with."""
    try:
        signature = inspect.signature(function)
    except ValueError:  # a builtin
        return
    try:
        signature.bind(*args)
    except TypeError:
        problem = f"'{name}' takes {signature}, and gets {len(args)} arguments: {passed}"
        example = ", ".join(["y", "target", *(f"x{i}" for i in range(3, len(args) + 1))][: len(args)])
        raise ArgumentError(subject, problem, "a function of these", f"write {name}=lambda {example}: ...") from None


def _takes_anything(function: Callable[..., Any]) -> bool:
    """Whether a method's parameters are `*args: Any, **kwargs: Any`."""
    has_names = function.__code__.co_argcount + function.__code__.co_kwonlyargcount > 1
    return not has_names and set(function.__annotations__.values()) <= {"Any", "None"}


class _Parameters:
    """The parameters of a function, without the first `skipped`, and what each accepts."""

    def __init__(self, function: Callable[..., Any], skipped: int) -> None:
        parameters = list(inspect.signature(function).parameters.values())[skipped:]
        self.skipped = skipped
        self.positional = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        self.names = [p.name for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        self.required = [p.name for p in parameters if p.name in self.names and p.default is p.empty]
        self.rest = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), "")
        self.takes_any_name = any(p.kind is p.VAR_KEYWORD for p in parameters)
        annotations = {p.name: p.annotation for p in parameters}
        expected = {name: _resolved(each, function) for name, each in annotations.items()}
        self.expected = {name: each for name, each in expected.items() if each is not None}

    def check(
        self, subject: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments, with NumPy's numbers as Python's; raises ArgumentError."""
        values = args[self.skipped :]
        self.check_names(subject, values, kwargs)
        names = [*self.positional, *[self.rest] * (len(values) - len(self.positional))]
        try:
            accepted = [self._accepted(subject, name, value) for name, value in zip(names, values, strict=False)]
        except ArgumentError as error:
            error.remedy = error.remedy or self._in_order(subject, values)
            raise
        keywords = {name: self._accepted(subject, name, value) for name, value in kwargs.items()}
        self.check_complete(subject, values, kwargs)
        return (*args[: self.skipped], *accepted), keywords

    def _in_order(self, subject: str, values: Sequence[Any]) -> str:
        """The call to write if two arguments are in each other's place, else ""."""
        fits = [[each is None or each.accepts(v) for v in values] for each in map(self.expected.get, self.positional)]
        count = min(len(values), len(fits))
        pairs = [(i, j) for i in range(count) for j in range(i) if fits[i][j] and fits[j][i] and not fits[i][i]]
        return f"the order is {subject}({', '.join(self.positional[:count])})" if pairs else ""

    def check_names(self, subject: str, values: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Raise ArgumentError for surplus and unknown arguments."""
        count = len(self.positional)
        if len(values) > count and not self.rest:
            problem = f"{len(values)} positional arguments"
            expected = f"at most {count}: {', '.join(self.positional)}" if count else "none"
            raise ArgumentError(
                subject, problem, expected, spellings.call_text(subject, self.positional, values, kwargs)
            )
        for name in self.positional[: len(values)]:
            if name in kwargs:
                problem = f"argument '{name}' given twice, as {value_text(values[self.positional.index(name)])} too"
                remedy = spellings.call_text(subject, (), (), kwargs)
                raise ArgumentError(subject, problem, ", ".join(self.names), remedy)
        if not self.takes_any_name:
            spellings.refuse_unknown(subject, kwargs, self.names)

    def check_complete(self, subject: str, values: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Raise ArgumentError for missing arguments."""
        for name in self.required:
            if name not in kwargs and name not in self.positional[: len(values)]:
                raise ArgumentError(subject, f"argument '{name}' is missing", ", ".join(self.names), f"add {name}=...")

    def _accepted(self, subject: str, name: str, value: Any) -> Any:
        expected = self.expected.get(name)
        if expected is None:
            return value
        if not expected.accepts(value):
            remedy = f"write {subject}(*{name})" if name == self.rest and is_sequence(value) else ""
            raise ArgumentError(subject, f"{name} is {_described(value)}", expected.text, remedy)
        return value if type(value) in _PLAIN or not is_numpy_scalar(value) else value.item()


def _resolved(annotation: object, function: Callable[..., Any]) -> _Expected | None:
    """The values that an annotation accepts; None for everything."""
    if annotation is inspect.Parameter.empty:
        return None
    if isinstance(annotation, str):
        try:
            annotation = eval(annotation, inspect.unwrap(function).__globals__)
        except NameError:  # a name for type checkers only
            return None
    return _expected(annotation)


def _expected(hint: Any) -> _Expected | None:
    if hint is None or hint is python_types.NoneType:
        return _Expected(lambda value: value is None, ("None",))
    if hint in _SCALARS:
        return _of_type(_SCALARS[hint])
    if isinstance(hint, type) and not get_args(hint):
        return _instance(hint)
    rule = _GENERICS.get(get_origin(hint))
    return rule(get_args(hint)) if rule is not None else None


def _of_type(arg_type: ArgType) -> _Expected:
    def accepts(value: object) -> bool:
        try:
            arg_type.normalize(value)
        except Reject:
            return False
        return True

    return _Expected(accepts, (arg_type.allowed,), _PLURALS.get(arg_type.allowed, ""))


def _instance(kind: type) -> _Expected | None:
    if kind in (object, Any) or getattr(kind, "_is_protocol", False):
        return None
    if issubclass(kind, TensorLike):
        return _of_type(types.Tensor)
    article = "an" if kind.__name__[0] in "AEIO" else "a"
    return _Expected(lambda value: isinstance(value, kind), (f"{article} {kind.__name__}",), f"{kind.__name__}s")


def _union(hints: Sequence[Any]) -> _Expected | None:
    alternatives = [_expected(hint) for hint in hints]
    checkable = [each for each in alternatives if each is not None]
    if len(checkable) < len(alternatives):
        return None
    kinds = tuple(kind for each in checkable for kind in each.kinds)
    plural = " or ".join(dict.fromkeys(each.plural or each.text for each in checkable))
    return _Expected(lambda value: any(each.accepts(value) for each in checkable), kinds, plural)


def _literal(options: Sequence[Any]) -> _Expected:
    kinds = tuple(f'"{option}"' if isinstance(option, str) else repr(option) for option in options)
    return _Expected(lambda value: isinstance(value, (str, int, python_types.NoneType)) and value in options, kinds)


def _items(value: Any, item: _Expected | None) -> bool:
    most_items = 64  # Items of longer sequences and mappings are not looked at.
    return item is None or len(value) > most_items or all(item.accepts(each) for each in value)


def _sequence(hints: Sequence[Any]) -> _Expected:
    item = _expected(hints[0]) if hints else None

    def accepts(value: object) -> bool:
        if isinstance(value, (str, bytes, Mapping)) or not hasattr(value, "__len__") or not hasattr(value, "__iter__"):
            return False
        return _items(value, item)

    return _Expected(accepts, (f"a sequence{_of(item)}",), f"sequences{_of(item)}")


def _tuple(hints: Sequence[Any]) -> _Expected:
    if len(hints) == 2 and hints[1] is Ellipsis:
        return _sequence(hints[:1])
    items = [_expected(hint) for hint in hints]

    def accepts(value: object) -> bool:
        if not is_sequence(value) or len(value) != len(items):
            return False
        return all(item is None or item.accepts(each) for item, each in zip(items, value, strict=True))

    texts = [item.text if item is not None else "a value" for item in items]
    if len(set(texts)) == 1 and items[0] is not None and items[0].plural:
        return _Expected(accepts, (f"{len(items)} {items[0].plural}",))
    return _Expected(accepts, (f"({', '.join(texts)})",))


def _mapping(hints: Sequence[Any]) -> _Expected:
    key, item = (_expected(hint) for hint in hints)

    def accepts(value: Any) -> bool:
        return isinstance(value, Mapping) and _items(value, key) and _items(value.values(), item)

    return _Expected(accepts, (f"a dict{_of(item)}",), f"dicts{_of(item)}")


def _iterable(hints: Sequence[Any]) -> _Expected:
    """Items are not checked: a generator yields them only once."""
    item = _expected(hints[0]) if hints else None
    return _Expected(
        lambda value: hasattr(value, "__iter__") and not isinstance(value, (str, bytes)), (f"an iterable{_of(item)}",)
    )


def _of(item: _Expected | None) -> str:
    return f" of {item.plural or item.text}" if item is not None else ""


def _class(hints: Sequence[Any]) -> _Expected | None:
    (base,) = hints
    if not isinstance(base, type):
        return None
    return _Expected(
        lambda value: isinstance(value, type) and issubclass(value, base), (f"a subclass of {base.__name__}",)
    )


_GENERICS: Mapping[Any, Callable[[Sequence[Any]], _Expected | None]] = {
    Union: _union,
    python_types.UnionType: _union,
    Literal: _literal,
    Sequence: _sequence,
    list: _sequence,
    tuple: _tuple,
    Mapping: _mapping,
    dict: _mapping,
    Iterable: _iterable,
    Callable: lambda _: _Expected(callable, ("a function",), "functions"),
    type: _class,
    os.PathLike: lambda _: _Expected(lambda value: hasattr(value, "__fspath__"), ("a path",)),
}


def _described(value: object) -> str:
    if isinstance(value, TensorLike):
        return "a tensor"
    plain = (bool, int, float, complex, str, bytes, tuple, list, dict, type)
    return value_text(value) if value is None or issubclass(type(value), plain) else f"of class {type(value).__name__}"
