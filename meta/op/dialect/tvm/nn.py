"""TE computes of neural-network operators."""

from __future__ import annotations

import math
from typing import Any

from meta.backend.tvm.adapter import te, tirx
from meta.backend.tvm.intrinsic import Expr, Tensor
from meta.backend.tvm.te import math as te_math
from meta.backend.tvm.te import philox
from meta.backend.tvm.te.elementwise import accumulation_dtype, cast, select, widen
from meta.backend.tvm.te.reduce import axes_of, elements_of, exponentials, read_reduced, reduce_axes
from meta.backend.tvm.workarounds.exact import constant
from meta.backend.tvm.workarounds.select import opaque_select
from meta.op.dialect.tvm import Registrar

compute = Registrar(__file__).compute


def _scalar_result(x: Tensor, value: float, name: str) -> Any:
    """The result for a 0-d x: `value`, or NaN where x is not finite. (TVM would simplify x - x to 0 and lose NaN.)"""
    dtype = str(x.dtype)

    def element() -> Expr:
        finite = tirx.abs(widen(x())) < tirx.const(math.inf, accumulation_dtype(dtype))
        return select(finite, tirx.const(value, dtype), tirx.const(math.nan, dtype))

    return te.compute((), element, name)


@compute("softmax")
def softmax(x: Tensor, axis: int) -> Any:
    if not len(x.shape):
        return _scalar_result(x, 1.0, "softmax")
    axes = axes_of(axis, len(x.shape))
    _, exps, total = exponentials(x, axis)
    # One division per row; per element a multiplication, which is much cheaper than a division.
    reciprocal = te.compute(total.shape, lambda *i: tirx.const(1, total.dtype) / total(*i), "share")
    return te.compute(x.shape, lambda *i: cast(exps(*i) * read_reduced(reciprocal, axes, i), str(x.dtype)), "softmax")


@compute("softmax_dx")
def softmax_dx(y: Tensor, dy: Tensor, axis: int) -> Any:
    axes, a, b = axes_of(axis, len(y.shape)), elements_of(y), elements_of(dy)
    total = reduce_axes(y, axes, te.sum, lambda *i: a(*i) * b(*i), "total")
    return te.compute(
        y.shape, lambda *i: cast(a(*i) * (b(*i) - read_reduced(total, axes, i)), str(y.dtype)), "softmax_dx"
    )


@compute("log_softmax")
def log_softmax(x: Tensor, axis: int) -> Any:
    if not len(x.shape):
        return _scalar_result(x, 0.0, "log_softmax")
    axes = axes_of(axis, len(x.shape))
    shifted, _, total = exponentials(x, axis)
    logs = te.compute(total.shape, lambda *i: te_math.log(total(*i)), "log_total")
    return te.compute(x.shape, lambda *i: cast(shifted(*i) - read_reduced(logs, axes, i), str(x.dtype)), "log_softmax")


@compute("log_softmax_dx")
def log_softmax_dx(y: Tensor, dy: Tensor, axis: int) -> Any:
    axes, a, b = axes_of(axis, len(y.shape)), elements_of(y), elements_of(dy)
    total = reduce_axes(y, axes, te.sum, b, "total")

    def element(*i: Expr) -> Expr:
        return cast(b(*i) - te_math.exp(a(*i)) * read_reduced(total, axes, i), str(y.dtype))

    return te.compute(y.shape, element, "log_softmax_dx")


@compute("bias_add")
def bias_add(x: Tensor, bias: Tensor, axis: int) -> Any:
    channel = axis % len(x.shape)
    return te.compute(x.shape, lambda *i: x(*i) + bias(i[channel]), "bias_add")


def _apply_mask(x: Tensor, mask: Tensor, p: float, name: str) -> Any:
    """x / (1 - p) where the mask is true, else 0."""
    dtype = accumulation_dtype(x.dtype)
    scale, zero = constant(0.0 if p == 1 else 1 / (1 - p), dtype), tirx.const(0, dtype)

    def element(*i: Expr) -> Expr:
        # A selection that loads x whatever the mask: a load that waits for random bits takes a GPU longer.
        return cast(opaque_select(mask(*i), cast(x(*i), dtype) * scale, zero), str(x.dtype))

    return te.compute(x.shape, element, name)


@compute("dropout", constants=(0, 1))
def dropout(x: Tensor, key: Any, p: float) -> Any:
    def is_kept(*i: Expr) -> Expr:
        if p in (0, 1):
            return tirx.const(p == 0, "bool")
        position = philox.position(i, x.shape)
        return philox.is_below(philox.words(key, position, 1), constant(1 - p, "float32"))

    mask = te.compute(x.shape, is_kept, "mask")
    return _apply_mask(x, mask, p, "dropout"), mask


@compute("dropout_dx", constants=(0, 1))
def dropout_dx(dy: Tensor, mask: Tensor, p: float) -> Any:
    return _apply_mask(dy, mask, p, "dropout_dx")
