"""Backward operators of ATen that move elements: selections, padding, pooling, resizing and convolutions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import meta
from meta._generated.methods import Tensor
from meta.dtype import accumulation_dtype, promote
from meta.frontend.torch.aten._row import row, rows
from meta.frontend.torch.aten._values import in_dtype
from meta.frontend.torch.aten.backward import forward, pullback


def _moved(name: str, dy: Tensor, sizes: Sequence[Any], *args: Any, **keywords: Any) -> Any:
    """The gradient of a row that only moves elements, which depends only on the sizes of its argument."""
    x = meta.zeros(tuple(sizes), dy.dtype, dy.device)
    return pullback(lambda x: forward(name)(x, *args, **keywords), (x,), dy)[0]


def _view(name: str) -> Callable[..., Any]:
    """The row of a view's gradient. args: as of the view."""

    def backward(grad_output: Tensor, input_sizes: Sequence[int], *args: Any, **keywords: Any) -> Any:
        return _moved(name, grad_output, input_sizes, *args, **keywords)

    return backward


def _padding(mode: str) -> Callable[..., Any]:
    return lambda grad_output, self, padding: _moved("pad", grad_output, self.shape, padding, mode)


def _average(rank: int) -> Callable[..., Any]:
    """args: the window, as of the pooling."""

    def backward(grad_output: Tensor, self: Tensor, *args: Any, **keywords: Any) -> Any:
        return _moved(f"avg_pool{rank}d", grad_output, self.shape, *args, **keywords)

    return backward


def _adaptive_average(rank: int) -> Callable[..., Any]:
    return lambda grad_output, self: _moved(
        f"adaptive_avg_pool{rank}d", grad_output, self.shape, grad_output.shape[-rank:]
    )


def _at_indices(rank: int) -> Callable[..., Any]:
    """Gradients added at the places that pooling picked: positions in the flattened image, its last argument."""

    def place(grad_output: Tensor, self: Tensor, *window: Any, indices: Tensor | None = None) -> Any:
        lead = grad_output.shape[: grad_output.ndim - rank]
        image, picked = (math.prod(x.shape[-rank:]) for x in (self, grad_output))
        flat = meta.zeros((*lead, image), grad_output.dtype, grad_output.device)
        places = window[-1] if indices is None else indices
        flat_dy, flat_indices = (meta.reshape(x, (*lead, picked)) for x in (grad_output, places))
        return meta.reshape(meta.scatter_add(flat, -1, flat_indices, flat_dy), self.shape)

    return place


def _resized(name: str) -> Callable[..., Any]:
    """args: `align_corners` where the mode has it, and the scales."""

    def backward(grad_output: Any, output_size: Any, input_size: Any, *args: Any, **keywords: Any) -> Any:
        return _moved(name, grad_output, input_size, output_size, *args, **keywords)

    return backward


_RESIZED = (
    *(f"{mode}{rank}d" for mode in ("upsample_nearest", "_upsample_nearest_exact") for rank in (1, 2, 3)),
    "upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d",
    "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa",
)  # fmt: skip

rows({
    **{f"{name}_backward": _view(name) for name in ("diagonal", "select", "slice")},
    **{f"{name}_backward": _resized(name) for name in _RESIZED},
    **{f"reflection_pad{rank}d_backward": _padding("reflect") for rank in (1, 2, 3)},
    **{f"replication_pad{rank}d_backward": _padding("replicate") for rank in (1, 2, 3)},
    **{f"avg_pool{rank}d_backward": _average(rank) for rank in (2, 3)},
    **{f"_adaptive_avg_pool{rank}d_backward": _adaptive_average(rank) for rank in (2, 3)},
    **{f"adaptive_max_pool{rank}d_backward": _at_indices(rank) for rank in (2, 3)},
    **{f"fractional_max_pool{rank}d_backward": _at_indices(rank) for rank in (2, 3)},
    "max_pool3d_with_indices_backward": _at_indices(3),
    "_cdist_backward": lambda grad, x1, x2, p, cdist: pullback(lambda x: forward("cdist")(x, x2, p), (x1,), grad)[0],
    "_pdist_backward": lambda grad, self, p, pdist: pullback(lambda x: forward("pdist")(x, p), (self,), grad)[0],
})  # fmt: skip


@row()
def unfold_backward(grad_in: Tensor, input_sizes: Sequence[int], dim: int, size: int, step: int) -> Any:
    """The sums of overlapping windows. ATen broadcasts windows that all rows share, as `istft` has them."""
    windows = [*input_sizes, size]
    if input_sizes:
        windows[dim % len(input_sizes)] = grad_in.shape[dim % len(input_sizes)]
    if tuple(windows) != grad_in.shape:
        grad_in = meta.broadcast_to(grad_in, tuple(windows))
    return _moved("unfold", grad_in, input_sizes, dim, size, step)


@row()
def masked_scatter_backward(grad_output: Tensor, mask: Tensor, sizes: Sequence[int]) -> Any:
    """The gradients at the places of the mask, in order, then zeros."""
    source = meta.zeros(tuple(sizes), grad_output.dtype, grad_output.device)
    x = meta.zeros_like(grad_output)
    return pullback(lambda *v: forward("masked_scatter")(x, mask, *v), (source,), grad_output)[0]


