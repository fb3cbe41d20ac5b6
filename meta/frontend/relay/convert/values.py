"""Values of Relay expressions during conversion: tensors of the program being built, and tuples, closures, data and
references, which exist during conversion only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from meta.frontend.relay import ast
from meta.frontend.relay.errors import UnsupportedError, located
from meta.ir.expr import Constant
from meta.tracing.symbol import Symbol
from meta.tree import leaves_of

Value = Any
"""A Symbol, a tuple of Values, an instance of a class below, or an ast.OpRef or ast.ConstructorRef."""


class Frame:
    """Values of variables and of evaluated nodes, and the enclosing frame. Each function call and each branch of a
    conditional has a frame."""

    __slots__ = ("parent", "values")

    def __init__(self, parent: Frame | None = None) -> None:
        self.values: dict[Any, Value] = {}
        self.parent = parent

    def has(self, node: Any) -> bool:
        frame: Frame | None = self
        while frame is not None:
            if node in frame.values:
                return True
            frame = frame.parent
        return False

    def get(self, node: Any) -> Value:
        """The value of a node. Raises KeyError for nodes without one."""
        frame: Frame | None = self
        while frame is not None:
            if node in frame.values:
                return frame.values[node]
            frame = frame.parent
        raise KeyError(node)


@dataclass(frozen=True, slots=True, eq=False)
class RelayClosure:
    """A function and its enclosing frame. name: of a function of the module.  recursive: whether it calls itself."""

    function: ast.RelayFunction
    frame: Frame | None
    name: str = ""
    recursive: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Data:
    """A value of an algebraic data type."""

    constructor: str
    fields: tuple[Value, ...]


@dataclass(slots=True, eq=False)
class ReferenceCell:
    """A reference: a cell that conversion writes in the order in which the program would."""

    value: Value


@dataclass(frozen=True, slots=True, eq=False)
class ValueChoice:
    """One of two values, selected by a tensor when the program runs. Uses of it are evaluated for both."""

    condition: Symbol
    then: Value
    otherwise: Value


class Unconverted:
    """The value of a call that cannot be converted. Uses of it are skipped, so that one error lists all such calls."""

    name = "a value that cannot be converted"


UNCONVERTED = Unconverted()


class OpaqueError(Exception):
    """A value that is neither a tensor nor nested tuples of tensors."""

    def __init__(self, value: Value) -> None:
        super().__init__()
        self.value = value


def leaves(value: Value) -> list[Symbol]:
    """The tensors of nested tuples, in order. Raises OpaqueError for any other value among them."""
    tensors = list(leaves_of(value))
    for leaf in tensors:
        if not isinstance(leaf, Symbol):
            raise OpaqueError(leaf)
    return tensors


def is_tensors(value: Value) -> bool:
    """Whether a value is a tensor or nested tuples of them."""
    try:
        leaves(value)
    except OpaqueError:
        return False
    return True


def check_tensors(value: Value, place: ast.Place, subject: str) -> None:
    """Raise UnsupportedError, about `subject`, unless a value consists of tensors."""
    try:
        leaves(value)
    except OpaqueError as error:
        problem = located(place, f"{subject} holds {describe(error.value)}")
        raise UnsupportedError("relay", problem, "tensors and tuples of them") from None


def scalar_value(value: Symbol) -> int | float | bool | None:
    """The value of a constant without axes, None for any other tensor."""
    atom = value.atom
    return atom.value.item() if isinstance(atom, Constant) and atom.type.ndim == 0 else None


def describe(value: Value) -> str:
    """A noun phrase for a value, for error texts."""
    match value:
        case Symbol():
            return f"a tensor {value.type!r}"
        case tuple():
            return "a tuple"
        case RelayClosure():
            return f"the function @{value.name}" if value.name else "a function"
        case Data():
            return f"a value of an algebraic data type, {value.constructor}(...)"
        case ReferenceCell():
            return "a reference"
        case ValueChoice():
            return "a value that depends on a condition"
        case _:
            return f"{getattr(value, 'name', value)!r}"


def identifier(name: str) -> str:
    """A name with the characters replaced that IR text does not allow."""
    text = "".join(c if c.isascii() and (c.isalnum() or c in "_.") else "_" for c in name)
    return text if text[:1].isalpha() or text[:1] == "_" else f"p{text}"
