"""Declarations of losses and their backward operators."""

from __future__ import annotations

from typing import Any

from meta import dtype as dtypes
from meta.dim import Shape, same_dim
from meta.ir.type import TensorType
from meta.op import rules
from meta.op.declare._standard import standard_gradient
from meta.op.positions import Positions
from meta.op.registry import declare
from meta.op.rules import class_axis
from meta.schema import loss


def _operands(x: TensorType, target: TensorType) -> None:
    """Predictions and targets of one floating type."""
    rules.require_float("x", x)
    rules.require_alike(x=x, target=target)


def _result(x: TensorType, losses: Shape, reduction: str) -> TensorType:
    return x.with_shape(losses if reduction == "none" else ())


_REDUCED = " averaged, summed or element by element."
_OTHER = "that with respect to target is its negative."


def _pairwise(name: str, doc: str, doc_dx: str = "", schema: Any = loss.pairwise) -> None:
    def typed(x: TensorType, target: TensorType, reduction: str, beta: float = 0.0) -> TensorType:
        _operands(x, target)
        rules.require(beta >= 0, f"beta is {beta}", "0 or more")
        return _result(x, x.shape, reduction)

    declare(name, schema=schema, doc=doc + _REDUCED, family="loss", pattern="reduce", amp="never")(typed)
    doc_dx = f"Gradient of {name} with respect to x{doc_dx}; {_OTHER}"
    standard_gradient(f"{name}_dx", doc_dx, forward=name, at=2, pattern="elemwise")


_pairwise("mse_loss", "(x - target)**2,")
_pairwise("l1_loss", "abs(x - target),", ", 0 where x equals target")
_pairwise(
    "smooth_l1_loss",
    "With d = x - target: d**2 / (2 beta) where abs(d) < beta, else abs(d) - beta / 2 "
    '(R. Girshick, "Fast R-CNN", 2015);',
    schema=loss.smooth_l1,
)


def _logits(x: TensorType, target: TensorType, weight: TensorType | None, pos_weight: TensorType | None) -> None:
    _operands(x, target)
    for name, value in (("weight", weight), ("pos_weight", pos_weight)):
        if value is None:
            continue
        rules.require_same_dtype(x=x, **{name: value})
        rules.same_device(x, value)
        full = rules.broadcast_shapes(x.shape, value.shape)
        rules.require(
            rules.same_shape(full, x.shape),
            f"'{name}' has shape {rules.show(value.shape)}",
            f"a shape that broadcasts to the shape of x, {rules.show(x.shape)}",
        )


@declare(
    "binary_cross_entropy",
    schema=loss.probabilities,
    pattern="reduce",
    amp="never",
    amp_refusal="call binary_cross_entropy_with_logits on what sigmoid gets; or compute the probabilities in float32: "
    'overrides={"sigmoid": "never"}',
)
def binary_cross_entropy(x: TensorType, target: TensorType, weight: TensorType | None, reduction: str) -> TensorType:
    """-weight * (target * log(x) + (1 - target) * log(1 - x)) of probabilities x, with logarithms of at least -100;
    averaged, summed or element by element. The gradient divides by x * (1 - x), which counts as at least 1e-12."""
    _logits(x, target, weight, None)
    return _result(x, x.shape, reduction)


@declare("binary_cross_entropy_with_logits", schema=loss.logits, pattern="reduce", amp="never")
def binary_cross_entropy_with_logits(
    x: TensorType, target: TensorType, weight: TensorType | None, pos_weight: TensorType | None, reduction: str
) -> TensorType:
    """-weight * (pos_weight * target * log(p) + (1 - target) * log(1 - p)) with p = sigmoid(x), computed without
    overflow; averaged, summed or element by element."""
    _logits(x, target, weight, pos_weight)
    return _result(x, x.shape, reduction)


standard_gradient(
    "binary_cross_entropy_with_logits_dx",
    "Gradient of binary_cross_entropy_with_logits with respect to x.",
    forward="binary_cross_entropy_with_logits",
    at=2,
    pattern="elemwise",
)


