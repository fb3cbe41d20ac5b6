"""Reshapes of what a library computes come before the elementwise operators that read it.

y = matmul(x, w)                                     y = reshape(matmul(x, w), shape)
a = reshape(cast(y, "float32") + b, shape)    =>     c = (cast(y, "float32") + b) * d
c = a * d

A group of operators that one kernel computes ends at a reshape. The result of a library's kernel is reshaped for
nothing, and the operators behind it become one group.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from meta.backend.tvm.compute import TEImplementation
from meta.ir.expr import Atom, Binding, Call, CallInfo, Constant, Expr, FunctionExpr, Var, arg_types
from meta.ir.type import TensorType
from meta.ir.visitor import reads, use_counts, walk
from meta.op.dispatch import first_accepting
from meta.op.registry import Op, get
from meta.passes.manager import function_pass
from meta.passes.rewriting import VIEWS, Scope, by_op, counted, is_elementwise, rewrite

_DEPTH = 16
"""Most operators of a chain before a reshape."""


@function_pass("lift_views", *VIEWS)
def lift_views(function: FunctionExpr) -> FunctionExpr:
    """Put reshapes before the elementwise operators whose result they take, where elementwise operators read it and a
    library or the caller computes what the first of them read. Results stay the same."""
    counts, elementwise = use_counts(function), _elementwise_readers(function)

    def rule(binding: Binding, scope: Scope) -> Expr | None:
        call: Any = binding.value
        x = call.args[0]
        if binding.var not in elementwise or not isinstance(call.type, TensorType):
            return None
        if not _is_liftable(scope, x, call.type, counts, _DEPTH) or not isinstance(scope.definition(x), Call):
            return None
        return _lifted(scope, x, call.type, counts)

    return rewrite(function, counted("lift_views", by_op(dict.fromkeys(VIEWS, rule))))


def _elementwise_readers(function: FunctionExpr) -> set[Any]:
    """The values that some elementwise operator reads."""
    return {x for binding in walk(function) if _is_of_any_shape(binding.value) for x in reads(binding.value)}


def _is_of_any_shape(value: Any) -> bool:
    """Whether an elementwise call computes the same when all its tensors are reshaped."""
    return is_elementwise(value) and value.type.is_static and "axis" not in value.op.schema.names


def _chain(scope: Scope, x: Any, counts: Counter[Var]) -> Call | None:
    """The elementwise call whose result has no other reader; None for others."""
    call: Any = scope.definition(x)
    return call if isinstance(x, Var) and counts[x] == 1 and _is_of_any_shape(call) else None


def _is_liftable(scope: Scope, x: Any, kind: TensorType, counts: Counter[Var], depth: int) -> bool:
    call = _chain(scope, x, counts)
    if call is None:
        return not isinstance(scope.definition(x), Call) or _is_by_library(scope.definition(x))
    tensors = [a for a in call.args if isinstance(a, (Var, Constant))]
    full = [a for a in tensors if _stays(a, call, kind) is False]
    fits = all(_stays(a, call, kind) is not None for a in tensors)
    return fits and depth > 0 and all(_is_liftable(scope, a, kind, counts, depth - 1) for a in full)


def _stays(arg: Any, call: Call, kind: TensorType) -> bool | None:
    """Whether an operand broadcasts to the new shape as it is; None if it needs a shape that is not known."""
    shape: tuple[Any, ...] = call.type.shape  # type: ignore[union-attr]
    if not isinstance(arg.type, TensorType):
        return None
    if arg.type.shape == shape:
        return False
    n = arg.type.ndim
    return True if n == 0 or arg.type.shape == shape[-n:] == kind.shape[-n:] else None


def _lifted(scope: Scope, x: Any, kind: TensorType, counts: Counter[Var]) -> Expr:
    """The value of x in the shape of `kind`."""
    call = _chain(scope, x, counts)
    if call is None:
        return scope.call_expr(get("reshape"), (x, kind.shape))
    args = [scope.emit(_lifted(scope, a, kind, counts)) if _is_full(a, call) else a for a in call.args]
    return scope.call_expr(call.op, tuple(args))


def _is_full(arg: Atom | Any, call: Call) -> bool:
    return isinstance(arg, (Var, Constant)) and arg.type.shape == call.type.shape  # type: ignore[union-attr]


def _is_by_library(call: Any) -> bool:
    """Whether a library computes a call, with which TVM fuses nothing."""
    if not isinstance(call.op, Op) or not isinstance(call.type, TensorType):
        return False
    if call.op.name in VIEWS:
        return True
    info = CallInfo(call.op, arg_types(call.args), call.type, call.type.device)
    implementation = first_accepting(info, in_program=True)
    return implementation is not None and not isinstance(implementation.payload, TEImplementation)
