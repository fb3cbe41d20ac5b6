"""Actions of the grammar's rules for attributes and types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

from meta.errors import did_you_mean
from meta.frontend.relay import ast
from meta.frontend.relay.dtypes import NUMPY_DTYPES, is_dtype, none_if_empty, plain_attribute
from meta.frontend.relay.errors import RelayError
from meta.frontend.relay.text import literal
from meta.limits import MAX_DIMENSION, MAX_DIMENSIONS, MAX_NESTING

Token = Any
"""lark.Token: a str with type, line and column."""

Metadata = Callable[[str, int], Any]
"""The value of `meta[key][index]`: a constant, attributes, a value or a type; raises RelayError without that entry."""

_MAX_PROBLEM = 300


class Pair(NamedTuple):
    """An attribute of a call or a function, or an entry of a mapping."""

    name: str
    value: Any


def token_place(token: Token) -> ast.Place:
    return ast.Place(token.line, token.column)


class MistakeError(Exception):
    """A mistake at a line and column, which passes through lark; the reader raises RelaySyntaxError for it."""

    def __init__(self, line: int, column: int, problem: str, expected: str, remedy: str) -> None:
        super().__init__(problem)
        self.line, self.column = line, column
        self.parts = problem, expected, remedy


class ValueActions:
    """Actions for attributes and types. `depth` counts constructs that nest without brackets."""

    def __init__(self, metadata: Metadata) -> None:
        self.lookup = metadata
        self.depth: int = 0

    def fail(self, token: Token, problem: str, expected: str = "", remedy: str = "") -> NoReturn:
        raise MistakeError(token.line, token.column, problem[:_MAX_PROBLEM], expected, remedy)

    def entry_of_metadata(self, token: Token) -> Any:
        """The entry that a token such as `meta[relay.Constant][0]` names."""
        key, _, index = token[5:-1].partition("][")
        try:
            return self.lookup(key.strip("'\""), int(index) if len(index) < 10 else -1)
        except RelayError as error:
            self.fail(token, error.problem, error.expected, error.remedy)

    # --- attributes ---

    def attribute(self, children: list[Any]) -> Pair:
        name, value = children
        return Pair(str(name), none_if_empty(value))

    def number_value(self, children: list[Token]) -> int | float:
        try:
            return literal.number(str(children[0]))[0]
        except literal.LiteralError as error:
            self.fail(children[0], str(error))

    def boolean_value(self, children: list[Token]) -> bool:
        return children[0] == "True"

    def none(self, _: list[Token]) -> None:
        return None

    def string(self, children: list[Token]) -> str:
        return literal.string(children[0])

    def word(self, children: list[Token]) -> str:
        return str(children[0])

    def function_name(self, children: list[Token]) -> str:
        return children[0][1:]

    def metadata_value(self, children: list[Token]) -> Any:
        value = self.entry_of_metadata(children[0])
        if isinstance(value, ast.Constant):
            return ast.Constant(value.value, value.dtype, token_place(children[0]))
        return plain_attribute(value)

    def sequence(self, children: list[Any]) -> tuple[Any, ...]:
        return tuple(children)

    def mapping(self, children: list[Pair]) -> dict[str, Any]:
        return dict(children)

    def entry(self, children: list[Any]) -> Pair:
        key, value = children
        return Pair(literal.string(key) if key.type in ("STRING", "QUOTED") else str(key), value)

    # --- types ---

    def arrow(self, children: list[Token]) -> None:
        """Function types nest to their right, without brackets around them."""
        self.depth += 1
        if self.depth > MAX_NESTING:
            self.fail(children[0], f"function types nested {self.depth} deep", f"at most {MAX_NESTING}")

    def named_type(self, children: list[Token]) -> ast.Type:
        name = children[0]
        return ast.TensorType((), str(name)) if is_dtype(name) else ast.NamedType(str(name))

    def applied_type(self, children: list[Any]) -> ast.Type:
        return ast.NamedType(str(children[0]), tuple(each for each in children[1:] if each is not None))

    def tensor_type(self, children: list[Any]) -> ast.Type:
        shape, dtype = children
        if len(shape) > MAX_DIMENSIONS:
            self.fail(dtype, f"a tensor of {len(shape)} dimensions", f"at most {MAX_DIMENSIONS}")
        if not is_dtype(dtype):
            self.fail(
                dtype,
                f"unknown dtype {dtype}",
                "a dtype such as float32, int64 or bool",
                did_you_mean(dtype[:40], NUMPY_DTYPES),
            )
        return ast.TensorType(shape, str(dtype))

    def shape(self, children: list[Any]) -> tuple[int | str | None, ...]:
        return tuple(children)

    def size(self, children: list[Token]) -> int:
        value = self.number_value(children)
        if not isinstance(value, int) or not 0 <= value <= MAX_DIMENSION:
            self.fail(children[0], f"{children[0][:40]} is not a size", "an integer from 0, ? or a name")
        return value

    def any_dimension(self, _: list[Any]) -> None:
        return None

    def named_dimension(self, children: list[Token]) -> str:
        return str(children[0])

    def metadata_dimension(self, children: list[Token]) -> int | str | None:
        value = self.entry_of_metadata(children[0])
        return value if isinstance(value, (int, str)) and not isinstance(value, bool) else None

    def tuple_type(self, children: list[Any]) -> ast.Type:
        return ast.TupleType(children[0])

    def types(self, children: list[Any]) -> tuple[ast.Type, ...]:
        return tuple(each for each in children if each is not None)

    def function_type(self, children: list[Any]) -> ast.Type:
        type_params, params, _, result, *_ = children
        self.depth -= 1
        return ast.FuncType(params, result, type_params or ())

    def constraint(self, _: list[Any]) -> None:
        """Relations between types are ignored: they do not change the result."""

    def reference_type(self, children: list[Any]) -> ast.Type:
        return ast.RefType(children[0])

    def unknown_type(self, _: list[Any]) -> ast.Type:
        return ast.UNKNOWN_TYPE

    def metadata_type(self, children: list[Token]) -> ast.Type:
        value = self.entry_of_metadata(children[0])
        return value if isinstance(value, ast.TYPES) else ast.UNKNOWN_TYPE