def _masked(gradients: Sequence[Any], mask: Sequence[bool]) -> tuple[Any, ...]:
    return tuple(g if is_needed else None for g, is_needed in zip(gradients, mask, strict=True))


@row()
def convolution_backward(
    grad_output: Tensor, input: Tensor, weight: Tensor, bias_sizes: Sequence[int] | None, stride: Sequence[int],
    padding: Sequence[int], dilation: Sequence[int], transposed: bool, output_padding: Sequence[int], groups: int,
    output_mask: Sequence[bool],
) -> Any:  # fmt: skip
    def convolve(x: Tensor, w: Tensor) -> Any:
        return forward("convolution")(x, w, None, stride, padding, dilation, transposed, output_padding, groups)

    dx, dw = pullback(convolve, (input, weight), grad_output)
    return _masked((dx, dw, _channels(grad_output)), output_mask)


def _channels(x: Tensor) -> Any:
    """The sum over all axes but the second."""
    return meta.sum(x, tuple(i for i in range(x.ndim) if i != 1))


@row()
def native_layer_norm_backward(
    grad_out: Tensor, input: Tensor, normalized_shape: Sequence[int], mean: Tensor, rstd: Tensor, weight: Tensor | None,
    bias: Tensor | None, output_mask: Sequence[bool],
) -> Any:  # fmt: skip
    """By the forward's statistics. Mixed operands are computed in the widest dtype."""
    if len({t.dtype for t in (grad_out, input, weight) if t is not None}) > 1:
        widest = reduce(promote, [t.dtype for t in (grad_out, input, weight, mean, rstd) if t is not None])
        grad_out, input = in_dtype(grad_out, widest), in_dtype(input, widest)
        weight = None if weight is None else in_dtype(weight, widest)
    mean, rstd = (in_dtype(m, accumulation_dtype(input.dtype)) for m in (mean, rstd))
    axes = tuple(range(-len(normalized_shape), 0))
    return _masked(meta.layer_norm_train_dxwb(grad_out, input, weight, mean, rstd, axes), output_mask)


@row()
def native_group_norm_backward(
    grad_out: Tensor, input: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor | None, N: int, C: int, HxW: int,
    group: int, output_mask: Sequence[bool],
) -> Any:  # fmt: skip
    grouped = (N, group, C // group * HxW)
    moments = [meta.reshape(m, (N, group, 1)) for m in (mean, rstd)]
    unit = (meta.reshape(input, grouped) - moments[0]) * moments[1]
    channels = (1, C, *(1,) * (input.ndim - 2))
    scaled = grad_out if weight is None else grad_out * meta.reshape(weight, channels)
    dy = meta.reshape(scaled, grouped)
    dx = moments[1] * (dy - meta.mean(dy, -1, True) - unit * meta.mean(dy * unit, -1, True))
    unit = meta.reshape(unit, input.shape)
    gradients = (meta.reshape(dx, input.shape), _channels(grad_out * unit), _channels(grad_out))
    return _masked(gradients, output_mask)


@row()
def native_batch_norm_backward(
    grad_out: Any, input: Any, weight: Any, running_mean: Any, running_var: Any, save_mean: Any, save_invstd: Any,
    train: bool, eps: float, output_mask: Sequence[bool],
) -> Any:  # fmt: skip
    """By the moments of the batch when training, by the running ones otherwise."""
    mean, inverse = (save_mean, save_invstd) if train else (running_mean, meta.rsqrt(running_var + eps))
    wide = accumulation_dtype(input.dtype)
    mean, inverse = in_dtype(mean, wide), in_dtype(inverse, wide)
    if train:
        dx, dw, db = meta.batch_norm_train_dxwb(grad_out, input, weight, mean, inverse)
    else:
        shape = (1, -1, *(1,) * (input.ndim - 2))
        dw, db = meta.batch_norm_sums(grad_out, input, mean, inverse)
        factor = inverse if weight is None else inverse * weight
        dx = in_dtype(grad_out * meta.reshape(factor, shape), input.dtype)
    kind = input.dtype if weight is None else weight.dtype
    return _masked((dx, in_dtype(dw, kind), in_dtype(db, kind)), output_mask)


@row()
def batch_norm_backward(
    grad_out: Tensor, input: Tensor, weight: Tensor, running_mean: Tensor | None, running_var: Tensor | None,
    save_mean: Tensor | None, save_var: Tensor | None, update: bool, eps: float, output_mask: Sequence[bool],
    reserve: Tensor,
) -> Any:  # fmt: skip
    moments = (running_mean, running_var, save_mean, save_var)
    return native_batch_norm_backward(grad_out, input, weight, *moments, update, eps, output_mask)


@row("grid_sampler_2d_backward", "grid_sampler_3d_backward")
def grid_sampler_backward(
    grad_output: Tensor, input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool,
    output_mask: Sequence[bool],
) -> Any:  # fmt: skip
    def sample(x: Tensor, where: Any) -> Any:
        return forward("grid_sampler")(x, where, interpolation_mode, padding_mode, align_corners)

    return _masked(pullback(sample, (input, grid), grad_output), output_mask)
