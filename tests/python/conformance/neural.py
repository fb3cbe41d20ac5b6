"""Functions of torch.nn.functional that are not operators of ATen, or take other arguments than those."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import meta
from tests.python.conformance.methods import Call, need

CALLS: dict[str, Call] = {}


def nn(*names: str) -> Callable[[Call], Call]:
    """Enter the decorated function under names of torch.nn.functional; its own name without any."""

    def enter(function: Call) -> Call:
        for name in names or (function.__name__,):
            CALLS[f"nn.functional.{name}"] = function
        return function

    return enter


@nn()
def kl_div(
    input: Any, target: Any, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean",
    log_target: bool = False,
) -> Any:  # fmt: skip
    return meta.kl_div(input, target, reduction, log_target)  # type: ignore[arg-type]


@nn()
def gaussian_nll_loss(
    input: Any, target: Any, var: Any, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> Any:
    return meta.gaussian_nll_loss(input, target, var, full, eps, reduction)  # type: ignore[arg-type]


@nn()
def poisson_nll_loss(
    input: Any, target: Any, log_input: bool = True, full: bool = False, size_average: bool | None = None,
    eps: float = 1e-8, reduce: bool | None = None, reduction: str = "mean",
) -> Any:  # fmt: skip
    return meta.poisson_nll_loss(input, target, log_input, full, eps, reduction)  # type: ignore[arg-type]


@nn()
def multilabel_soft_margin_loss(
    input: Any, target: Any, weight: Any = None, size_average: bool | None = None, reduce: bool | None = None,
    reduction: str = "mean",
) -> Any:  # fmt: skip
    return meta.multilabel_soft_margin_loss(input, target, weight, reduction)  # type: ignore[arg-type]


@nn()
def triplet_margin_loss(
    anchor: Any, positive: Any, negative: Any, margin: float = 1.0, p: float = 2, eps: float = 1e-6,
    swap: bool = False, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean",
) -> Any:  # fmt: skip
    return meta.triplet_margin_loss(anchor, positive, negative, margin, p, eps, swap, reduction)  # type: ignore[arg-type]


@nn()
def triplet_margin_with_distance_loss(
    anchor: Any, positive: Any, negative: Any, *, distance_function: Any = None, margin: float = 1.0,
    swap: bool = False, reduction: str = "mean",
) -> Any:  # fmt: skip
    """torch's samples pass its Euclidean distance, which does not run on arrays of meta: the default is the same."""
    return meta.triplet_margin_with_distance_loss(anchor, positive, negative, None, margin, swap, reduction)  # type: ignore[arg-type]


@nn()
def ctc_loss(
    log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, blank: int = 0, reduction: str = "mean",
    zero_infinity: bool = False,
) -> Any:  # fmt: skip
    return meta.ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, reduction, zero_infinity)  # type: ignore[arg-type]


