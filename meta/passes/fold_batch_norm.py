"""Batch norm of constants folded into the convolution before it.

    batch_norm_infer(conv(x, w), mean, var, scale, shift)
        = conv(x, w * s) + (shift - mean * s)      with s = scale / sqrt(var + eps)

All but x are constants, so that constant folding computes the new kernel and bias when the program is compiled.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

from meta.dtype import HALVES
from meta.ir.expr import Atom, Binding, Call, Constant, Expr, FunctionExpr, Var
from meta.ir.type import TensorType
from meta.ir.visitor import use_counts
from meta.op.registry import get
from meta.passes.manager import function_pass
from meta.passes.rewriting import Scope, by_op, counted, emit, rewrite
from meta.passes.simplify import producer

_CONVOLUTIONS = ("conv1d", "conv2d", "conv3d")


@function_pass("fold_batch_norm", "batch_norm_infer")
def fold_batch_norm(function: FunctionExpr) -> FunctionExpr:
    """Fold batch norms with constant statistics into convolutions with constant kernels, which leaves the addition of a
    bias. Results stay the same up to rounding."""
    counts = use_counts(function)
    return rewrite(function, counted("fold_batch_norm", by_op({"batch_norm_infer": _rule(counts)})))


def _rule(counts: Counter[Var]) -> Any:
    def rule(binding: Binding, scope: Scope) -> Expr | Atom | None:
        call = binding.value
        assert isinstance(call, Call)
        x, mean, var, scale, shift, eps, axis = call.args
        conv = next((c for name in _CONVOLUTIONS if (c := producer(scope, x, name)) is not None), None)
        if conv is None or counts[x] != 1 or call.dialect is not None or axis % x.type.ndim != _channels(conv):
            return None
        constants = (conv.args[1], mean, var, *(p for p in (scale, shift) if p is not None))
        if not all(isinstance(c, Constant) for c in constants) or x.type.dtype in HALVES:
            return None
        return _folded(scope, conv, mean, var, scale, shift, eps)

    return rule


def _channels(conv: Call) -> int:
    """The axis of channels of a convolution's result."""
    assert isinstance(conv.type, TensorType)
    return conv.type.ndim - 1 if conv.args[-1] else 1


def _folded(scope: Scope, conv: Call, mean: Any, var: Any, scale: Any, shift: Any, eps: float) -> Expr:
    call = partial(emit, scope)
    x, w, *attributes = conv.args
    factor = call("rsqrt", call("add", var, eps))
    factor = factor if scale is None else call("multiply", factor, scale)
    bias = call("negative", call("multiply", mean, factor))
    bias = bias if shift is None else call("add", bias, shift)
    kernel = call("multiply", w, call("reshape", factor, (w.type.shape[0], *(1,) * (w.type.ndim - 1))))
    y = scope.call(conv.op, (x, kernel, *attributes))
    add = get("bias_add")
    return scope.call_expr(add, add.schema.bind("bias_add", (y, bias, _channels(conv)), {}))
