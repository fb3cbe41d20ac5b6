"""Backward operators of ATen, as operators of meta or as the gradients of the rows of their forward operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import meta
from meta._generated.methods import Tensor
from meta.dtype import Number
from meta.errors import ArgumentError
from meta.frontend.torch.aten._row import reduction_name, row, rows


def pullback(function: Callable[..., Any], xs: Sequence[Any], dy: Any) -> tuple[Any, ...]:
    """The gradients of `function(*xs)` with respect to each of xs for the gradient dy of the result, on arrays and on
    traced values; differentiable where xs or dy are."""
    with meta.enable_grad():
        sources = [_source(x) for x in xs]
        result = function(*sources)
    # Such as the distances that count unequal elements. In traces, `grad` returns None for them.
    if isinstance(result, meta.NDArray) and not result.requires_grad:
        return tuple(meta.zeros_like(x) for x in xs)
    create = any(not isinstance(x, meta.NDArray) or x.requires_grad for x in (*xs, dy))
    gradients = meta.autograd.grad([result], sources, [dy], create_graph=create, allow_unused=True)
    return tuple(meta.zeros_like(x) if g is None else g for g, x in zip(gradients, xs, strict=True))


def _source(x: Tensor) -> Any:
    """x as a tensor that requires a gradient, connected to x if that does."""
    if not isinstance(x, meta.NDArray) or x.requires_grad:
        return meta.reshape(x, x.shape)
    leaf = x.detach()
    leaf.requires_grad = True
    return leaf


def forward(name: str) -> Callable[..., Any]:
    """The row of a forward operator, found when it is called: backward rows may precede it."""
    from meta.frontend.torch.aten._table import find

    row = find(name)
    if row is None:
        raise ArgumentError(name, "the table has no row for it", "an operator of the table")
    return row


def _gradient(name: str, dy: Tensor, x: Tensor, *args: Any, **keywords: Any) -> Any:
    """The gradient of x in the row of a forward operator. args, keywords: its further arguments."""
    return pullback(lambda x: forward(name)(x, *args, **keywords), (x,), dy)[0]


def _gradient_row(name: str) -> Callable[..., Any]:
    """The row of a backward operator that has the arguments of the forward operator after the gradient."""

    def backward(grad_output: Tensor, self: Tensor, *args: Any, **keywords: Any) -> Any:
        return _gradient(name, grad_output, self, *args, **keywords)

    return backward


rows({
    **{f"{name}_backward": _gradient_row(name) for name in (
        "binary_cross_entropy", "glu", "hardshrink", "huber_loss", "logit", "mish", "multi_margin_loss",
        "soft_margin_loss", "softplus", "softshrink",
    )},
    "gelu_backward": lambda grad_output, self, **approximate: meta.gelu_dx(self, grad_output, **approximate),
    "hardsigmoid_backward": lambda grad_output, self: meta.hardsigmoid_dx(self, grad_output),
    "hardswish_backward": lambda grad_output, self: meta.hardswish_dx(self, grad_output),
    "hardtanh_backward": lambda grad_output, self, min_val, max_val:
        meta.hardtanh_dx(self, grad_output, min_val, max_val),
    # The result has the sign of its argument, so that either may be given.
    "leaky_relu_backward": lambda grad_output, self, negative_slope, self_is_result:
        meta.leaky_relu_dx(self, grad_output, negative_slope),
    "log_sigmoid_backward": lambda grad_output, self, buffer: _gradient("log_sigmoid", grad_output, self),
    "mse_loss_backward": lambda grad_output, self, target, reduction:
        meta.mse_loss_dx(self, target, grad_output, reduction_name(reduction)),
    "multilabel_margin_loss_backward": lambda grad_output, self, target, reduction, is_target:
        _gradient("multilabel_margin_loss", grad_output, self, target, reduction),
    "sigmoid_backward": lambda grad_output, output: meta.sigmoid_dx(output, grad_output),
    "silu_backward": lambda grad_output, self: meta.silu_dx(self, grad_output),
    "smooth_l1_loss_backward": lambda grad_output, self, target, reduction, beta:
        meta.smooth_l1_loss_dx(self, target, grad_output, reduction_name(reduction), beta),
    "tanh_backward": lambda grad_output, output: meta.tanh_dx(output, grad_output),
    "threshold_backward": lambda grad_output, self, threshold: meta.threshold_dx(self, grad_output, threshold),
})  # fmt: skip


@row("nll_loss_backward", "nll_loss2d_backward")
def nll_loss_backward(
    grad_output: Tensor, self: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignore_index: int,
    total_weight: Tensor,
) -> Any:  # fmt: skip
    """The mean is over the weight that the forward operator returned, or that a caller passes in its place."""
    kind = reduction_name(reduction)
    if kind == "mean":
        kind, grad_output = "sum", grad_output / total_weight
    return meta.nll_loss_dx(grad_output, target, weight, self.shape, kind, ignore_index)


@row()
def elu_backward(
    grad_output: Tensor, alpha: Number, scale: Number, input_scale: Number, is_result: bool, self_or_result: Tensor
) -> Any:
    if not is_result:
        return _gradient("elu", grad_output, self_or_result, alpha, scale, input_scale)
    slope = (self_or_result + alpha * scale) * input_scale
    return meta.where(meta.greater(self_or_result, 0), grad_output * scale, grad_output * slope)


@row()
def embedding_dense_backward(
    grad_output: Tensor, indices: Tensor, num_weights: int, padding_idx: int, scale_grad_by_freq: bool
) -> Any:
    dy = grad_output
    if scale_grad_by_freq:
        ones = meta.ones_like(meta.reshape(indices, (-1,)), dy.dtype)
        nothing = meta.zeros((num_weights,), dy.dtype, dy.device)
        counts = meta.scatter_add(nothing, 0, meta.reshape(indices, (-1,)), ones)
        dy = dy / meta.expand_dims(meta.take(counts, indices, 0), -1)
    if padding_idx >= 0:
        dy = meta.where(meta.expand_dims(meta.equal(indices, padding_idx), -1), 0, dy)
    return meta.embedding_dx(dy, indices, num_weights)


@row()
def _prelu_kernel_backward(grad_output: Tensor, self: Tensor, weight: Tensor) -> Any:
    positive = meta.greater(self, 0)
    return meta.where(positive, grad_output, grad_output * weight), meta.where(positive, 0, grad_output * self)


@row()
def rrelu_with_noise_backward(
    grad_output: Any, self: Any, noise: Tensor, lower: Any, upper: Any, training: bool, self_is_result: bool
) -> Any:
    """By the slopes that the forward drew when training, by their mean otherwise."""
    if training and upper - lower > 1e-6:
        return meta.multiply(grad_output, noise)
    return meta.leaky_relu_dx(self, grad_output, (lower + upper) / 2)


@row()
def _ctc_loss_backward(
    grad: Tensor, log_probs: Tensor, targets: Tensor, input_lengths: Tensor | Sequence[int],
    target_lengths: Tensor | Sequence[int], neg_log_likelihood: Tensor, log_alpha: Tensor, blank: int,
    zero_infinity: bool = False,
) -> Any:  # fmt: skip
    """The gradient computes the forward variables itself."""

    def losses(x: Tensor) -> Any:
        return meta.ctc_loss(x, targets, input_lengths, target_lengths, blank, "none", zero_infinity)

    return pullback(losses, (log_probs,), grad)[0]
