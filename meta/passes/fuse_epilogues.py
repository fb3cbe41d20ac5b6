"""Bias, sum and relu in the convolution before them, where a library computes all of that in one kernel.

relu(bias_add(conv2d(x, w), b) + y)      =>      conv2d_epilogue(x, w, b, y, relu=True)
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from meta.backend.tvm.compute import TEImplementation
from meta.ir.expr import Binding, Call, Expr, FunctionExpr, Var, arg_types
from meta.ir.type import TensorType
from meta.ir.visitor import Rule, Scope, by_op, rewrite, use_counts
from meta.op.dispatch import CallInfo, first_accepting
from meta.op.registry import get
from meta.passes.manager import counted, function_pass
from meta.passes.simplify import producer


@function_pass("fuse_epilogues")
def fuse_epilogues(function: FunctionExpr) -> FunctionExpr:
    """Put conv2d_epilogue in place of a conv2d and the bias, the sum and the relu that alone read it, where the dialect
    that runs it is a library's. Results stay the same up to rounding."""
    return rewrite(function, counted("fuse_epilogues", by_op(_table(use_counts(function)))))


def _table(counts: Counter[Var]) -> dict[str, Rule]:
    def convolution(scope: Scope, y: Any) -> dict[str, Any] | None:
        """The arguments of conv2d_epilogue for a convolution that one operator reads, without relu."""
        if not isinstance(y, Var) or counts[y] != 1:
            return None
        conv, fused = producer(scope, y, "conv2d"), producer(scope, y, "conv2d_epilogue")
        if fused is not None:
            named = _arguments(fused)
            return None if named["relu"] else named
        return None if conv is None else {"bias": None, "other": None, "relu": False} | _arguments(conv)

    def bias_add(binding: Binding, scope: Scope) -> Expr | None:
        call = _plain(binding)
        named = convolution(scope, call.args[0]) if call is not None else None
        if call is None or named is None or named["bias"] is not None or named["other"] is not None:
            return None
        x, bias, axis = call.args
        channels = 3 if named["channels_last"] else 1
        return _fused(scope, call, named | {"bias": bias}) if axis % x.type.ndim == channels else None

    def add(binding: Binding, scope: Scope) -> Expr | None:
        call = _plain(binding)
        for y, other in (call.args, call.args[::-1]) if call is not None else ():
            named = convolution(scope, y)
            if call is not None and named is not None and named["other"] is None and _is_like(other, call.type):
                return _fused(scope, call, named | {"other": other})
        return None

    def relu(binding: Binding, scope: Scope) -> Expr | None:
        call = _plain(binding)
        named = convolution(scope, call.args[0]) if call is not None else None
        return None if call is None or named is None else _fused(scope, call, named | {"relu": True})

    return {"bias_add": bias_add, "add": add, "relu": relu}


def _plain(binding: Binding) -> Call | None:
    call = binding.value
    return call if isinstance(call, Call) and call.dialect is None and not call.attrs else None


def _arguments(call: Call) -> dict[str, Any]:
    return dict(zip(call.op.schema.names, call.args, strict=True))  # type: ignore[union-attr]


def _is_like(other: Any, kind: Any) -> bool:
    return isinstance(getattr(other, "type", None), TensorType) and other.type == kind


def _fused(scope: Scope, old: Call, named: dict[str, Any]) -> Expr | None:
    """The call, if its type stays and a library runs it."""
    op = get("conv2d_epilogue")
    args = tuple(named[n] for n in op.schema.names)
    types = arg_types(args)
    tensors = [t for t in types if isinstance(t, TensorType)]
    if len({t.dtype for t in tensors}) != 1 or not all(t.is_static for t in tensors):
        return None
    assert isinstance(old.type, TensorType)
    chosen = first_accepting(CallInfo(op, types, old.type, old.type.device), in_program=True)
    is_library = chosen is not None and not isinstance(chosen.payload, TEImplementation)
    return scope.call_expr(op, args) if is_library else None
