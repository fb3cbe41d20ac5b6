"""The models that a function uses: in its closure, in the globals that it names, and in what these hold."""

from __future__ import annotations

import dis
import functools
from collections import Counter
from collections.abc import Iterator
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from meta.model.model import Model
from meta.tracing import Traced
from meta.tree import is_dict, is_sequence

_WIDEST = 1000
"""Items of the largest list or dict that is searched; larger ones are data."""
_PACKAGE = __name__.partition(".")[0]


def models_around(function: object) -> list[tuple[str, Model]]:
    """Each model that `function` uses once, with the name of the variable or attribute that holds it; several of one
    name are numbered."""
    found: dict[int, tuple[str, Model]] = {}
    counts: Counter[str] = Counter()
    seen: set[int] = set()
    pending: list[tuple[str, Any]] = [("", function)]
    while pending:
        name, value = pending.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, Model):
            counts[name] += 1
            found[id(value)] = name if counts[name] == 1 else f"{name}{counts[name]}", value
        else:
            pending += [*_parts(name, value)][::-1]
    return list(found.values())


def _parts(name: str, value: object) -> Iterator[tuple[str, Any]]:
    """The values that a function, container or object refers to."""
    if isinstance(value, MethodType):
        yield name, value.__self__
        yield name, value.__func__
    elif isinstance(value, functools.partial):
        yield from ((name, part) for part in (value.func, *value.args, *value.keywords.values()))
    elif isinstance(value, Traced):
        yield name, value.function
    elif isinstance(value, FunctionType):
        if not _is_own(value.__module__):
            yield from _variables(value)
    elif is_sequence(value) or is_dict(value):
        items = value.values() if is_dict(value) else value
        if len(items) <= _WIDEST:
            yield from ((name, item) for item in items)
    elif not isinstance(value, (type, ModuleType)) and not _is_own(type(value).__module__):
        yield from getattr(value, "__dict__", {}).items()


def _variables(function: FunctionType) -> Iterator[tuple[str, Any]]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    yield from (
        (name, function.__globals__[name]) for name in _names(function.__code__) if name in function.__globals__
    )
    yield from (("", value) for value in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()))
    wrapped = getattr(function, "__wrapped__", None)
    if wrapped is not None:
        yield "", wrapped


def _names(code: CodeType) -> Iterator[str]:
    """The globals that a function and the functions in it read."""
    yield from (str(i.argval) for i in dis.get_instructions(code) if i.opname in ("LOAD_GLOBAL", "LOAD_NAME"))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _is_own(module: str | None) -> bool:
    return (module or "").partition(".")[0] in (_PACKAGE, "numpy", "torch", "builtins")
