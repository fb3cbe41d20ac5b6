"""Batch norm on GPUs as sums over channels and elementwise operators.

As one kernel, batch norm reads its input twice and writes a result that the next kernel (relu, or the sum with a
shortcut) reads again; so does its gradient with the gradient of relu. Taken apart, everything that follows the sums is
elementwise and fuses with those neighbours.

    y = relu(batch_norm(x) + z)      statistics of x; then y from x and z in one kernel
    dx = batch_norm_dx(relu_dx(y, dy))      the gradient of relu; two sums; then dx in one kernel
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from meta.dtype import accumulation_dtype
from meta.ir.expr import Atom, Binding, Call, Expr, Tuple
from meta.ir.type import TensorType
from meta.passes.rewriting import Scope, by_op, emit, rewrite_pass

_LEAST_ELEMENTS: Final = 1 << 20
"""Elements of x, at least: fewer take less time than starting several kernels."""


class _ChannelCalls:
    """Calls on tensors with channels on the last axis, along which vectors of one element a channel broadcast."""

    def __init__(self, scope: Scope, x: Any) -> None:
        self.scope, self.call = scope, partial(emit, scope)
        self.dtype = accumulation_dtype(x.type.dtype)
        self.count = x.type.size // x.type.shape[-1]

    def wide(self, x: Any) -> Any:
        """x in the dtype of sums."""
        return x if x.type.dtype == self.dtype else self.call("cast", x, self.dtype)

    def narrow(self, x: Any, dtype: str) -> Any:
        return x if dtype == self.dtype else self.call("cast", x, dtype)

    def scale(self, invstd: Any, w: Any) -> Any:
        return invstd if w is None else self.call("multiply", invstd, self.wide(w))


def _train(binding: Binding, scope: Scope) -> Expr | Atom | None:
    """y = (x - mean) * (invstd * w) + b, and the running statistics."""
    call = _large(binding.value)
    if call is None:
        return None
    x, running_mean, running_var, w, b, momentum, eps, axis = call.args
    on = _ChannelCalls(scope, x)
    stats = on.call("batch_norm_stats", x, eps, axis)
    mean, variance, invstd = (scope.get_item(stats, i) for i in range(3))
    y = on.call("multiply", on.call("subtract", on.wide(x), mean), on.scale(invstd, w))
    y = y if b is None else on.call("add", y, on.wide(b))
    freedom = on.count / (on.count - 1)

    def blended(running: Any, batch: Any, weight: float) -> Any:
        decayed = on.call("multiply", on.wide(running), 1.0 - momentum)
        return on.narrow(on.call("add", decayed, on.call("multiply", batch, weight)), running.type.dtype)

    new_mean, new_var = blended(running_mean, mean, momentum), blended(running_var, variance, momentum * freedom)
    return Tuple((on.narrow(y, x.type.dtype), new_mean, new_var, mean, invstd), call.span)


def _gradient(binding: Binding, scope: Scope) -> Expr | Atom | None:
    """dx = scale * dy + ((mean - x) * (scale * invstd * dw / n) - scale * db / n), where scale is w * invstd.

    The difference is computed anew, so that the one of the forward pass need not be kept."""
    call = _large(binding.value)
    if call is None:
        return None
    dy, x, w, mean, invstd, axis = call.args
    on = _ChannelCalls(scope, x)
    sums = on.call("batch_norm_sums", dy, x, mean, invstd, axis)
    dw, db = (scope.get_item(sums, i) for i in (0, 1))
    mean, invstd = on.wide(mean), on.wide(invstd)
    scale = on.scale(invstd, w)
    share = on.call("multiply", scale, 1.0 / on.count)
    slope = on.call("multiply", on.call("multiply", share, invstd), dw)
    rest = on.call("multiply", on.call("subtract", mean, on.wide(x)), slope)
    rest = on.call("subtract", rest, on.call("multiply", share, db))
    dx = on.call("add", on.call("multiply", on.wide(dy), scale), rest)
    return Tuple((on.narrow(dx, x.type.dtype), dw, db), call.span)


def _large(value: Any) -> Call | None:
    """A call on a large floating tensor on a GPU with channels on the last axis; None for others."""
    if not isinstance(value, Call) or value.dialect is not None or value.attrs:
        return None
    x = value.args[1 if value.op_name.endswith("dxwb") else 0].type
    assert isinstance(x, TensorType)
    if not x.is_static or x.size < _LEAST_ELEMENTS or x.device.kind != "cuda":
        return None
    return value if value.args[-1] % x.ndim == x.ndim - 1 else None


expand_norms = rewrite_pass(
    "expand_norms",
    "Take large batch norms on GPUs with channels last, and their gradients, apart into sums over channels and "
    "elementwise operators.",
    by_op({"batch_norm_train": _train, "batch_norm_train_dxwb": _gradient}),
    looks_for=("batch_norm_train", "batch_norm_train_dxwb"),
    device="cuda",
)
