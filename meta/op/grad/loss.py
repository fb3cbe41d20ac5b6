"""Gradients of losses and of their backward operators."""

from __future__ import annotations

from typing import Any

import meta
from meta.ir.type import TensorType
from meta.op.grad.support import fit, share_of


def _averaged(value: Any, reduction: str) -> Any:
    """`value`, which has one element for each loss, divided by their number if the loss is their mean."""
    return value * share_of(value.size) if reduction == "mean" else value


def _reduced(value: Any, reduction: str) -> Any:
    """What the loss does to its elements."""
    if reduction == "none":
        return value
    return meta.sum(value) if reduction == "sum" else meta.mean(value)


def mse_loss_dx_pair(reduction: str, dy: Any, dz: Any) -> tuple[Any, Any]:
    """Gradients of 2 (x - target) dy with respect to x and target."""
    dx = _averaged(dz * dy * 2, reduction)
    return dx, -dx


def mse_loss_dx_ddy(x: Any, target: Any, reduction: str, dz: Any) -> Any:
    return _reduced(meta.mse_loss_dx(x, target, dz, "none"), reduction)


def l1_loss_dx_ddy(x: Any, target: Any, reduction: str, dz: Any) -> Any:
    return _reduced(meta.l1_loss_dx(x, target, dz, "none"), reduction)


def smooth_l1_loss_dx_pair(x: Any, target: Any, reduction: str, beta: float, dy: Any, dz: Any) -> tuple[Any, Any]:
    """The slope is (x - target) / beta where that is between -1 and 1, and constant elsewhere."""
    if beta == 0:
        return None, None
    quadratic = meta.cast(meta.less(meta.abs(x - target), beta), x.dtype)
    dx = _averaged(dz * dy * quadratic * (1 / beta), reduction)
    return dx, -dx


def smooth_l1_loss_dx_ddy(x: Any, target: Any, reduction: str, beta: float, dz: Any) -> Any:
    return _reduced(meta.smooth_l1_loss_dx(x, target, dz, "none", beta), reduction)


def logits_dtarget(x: Any, target: TensorType, weight: Any, pos_weight: Any, reduction: str, dy: Any) -> Any:
    """Gradient of (1 - target) x + (1 + (pos_weight - 1) target) softplus(-x) with respect to target."""
    slope = -x if pos_weight is None else (pos_weight - 1) * meta.softplus(-x) - x
    return fit(_averaged(_weighted(slope, weight) * dy, reduction), target)


def _weighted(value: Any, weight: Any) -> Any:
    return value if weight is None else value * weight


def logits_dx_grad(
    needs: tuple[bool, ...], x: Any, target: Any, dy: Any, weight: Any, pos_weight: Any, reduction: str, dz: Any
) -> tuple[Any, Any, Any]:
    """Gradients of the slope 1 - target - (1 + (pos_weight - 1) target) sigmoid(-x), times dy."""
    dx = dtarget = ddy = None
    if needs[0] or needs[1]:
        incoming = _averaged(_weighted(dz * dy, weight), reduction)
        falling = meta.sigmoid(-x)
        extra = None if pos_weight is None else pos_weight - 1
        curve = falling * (1 - falling)
        dx = incoming * (curve if extra is None else curve * (extra * target + 1))
        dtarget = -incoming if extra is None else -(incoming * (extra * falling + 1))
    if needs[2]:
        slope = meta.binary_cross_entropy_with_logits_dx(x, target, dz, weight, pos_weight, "none")
        ddy = _reduced(slope, reduction)
    return dx, dtarget, ddy


def _class_axis(x: Any) -> int:
    return 0 if x.ndim == 1 else 1


def cross_entropy_dx_ddy(
    x: Any, target: Any, weight: Any, reduction: Any, ignore_index: int, label_smoothing: float, dz: Any
) -> Any:
    """The loss is linear in log_softmax(x), whose derivative along dz is dz - sum(softmax(x) dz)."""
    axis = _class_axis(x)
    along = dz - meta.sum(meta.softmax(x, axis) * dz, axis, True)
    return meta.nll_loss(along, target, weight, reduction, ignore_index, label_smoothing)


def cross_entropy_dx_dx(
    x: Any, target: Any, dy: Any, weight: Any, reduction: Any, ignore_index: int, label_smoothing: float, dz: Any
) -> Any:
    """Of softmax(x) r - t only the softmax depends on x; r, the sum of t over the classes, is the weight of the row."""
    axis = _class_axis(x)
    minus_t = meta.nll_loss_dx(dy, target, weight, x.shape, reduction, ignore_index, label_smoothing)
    row = -meta.sum(minus_t, axis, True)
    return meta.softmax_dx(meta.softmax(x, axis), dz * row, axis)
