"""Types and symbolic sizes of our IR in Relax."""

from __future__ import annotations

from typing import Any

from meta.backend.tvm import adapter as tvm
from meta.dim import Dim, compute, names
from meta.errors import NotSupportedError
from meta.ir.type import FunctionType, TensorType, TupleType, Type, stored


def size_names(kind: Type) -> frozenset[str]:
    """The names that the sizes of a tensor are computed from."""
    return frozenset[str]().union(*map(names, kind.shape)) if isinstance(kind, TensorType) else frozenset()


def unsized(kind: TensorType) -> Any:
    """The Relax type of tensors of this rank and dtype."""
    kind = stored(kind)
    return tvm.TensorType(dtype=kind.dtype, ndim=kind.ndim)


class RelaxTypes:
    """Types in one Relax function, in which the name of a symbolic size is one variable.

    hidden: sizes that only the body of the function knows, which its signature cannot name."""

    def __init__(self, hidden: frozenset[str] = frozenset()) -> None:
        self._variables: dict[str, Any] = {}
        self._hidden = hidden

    def dim(self, value: Dim) -> Any:
        """An `int`, or the TVM expression of a symbolic size."""
        if isinstance(value, int):
            return value
        return compute(value, self._variable, lambda number: tvm.IntImm("int64", number), tvm.tirx.floordiv)

    def shape(self, dims: tuple[Dim, ...]) -> list[Any]:
        return [self.dim(d) for d in dims]

    def result_type(self, kind: Type) -> Any:
        """The Relax type of what the function returns."""
        if isinstance(kind, TupleType):
            return tvm.TupleType([self.result_type(field) for field in kind.fields])
        if isinstance(kind, TensorType) and not self._hidden.isdisjoint(size_names(kind)):
            return unsized(kind)
        return self.type(kind)

    def type(self, kind: Type) -> Any:
        """The Relax type; raises NotSupportedError for functions and values without a run-time form."""
        match kind:
            case TensorType():
                kind = stored(kind)
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

    def _variable(self, name: str) -> Any:
        return self._variables.setdefault(name, tvm.Var(name, "int64"))
