"""Declarations of activations: piecewise linear ones, smooth ones, and shrinkages."""

from __future__ import annotations

from functools import partial

from meta.ir.type import TensorType
from meta.op import rules
from meta.op.declare._standard import standard_unary, standard_unary_dx
from meta.op.registry import declare
from meta.schema import activation

_activation = partial(standard_unary, result="same", accepts="float", family="activation")

_activation("hardshrink", "x where |x| exceeds `lambd`, else 0.", schema=activation.shrink)
_activation("hardsigmoid", "min(max(x + 3, 0), 6) / 6.")
_activation("hardswish", "x * min(max(x + 3, 0), 6) / 6 (A. Howard et al., 2019).")
_activation("logsigmoid", "log(sigmoid(x)), computed without overflow.", amp="never", aliases=("log_sigmoid",))
_activation("mish", "x * tanh(log(1 + exp(x))) (D. Misra, 2019).", amp="never")
_activation(
    "selu",
    "ELU with the alpha 1.6733 and the scale 1.0507 that keep mean 0 and variance 1 (G. Klambauer et al., 2017).",
)
_activation("softsign", "x / (1 + |x|).", result="float", accepts="any")
_activation("tanhshrink", "x - tanh(x), accurate near 0.", result="float", accepts="number")


_dx = partial(standard_unary_dx, needs="x", family="activation")
_dx("hardsigmoid_dx")
_dx("hardswish_dx")
_dx("hardtanh_dx", schema=activation.hardtanh_dx)


@declare("hardtanh", schema=activation.hardtanh, pattern="elemwise", method=True)
def hardtanh(x: TensorType, min: float, max: float) -> TensorType:
    """min(max(x, `min`), `max`) in the dtype of x; NaN stays NaN. The gradient at the bounds is 0, and 1 for `clip`."""
    rules.require_number("x", x)
    rules.require_ordered(min, max)
    for bound in (min, max):
        rules.require_held(bound, x.dtype)
    return x


@declare("softshrink", schema=activation.shrink, pattern="elemwise", method=True)
def softshrink(x: TensorType, lambd: float) -> TensorType:
    """x - `lambd` above it, x + `lambd` below -`lambd`, else 0; NaN stays NaN."""
    rules.require_float("x", x)
    if isinstance(lambd, float):
        rules.require(lambd >= 0, f"lambd is {lambd}", "a number of at least 0")
    return x
