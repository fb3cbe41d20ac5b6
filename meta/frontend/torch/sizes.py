"""Sizes of torch as sizes of meta: expressions of SymPy over symbols."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from types import MappingProxyType
from typing import Any

from meta.dim import Dim, SymDim, is_name, maximum, minimum, sym
from meta.frontend.torch.errors import UnsupportedError


def dim_of(size: Any, names: Mapping[str, str] = MappingProxyType({})) -> Dim:
    """A size of torch (an int or a SymInt) as one of meta. names: of symbols in place of torch's.

    Raises UnsupportedError for an expression that no polynomial with floor divisions expresses."""
    if isinstance(size, (int, SymDim)):
        return size
    expression = getattr(getattr(size, "node", None), "expr", size)
    return of_expression(expression, names)


def of_expression(expression: Any, names: Mapping[str, str] = MappingProxyType({})) -> Dim:
    """An expression of SymPy as a size. Raises UnsupportedError as `dim_of` does."""
    if getattr(expression, "is_Integer", False):
        return int(expression)
    if getattr(expression, "is_Symbol", False):
        return named(names.get(str(expression), str(expression)))
    convert = FUNCTIONS.get(type(expression).__name__)
    if convert is None:
        raise _unsupported(expression)
    result: Any = convert(*(of_expression(part, names) for part in expression.args))
    if result is None:
        raise _unsupported(expression)
    return result


def named(name: str) -> Dim:
    """The size that torch calls `name`. Raises UnsupportedError for a name that IR text cannot hold."""
    if not is_name(name):
        raise UnsupportedError("torch", f"a symbolic size is called {name[:80]!r}", "a name such as s0")
    return sym(name)


def modulo(a: Dim, b: Dim) -> Dim:
    """The remainder of a floor division."""
    return a - (a // b) * b


def power(base: Dim, exponent: object) -> Any:
    """`base` to a constant, non-negative exponent; None for others."""
    if not isinstance(exponent, int) or not 0 <= exponent <= _MAX_EXPONENT:
        return None
    return _product(*[base] * exponent)


_MAX_EXPONENT = 16


def _sum(*terms: Dim) -> Dim:
    total: Dim = 0
    for term in terms:
        total = total + term
    return total


def _product(*factors: Dim) -> Dim:
    total: Dim = 1
    for factor in factors:
        total = total * factor
    return total


def _quotient(a: Dim, b: Dim) -> Dim:
    return a // b


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Add": _sum, "Mul": _product, "Pow": power, "PowByNatural": power, "FloorDiv": _quotient, "CleanDiv": _quotient,
    "Mod": modulo, "PythonMod": modulo, "ModularIndexing": lambda a, b, c: modulo(a // b, c),
    "Min": lambda *sizes: reduce(minimum, sizes), "Max": lambda *sizes: reduce(maximum, sizes),
}  # fmt: skip
"""SymPy's and torch's classes of expressions."""


def _unsupported(expression: object) -> UnsupportedError:
    return UnsupportedError(
        "torch",
        f"a size is {str(expression)[:200]}",
        "sums, products, floor divisions and remainders of sizes",
        remedy="export with static sizes there",
    )