@nn()
def normalize(input: Any, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Any:
    return meta.normalize(input, p, dim, eps)


@nn()
def local_response_norm(input: Any, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Any:
    return meta.local_response_norm(input, size, alpha, beta, k)


@nn()
def unfold(input: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Any:
    return need("im2col")(input, kernel_size, dilation, padding, stride)


@nn()
def fold(input: Any, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Any:
    return need("col2im")(input, output_size, kernel_size, dilation, padding, stride)


def _max_unpool(rank: int) -> None:
    @nn(f"max_unpool{rank}d", f"max_unpool{rank}d.grad")
    def max_unpool(
        input: Any, indices: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, output_size: Any = None
    ) -> Any:
        function: Callable[..., Any] = getattr(meta, f"max_unpool{rank}d")
        return function(input, indices, kernel_size, stride, padding, output_size)


def _fractional_max_pool(rank: int) -> None:
    @nn(f"fractional_max_pool{rank}d")
    def fractional_max_pool(
        input: Any, kernel_size: Any, output_size: Any = None, output_ratio: Any = None, return_indices: bool = False,
        _random_samples: Any = None,
    ) -> Any:  # fmt: skip
        spatial = input.shape[-rank:]
        if output_size is None:
            ratios = (output_ratio,) * rank if isinstance(output_ratio, float) else output_ratio
            output_size = tuple(int(n * r) for n, r in zip(spatial, ratios, strict=True))
        lead = input.shape[:2] if input.ndim == rank + 2 else (1, input.shape[0])
        samples = _random_samples
        if samples is None:
            samples = meta.cast(meta.random.uniform((*lead, rank)), input.dtype)
        out = need(f"fractional_max_pool{rank}d")(input, kernel_size, output_size, samples)
        return out if return_indices else out[0]


for _rank in (1, 2, 3):
    _max_unpool(_rank)
for _rank in (2, 3):
    _fractional_max_pool(_rank)


def max_pool2d_backward(
    input: Any, kernel_size: Any = (), stride: Any = (), padding: Any = (0,), dilation: Any = (1,),
    ceil_mode: bool = False, return_indices: bool = False,
) -> Any:  # fmt: skip
    """The gradient of ones, as OpInfo's own function has it."""
    window = (kernel_size, stride, padding, dilation, ceil_mode)
    y, indices = need("max_pool2d_with_indices")(input, *window)
    return need("max_pool2d_with_indices_backward")(meta.ones_like(y), input, *window, indices)


CALLS["max_pool2d_with_indices_backward"] = max_pool2d_backward


@nn(*(f"interpolate.{m}" for m in ("nearest", "nearest-exact", "linear", "bilinear", "bicubic", "trilinear", "area")))
def interpolate(
    input: Any, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None, antialias: bool = False,
) -> Any:  # fmt: skip
    aligned, recomputed = bool(align_corners), bool(recompute_scale_factor)
    return meta.interpolate(input, size, scale_factor, mode, aligned, recomputed, antialias)  # type: ignore[arg-type]


@nn()
def upsample_nearest(input: Any, size: Any = None, scale_factor: Any = None) -> Any:
    return meta.interpolate(input, size, scale_factor, "nearest")


@nn()
def upsample_bilinear(input: Any, size: Any = None, scale_factor: Any = None) -> Any:
    return meta.interpolate(input, size, scale_factor, "bilinear", True)


@nn()
def grid_sample(
    input: Any, grid: Any, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool | None = None
) -> Any:
    return meta.grid_sample(input, meta.moveaxis(grid, -1, 1), mode, padding_mode, bool(align_corners))  # type: ignore[arg-type]


@nn()
def embedding_bag(
    weight: Any, input: Any, offsets: Any = None, max_norm: float | None = None, norm_type: float = 2.0,
    scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False, per_sample_weights: Any = None,
    include_last_offset: bool = False, padding_idx: int | None = None,
) -> Any:  # fmt: skip
    """The table comes first, as in OpInfo's own order."""
    if max_norm is not None:
        weight.update(need("embedding_renorm")(weight, input, max_norm, norm_type).detach())
    options = (mode, per_sample_weights, include_last_offset, padding_idx, scale_grad_by_freq)
    return meta.embedding_bag(weight, input, offsets, *options)  # type: ignore[arg-type]


@nn()
def multi_head_attention_forward(
    query: Any, key: Any, value: Any, embed_dim_to_check: int, num_heads: int, in_proj_weight: Any, in_proj_bias: Any,
    bias_k: Any, bias_v: Any, add_zero_attn: bool, dropout_p: float, out_proj_weight: Any, out_proj_bias: Any,
    training: bool = True, key_padding_mask: Any = None, need_weights: bool = True, attn_mask: Any = None,
    use_separate_proj_weight: bool = False, q_proj_weight: Any = None, k_proj_weight: Any = None,
    v_proj_weight: Any = None, static_k: Any = None, static_v: Any = None, average_attn_weights: bool = True,
    is_causal: bool = False,
) -> Any:  # fmt: skip
    weights = (q_proj_weight, k_proj_weight, v_proj_weight) if use_separate_proj_weight else in_proj_weight
    return meta.multi_head_attention(
        query, key, value, num_heads, weights, in_proj_bias, out_proj_weight, out_proj_bias, mask=attn_mask,
        key_padding_mask=key_padding_mask, bias_k=bias_k, bias_v=bias_v, add_zero=add_zero_attn,
        dropout=dropout_p if training else 0.0, seed=meta.random.next_key(), need_weights=need_weights,
        average_weights=average_attn_weights,
    )  # fmt: skip
