"""Sizes and types of our IR as Relax expressions."""

from __future__ import annotations

import ast
from typing import Any

from meta.errors import NotSupportedError
from meta.ir.dim import Dim, SymDim
from meta.ir.type import FunctionType, TensorType, TupleType, Type
from meta.op.dialect.tvm import _adapter as tvm


def names(kind: Type) -> set[str]:
    """The names of the sizes of a tensor."""
    if not isinstance(kind, TensorType):
        return set()
    return {atom for d in kind.shape if isinstance(d, SymDim) for term, _ in d.terms for atom in term}


def unknown(kind: TensorType) -> Any:
    """The Relax type of tensors of this rank and dtype."""
    return tvm.TensorType(dtype=kind.dtype, ndim=kind.ndim)


class Sizes:
    """The symbolic sizes of one Relax function: each name is one variable of it.

    hidden: sizes that only the body of the function knows, which its signature cannot name."""

    def __init__(self, hidden: frozenset[str] = frozenset()) -> None:
        self._variables: dict[str, Any] = {}
        self._hidden = hidden

    def dim(self, value: Dim) -> Any:
        """An `int`, or the TVM expression of a polynomial."""
        if not isinstance(value, SymDim):
            return value
        total: Any = None
        for monomial, coefficient in value.terms:
            term: Any = tvm.IntImm("int64", coefficient)
            for atom in monomial:
                term = self._atom(atom) if isinstance(term, tvm.IntImm) and int(term) == 1 else term * self._atom(atom)
            total = term if total is None else total + term
        return total

    def shape(self, dims: tuple[Dim, ...]) -> list[Any]:
        return [self.dim(d) for d in dims]

    def result(self, kind: Type) -> Any:
        """The Relax type of what the function returns."""
        if isinstance(kind, TupleType):
            return tvm.TupleType([self.result(field) for field in kind.fields])
        if isinstance(kind, TensorType) and not self._hidden.isdisjoint(names(kind)):
            return unknown(kind)
        return self.type(kind)

    def type(self, kind: Type) -> Any:
        """The Relax type; raises NotSupportedError for functions and values without a run-time form."""
        match kind:
            case TensorType():
                return tvm.TensorType(self.shape(kind.shape), kind.dtype)
            case TupleType():
                return tvm.TupleType([self.type(field) for field in kind.fields])
            case FunctionType():
                raise NotSupportedError(
                    "vm",
                    f"a function of type {kind!r} is passed as a value",
                    "functions that are called where they are defined",
                    "inline it",
                )
            case _:
                raise NotSupportedError("vm", f"{kind!r} has no run-time form", "tensors and tuples of them")

    def _atom(self, name: str) -> Any:
        if name.isidentifier():
            return self._variables.setdefault(name, tvm.Var(name, "int64"))
        return self._quotient(ast.parse(name, mode="eval").body)

    def _quotient(self, node: ast.expr) -> Any:
        """The printed form of an opaque quotient, `((n + 1)//(2))`: sums, products, differences and floor divisions."""
        match node:
            case ast.Name(id=name):
                return self._atom(name)
            case ast.Constant(value=int() as number):
                return tvm.IntImm("int64", number)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self._quotient(operand)
            case ast.BinOp(left=left, op=op, right=right):
                a, b = self._quotient(left), self._quotient(right)
                return a + b if isinstance(op, ast.Add) else a - b if isinstance(op, ast.Sub) else (
                    a * b if isinstance(op, ast.Mult) else tvm.tirx.floordiv(a, b)
                )  # fmt: skip
            case _:
                raise NotSupportedError("vm", f"the size {ast.unparse(node)}", "+, -, * and // of named sizes")
