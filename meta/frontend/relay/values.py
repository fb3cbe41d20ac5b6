"""What Relay expressions stand for while they are converted: tensors of the program being built, or things that are
known at conversion and leave no trace in it (tuples, closures, data, references)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from meta.frontend.relay import ast
from meta.ir.expr import Constant
from meta.tracing.symbol import Symbol

Value = Any
"""A Symbol, a tuple of Values, or one of the classes below; ast.OpRef and ast.ConstructorRef stand for themselves."""


class Frame:
    """Values of variables and of nodes evaluated so far, and the frame around this one. A function call and a branch
    of a conditional have frames of their own."""

    __slots__ = ("known", "parent")

    def __init__(self, parent: Frame | None = None) -> None:
        self.known: dict[Any, Value] = {}
        self.parent = parent

    def has(self, node: Any) -> bool:
        frame: Frame | None = self
        while frame is not None:
            if node in frame.known:
                return True
            frame = frame.parent
        return False

    def get(self, node: Any) -> Value:
        """The value of a node that `has` knows."""
        frame: Frame | None = self
        while frame is not None:
            if node in frame.known:
                return frame.known[node]
            frame = frame.parent
        raise KeyError(node)


@dataclass(frozen=True, slots=True, eq=False)
class Closure:
    """A function and what it sees. name: of a function of the module.  recursive: whether it calls itself."""

    function: ast.Function
    frame: Frame | None
    name: str = ""
    recursive: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Data:
    """A value of an algebraic data type."""

    constructor: str
    fields: tuple[Value, ...]


@dataclass(slots=True, eq=False)
class Ref:
    """A reference: a cell whose content changes as conversion goes on, in the order in which the program runs."""

    value: Value


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """One of two values by a tensor. Both are computed; whoever takes the value apart does so for both."""

    condition: Symbol
    then: Value
    otherwise: Value


class OpaqueError(Exception):
    """A value that no tensors stand for."""

    def __init__(self, value: Value) -> None:
        super().__init__()
        self.value = value


def leaves(value: Value) -> list[Symbol]:
    """The tensors of nested tuples, in order. Raises OpaqueError when there is something else."""
    out: list[Symbol] = []
    _collect(value, out)
    return out


def _collect(value: Value, out: list[Symbol]) -> None:
    if isinstance(value, Symbol):
        out.append(value)
    elif isinstance(value, tuple):
        for field in value:  # pyright: ignore[reportUnknownVariableType]
            _collect(field, out)
    else:
        raise OpaqueError(value)


def is_tensors(value: Value) -> bool:
    """Whether a value is a tensor or nested tuples of them."""
    try:
        leaves(value)
    except OpaqueError:
        return False
    return True


def rebuilt(like: Value, items: Iterator[Any]) -> Value:
    """Nested tuples of the form of `like` with `items` as tensors."""
    return tuple(rebuilt(field, items) for field in like) if isinstance(like, tuple) else next(items)  # pyright: ignore[reportUnknownVariableType]


def number(value: Symbol) -> int | float | bool | None:
    """The value of a constant without axes, None for any other tensor."""
    atom = value.atom
    return atom.value.item() if isinstance(atom, Constant) and atom.type.ndim == 0 else None


def describe(value: Value) -> str:
    """What a value is, for errors."""
    match value:
        case Symbol():
            return f"a tensor {value.type!r}"
        case tuple():
            return "a tuple"
        case Closure():
            return f"the function @{value.name}" if value.name else "a function"
        case Data():
            return f"a value of an algebraic data type, {value.constructor}(...)"
        case Ref():
            return "a reference"
        case Choice():
            return "a value that depends on a condition"
        case _:
            return f"{getattr(value, 'name', value)!r}"
