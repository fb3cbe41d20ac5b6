"""torch.nn.functional's arguments as those of ATen."""

from __future__ import annotations

from typing import Any

import meta
from tests.python.conformance.methods import Call, need

CALLS: dict[str, Call] = {}
_REDUCTIONS = {"none": 0, "mean": 1, "sum": 2}


def nn(*names: str) -> Any:
    """Enter the decorated function under names of torch.nn.functional; its own name without any."""

    def enter(function: Call) -> Call:
        for name in names or (function.__name__,):
            CALLS[f"nn.functional.{name}"] = function
        return function

    return enter


def _number(reduction: str, size_average: bool | None = None, reduce: bool | None = None) -> int:
    """ATen's number of a reduction; the two older flags decide when they are given."""
    if size_average is not None or reduce is not None:
        reduction = "none" if reduce is False else "sum" if size_average is False else "mean"
    if reduction not in _REDUCTIONS:
        raise ValueError(f"reduction is {reduction!r}")
    return _REDUCTIONS[reduction]


def _loss(name: str, aten_name: str | None = None) -> None:
    """A loss of two tensors whose last arguments are torch's flags of reductions."""

    @nn(name)
    def loss(
        input: Any, target: Any, *args: Any, size_average: bool | None = None, reduce: bool | None = None,
        reduction: str = "mean", **kwargs: Any,
    ) -> Any:  # fmt: skip
        number = _number(reduction, size_average, reduce)
        return need(aten_name or name)(input, target, *args, reduction=number, **kwargs)


for _name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy_with_logits",
              "binary_cross_entropy", "soft_margin_loss", "multilabel_margin_loss", "multi_margin_loss", "kl_div",
              "hinge_embedding_loss"):  # fmt: skip
    _loss(_name)
_loss("nll_loss", "nll_loss_nd")
_loss("cross_entropy", "cross_entropy_loss")


def _loss_of_three(name: str) -> None:
    @nn(name)
    def loss(
        a: Any, b: Any, target: Any, margin: float = 0.0, size_average: bool | None = None, reduce: bool | None = None,
        reduction: str = "mean",
    ) -> Any:  # fmt: skip
        return need(name)(a, b, target, margin, _number(reduction, size_average, reduce))


_loss_of_three("cosine_embedding_loss")
_loss_of_three("margin_ranking_loss")


@nn()
def dropout(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    return need("dropout")(input, p, training)


@nn()
def dropout2d(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    return need("feature_dropout")(input, p, training)


@nn()
def dropout3d(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    return need("feature_dropout")(input, p, training)


@nn()
def embedding(
    weight: Any, input: Any, padding_idx: int | None = None, max_norm: float | None = None, norm_type: float = 2.0,
    scale_grad_by_freq: bool = False, sparse: bool = False,
) -> Any:  # fmt: skip
    """OpInfo's samples have the weight first."""
    if padding_idx is not None and not -weight.shape[0] <= padding_idx < weight.shape[0]:
        raise ValueError(f"padding_idx is {padding_idx}")
    if max_norm is not None:
        renormed = need("embedding_renorm")(weight, input, max_norm, norm_type)
        weight.update(renormed.detach())
    index = -1 if padding_idx is None else padding_idx % weight.shape[0]
    return need("embedding")(weight, input, index, scale_grad_by_freq, sparse)


@nn()
def batch_norm(
    input: Any, running_mean: Any, running_var: Any, weight: Any = None, bias: Any = None, training: bool = False,
    momentum: float = 0.1, eps: float = 1e-5,
) -> Any:  # fmt: skip
    return need("batch_norm")(input, weight, bias, running_mean, running_var, training, momentum, eps)


@nn()
def instance_norm(
    input: Any, running_mean: Any = None, running_var: Any = None, weight: Any = None, bias: Any = None,
    use_input_stats: bool = True, momentum: float = 0.1, eps: float = 1e-5,
) -> Any:  # fmt: skip
    return need("instance_norm")(input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps)


@nn()
def grid_sample(
    input: Any, grid: Any, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool | None = None
) -> Any:
    modes, paddings = ["bilinear", "nearest", "bicubic"], ["zeros", "border", "reflection"]
    if mode not in modes or padding_mode not in paddings or (mode == "bicubic" and input.ndim != 4):
        raise ValueError(f"mode is {mode!r}, padding_mode {padding_mode!r}")
    number, padding = modes.index(mode), paddings.index(padding_mode)
    return need("grid_sampler")(input, grid, number, padding, bool(align_corners))


@nn()
def rrelu(input: Any, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, inplace: bool = False) -> Any:
    return need("rrelu")(input, lower, upper, training)


@nn("softmin", "softmin.with_dtype")
def softmin(input: Any, dim: int, dtype: Any = None) -> Any:
    return need("softmax")(meta.negative(input), dim, dtype)


def _max_pool(rank: int) -> None:
    @nn(f"max_pool{rank}d")
    def max_pool(
        input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any:  # fmt: skip
        name = f"max_pool{rank}d_with_indices" if return_indices else f"max_pool{rank}d"
        return need(name)(input, kernel_size, () if stride is None else stride, padding, dilation, ceil_mode)

    @nn(f"adaptive_max_pool{rank}d")
    def adaptive_max_pool(input: Any, output_size: Any, return_indices: bool = False) -> Any:
        out = need(f"adaptive_max_pool{rank}d")(input, output_size)
        return out if return_indices else out[0]


for _rank in (1, 2, 3):
    _max_pool(_rank)
