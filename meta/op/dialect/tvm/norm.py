"""TE computes of normalisations."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.adapter import te, tirx
from meta.backend.tvm.intrinsic import Expr, Tensor
from meta.backend.tvm.spec import Outs
from meta.backend.tvm.te.elementwise import accumulation_dtype, cast, const, select
from meta.backend.tvm.te.reduce import (
    Value,
    axes_of,
    count_elements,
    elements_of,
    read_reduced,
    reduce_axes,
    store_result,
)
from meta.op.dialect.tvm import Registrar

compute = Registrar(__file__).compute

Axes = tuple[int, ...]


def _moments(x: Tensor, axes: Axes, dtype: str) -> tuple[Any, Any]:
    """The mean along `axes` and the sum of squared differences from it, in a dtype; the axes stay as size 1."""
    value, size = elements_of(x, dtype), count_elements(x, axes, dtype)
    total = reduce_axes(x, axes, te.sum, value, "total")
    mean = te.compute(total.shape, lambda *i: total(*i) / size, "mean")

    def squared(*i: Expr) -> Expr:
        difference = value(*i) - read_reduced(mean, axes, i)
        return difference * difference

    return mean, reduce_axes(x, axes, te.sum, squared, "squares")


def _inverse_deviation(squares: Tensor, size: Expr, eps: float) -> Any:
    def element(*i: Expr) -> Expr:
        return const(size, 1) / tirx.sqrt(squares(*i) / size + const(size, eps))

    return te.compute(squares.shape, element, "invstd")


def _normalise_rows(x: Tensor, axes: Axes, eps: float) -> tuple[Value, Any, Expr]:
    """The normalised x, 1 / deviation, and the number of elements per row."""
    dtype = accumulation_dtype(x.dtype)
    value, size = elements_of(x), count_elements(x, axes, dtype)
    mean, squares = _moments(x, axes, dtype)
    invstd = _inverse_deviation(squares, size, eps)
    return lambda *i: (value(*i) - read_reduced(mean, axes, i)) * read_reduced(invstd, axes, i), invstd, size


def _parameter_element(value: Any, axes: Axes, index: Sequence[Any], dtype: str) -> Expr:
    """The element of a parameter over `axes` at an index of x."""
    return cast(value(*(index[a] for a in axes)), dtype)


def _scale_and_shift(x: Expr, w: Any, b: Any, axes: Axes, index: Sequence[Any], dtype: str) -> Expr:
    """x * w + b; w and b may be None."""
    if w is not None:
        x = x * _parameter_element(w, axes, index, dtype)
    return x if b is None else x + _parameter_element(b, axes, index, dtype)


def _over_rows(name: str, normalise: Callable[[Any, Axes, float], Value]) -> None:
    """Register `normalise(x, axes, eps) * scale + bias`, without the parameters that the operator lacks."""

    @compute(name)
    def run(x: Any, *rest: Any) -> Any:
        *parameters, axis, eps = rest
        scale, bias = (*parameters, None, None)[:2]
        axes, dtype = axes_of(axis, len(x.shape)), accumulation_dtype(x.dtype)
        normalised = normalise(x, axes, eps)

        def element(*i: Expr) -> Expr:
            return cast(_scale_and_shift(normalised(*i), scale, bias, axes, i, dtype), str(x.dtype))

        return te.compute(x.shape, element, name)


def _divide_by_root_mean_square(x: Tensor, axes: Axes, eps: float) -> Value:
    value = elements_of(x)
    squares = reduce_axes(x, axes, te.sum, lambda *i: value(*i) * value(*i), "squares")
    inverse = _inverse_deviation(squares, count_elements(x, axes, accumulation_dtype(x.dtype)), eps)
    return lambda *i: value(*i) * read_reduced(inverse, axes, i)


_over_rows("layer_norm", lambda x, axes, eps: _normalise_rows(x, axes, eps)[0])
_over_rows("rms_norm", _divide_by_root_mean_square)


@compute("layer_norm_dx")
def layer_norm_dx(x: Tensor, scale: Any, dy: Tensor, axis: Axes, eps: float) -> Any:
    axes, dtype, grad = axes_of(axis, len(x.shape)), accumulation_dtype(x.dtype), elements_of(dy)
    normalised, invstd, size = _normalise_rows(x, axes, eps)

    def scaled(*i: Expr) -> Expr:
        return _scale_and_shift(grad(*i), scale, None, axes, i, dtype)

    grad_sum = reduce_axes(x, axes, te.sum, scaled, "grad_sum")
    projection = reduce_axes(x, axes, te.sum, lambda *i: scaled(*i) * normalised(*i), "projection")

    def element(*i: Expr) -> Expr:
        rest = (read_reduced(grad_sum, axes, i) + normalised(*i) * read_reduced(projection, axes, i)) / size
        return cast(read_reduced(invstd, axes, i) * (scaled(*i) - rest), str(x.dtype))

    return te.compute(x.shape, element, "layer_norm_dx")


@compute("layer_norm_dwb")
def layer_norm_dwb(x: Tensor, dy: Tensor, axis: Axes, eps: float, *, out: Outs) -> Any:
    axes, grad = axes_of(axis, len(x.shape)), elements_of(dy)
    rest = tuple(a for a in range(len(x.shape)) if a not in axes)
    normalised, _, _ = _normalise_rows(x, axes, eps)
    dscale = reduce_axes(x, rest, te.sum, lambda *i: grad(*i) * normalised(*i), "dscale_sum")
    dbias = reduce_axes(x, rest, te.sum, grad, "dbias_sum")
    return store_result(dscale, rest, out[0], "dscale"), store_result(dbias, rest, out[1], "dbias")


@compute("layer_norm_train")
def layer_norm_train(x: Tensor, scale: Any, bias: Any, axis: Axes, eps: float) -> Any:
    axes, dtype = axes_of(axis, len(x.shape)), accumulation_dtype(x.dtype)
    value, size = elements_of(x), count_elements(x, axes, dtype)
    mean, squares = _moments(x, axes, dtype)
    invstd = _inverse_deviation(squares, size, eps)

    def element(*i: Expr) -> Expr:
        normalised = (value(*i) - read_reduced(mean, axes, i)) * read_reduced(invstd, axes, i)
        return cast(_scale_and_shift(normalised, scale, bias, axes, i, dtype), str(x.dtype))

    return te.compute(x.shape, element, "layer_norm_train"), mean, invstd


@compute("layer_norm_train_dxwb")
def layer_norm_train_dxwb(
    dy: Tensor, x: Tensor, scale: Any, mean: Tensor, invstd: Tensor, axis: Axes, *, out: Outs
) -> Any:
    axes, dtype = axes_of(axis, len(x.shape)), accumulation_dtype(x.dtype)
    rest = tuple(a for a in range(len(x.shape)) if a not in axes)
    value, grad, size = elements_of(x), elements_of(dy), count_elements(x, axes, dtype)

    def by_row(statistic: Tensor, i: Sequence[Any]) -> Expr:
        return cast(statistic(*(0 if a in axes else index for a, index in enumerate(i))), dtype)

    def normalised(*i: Expr) -> Expr:
        return (value(*i) - by_row(mean, i)) * by_row(invstd, i)

    def scaled(*i: Expr) -> Expr:
        return _scale_and_shift(grad(*i), scale, None, axes, i, dtype)

    grad_sum = reduce_axes(x, axes, te.sum, scaled, "grad_sum")
    projection = reduce_axes(x, axes, te.sum, lambda *i: scaled(*i) * normalised(*i), "projection")

    def element(*i: Expr) -> Expr:
        shares = (read_reduced(grad_sum, axes, i) + normalised(*i) * read_reduced(projection, axes, i)) / size
        return cast(by_row(invstd, i) * (scaled(*i) - shares), str(x.dtype))

    dscale = reduce_axes(x, rest, te.sum, lambda *i: grad(*i) * normalised(*i), "dscale_sum")
    dbias = reduce_axes(x, rest, te.sum, grad, "dbias_sum")
    stored = store_result(dscale, rest, out[1], "dscale"), store_result(dbias, rest, out[2], "dbias")
    return te.compute(x.shape, element, "layer_norm_train_dx"), *stored


@compute("layer_norm_dxwb")
def layer_norm_dxwb(x: Tensor, scale: Any, dy: Tensor, axis: Axes, eps: float, *, out: Outs) -> Any:
    return layer_norm_dx(x, scale, dy, axis, eps), *layer_norm_dwb(x, dy, axis, eps, out=out[1:])


def _split_channel(x: Tensor, axis: int) -> tuple[int, Axes, str]:
    """The channel axis, the other axes, and the dtype of computation."""
    # Batch norm over at most so many elements computes in float64: over two of them, the gradient is a difference of
    # nearly equal numbers, which magnifies rounding by up to variance / eps.
    few_elements = 64
    channel = axis % len(x.shape)
    others = tuple(a for a in range(len(x.shape)) if a != channel)
    sizes = [x.shape[a] for a in others]
    is_few = all(isinstance(n, tvm.IntImm) for n in sizes) and math.prod(map(int, sizes)) <= few_elements
    return channel, others, "float64" if is_few and x.dtype == "float32" else accumulation_dtype(x.dtype)


@compute("batch_norm_train")
def batch_norm_train(
    x: Tensor, running_mean: Any, running_var: Any, w: Any, b: Any, momentum: float, eps: float, axis: int, *, out: Outs
) -> Any:
    channel, others, dtype = _split_channel(x, axis)
    value, size = elements_of(x, dtype), count_elements(x, others, dtype)
    mean, squares = _moments(x, others, dtype)
    invstd = _inverse_deviation(squares, size, eps)

    def element(*i: Expr) -> Expr:
        normalised = (value(*i) - read_reduced(mean, others, i)) * read_reduced(invstd, others, i)
        return cast(_scale_and_shift(normalised, w, b, (channel,), i, dtype), out[0].dtype)

    def update_statistic(running: Tensor, batch: Any, scale: Expr, name: str) -> Any:
        """The running statistic after this batch; unchanged if the batch is empty."""
        weight = select(size > const(size, 0), const(size, momentum), const(size, 0))

        def running_element(c: Expr) -> Expr:
            previous = cast(running(c), dtype)
            current = batch(*(c if a == channel else 0 for a in range(len(x.shape)))) * scale
            blended = select(size > const(size, 0), previous * (const(size, 1) - weight) + current * weight, previous)
            return cast(blended, str(running.dtype))

        return te.compute(running.shape, running_element, name)

    one = const(size, 1)
    freedom = one / tirx.Max(size - one, one)
    return (
        te.compute(x.shape, element, "batch_norm"),
        update_statistic(running_mean, mean, one, "new_mean"),
        update_statistic(running_var, squares, freedom, "new_var"),
        store_result(mean, others, out[3], "batch_mean"),
        store_result(invstd, others, out[4], "batch_invstd"),
    )


@compute("batch_norm_train_dxwb")
def batch_norm_train_dxwb(dy: Tensor, x: Tensor, w: Any, mean: Tensor, invstd: Tensor, axis: int, *, out: Outs) -> Any:
    channel, others, dtype = _split_channel(x, axis)
    grad, normalised = elements_of(dy, dtype), _normalised_by(x, mean, invstd, axis)
    size = count_elements(x, others, dtype)
    projection, grad_sum = _channel_sums(dy, x, mean, invstd, axis)

    def element(*i: Expr) -> Expr:
        rest = (read_reduced(grad_sum, others, i) + normalised(*i) * read_reduced(projection, others, i)) / size
        scale = _scale_and_shift(cast(invstd(i[channel]), dtype), w, None, (channel,), i, dtype)
        return cast(scale * (grad(*i) - rest), out[0].dtype)

    return (
        te.compute(x.shape, element, "batch_norm_dx"),
        store_result(projection, others, out[1], "dw"),
        store_result(grad_sum, others, out[2], "db"),
    )


@compute("batch_norm_stats")
def batch_norm_stats(x: Tensor, eps: float, axis: int, *, out: Outs) -> Any:
    _, others, dtype = _split_channel(x, axis)
    mean, squares = _moments(x, others, dtype)
    size = count_elements(x, others, dtype)
    invstd = _inverse_deviation(squares, size, eps)
    return (
        store_result(mean, others, out[0], "batch_mean"),
        store_result(squares, others, out[1], "batch_variance", lambda value: value / size),
        store_result(invstd, others, out[2], "batch_invstd"),
    )


@compute("batch_norm_sums")
def batch_norm_sums(dy: Tensor, x: Tensor, mean: Tensor, invstd: Tensor, axis: int, *, out: Outs) -> Any:
    others = _split_channel(x, axis)[1]
    projection, grad_sum = _channel_sums(dy, x, mean, invstd, axis)
    return store_result(projection, others, out[0], "dw"), store_result(grad_sum, others, out[1], "db")


def _channel_sums(dy: Tensor, x: Tensor, mean: Tensor, invstd: Tensor, axis: int) -> tuple[Any, Any]:
    """The sums of dy times the normalised x, and of dy, over all axes but the channels'; the axes stay as size 1."""
    _, others, dtype = _split_channel(x, axis)
    grad, normalised = elements_of(dy, dtype), _normalised_by(x, mean, invstd, axis)
    projection = reduce_axes(x, others, te.sum, lambda *i: grad(*i) * normalised(*i), "projection")
    return projection, reduce_axes(x, others, te.sum, grad, "grad_sum")


def _normalised_by(x: Tensor, mean: Tensor, invstd: Tensor, axis: int) -> Value:
    """(x - mean) * invstd, with one mean and invstd for each channel."""
    channel, _, dtype = _split_channel(x, axis)
    value = elements_of(x, dtype)
    return lambda *i: (value(*i) - cast(mean(i[channel]), dtype)) * cast(invstd(i[channel]), dtype)


@compute("batch_norm_infer")
def batch_norm_infer(
    x: Tensor, running_mean: Tensor, running_var: Tensor, w: Any, b: Any, eps: float, axis: int
) -> Any:
    channel, dtype, value = axis % len(x.shape), accumulation_dtype(x.dtype), elements_of(x)

    def element(*i: Expr) -> Expr:
        c = i[channel]
        deviation = tirx.sqrt(cast(running_var(c), dtype) + const(cast(running_var(c), dtype), eps))
        normalised = (value(*i) - cast(running_mean(c), dtype)) / deviation
        return cast(_scale_and_shift(normalised, w, b, (channel,), i, dtype), str(x.dtype))

    return te.compute(x.shape, element, "batch_norm_infer")
