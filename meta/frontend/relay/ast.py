"""The syntax tree of Relay programs, which the readers produce and the converter reads.

Expressions form a graph: an expression that a program uses several times (`%0` in text) is one object, compared by
identity.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias, get_args

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a program: line and column of the text, from 1; for JSON, line 0 and the number of the node."""

    line: int
    column: int

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}" if self.line else f"node {self.column}"


NOWHERE = Place(0, 0)


# --- types -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TensorType:
    """A tensor, also a scalar (`shape` empty). A dimension is an int, None for `?`, or the name of a type parameter."""

    shape: tuple[int | str | None, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class TupleType:
    fields: tuple[Type, ...]


@dataclass(frozen=True, slots=True)
class FuncType:
    params: tuple[Type, ...]
    result: Type
    type_params: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RefType:
    value: Type


@dataclass(frozen=True, slots=True)
class NamedType:
    """A type parameter, or an algebraic data type with its arguments."""

    name: str
    args: tuple[Type, ...] = ()


@dataclass(frozen=True, slots=True)
class UnknownType:
    """A type that the program leaves to inference."""


Type: TypeAlias = TensorType | TupleType | FuncType | RefType | NamedType | UnknownType
TYPES = get_args(Type)
UNKNOWN_TYPE = UnknownType()


# --- attributes ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Opaque:
    """An object in an attribute that has no class here, by Relay's name of its class: "Target"."""

    kind: str


Attribute: TypeAlias = (
    "bool | int | float | str | tuple[Attribute, ...] | Mapping[str, Attribute] | Constant | Opaque | None"
)
"""Values of attributes. Lists are tuples; attribute objects (`meta[relay.attrs.ScanopAttrs][0]`) are merged into the
attributes of their call; empty strings and null objects that mean "not set" are None."""

Attributes: TypeAlias = "Mapping[str, Attribute]"


# --- expressions -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Var:
    """A local variable or parameter; variables of one name differ by identity."""

    name: str
    type: Type = field(default_factory=UnknownType)
    place: Place = NOWHERE


@dataclass(frozen=True, slots=True, eq=False)
class GlobalVar:
    """A function of the module, by name without `@`."""

    name: str
    place: Place = NOWHERE


@dataclass(frozen=True, slots=True, eq=False)
class OpRef:
    """An operator, by Relay's name: "nn.dense"."""

    name: str
    place: Place = NOWHERE


@dataclass(frozen=True, slots=True, eq=False)
class ConstructorRef:
    """A constructor of an algebraic data type."""

    name: str
    place: Place = NOWHERE


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """A tensor; `dtype` is Relay's name, which NumPy may lack (bfloat16 is kept as uint16 words)."""

    value: np.ndarray[Any, Any]
    dtype: str
    place: Place = NOWHERE


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """A call of an operator, a constructor or any function. `attrs` is empty for all but operators."""

    callee: Expr
    args: tuple[Expr, ...]
    attrs: Attributes = field(default_factory=dict[str, "Attribute"])
    place: Place = NOWHERE


@dataclass(frozen=True, slots=True, eq=False)
class Tuple:
    fields: tuple[Expr, ...]
    place: Place = NOWHERE


@dataclass(frozen=True, slots=True, eq=False)
class TupleGetItem:
    value: Expr
    index: int
    place: Place = NOWHERE


@dataclass(frozen=True, slots=True, eq=False)
class Let:
    """`let var = value; body`: value is evaluated once, before body. A chain of them nests through `body`."""

    var: Var
    value: Expr
    body: Expr
    place: Place = NOWHERE


@dataclass(frozen=True, slots=True, eq=False)
class If:
    condition: Expr
    then: Expr
    otherwise: Expr
    place: Place = NOWHERE


@dataclass(frozen=True, slots=True, eq=False)
class RelayFunction:
    """A function, also a closure over variables around it. `attrs` has `Primitive`, `Composite` and the like."""

    params: tuple[Var, ...]
    body: Expr
    result: Type = field(default_factory=UnknownType)
    type_params: tuple[str, ...] = ()
    attrs: Attributes = field(default_factory=dict[str, "Attribute"])
    place: Place = NOWHERE


@dataclass(frozen=True, slots=True, eq=False)
class RefCreate:
    value: Expr
    place: Place = NOWHERE


@dataclass(frozen=True, slots=True, eq=False)
class RefRead:
    ref: Expr
    place: Place = NOWHERE


@dataclass(frozen=True, slots=True, eq=False)
class RefWrite:
    ref: Expr
    value: Expr
    place: Place = NOWHERE


@dataclass(frozen=True, slots=True, eq=False)
class WildcardPattern:
    pass


@dataclass(frozen=True, slots=True, eq=False)
class VarPattern:
    var: Var


@dataclass(frozen=True, slots=True, eq=False)
class ConstructorPattern:
    constructor: str
    fields: tuple[Pattern, ...]


@dataclass(frozen=True, slots=True, eq=False)
class TuplePattern:
    fields: tuple[Pattern, ...]


Pattern: TypeAlias = WildcardPattern | VarPattern | ConstructorPattern | TuplePattern
PATTERNS = get_args(Pattern)


@dataclass(frozen=True, slots=True, eq=False)
class Match:
    """The body of the first clause whose pattern fits. `complete` is False for `match?`."""

    value: Expr
    clauses: tuple[tuple[Pattern, Expr], ...]
    complete: bool = True
    place: Place = NOWHERE


Expr: TypeAlias = (
    Var
    | GlobalVar
    | OpRef
    | ConstructorRef
    | Constant
    | Call
    | Tuple
    | TupleGetItem
    | Let
    | If
    | RelayFunction
    | RefCreate
    | RefRead
    | RefWrite
    | Match
)
EXPRESSIONS = get_args(Expr)


# --- modules ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Constructor:
    name: str
    fields: tuple[Type, ...]


@dataclass(frozen=True, slots=True, eq=False)
class TypeDefinition:
    """An algebraic data type."""

    name: str
    type_params: tuple[str, ...]
    constructors: tuple[Constructor, ...]
    place: Place = NOWHERE


@dataclass(frozen=True, slots=True, eq=False)
class RelayProgram:
    """A Relay module: functions by name without `@` (the entry is "main"), and data types by name."""

    functions: Mapping[str, RelayFunction]
    types: Mapping[str, TypeDefinition]