def _classes(shape: Shape, dtype: str, target: TensorType, weight: TensorType | None, label_smoothing: float) -> Shape:
    """The shape of the losses, which is the targets' shape. Raises TypeInferenceError unless the operands fit."""
    swapped = dtypes.is_int(dtype) and dtypes.is_float(target.dtype) and target.ndim > len(shape)
    rules.require(
        dtypes.is_float(dtype),
        f"'x' has dtype {dtype}",
        f"{', '.join(dtypes.FLOATS)}",
        "scores come first: meta.cross_entropy(x, target)" if swapped else 'cast it: x.cast("float32")',
    )
    rules.require(len(shape) > 0, "'x' is 0-d", "an axis of classes")
    axis = class_axis(len(shape))
    if not dtypes.is_int(target.dtype) and rules.same_shape(shape, target.shape):
        problem = f"'target' is {target.dtype} of the shape of x, {rules.show(shape)}"
        rules.require(False, problem, "classes, not their weights", f"write target.argmax({axis})")
    rules.require_int("target", target)
    rules.require(shape[axis] != 0, f"'x' has shape {rules.show(shape)}", f"at least one class along axis {axis}")
    losses = (*shape[:axis], *shape[axis + 1 :])
    rules.require(
        rules.same_shape(losses, target.shape),
        f"'target' has shape {rules.show(target.shape)}",
        f"{rules.show(losses)}: the shape of x, {rules.show(shape)}, without axis {axis}",
        f"write target.squeeze({axis})"
        if rules.same_shape((*shape[:axis], 1, *shape[axis + 1 :]), target.shape)
        else "",
    )
    rules.require(0.0 <= label_smoothing <= 1.0, f"label_smoothing is {label_smoothing}", "from 0 to 1")
    if weight is None:
        return losses
    rules.require(
        weight.ndim == 1 and same_dim(weight.shape[0], shape[axis]),
        f"'weight' has shape {rules.show(weight.shape)}",
        f"{rules.show((shape[axis],))}, one for each class",
    )
    rules.require(
        weight.dtype == dtype,
        f"'weight' is {weight.dtype}, 'x' is {dtype}",
        "one dtype for both",
        f'cast one: weight.cast("{dtype}")',
    )
    rules.same_device(target, weight)
    return losses


def _labels(argument: int, shape: Shape, ignore_index: int) -> Positions:
    """Classes of predictions of `shape`, or ignore_index."""
    return Positions(argument, (shape[class_axis(len(shape))],), ignored=ignore_index)


def _loss_labels(
    x: Any, target: object, weight: object, reduction: str, ignore_index: int, *_: object, out: object
) -> Positions:
    return _labels(1, x.shape, ignore_index)


def _nll_gradient_labels(
    dy: object, target: object, weight: object, shape: object, reduction: str, ignore_index: int, *_: object, out: Any
) -> Positions:
    return _labels(1, out.shape, ignore_index)


def _gradient_labels(
    x: Any, target: object, dy: object, weight: object, reduction: str, ignore_index: int, *_: object, out: object
) -> Positions:
    return _labels(1, x.shape, ignore_index)


@declare("nll_loss", schema=loss.class_loss, pattern="reduce", amp="never", positions=_loss_labels)
def nll_loss(
    x: TensorType,
    target: TensorType,
    weight: TensorType | None,
    reduction: str,
    ignore_index: int,
    label_smoothing: float,
) -> TensorType:
    """The negative log-probability, in x, of the target class, times the weight of that class. The mean divides by the
    sum of these weights. Targets equal to ignore_index do not count; others must be classes."""
    rules.same_device(x, target)
    return _result(x, _classes(x.shape, x.dtype, target, weight, label_smoothing), reduction)


@declare("nll_loss_dx", schema=loss.nll_loss_dx, pattern="reduce", amp="never", positions=_nll_gradient_labels)
def nll_loss_dx(
    dy: TensorType,
    target: TensorType,
    weight: TensorType | None,
    shape: Shape,
    reduction: str,
    ignore_index: int,
    label_smoothing: float,
) -> TensorType:
    """Gradient of nll_loss with respect to x; it does not depend on x."""
    x = dy.with_shape(shape)
    y: Any = nll_loss(x, target, weight, reduction, ignore_index, label_smoothing)
    rules.require_same_shape(y=y, dy=dy)
    return x


@declare("cross_entropy", schema=loss.class_loss, pattern="softmax", amp="never", positions=_loss_labels)
def cross_entropy(
    x: TensorType,
    target: TensorType,
    weight: TensorType | None,
    reduction: str,
    ignore_index: int,
    label_smoothing: float,
) -> TensorType:
    """nll_loss of log_softmax(x), in one kernel and without overflow. Label smoothing as in C. Szegedy et al.,
    "Rethinking the Inception Architecture", 2016. Targets equal to ignore_index do not count; others must be
    classes."""
    rules.same_device(x, target)
    return _result(x, _classes(x.shape, x.dtype, target, weight, label_smoothing), reduction)


standard_gradient(
    "cross_entropy_dx",
    "Gradient of cross_entropy with respect to x: softmax(x) minus the target distribution, weighted, times dy.",
    forward="cross_entropy",
    at=2,
    pattern="softmax",
    positions=_gradient_labels,
)
