"""Batch norm on GPUs as sums over channels and elementwise operators.

As one kernel, batch norm reads its input twice and writes a result that the next kernel (relu, or the sum with a
shortcut) reads again; so does its gradient with the gradient of relu. Taken apart, everything that follows the sums is
elementwise and fuses with those neighbours.

    y = relu(batch_norm(x) + z)      statistics of x; then y from x and z in one kernel
    dx = batch_norm_dx(relu_dx(y, dy))      the gradient of relu; two sums; then dx in one kernel
"""

from __future__ import annotations

from typing import Any, Final

from meta.ir.expr import Atom, Binding, Call, Expr, Tuple
from meta.ir.type import TensorType
from meta.passes.rewriting import Scope, by_op, rewrite_pass
from meta.tracing import emit_decomposition

_LEAST_ELEMENTS: Final = 1 << 20
"""Elements of x, at least: fewer take less time than starting several kernels."""


def _elementwise(binding: Binding, scope: Scope) -> Expr | Atom | None:
    call = _large(binding.value)
    results = None if call is None else emit_decomposition(scope, call)
    return None if call is None or results is None else Tuple(results, call.span)


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
    by_op({"batch_norm_train": _elementwise, "batch_norm_train_dxwb": _elementwise}),
    looks_for=("batch_norm_train", "batch_norm_train_dxwb"),
    device="cuda",
)
