"""Elementwise operators and their gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import meta
from meta import dtype as dtypes
from meta.frontend.onnx.compositions._table import composition, pair


def _zero_unless(condition: Any, x: Any) -> Any:
    return meta.where(condition, x, meta.zeros_like(x))


def _is_nan(x: Any) -> Any:
    return meta.not_equal(x, x)


# --- of two operands -------------------------------------------------------------------------------------------------


def _on_floats(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def composed(x1: Any, x2: Any) -> Any:
        return function(*pair(x1, x2)) if all(dtypes.is_float(x.dtype) for x in pair(x1, x2)) else None

    return composed


def _xlogy(x1: Any, x2: Any) -> Any:
    """x1 * log(x2), 0 where x1 is 0 and x2 is not NaN."""
    product = meta.multiply(x1, meta.log(x2))
    return meta.where(meta.logical_and(meta.equal(x1, 0), meta.equal(x2, x2)), meta.zeros_like(product), product)


def _fmax(x1: Any, x2: Any) -> Any:
    return meta.where(_is_nan(x1), x2, meta.where(_is_nan(x2), x1, meta.maximum(x1, x2)))


def _fmin(x1: Any, x2: Any) -> Any:
    return meta.where(_is_nan(x1), x2, meta.where(_is_nan(x2), x1, meta.minimum(x1, x2)))


def _logaddexp(x1: Any, x2: Any) -> Any:
    """The larger one, plus log(1 + exp(-d)) of their distance d, which is 0 for equal infinities."""
    distance = meta.where(meta.equal(x1, x2), meta.zeros_like(x1 + x2), meta.abs(meta.subtract(x1, x2)))
    return meta.add(meta.maximum(x1, x2), meta.log1p(meta.exp(meta.negative(distance))))


def _logaddexp2(x1: Any, x2: Any) -> Any:
    scale = math.log(2.0)
    return meta.multiply(_logaddexp(meta.multiply(x1, scale), meta.multiply(x2, scale)), 1 / scale)


def _is_negative(x: Any) -> Any:
    """Whether the sign is negative, also for zeros."""
    return meta.logical_or(meta.less(x, 0), meta.logical_and(meta.equal(x, 0), meta.less(meta.reciprocal(x), 0)))


def _copysign(x1: Any, x2: Any) -> Any:
    size = meta.abs(x1)
    return meta.where(_is_negative(x2), meta.negative(size), size)


def _heaviside(x1: Any, x2: Any) -> Any:
    step = meta.where(meta.equal(x1, 0), x2, meta.cast(meta.greater(x1, 0), x1.dtype))
    return meta.where(_is_nan(x1), x1, step)


for _name, _function in (
    ("xlogy", _xlogy), ("fmax", _fmax), ("fmin", _fmin), ("logaddexp", _logaddexp), ("logaddexp2", _logaddexp2),
    ("copysign", _copysign), ("heaviside", _heaviside),
):  # fmt: skip
    composition(_name)(_on_floats(_function))


@composition("trunc_divide")
def trunc_divide(x1: Any, x2: Any) -> Any:
    """The composition for floats; integers have a node."""
    return meta.trunc(meta.divide(*pair(x1, x2)))


# --- of one operand --------------------------------------------------------------------------------------------------


@composition("logit")
def logit(x: Any, eps: float | None) -> Any:
    limited = x if eps is None else meta.clip(x, eps, 1 - eps)
    return meta.log(meta.divide(limited, meta.subtract(1.0, limited)))


@composition("nan_to_num")
def nan_to_num(x: Any, nan: float, posinf: float | None, neginf: float | None) -> Any:
    if not dtypes.is_float(x.dtype):
        return x
    limit = dtypes.largest(x.dtype)
    high, low = limit if posinf is None else posinf, -limit if neginf is None else neginf
    y = meta.where(_is_nan(x), nan, x)
    return meta.where(meta.equal(y, math.inf), high, meta.where(meta.equal(y, -math.inf), low, y))


@composition("signbit")
def signbit(x: Any) -> Any:
    return _is_negative(x) if dtypes.is_float(x.dtype) else meta.less(x, 0)


@composition("sinc")
def sinc(x: Any) -> Any:
    if not dtypes.is_float(x.dtype):
        return None
    angle = meta.multiply(x, math.pi)
    at_zero = meta.equal(x, 0)
    one = meta.ones_like(x)
    return meta.where(at_zero, one, meta.divide(meta.sin(angle), meta.where(at_zero, one, angle)))


@composition("entr")
def entr(x: Any) -> Any:
    """-x * log(x), 0 at 0, and -inf below."""
    if not dtypes.is_float(x.dtype):
        return None
    inside = meta.negative(meta.multiply(x, meta.log(x)))
    return meta.where(meta.equal(x, 0), meta.zeros_like(x), meta.where(meta.less(x, 0), -math.inf, inside))


def _extremum_dx(is_larger: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def composed(x1: Any, x2: Any, dy: Any) -> Any:
        """Half of the gradient where both are equal."""
        x1, x2 = pair(x1, x2)
        share = meta.where(is_larger(x2, x1), meta.zeros_like(dy), dy)
        return meta.where(meta.equal(x1, x2), meta.multiply(dy, 0.5), share)

    return composed


composition("maximum_dx")(_extremum_dx(meta.greater))
composition("minimum_dx")(_extremum_dx(meta.less))


@composition("dropout_dx")
def dropout_dx(dy: Any, mask: Any, p: float) -> Any:
    return _zero_unless(mask, meta.multiply(dy, 0.0 if p == 1 else 1 / (1 - p)))


# --- gradients -------------------------------------------------------------------------------------------------------


@composition("relu_dx")
def relu_dx(y: Any, dy: Any) -> Any:
    return _zero_unless(meta.greater(y, 0), dy)


@composition("sigmoid_dx")
def sigmoid_dx(y: Any, dy: Any) -> Any:
    return meta.multiply(dy, meta.multiply(y, meta.subtract(1.0, y)))


@composition("tanh_dx")
def tanh_dx(y: Any, dy: Any) -> Any:
    return meta.multiply(dy, meta.subtract(1.0, meta.square(y)))


@composition("sqrt_dx")
def sqrt_dx(y: Any, dy: Any) -> Any:
    return meta.divide(meta.multiply(dy, 0.5), y)


@composition("rsqrt_dx")
def rsqrt_dx(y: Any, dy: Any) -> Any:
    return meta.multiply(meta.multiply(dy, -0.5), meta.multiply(y, meta.square(y)))


@composition("reciprocal_dx")
def reciprocal_dx(y: Any, dy: Any) -> Any:
    return meta.negative(meta.multiply(dy, meta.square(y)))


@composition("erf_dx")
def erf_dx(x: Any, dy: Any) -> Any:
    return meta.multiply(dy, meta.multiply(meta.exp(meta.negative(meta.square(x))), 2 / math.sqrt(math.pi)))


@composition("silu_dx")
def silu_dx(x: Any, dy: Any) -> Any:
    s = meta.sigmoid(x)
    slope = meta.add(meta.multiply(x, meta.subtract(1.0, s)), 1.0)
    return meta.multiply(dy, meta.multiply(s, slope))


@composition("gelu_dx")
def gelu_dx(x: Any, dy: Any, approximate: str) -> Any:
    if approximate == "none":
        density = meta.multiply(meta.exp(meta.multiply(meta.square(x), -0.5)), 1 / math.sqrt(2 * math.pi))
        share = meta.multiply(meta.add(meta.erf(meta.multiply(x, math.sqrt(0.5))), 1.0), 0.5)
        return meta.multiply(dy, meta.add(share, meta.multiply(x, density)))
    scale, cubic = math.sqrt(2 / math.pi), 0.044715
    square = meta.square(x)
    t = meta.tanh(meta.multiply(meta.multiply(x, meta.add(meta.multiply(square, cubic), 1.0)), scale))
    slope = meta.multiply(meta.add(meta.multiply(square, 3 * cubic), 1.0), scale)
    inner = meta.multiply(meta.multiply(x, meta.subtract(1.0, meta.square(t))), slope)
    return meta.multiply(meta.multiply(dy, 0.5), meta.add(meta.add(t, 1.0), inner))


@composition("elu_dx")
def elu_dx(x: Any, dy: Any, alpha: float) -> Any:
    return meta.where(meta.greater(x, 0), dy, meta.multiply(dy, meta.multiply(meta.exp(x), alpha)))


@composition("leaky_relu_dx")
def leaky_relu_dx(x: Any, dy: Any, alpha: float) -> Any:
    return meta.where(meta.greater(x, 0), dy, meta.multiply(dy, alpha))


@composition("hardsigmoid_dx")
def hardsigmoid_dx(x: Any, dy: Any) -> Any:
    return _zero_unless(meta.less(meta.abs(x), 3), meta.divide(dy, 6))


@composition("hardswish_dx")
def hardswish_dx(x: Any, dy: Any) -> Any:
    inner = meta.multiply(dy, meta.add(meta.divide(x, 3), 0.5))
    return meta.where(meta.less_equal(x, -3), meta.zeros_like(x), meta.where(meta.less(x, 3), inner, dy))


@composition("hardtanh_dx")
def hardtanh_dx(x: Any, dy: Any, low: float, high: float) -> Any:
    return meta.where(meta.logical_or(meta.less_equal(x, low), meta.greater_equal(x, high)), meta.zeros_like(x), dy)


@composition("threshold_dx")
def threshold_dx(x: Any, dy: Any, threshold: float) -> Any:
    return _zero_unless(meta.greater(x, threshold), dy)


@composition("clip_dx")
def clip_dx(x: Any, dy: Any, low: float | None, high: float | None) -> Any:
    inside = meta.equal(x, x)
    inside = inside if low is None else meta.logical_and(inside, meta.greater_equal(x, low))
    inside = inside if high is None else meta.logical_and(inside, meta.less_equal(x, high))
    return _zero_unless(inside, dy)


@composition("softmax_dx")
def softmax_dx(y: Any, dy: Any, axis: int) -> Any:
    return meta.multiply(y, meta.subtract(dy, meta.sum(meta.multiply(y, dy), (axis,), True)))


@composition("log_softmax_dx")
def log_softmax_dx(y: Any, dy: Any, axis: int) -> Any:
    return meta.subtract(dy, meta.multiply(meta.exp(y), meta.sum(dy, (axis,), True)))
