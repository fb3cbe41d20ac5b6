"""Backward operators of ATen, as the gradients of the rows of their forward operators or as operators of meta."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import meta
from meta.errors import ArgumentError
from meta.frontend.torch.aten._row import Rows, into
from meta.frontend.torch.aten._values import reduction as named

ROWS: Rows = {}


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


def _source(x: Any) -> Any:
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


def _gradient(function: Callable[[Any], Any], x: Any, dy: Any) -> Any:
    return pullback(function, (x,), dy)[0]


def _zeros(like: Any, sizes: Sequence[Any]) -> Any:
    return meta.zeros(tuple(sizes), like.dtype, like.device)


@into(ROWS)
def sigmoid_backward(grad_output: Any, output: Any) -> Any:
    return meta.sigmoid_dx(output, grad_output)


@into(ROWS)
def tanh_backward(grad_output: Any, output: Any) -> Any:
    return meta.tanh_dx(output, grad_output)


@into(ROWS)
def gelu_backward(grad_output: Any, self: Any, *, approximate: str = "none") -> Any:
    return meta.gelu_dx(self, grad_output, approximate)  # type: ignore[arg-type]


@into(ROWS)
def silu_backward(grad_output: Any, self: Any) -> Any:
    return meta.silu_dx(self, grad_output)


@into(ROWS)
def threshold_backward(grad_output: Any, self: Any, threshold: Any) -> Any:
    return meta.threshold_dx(self, grad_output, threshold)


@into(ROWS)
def leaky_relu_backward(grad_output: Any, self: Any, negative_slope: Any, self_is_result: bool) -> Any:
    """The result has the sign of its argument, so that either may be given."""
    return meta.leaky_relu_dx(self, grad_output, negative_slope)


@into(ROWS)
def elu_backward(
    grad_output: Any, alpha: Any, scale: Any, input_scale: Any, is_result: bool, self_or_result: Any
) -> Any:
    if not is_result:
        return _gradient(lambda x: forward("elu")(x, alpha, scale, input_scale), self_or_result, grad_output)
    slope = (self_or_result + alpha * scale) * input_scale
    return meta.where(meta.greater(self_or_result, 0), grad_output * scale, grad_output * slope)


@into(ROWS)
def hardtanh_backward(grad_output: Any, self: Any, min_val: Any, max_val: Any) -> Any:
    return meta.hardtanh_dx(self, grad_output, min_val, max_val)


@into(ROWS)
def softplus_backward(grad_output: Any, self: Any, beta: Any, threshold: Any) -> Any:
    return _gradient(lambda x: forward("softplus")(x, beta, threshold), self, grad_output)


@into(ROWS)
def mse_loss_backward(grad_output: Any, self: Any, target: Any, reduction: int) -> Any:
    return meta.mse_loss_dx(self, target, grad_output, named(reduction))  # type: ignore[arg-type]


@into(ROWS)
def smooth_l1_loss_backward(grad_output: Any, self: Any, target: Any, reduction: int, beta: float) -> Any:
    return meta.smooth_l1_loss_dx(self, target, grad_output, named(reduction), beta)  # type: ignore[arg-type]


@into(ROWS, "nll_loss_backward", "nll_loss2d_backward")
def nll_loss_backward(
    grad_output: Any, self: Any, target: Any, weight: Any, reduction: int, ignore_index: int, total_weight: Any
) -> Any:
    return meta.nll_loss_dx(grad_output, target, weight, self.shape, named(reduction), ignore_index)  # type: ignore[arg-type]


@into(ROWS)
def embedding_dense_backward(
    grad_output: Any, indices: Any, num_weights: int, padding_idx: int, scale_grad_by_freq: bool
) -> Any:
    dy = grad_output
    if scale_grad_by_freq:
        ones = meta.ones_like(meta.reshape(indices, (-1,)), dy.dtype)
        counts = meta.scatter_add(_zeros(dy, (num_weights,)), 0, meta.reshape(indices, (-1,)), ones)
        dy = dy / meta.expand_dims(meta.take(counts, indices, 0), -1)
    if padding_idx >= 0:
        dy = meta.where(meta.expand_dims(meta.equal(indices, padding_idx), -1), 0, dy)
    return meta.embedding_dx(dy, indices, num_weights)


@into(ROWS)
def hardsigmoid_backward(grad_output: Any, self: Any) -> Any:
    return meta.hardsigmoid_dx(self, grad_output)


@into(ROWS)
def hardswish_backward(grad_output: Any, self: Any) -> Any:
    return meta.hardswish_dx(self, grad_output)


@into(ROWS)
def mish_backward(grad_output: Any, self: Any) -> Any:
    return _gradient(forward("mish"), self, grad_output)


@into(ROWS)
def hardshrink_backward(grad_out: Any, self: Any, lambd: Any) -> Any:
    return _gradient(lambda x: forward("hardshrink")(x, lambd), self, grad_out)


@into(ROWS)
def softshrink_backward(grad_output: Any, self: Any, lambd: Any) -> Any:
    return _gradient(lambda x: forward("softshrink")(x, lambd), self, grad_output)


@into(ROWS)
def log_sigmoid_backward(grad_output: Any, self: Any, buffer: Any) -> Any:
    return _gradient(forward("log_sigmoid"), self, grad_output)


@into(ROWS)
def logit_backward(grad_output: Any, self: Any, eps: float | None = None) -> Any:
    return _gradient(lambda x: forward("logit")(x, eps), self, grad_output)


@into(ROWS)
def glu_backward(grad_output: Any, self: Any, dim: int) -> Any:
    return _gradient(lambda x: forward("glu")(x, dim), self, grad_output)


@into(ROWS)
def huber_loss_backward(grad_output: Any, self: Any, target: Any, reduction: int, delta: float) -> Any:
    return _gradient(lambda x: forward("huber_loss")(x, target, reduction, delta), self, grad_output)


@into(ROWS)
def soft_margin_loss_backward(grad_output: Any, self: Any, target: Any, reduction: int) -> Any:
    return _gradient(lambda x: forward("soft_margin_loss")(x, target, reduction), self, grad_output)


@into(ROWS)
def binary_cross_entropy_backward(
    grad_output: Any, self: Any, target: Any, weight: Any = None, reduction: int = 1
) -> Any:
    return _gradient(lambda x: forward("binary_cross_entropy")(x, target, weight, reduction), self, grad_output)


@into(ROWS)
def multi_margin_loss_backward(
    grad_output: Any, self: Any, target: Any, p: Any, margin: Any, weight: Any = None, reduction: int = 1
) -> Any:
    row = forward("multi_margin_loss")
    return _gradient(lambda x: row(x, target, p, margin, weight, reduction), self, grad_output)


@into(ROWS)
def multilabel_margin_loss_backward(grad_output: Any, self: Any, target: Any, reduction: int, is_target: Any) -> Any:
    return _gradient(lambda x: forward("multilabel_margin_loss")(x, target, reduction), self, grad_output)


@into(ROWS)
def _prelu_kernel_backward(grad_output: Any, self: Any, weight: Any) -> Any:
    positive = meta.greater(self, 0)
    return meta.where(positive, grad_output, grad_output * weight), meta.where(positive, 0, grad_output * self)


@into(ROWS)
def rrelu_with_noise_backward(
    grad_output: Any, self: Any, noise: Any, lower: Any, upper: Any, training: bool, self_is_result: bool
) -> Any:
    """By the slopes that the forward drew when training, by their mean otherwise."""
    if training and upper - lower > 1e-6:
        return meta.multiply(grad_output, noise)
    return meta.leaky_relu_dx(self, grad_output, (lower + upper) / 2)


@into(ROWS)
def _ctc_loss_backward(
    grad: Any, log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, neg_log_likelihood: Any,
    log_alpha: Any, blank: int, zero_infinity: bool = False,
) -> Any:  # fmt: skip
    """The gradient computes the forward variables itself."""

    def losses(x: Any) -> Any:
        return meta.ctc_loss(x, targets, input_lengths, target_lengths, blank, "none", zero_infinity)

    return pullback(losses, (log_probs,), grad)[0]
