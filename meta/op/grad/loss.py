"""Gradients of losses and of their backward operators."""

from __future__ import annotations

from typing import Any

import meta
from meta._generated.methods import Tensor
from meta.ir.type import TensorType
from meta.modes import modes
from meta.op.grad.support import fit, share_of, widen
from meta.op.rules import class_axis


def _divide_if_mean(value: Tensor, reduction: str) -> Tensor:
    """`value`, of one element per loss, divided by the number of losses if `reduction` is "mean"."""
    return value * share_of(value.size, value) if reduction == "mean" else value


def _reduce(value: Tensor, reduction: str) -> Tensor:
    """`value` reduced as the loss reduces its elements."""
    if reduction == "none":
        return value
    return meta.sum(value) if reduction == "sum" else meta.mean(value)


def mse_loss_dx_pair(reduction: str, dy: Tensor, dz: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of 2 (x - target) dy with respect to x and target."""
    dx = _divide_if_mean(dz * dy * 2, reduction)
    return dx, -dx


def mse_loss_dx_ddy(x: Tensor, target: Tensor, reduction: str, dz: Tensor) -> Tensor:
    return _reduce(meta.mse_loss_dx(x, target, dz, "none"), reduction)


def l1_loss_dx_ddy(x: Tensor, target: Tensor, reduction: str, dz: Tensor) -> Tensor:
    return _reduce(meta.l1_loss_dx(x, target, dz, "none"), reduction)


def smooth_l1_loss_dx_pair(
    x: Tensor, target: Tensor, reduction: str, beta: float, dy: Tensor, dz: Tensor
) -> tuple[Tensor | None, Tensor | None]:
    """Gradients of slope(x - target) dy with respect to x and target. The slope is (x - target) / beta where that is
    between -1 and 1, and constant elsewhere."""
    if beta == 0:
        return None, None
    quadratic = meta.cast(meta.less(meta.abs(x - target), beta), x.dtype)
    dx = _divide_if_mean(dz * dy * quadratic * (1 / beta), reduction)
    return dx, -dx


def smooth_l1_loss_dx_ddy(x: Tensor, target: Tensor, reduction: str, beta: float, dz: Tensor) -> Tensor:
    return _reduce(meta.smooth_l1_loss_dx(x, target, dz, "none", beta), reduction)


def binary_cross_entropy_grad(
    needs: tuple[bool, ...], x: Tensor, target: Tensor, weight: Tensor | None, reduction: str, dy: Tensor
) -> tuple[Tensor | None, Tensor | None]:
    """Gradients with respect to the probabilities x and to the target."""
    dx = dtarget = None
    p, incoming = widen(x), _multiply_weight(widen(dy), None if weight is None else widen(weight))
    if needs[0]:
        t = widen(target)
        slope = (p - t) / meta.maximum(p * (1 - p), 1e-12)
        if modes.grad_enabled:  # the same, in two terms whose derivatives do not cancel
            terms = (1 - t) / meta.maximum(1 - p, 1e-12) - t / meta.maximum(p, 1e-12)
            slope = meta.stop_gradient(slope - terms) + terms
        dx = fit(_divide_if_mean(slope * incoming, reduction), x)
    if needs[1]:
        slope = meta.log1p(-p) - meta.log(p)
        dtarget = fit(_divide_if_mean(slope * incoming, reduction), target)
    return dx, dtarget


def logits_dtarget(
    x: Tensor, target: TensorType, weight: Tensor, pos_weight: Any, reduction: str, dy: Tensor
) -> Tensor:
    """Gradient of (1 - target) softplus(x) + pos_weight target softplus(-x) with respect to target."""
    slope = -x if pos_weight is None else pos_weight * meta.softplus(-x) - meta.softplus(x)
    return fit(_divide_if_mean(_multiply_weight(slope, weight) * dy, reduction), target)


def _multiply_weight(value: Tensor, weight: Tensor | None) -> Tensor:
    return value if weight is None else value * weight


def logits_dx_grad(
    needs: tuple[bool, ...], x: Tensor, target: Tensor, dy: Tensor, weight: Tensor, pos_weight: Any, reduction: str,
    dz: Tensor,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """Gradients of the slope (1 - target) sigmoid(x) - pos_weight target sigmoid(-x), times dy."""
    dx = dtarget = ddy = None
    if needs[0] or needs[1]:
        incoming = _divide_if_mean(_multiply_weight(dz * dy, weight), reduction)
        probability = meta.sigmoid(-x)
        extra_weight = None if pos_weight is None else pos_weight - 1
        curvature = probability * meta.sigmoid(x)
        dx = incoming * (curvature if extra_weight is None else curvature * (extra_weight * target + 1))
        dtarget = -incoming if extra_weight is None else -(incoming * (extra_weight * probability + 1))
    if needs[2]:
        slope = meta.binary_cross_entropy_with_logits_dx(x, target, dz, weight, pos_weight, "none")
        ddy = _reduce(slope, reduction)
    return dx, dtarget, ddy


def cross_entropy_dx_ddy(
    x: Tensor, target: Tensor, weight: Tensor, reduction: Any, ignore_index: int, label_smoothing: float, dz: Tensor
) -> Tensor:
    """The loss is linear in log_softmax(x), whose derivative along dz is dz - sum(softmax(x) dz)."""
    axis = class_axis(x.ndim)
    derivative = dz - meta.sum(meta.softmax(x, axis) * dz, axis, True)
    return meta.nll_loss(derivative, target, weight, reduction, ignore_index, label_smoothing)


def cross_entropy_dx_dx(
    x: Tensor, target: Tensor, dy: Tensor, weight: Tensor, reduction: Any, ignore_index: int, label_smoothing: float,
    dz: Tensor,
) -> Tensor:  # fmt: skip
    """The forward gradient is softmax(x) r - t, where only the softmax depends on x. r, the sum of t over the classes,
    is the weight of the row."""
    axis = class_axis(x.ndim)
    negative_t = meta.nll_loss_dx(dy, target, weight, x.shape, reduction, ignore_index, label_smoothing)
    row_weight = -meta.sum(negative_t, axis, True)
    return meta.softmax_dx(meta.softmax(x, axis), dz * row_weight, axis)
