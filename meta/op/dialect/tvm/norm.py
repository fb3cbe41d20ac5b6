"""TE computes of normalisations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from meta.op.dialect.tvm._adapter import te, tirx
from meta.op.dialect.tvm._elementwise import cast, const, select
from meta.op.dialect.tvm._precision import wide
from meta.op.dialect.tvm._reduce import Value, at, axes_of, count, finish, reduced, widened
from meta.op.dialect.tvm._register import compute

Expr = Any
Axes = tuple[int, ...]


def _moments(x: Any, axes: Axes) -> tuple[Any, Any]:
    """Mean and summed squares of the differences from it along `axes`, which stay as size 1."""
    value, number = widened(x), count(x, axes, wide(x.dtype))
    total = reduced(x, axes, te.sum, value, "total")
    mean = te.compute(total.shape, lambda *i: total(*i) / number, "mean")

    def squared(*i: Any) -> Expr:
        difference = value(*i) - at(mean, axes, i)
        return difference * difference

    return mean, reduced(x, axes, te.sum, squared, "squares")


def _inverse_deviation(squares: Any, number: Expr, eps: float) -> Any:
    def element(*i: Any) -> Expr:
        return const(number, 1) / tirx.sqrt(squares(*i) / number + const(number, eps))

    return te.compute(squares.shape, element, "invstd")


def _row_statistics(x: Any, axes: Axes, eps: float) -> tuple[Value, Any, Expr]:
    """The normalised x, 1 / deviation, and the number of elements, for layer_norm."""
    value, number = widened(x), count(x, axes, wide(x.dtype))
    mean, squares = _moments(x, axes)
    invstd = _inverse_deviation(squares, number, eps)
    return lambda *i: (value(*i) - at(mean, axes, i)) * at(invstd, axes, i), invstd, number


def _parameter(value: Any, axes: Axes, index: Sequence[Any], dtype: str) -> Expr:
    """The element of a parameter of the shape of `axes` that goes with an index of x."""
    return cast(value(*(index[a] for a in axes)), dtype)


def _affine(x: Expr, w: Any, b: Any, axes: Axes, index: Sequence[Any], dtype: str) -> Expr:
    """x * w + b, as far as they are there."""
    if w is not None:
        x = x * _parameter(w, axes, index, dtype)
    return x if b is None else x + _parameter(b, axes, index, dtype)


@compute("layer_norm")
def layer_norm(x: Any, scale: Any, bias: Any, axis: Axes, eps: float) -> Any:
    axes, dtype = axes_of(axis, len(x.shape)), wide(x.dtype)
    normalised, _, _ = _row_statistics(x, axes, eps)

    def element(*i: Any) -> Expr:
        return cast(_affine(normalised(*i), scale, bias, axes, i, dtype), str(x.dtype))

    return te.compute(x.shape, element, "layer_norm")


@compute("layer_norm_dx")
def layer_norm_dx(x: Any, scale: Any, dy: Any, axis: Axes, eps: float) -> Any:
    axes, dtype, grad = axes_of(axis, len(x.shape)), wide(x.dtype), widened(dy)
    normalised, invstd, number = _row_statistics(x, axes, eps)

    def scaled(*i: Any) -> Expr:
        return _affine(grad(*i), scale, None, axes, i, dtype)

    along_one = reduced(x, axes, te.sum, scaled, "along_one")
    along_x = reduced(x, axes, te.sum, lambda *i: scaled(*i) * normalised(*i), "along_x")

    def element(*i: Any) -> Expr:
        rest = (at(along_one, axes, i) + normalised(*i) * at(along_x, axes, i)) / number
        return cast(at(invstd, axes, i) * (scaled(*i) - rest), str(x.dtype))

    return te.compute(x.shape, element, "layer_norm_dx")


@compute("layer_norm_dwb")
def layer_norm_dwb(x: Any, dy: Any, axis: Axes, eps: float, *, out: Any) -> Any:
    axes, grad = axes_of(axis, len(x.shape)), widened(dy)
    rest = tuple(a for a in range(len(x.shape)) if a not in axes)
    normalised, _, _ = _row_statistics(x, axes, eps)
    dscale = reduced(x, rest, te.sum, lambda *i: grad(*i) * normalised(*i), "dscale_sum")
    dbias = reduced(x, rest, te.sum, grad, "dbias_sum")
    return finish(dscale, rest, out[0], "dscale"), finish(dbias, rest, out[1], "dbias")


def _channel_axes(x: Any, axis: int) -> tuple[int, Axes]:
    """The axis of channels, and the others."""
    channel = axis % len(x.shape)
    return channel, tuple(a for a in range(len(x.shape)) if a != channel)


@compute("batch_norm_train")
def batch_norm_train(
    x: Any, running_mean: Any, running_var: Any, w: Any, b: Any, momentum: float, eps: float, axis: int, *, out: Any
) -> Any:
    channel, others = _channel_axes(x, axis)
    dtype, value = wide(x.dtype), widened(x)
    number = count(x, others, dtype)
    mean, squares = _moments(x, others)
    invstd = _inverse_deviation(squares, number, eps)

    def element(*i: Any) -> Expr:
        normalised = (value(*i) - at(mean, others, i)) * at(invstd, others, i)
        return cast(_affine(normalised, w, b, (channel,), i, dtype), out[0].dtype)

    def updated(running: Any, batch: Any, scale: Expr, name: str) -> Any:
        share = select(number > const(number, 0), const(number, momentum), const(number, 0))

        def running_element(c: Any) -> Expr:
            before = cast(running(c), dtype)
            now = batch(*(c if a == channel else 0 for a in range(len(x.shape)))) * scale
            after = select(number > const(number, 0), before * (const(number, 1) - share) + now * share, before)
            return cast(after, str(running.dtype))

        return te.compute(running.shape, running_element, name)

    one = const(number, 1)
    freedom = one / tirx.Max(number - one, one)
    return (
        te.compute(x.shape, element, "batch_norm"),
        updated(running_mean, mean, one, "new_mean"),
        updated(running_var, squares, freedom, "new_var"),
        finish(mean, others, out[3], "batch_mean"),
        finish(invstd, others, out[4], "batch_invstd"),
    )


@compute("batch_norm_train_dxwb")
def batch_norm_train_dxwb(dy: Any, x: Any, w: Any, mean: Any, invstd: Any, axis: int, *, out: Any) -> Any:
    channel, others = _channel_axes(x, axis)
    dtype, value, grad = wide(x.dtype), widened(x), widened(dy)
    number = count(x, others, dtype)

    def normalised(*i: Any) -> Expr:
        return (value(*i) - cast(mean(i[channel]), dtype)) * cast(invstd(i[channel]), dtype)

    along_one = reduced(x, others, te.sum, grad, "along_one")
    along_x = reduced(x, others, te.sum, lambda *i: grad(*i) * normalised(*i), "along_x")

    def element(*i: Any) -> Expr:
        rest = (at(along_one, others, i) + normalised(*i) * at(along_x, others, i)) / number
        scale = _affine(cast(invstd(i[channel]), dtype), w, None, (channel,), i, dtype)
        return cast(scale * (grad(*i) - rest), out[0].dtype)

    return (
        te.compute(x.shape, element, "batch_norm_dx"),
        finish(along_x, others, out[1], "dw"),
        finish(along_one, others, out[2], "db"),
    )


@compute("batch_norm_infer")
def batch_norm_infer(x: Any, running_mean: Any, running_var: Any, w: Any, b: Any, eps: float, axis: int) -> Any:
    channel, dtype, value = axis % len(x.shape), wide(x.dtype), widened(x)

    def element(*i: Any) -> Expr:
        c = i[channel]
        deviation = tirx.sqrt(cast(running_var(c), dtype) + tirx.const(eps, dtype))
        normalised = (value(*i) - cast(running_mean(c), dtype)) / deviation
        return cast(_affine(normalised, w, b, (channel,), i, dtype), str(x.dtype))

    return te.compute(x.shape, element, "batch_norm_infer")
