"""Declarations of neural-network operators."""

from __future__ import annotations

from meta.dim import same_dim
from meta.ir.type import TensorType, TupleType
from meta.op import rules
from meta.op.registry import declare
from meta.schema import nn


def _softmax_type(x: TensorType, axis: int) -> TensorType:
    rules.require_float("x", x)
    rules.axis_index(axis, x.ndim)
    return x


def _softmax_dx_type(y: TensorType, dy: TensorType, axis: int) -> TensorType:
    rules.require_float("y", y)
    rules.require_alike(y=y, dy=dy)
    rules.axis_index(axis, y.ndim)
    return y


@declare("softmax", schema=nn.softmax, pattern="softmax", amp="never", method=True)
def softmax(x: TensorType, axis: int) -> TensorType:
    """exp(x) / sum(exp(x)) along an axis, computed without overflow."""
    return _softmax_type(x, axis)


@declare("softmax_dx", schema=nn.softmax_dx, pattern="softmax", amp="never")
def softmax_dx(y: TensorType, dy: TensorType, axis: int) -> TensorType:
    """Gradient of softmax: y * (dy - sum(y * dy, axis))."""
    return _softmax_dx_type(y, dy, axis)


@declare("log_softmax", schema=nn.softmax, pattern="softmax", amp="never", method=True)
def log_softmax(x: TensorType, axis: int) -> TensorType:
    """x - log(sum(exp(x))) along an axis: the logarithm of softmax, computed without overflow."""
    return _softmax_type(x, axis)


@declare("log_softmax_dx", schema=nn.softmax_dx, pattern="softmax", amp="never")
def log_softmax_dx(y: TensorType, dy: TensorType, axis: int) -> TensorType:
    """Gradient of log_softmax: dy - exp(y) * sum(dy, axis)."""
    return _softmax_dx_type(y, dy, axis)


@declare("bias_add", schema=nn.bias_add, pattern="broadcast")
def bias_add(x: TensorType, bias: TensorType, axis: int) -> TensorType:
    """x plus a bias for each position of one axis, such as the channels of a convolution."""
    axis = rules.axis_index(axis, x.ndim)
    rules.require(x.dtype != "bool", "'x' has dtype bool", "a numeric dtype", 'cast it: x.cast("int32")')
    rules.require_rank("bias", bias, 1)
    rules.require_same_dtype(x=x, bias=bias)
    rules.same_device(x, bias)
    rules.require(
        x.ndim > 0 and same_dim(bias.shape[0], x.shape[axis]),
        f"'bias' has shape {rules.show(bias.shape)}, 'x' {rules.show(x.shape)}",
        f"as many elements as x has along axis {axis}",
    )
    return x


def _probability(p: float) -> None:
    rules.require(0.0 <= p <= 1.0, f"p is {p}", "from 0 to 1")


@declare("dropout", schema=nn.dropout, pattern="injective", outputs=("y", "mask"))
def dropout(x: TensorType, key: TensorType, p: float) -> TupleType:
    """A random share p of the elements set to 0, the others divided by 1 - p (N. Srivastava et al., "Dropout", 2014).
    The mask, true where an element is kept, is `bernoulli(key, x.shape, 1 - p, "bool")`: it depends on the key and the
    position only, not on the device."""
    rules.require_float("x", x)
    _probability(p)
    rules.require(
        key.dtype == "int64" and key.ndim == 1 and same_dim(key.shape[0], 2),
        f"'key' is {key!r}",
        "int64 of shape (2,)",
        "get one from meta.random",
    )
    rules.same_device(x, key)
    return TupleType((x, x.with_dtype("bool")))


@declare("dropout_dx", schema=nn.dropout_dx, pattern="elemwise")
def dropout_dx(dy: TensorType, mask: TensorType, p: float) -> TensorType:
    """Gradient of dropout: dy / (1 - p) where the mask is true, else 0."""
    rules.require_float("dy", dy)
    _probability(p)
    rules.require(mask.dtype == "bool", f"'mask' has dtype {mask.dtype}", "bool")
    rules.require_same_shape(dy=dy, mask=mask)
    rules.same_device(dy, mask)
    return dy
