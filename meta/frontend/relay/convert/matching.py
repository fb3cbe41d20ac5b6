"""Matches of values against patterns."""

from __future__ import annotations

from meta.frontend.relay import ast
from meta.frontend.relay.convert.values import Data, Value, describe
from meta.frontend.relay.errors import UnsupportedError, located


def matches(pattern: ast.Pattern, value: Value, bound: dict[ast.Expr, Value], place: ast.Place) -> bool:
    """Whether a value fits a pattern; adds the variables of the pattern to `bound`."""
    match pattern:
        case ast.WildcardPattern():
            return True
        case ast.VarPattern():
            bound[pattern.var] = value
            return True
        case ast.TuplePattern() if isinstance(value, tuple):
            fields: tuple[Value, ...] = value  # pyright: ignore[reportUnknownVariableType]
            return len(fields) == len(pattern.fields) and _all_match(pattern.fields, fields, bound, place)
        case ast.ConstructorPattern():
            data = Data(value.name, ()) if isinstance(value, ast.ConstructorRef) else value
            if not isinstance(data, Data):
                problem = f"a match on {describe(value)} against the constructor {pattern.constructor}"
                raise UnsupportedError("relay", located(place, problem), "a value whose constructor is known")
            same = data.constructor == pattern.constructor
            return same and _all_match(pattern.fields, data.fields, bound, place)
        case _:
            return False


def _all_match(
    patterns: tuple[ast.Pattern, ...], values: tuple[Value, ...], bound: dict[ast.Expr, Value], place: ast.Place
) -> bool:
    return all(matches(p, v, bound, place) for p, v in zip(patterns, values, strict=False))
