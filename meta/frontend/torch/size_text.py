"""Sizes in a `.pt2` file: text that SymPy prints, such as `Mul(Integer(2), Symbol('s77', positive=True))`.

torch evaluates it; here Python's parser reads it, and the few forms that sizes have are converted."""

from __future__ import annotations

import ast
from typing import Any

from meta.dim import Dim
from meta.errors import MetaError
from meta.frontend.torch.fields import bad_file
from meta.frontend.torch.sizes import FUNCTIONS, named
from meta.limits import MAX_DIMENSION

_LONGEST = 4096
_BINARY: dict[type[ast.operator], str] = {
    ast.Add: "Add", ast.Mult: "Mul", ast.FloorDiv: "FloorDiv", ast.Mod: "Mod", ast.Pow: "Pow",
}  # fmt: skip


def parse_size(source: str, where: str) -> Dim:
    """The size that a text describes. where: the place in errors.

    Raises TorchProgramError for other text, and UnsupportedError for expressions that meta's sizes lack."""
    if len(source) > _LONGEST:
        raise bad_file(where, f"a size of {len(source)} characters", f"at most {_LONGEST}")
    try:
        tree = ast.parse(source.strip(), mode="eval").body
        size = _size(tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError, ArithmeticError, TypeError) as error:
        if isinstance(error, MetaError):
            raise
        raise bad_file(where, f"the size {source[:80]!r}", "an expression of sizes") from error
    return size


def _size(node: ast.expr) -> Any:
    """The value of an expression, bounded at every step."""
    value = _value(node)
    if value is None or (isinstance(value, int) and abs(value) > MAX_DIMENSION):
        raise ValueError("no size")
    return value


def _value(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=int() as value) if not isinstance(value, bool):
            return value
        case ast.Name(id=name):
            return named(name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_size(operand)
        case ast.BinOp(left=left, op=ast.Sub(), right=right):
            return _size(left) - _size(right)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return FUNCTIONS[_BINARY[type(op)]](_size(left), _size(right))
        case ast.Call(func=function, args=args):
            return _call(_name(function), args)
        case _:
            raise ValueError("no size")


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _call(name: str, args: list[ast.expr]) -> Any:
    """A constructor of SymPy or a function of torch; the keywords of symbols say what all sizes are."""
    if name == "Symbol" and len(args) == 1 and isinstance(args[0], ast.Constant) and isinstance(args[0].value, str):
        return named(args[0].value)
    if name == "Integer" and len(args) == 1:
        return _size(args[0])
    if name not in FUNCTIONS:
        raise ValueError("no size")
    return FUNCTIONS[name](*map(_size, args))
