"""Products, convolutions, pools and normalisations."""

from __future__ import annotations

from typing import Any

from meta.frontend._by_rank import AXES
from meta.frontend.relax.export_ops._table import RelaxSite, row
from meta.frontend.rows import Function
from meta.op import windows


@row("matmul")
def matmul(call: RelaxSite, x1: Any, x2: Any, transpose_a: bool, transpose_b: bool) -> Any:
    first, second = call.types
    if not call.is_wide or (transpose_a and first.ndim < 2) or (transpose_b and second.ndim < 2):
        return None
    return call.op.matmul(
        _transposed(call, x1, first.ndim) if transpose_a else x1,
        _transposed(call, x2, second.ndim) if transpose_b else x2,
    )


def _transposed(call: RelaxSite, x: Any, ndim: int) -> Any:
    return call.op.permute_dims(x, [*range(ndim - 2), ndim - 1, ndim - 2])


@row("dense")
def dense(call: RelaxSite, x: Any, w: Any, bias: Any) -> Any:
    if not call.is_wide:
        return None
    product = call.op.matmul(x, _transposed(call, w, 2))
    return product if bias is None else call.op.add(product, bias)


@row("softmax", "log_softmax")
def softmax(call: RelaxSite, x: Any, axis: int) -> Any:
    return getattr(call.op.nn, call.call.op_name)(x, axis) if call.is_wide and call.result.ndim else None


def _window(rank: int, stride: Any, padding: Any, dilation: Any) -> dict[str, list[int]]:
    """Attributes of sliding windows, with one value for each spatial axis."""
    steps, pads, gaps = windows.attributes(rank, stride, padding, dilation)
    before, after = zip(*pads, strict=True)
    return {"strides": list(steps), "padding": [*before, *after], "dilation": list(gaps)}


def _convolution(rank: int) -> Function:
    name = f"conv{rank}d"
    data, kernel = f"NC{AXES[rank]}", f"OI{AXES[rank]}"

    def convert(
        call: RelaxSite, x: Any, w: Any, stride: Any, padding: Any, dilation: Any, groups: int, channels_last: bool
    ) -> Any:
        if not call.is_wide or channels_last:
            return None
        options = _window(rank, stride, padding, dilation)
        return getattr(call.op.nn, name)(x, w, groups=groups, data_layout=data, kernel_layout=kernel, **options)

    return convert


for _rank in (1, 2, 3):
    row(f"conv{_rank}d")(_convolution(_rank))


def _average(rank: int) -> Function:
    def convert(
        call: RelaxSite,
        x: Any,
        kernel: Any,
        stride: Any,
        padding: Any,
        dilation: Any,
        ceil_mode: bool,
        count_include_pad: bool,
    ) -> Any:
        if not call.is_wide or ceil_mode or any(d != 1 for d in dilation):
            return None
        shape = list(windows.per_axis("kernel", kernel, rank))
        options = _window(rank, stride or kernel, padding, dilation)
        return getattr(call.op.nn, f"avg_pool{rank}d")(x, shape, count_include_pad=count_include_pad, **options)

    return convert


for _rank in (1, 2, 3):
    row(f"avg_pool{_rank}d")(_average(_rank))


@row("batch_norm_infer")
def batch_norm_infer(call: RelaxSite, x: Any, mean: Any, var: Any, w: Any, b: Any, eps: float, axis: int) -> Any:
    if not call.is_wide or w is None or b is None:
        return None
    result = call.op.nn.batch_norm(x, w, b, mean, var, axis=axis % call.result.ndim, epsilon=eps, training=False)
    return result[0]


@row("layer_norm")
def layer_norm(call: RelaxSite, x: Any, scale: Any, bias: Any, axis: tuple[int, ...], eps: float) -> Any:
    if not call.is_wide or call.dtype != "float32" or scale is None or bias is None:
        return None
    return call.op.nn.layer_norm(x, scale, bias, axes=list(axis), epsilon=eps)
