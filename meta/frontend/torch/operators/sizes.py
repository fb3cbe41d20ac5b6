"""Symbolic sizes of torch in a call, as sizes of meta and back."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from meta import dtype as dtypes
from meta.device import device
from meta.dim import Dim, SymDim, compute, names, unify
from meta.dim_expressions import SizeNumber
from meta.errors import MetaError, NotSupportedError
from meta.frontend.torch.errors import UnsupportedError
from meta.frontend.torch.sizes import of_expression
from meta.ir.type import TensorType, Type, tensor_type
from meta.op.registry import Op
from meta.tree import leaves_of, with_leaves

_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "add": operator.add, "subtract": operator.sub, "multiply": operator.mul, "divide": operator.truediv,
    "floor_divide": operator.floordiv, "mod": operator.mod, "power": operator.pow,
}  # fmt: skip
"""The arithmetic of `SizeNumber`."""
_NUMBERS: Mapping[type, float] = {SymDim: 1, SizeNumber: 1.0}


class Symbols:
    """The symbols of the tensors in a call, by name."""

    def __init__(self) -> None:
        self.by_name: dict[str, Any] = {}

    def dim(self, value: Any) -> Dim:
        """A size of torch. An expression that meta's sizes lack is fixed to its present value, by a guard."""
        if not isinstance(value, torch.SymInt):
            return value
        node: Any = value.node
        expression = node.expr
        try:
            out = of_expression(expression)
        except UnsupportedError:
            return int(value)
        for symbol in expression.free_symbols:
            if str(symbol) not in self.by_name:
                self.by_name[str(symbol)] = node.shape_env.create_symintnode(symbol, hint=None)
        return out

    def size(self, value: Any) -> Any:
        """A size of meta, or a number computed of sizes, as torch's; other values as they are. A size that no argument
        has is a new one."""
        if isinstance(value, SizeNumber):
            return _FUNCTIONS[value.function](*map(self.size, value.operands))
        if not isinstance(value, SymDim):
            return value
        for name in names(value) - self.by_name.keys():
            self.by_name[name] = torch.library.get_ctx().new_dynamic_size()
        return compute(value, self.by_name.__getitem__, int, operator.floordiv, torch.sym_min)

    def type(self, x: torch.Tensor) -> TensorType:
        """The type of a tensor. Raises NotSupportedError for a layout or dtype that meta lacks."""
        if x.layout is not torch.strided:
            raise NotSupportedError("torch", f"a tensor has the layout {x.layout}", "strided tensors", "x.to_dense()")
        return tensor_type(tuple(map(self.dim, x.shape)), dtypes.canonical(x.dtype, "torch"), _device(x.device))


def _device(where: torch.device) -> Any:
    """A device of torch; meta tensors count as on the CPU, for their types have to have one."""
    return device("cpu" if where.type in ("cpu", "meta") else str(where))


def infer(op: Op, args: tuple[Any, ...], symbols: Symbols) -> Type:
    """The result type of a call whose types may have symbolic sizes.

    Where the declaration compares two sizes, they are guarded to be equal; where it needs more than that, or they
    differ, all sizes of the call are fixed to their present values. Operands that are sizes count as the number 1: the
    type of a result depends on the class of a number."""
    args = tuple(
        _NUMBERS.get(type(value), value) if arg.type.role == "scalar" else value
        for arg, value in zip(op.schema.args, args, strict=True)
    )
    try:
        return op.infer(args)
    except MetaError:
        sizes = [d for t in _types(args) for d in t.shape] + [d for d in leaves_of(args) if isinstance(d, SymDim)]
        if not any(isinstance(d, SymDim) for d in sizes):
            raise
    try:
        with unify() as ties:
            out = op.infer(args)
            pairs = list(ties.items())
        if all(bool(symbols.size(a) == symbols.size(b)) for a, b in pairs):
            return out
    except MetaError:
        pass
    return op.infer(with_leaves(args, [_fixed(leaf, symbols) for leaf in leaves_of(args)]))


def _types(args: Iterable[Any]) -> tuple[TensorType, ...]:
    return tuple(leaf for leaf in leaves_of(tuple(args)) if isinstance(leaf, TensorType))


def _fixed(value: Any, symbols: Symbols) -> Any:
    if isinstance(value, TensorType):
        return tensor_type(tuple(_fixed(d, symbols) for d in value.shape), value.dtype, value.device)
    return int(symbols.size(value)) if isinstance(value, SymDim) else value
