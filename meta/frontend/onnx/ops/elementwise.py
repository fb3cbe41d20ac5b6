"""Elementwise arithmetic, comparisons, logic and bits."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

import meta
from meta._generated.methods import Tensor
from meta.dim import maximum, minimum, truncated_quotient
from meta.dtype import is_float
from meta.errors import TypeInferenceError
from meta.frontend.onnx.names import ARITHMETIC, BITWISE, COMPARISONS, LOGICAL, UNARY, VARIADIC
from meta.frontend.onnx.ops._row import Node, row
from meta.frontend.onnx.ops._values import number, row_shape, wide
from meta.functional._checks import as_dtype

_FOLDED = frozenset({"abs", "ceil", "floor", "negative", "sqrt"})
"""Names in meta and NumPy of the operators that sizes are computed with."""


def _unary(function: Callable[[Any], Any]) -> Callable[..., Any]:
    def convert(node: Node, X: Tensor) -> Any:
        return function(X)

    return convert


for _name, _kind in UNARY.items():
    row(_kind, fold=getattr(np, _name) if _name in _FOLDED else None)(_unary(getattr(meta, _name)))
row("BitwiseNot")(_unary(meta.bitwise_not))
row("Not", fold=np.logical_not)(_unary(meta.logical_not))
row("Round", fold=np.round)(_unary(meta.round))
row("Softplus")(_unary(meta.softplus))


# --- two operands ----------------------------------------------------------------------------------------------------


def _same_dtype(op: str, a: Tensor, b: Tensor) -> None:
    if a.dtype != b.dtype:
        raise TypeInferenceError(op, f"the operands are {a.dtype} and {b.dtype}", "equal dtypes")


def _aligned(a: Tensor, b: Tensor, broadcast: int, axis: int | None) -> Any:
    """The second operand of an operator before opset 7, whose axes begin at `axis` of the first."""
    if not broadcast or axis is None or not b.ndim:
        return b
    trailing = a.ndim - axis % a.ndim - b.ndim
    return meta.reshape(b, (*b.shape, *(1,) * trailing)) if trailing > 0 else b


def _binary(name: str, function: Callable[[Any, Any], Any], fold: Callable[..., Any] | None = None) -> None:
    def convert(node: Node, A: Tensor, B: Tensor) -> Any:
        _same_dtype(node.op_type, A, B)
        return function(A, B)

    def convert_old(node: Node, A: Tensor, B: Tensor, *, broadcast: int = 0, axis: int | None = None) -> Any:
        return convert(node, A, _aligned(A, B, broadcast, axis))

    row(name, since=7, fold=fold)(convert)
    row(name)(convert_old)


def _divide(a: Tensor, b: Tensor) -> Any:
    return meta.divide(a, b) if is_float(a.dtype) else meta.trunc_divide(a, b)


def _divided(a: Any, b: Any) -> Any:
    if a.dtype.kind not in "iuO":
        return np.divide(a, b)
    if np.any(b == 0):
        raise TypeInferenceError("Div", "a known divisor is 0", "another number")
    if a.dtype == object or b.dtype == object:
        return np.frompyfunc(truncated_quotient, 2, 1)(a, b)
    return (np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))).astype(a.dtype)


def _compared(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """A comparison of sizes, whose results are bools and not objects."""
    return lambda a, b: np.asarray(function(a, b)).astype(bool)


for _name, _kind in {**ARITHMETIC, **LOGICAL}.items():
    _binary(_kind, getattr(meta, _name), getattr(np, _name))
for _name, _kind in COMPARISONS.items():
    _binary(_kind, getattr(meta, _name), _compared(getattr(np, _name)))
for _name, _kind in BITWISE.items():
    _binary(_kind, getattr(meta, _name))
_binary("Div", _divide, _divided)


@row("Pow", since=7)
def power(node: Node, X: Tensor, Y: Tensor) -> Any:
    """The result has the dtype of the base."""
    if is_float(X.dtype):
        return meta.power(X, as_dtype(Y, X.dtype))
    if is_float(Y.dtype):
        return meta.cast(meta.power(meta.cast(X, "float64"), meta.cast(Y, "float64")), X.dtype)
    return as_dtype(meta.power(X, Y), X.dtype)


row("Pow")(lambda node, X, Y, *, broadcast=0, axis=None: power(node, X, _aligned(X, Y, broadcast, axis)))


@row("Mod", since=10, fold=lambda a, b, fmod=0: np.fmod(a, b) if fmod else np.mod(a, b))
def mod(node: Node, A: Tensor, B: Tensor, *, fmod: int = 0) -> Any:
    """The remainder with the sign of the divisor; with fmod, with the sign of the dividend, as in C."""
    _same_dtype("Mod", A, B)
    if not fmod:
        return meta.mod(A, B)
    return meta.fmod(A, B) if is_float(A.dtype) else meta.trunc_mod(A, B)


@row("BitShift", since=11)
def bit_shift(node: Node, X: Tensor, Y: Tensor, *, direction: str) -> Any:
    """Shifts by the number of bits or more give 0; right shifts fill with the sign."""
    _same_dtype("BitShift", X, Y)
    if direction not in ("LEFT", "RIGHT"):
        raise TypeInferenceError("BitShift", f"direction is {direction!r}", "LEFT or RIGHT")
    return meta.left_shift(X, Y) if direction == "LEFT" else meta.right_shift(X, Y)


@row("Where", since=9, fold=lambda c, x, y: np.where(c.astype(bool), x, y))
def where(node: Node, condition: Tensor, X: Tensor, Y: Tensor) -> Any:
    _same_dtype("Where", X, Y)
    return meta.where(condition, X, Y)


@row("PRelu")
def prelu(node: Node, X: Tensor, slope: Tensor) -> Any:
    """Before opset 7 a slope of one axis belongs to the channels."""
    _same_dtype("PRelu", X, slope)
    if node.version < 7 and slope.ndim == 1 and slope.shape[0] != 1 and X.ndim > 1:
        slope = meta.reshape(slope, row_shape(slope.shape[0], 1, X.ndim))
    return meta.where(meta.less(X, 0), meta.multiply(X, slope), X)


# --- several operands ------------------------------------------------------------------------------------------------


def _chain(name: str, function: Callable[[Any, Any], Any], fold: Callable[[Any, Any], Any]) -> None:
    def convert(node: Node, *inputs: Any) -> Any:
        if not inputs:
            raise TypeInferenceError(node.op_type, "there are no inputs", "at least one")
        for x in inputs[1:]:
            _same_dtype(node.op_type, inputs[0], x)
        return reduce(function, inputs)

    row(name, fold=lambda *inputs: np.asarray(reduce(fold, inputs)))(convert)


def _of_sizes(function: Callable[[Any, Any], Any], numbers: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """A function of arrays, which computes sizes by `function`: they have no order."""

    def fold(a: Any, b: Any) -> Any:
        if object not in (a.dtype, b.dtype):
            return numbers(a, b)
        return np.asarray(np.frompyfunc(function, 2, 1)(a, b), object)

    return fold


_OF_SIZES = {"minimum": _of_sizes(minimum, np.minimum), "maximum": _of_sizes(maximum, np.maximum), "add": np.add}
for _name, _kind in {**VARIADIC, "add": "Sum"}.items():
    _chain(_kind, getattr(meta, _name), _OF_SIZES[_name])


row("Mean")(lambda node, *inputs: meta.divide(reduce(meta.add, inputs), float(len(inputs))))


# --- limits and infinities -------------------------------------------------------------------------------------------


@row("Clip", since=11, raw=True)
def clip(node: Node, input: Any, min: Any = None, max: Any = None) -> Any:  # ONNX's names
    """A lower limit above the upper one gives the upper one; a limit that is NaN, which ONNX leaves open, limits
    nothing, as in onnxruntime."""
    x: Any = meta.array(input) if isinstance(input, np.ndarray) else input
    if is_float(x.dtype) and all(v is None or isinstance(v, np.ndarray) for v in (min, max)):
        limits = (None if v is None else float(number(v, "a limit")) for v in (min, max))
        low, high = (None if v is None or math.isnan(v) else v for v in limits)
        return meta.clip(x, low, high) if (low, high) != (None, None) else x
    for is_beyond, limit in ((meta.less, min), (meta.greater, max)):
        if limit is not None:
            bound: Any = meta.reshape(meta.array(limit) if isinstance(limit, np.ndarray) else limit, ())
            x = meta.where(is_beyond(x, bound), bound, x)
    return x


row("Clip")(
    lambda node, input, *, min=None, max=None: meta.clip(input, min, max) if (min, max) != (None, None) else input
)


@row("IsInf", since=10)
def isinf(node: Node, X: Tensor, *, detect_negative: int = 1, detect_positive: int = 1) -> Any:
    if detect_negative and detect_positive:
        return meta.isinf(X)
    if detect_negative:
        return meta.isneginf(X)
    return meta.isposinf(X) if detect_positive else meta.zeros_like(X, "bool")


@row("Shrink", since=9)
def shrink(node: Node, input: Tensor, *, bias: float = 0.0, lambd: float = 0.5) -> Any:
    if is_float(input.dtype) and bias in (0.0, lambd):
        return (meta.softshrink if bias else meta.hardshrink)(input, lambd)
    x = wide(input) if is_float(input.dtype) else meta.cast(input, "float32")
    y = meta.where(meta.greater(x, lambd), meta.subtract(x, bias), meta.zeros_like(x))
    return as_dtype(meta.where(meta.less(x, -lambd), meta.add(x, bias), y), input.dtype)
