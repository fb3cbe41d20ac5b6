"""Sizes of Relax, which are integer expressions of TVM, as sizes of meta."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from meta.dim import Dim, is_name, maximum, minimum, sym, truncated_quotient
from meta.errors import MetaError
from meta.frontend.examination import UnsupportedProgramError
from meta.limits import MAX_DEPTH


class RelaxError(MetaError, ValueError):
    """A Relax program, or its parameters, that cannot be converted."""


class UnsupportedError(RelaxError, UnsupportedProgramError):
    """A program with something that meta lacks."""


Sizes = Mapping[Any, Dim]
"""A variable of TVM -> its size."""


class Shape(tuple[Dim, ...]):
    """A shape as a value of a program."""

    __slots__ = ()


class Float(float):
    """A floating number as a value of a program. dtype: of it."""

    __slots__ = ("dtype",)

    def __new__(cls, value: float, dtype: str) -> Float:
        self = super().__new__(cls, value)
        self.dtype = dtype
        return self


def dim_of(expression: Any, sizes: Sizes) -> Dim:
    """An expression as a size. Raises UnsupportedError for other than polynomials, floor divisions and minima, KeyError
    for a variable without a size."""
    return _converted(expression, sizes, 0)


def _converted(expression: Any, sizes: Sizes, depth: int) -> Dim:
    if isinstance(expression, int):
        return expression
    kind = type(expression).__name__
    if kind == "IntImm":
        return int(expression.value)
    if kind in ("Var", "SizeVar"):
        return sizes[key(expression)]
    if kind == "Cast":
        return _converted(expression.value, sizes, depth + 1)
    function = _FUNCTIONS.get(kind)
    if function is None or depth > MAX_DEPTH:
        raise UnsupportedError("relax", f"a size is {str(expression)[:200]}",
                               "sums, products, floor divisions and remainders of sizes",
                               remedy="fix the sizes: shapes={...}")  # fmt: skip
    return function(_converted(expression.a, sizes, depth + 1), _converted(expression.b, sizes, depth + 1))


_FUNCTIONS: dict[str, Callable[[Dim, Dim], Dim]] = {
    "Add": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mul": lambda a, b: a * b,
    "FloorDiv": lambda a, b: a // b,
    "Div": truncated_quotient,
    "FloorMod": lambda a, b: a - (a // b) * b,
    "Mod": lambda a, b: a - truncated_quotient(a, b) * b,
    "Min": minimum,
    "Max": maximum,
}


def key(variable: object) -> int:
    """The key of a variable of TVM: `==` of two makes an expression, so that they cannot be keys."""
    return hash(variable)


def size_name(variable: object, sizes: Mapping[Any, Dim]) -> Dim:
    """A new symbolic size of the variable's name; with a number where another size has that name."""
    name = variable_name(variable)
    name = name if is_name(name) else "n"
    taken_names = {str(size) for size in sizes.values()}
    unique, count = name, 1
    while unique in taken_names:
        count += 1
        unique = f"{name}_{count}"
    return sym(unique)


def variable_name(variable: Any) -> str:
    """The name of a variable of Relax or TIR."""
    return str(variable.name)
