"""Samples of losses."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F

from meta.errors import ArgumentError, TypeInferenceError
from meta.testing.samples import ErrorCase, Sample, T
from tests.python.op.samples._vjp import pulled_back, transposed

REDUCTIONS = ("mean", "sum", "none")


def mse(x: Any, target: Any, reduction: str = "mean") -> Any:
    return F.mse_loss(x, target, reduction=reduction)


def l1(x: Any, target: Any, reduction: str = "mean") -> Any:
    return F.l1_loss(x, target, reduction=reduction)


def smooth_l1(x: Any, target: Any, reduction: str = "mean", beta: float = 1.0) -> Any:
    return F.smooth_l1_loss(x, target, reduction=reduction, beta=beta)


def bce(x: Any, target: Any, weight: Any = None, reduction: str = "mean") -> Any:
    return F.binary_cross_entropy(x, target, weight, reduction=reduction)


def logits(x: Any, target: Any, weight: Any = None, pos_weight: Any = None, reduction: str = "mean") -> Any:
    return F.binary_cross_entropy_with_logits(x, target, weight, pos_weight=pos_weight, reduction=reduction)


def logits_dx(x: Any, target: Any, dy: Any, weight: Any = None, pos_weight: Any = None, reduction: str = "mean") -> Any:
    return pulled_back(lambda x: logits(x, target, weight, pos_weight, reduction), x, dy)


def amounts(target: Any, weight: Any, count: int, ignore: int, smoothing: float, dtype: Any) -> tuple[Any, Any]:
    """The share of each class (last axis) in each target, weighted, and the weight of the target."""
    weights = torch.ones(count, dtype=dtype) if weight is None else weight
    counts = target != ignore
    index = torch.where(counts, target, 0).long()
    whole = (1 - smoothing) * F.one_hot(index, count).to(dtype) + smoothing / count
    return whole * weights * counts[..., None], weights[index] * counts


def nll(
    x: Any,
    target: Any,
    weight: Any = None,
    reduction: str = "mean",
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Any:
    """torch's formula, with the label smoothing that torch has only in cross_entropy."""
    axis = 0 if x.ndim == 1 else 1
    shares, own = amounts(target, weight, x.shape[axis], ignore_index, label_smoothing, x.dtype)
    losses = -(x.movedim(axis, -1) * shares).sum(-1)
    if reduction == "none":
        return losses
    return losses.sum() if reduction == "sum" else losses.sum() / own.sum()


def nll_dx(dy: Any, target: Any, weight: Any, shape: tuple[int, ...], *options: Any, **named: Any) -> Any:
    return transposed(lambda x: nll(x, target, weight, *options, **named), shape, dy)


def cross_entropy(
    x: Any,
    target: Any,
    weight: Any = None,
    reduction: str = "mean",
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Any:
    return F.cross_entropy(x, target.long(), weight, reduction=reduction, ignore_index=ignore_index,
                           label_smoothing=label_smoothing)  # fmt: skip


def cross_entropy_dx(x: Any, target: Any, dy: Any, *args: Any, **named: Any) -> Any:
    return pulled_back(lambda x: cross_entropy(x, target, *args, **named), x, dy)


def backward(loss: Any) -> Any:
    """The reference of a loss's backward operator."""
    return lambda x, target, dy, *args, **named: pulled_back(lambda x: loss(x, target, *args, **named), x, dy)


def pairs() -> list[Sample]:
    """Losses of pairs of numbers, with values on one side of each kink."""
    x, target = T(3, 4, low=1.2, high=3), T(3, 4, low=-1, high=1)
    near, far = T(3, 4, low=0.2, high=0.5), T(3, 4, low=-0.4, high=0.1)
    out: list[Sample] = []
    for name, ref in (("mse_loss", mse), ("l1_loss", l1), ("smooth_l1_loss", smooth_l1)):
        for reduction in REDUCTIONS:
            dy = T(3, 4) if reduction == "none" else T()
            out.append(Sample(name, x, target, reduction=reduction, ref=ref))
            out.append(Sample(f"{name}_dx", x, target, dy, reduction=reduction, ref=backward(ref)))
        out.append(Sample(name, near, far, ref=ref, id="near"))
        out.append(Sample(name, T(), T(low=2, high=3), ref=ref))
    for beta in (0.0, 2.5):
        out.append(Sample("smooth_l1_loss", near if beta else x, far if beta else target, "mean", beta, ref=smooth_l1))
        operands = (near, far) if beta else (x, target)
        out.append(Sample("smooth_l1_loss_dx", *operands, T(), "mean", beta, ref=backward(smooth_l1)))
    return out


def of_probabilities() -> list[Sample]:
    x, target = T(3, 4, low=0.05, high=0.95), T(3, 4, low=0, high=1)
    return [
        Sample("binary_cross_entropy", x, target, weight, reduction, ref=bce)
        for weight, reduction in ((None, "mean"), (T(4, low=0, high=1), "none"), (T(3, 1, low=0, high=1), "sum"))
    ]


def of_logits() -> list[Sample]:
    x, target = T(3, 4, low=-6, high=6), T(3, 4, low=0, high=1)
    out: list[Sample] = []
    for reduction in REDUCTIONS:
        dy = T(3, 4) if reduction == "none" else T()
        for extra in ((None, None), (T(3, 4, low=0, high=1), T(4, low=0, high=2))):
            out.append(Sample("binary_cross_entropy_with_logits", x, target, *extra, reduction, ref=logits))
            out.append(Sample("binary_cross_entropy_with_logits_dx", x, target, dy, *extra, reduction, ref=logits_dx))
    return out


def over_classes() -> list[Sample]:
    out: list[Sample] = []
    weight = T(5, low=0.2, high=1)
    for shape, rows in (((6, 5), (6,)), ((2, 5, 3), (2, 3)), ((5,), ())):
        target = T(*rows, dtype="int64", low=0, high=5)
        for reduction in REDUCTIONS:
            dy = T(*rows) if reduction == "none" else T()
            for options in ({}, {"weight": weight, "ignore_index": 2, "label_smoothing": 0.1}):
                if not rows and options:
                    continue  # the only target may be the ignored one
                named = {"reduction": reduction, **options}
                rest = {k: v for k, v in named.items() if k != "weight"}
                note = f"{shape}-{'-'.join(f'{k}={v}' for k, v in named.items())}"
                logs = T(*shape, low=-6, high=-0.1)
                out += [
                    Sample("nll_loss", logs, target, ref=nll, **named),
                    Sample("nll_loss_dx", dy, target, options.get("weight"), shape, ref=nll_dx, id=note, **rest),
                    Sample("cross_entropy", T(*shape, low=-5, high=5), target, ref=cross_entropy, **named),
                    Sample(
                        "cross_entropy_dx",
                        T(*shape, low=-5, high=5),
                        target,
                        dy,
                        ref=cross_entropy_dx,
                        id=note,
                        **named,
                    ),
                ]
    narrow = T(4, dtype="int32", low=0, high=5)
    out.append(Sample("cross_entropy", T(4, 5), narrow, ref=cross_entropy))
    out.append(Sample("nll_loss", T(4, 5), narrow, ref=nll))
    return out


SAMPLES = [*pairs(), *of_probabilities(), *of_logits(), *over_classes()]
ROWS = T(4, dtype="int64", low=0, high=5)
ERRORS = [
    ErrorCase("mse_loss", T(3), T(4), error=TypeInferenceError, match="'x' has shape (3,), 'target' has (4,)"),
    ErrorCase("mse_loss", T(3), T(3), "max", error=ArgumentError, match="argument 'reduction' is str 'max'"),
    ErrorCase("mse_loss_dx", T(3), T(3), T(3), error=TypeInferenceError, match="'y' has shape (), 'dy' has (3,)"),
    ErrorCase("smooth_l1_loss", T(3), T(3), "mean", -1.0, error=TypeInferenceError, match="beta is -1.0"),
    ErrorCase("binary_cross_entropy", T(3), T(3), T(2, 3), error=TypeInferenceError, match="'weight' has shape (2, 3)"),
    ErrorCase("l1_loss", T(3, dtype="int64"), T(3), error=TypeInferenceError, match="'x' has dtype int64"),
    ErrorCase(
        "binary_cross_entropy_with_logits",
        T(3, 4),
        T(3, 4),
        T(2, 3, 4),
        error=TypeInferenceError,
        match="'weight' has shape (2, 3, 4)",
    ),
    ErrorCase("nll_loss", T(4, 5), T(3, dtype="int64"), error=TypeInferenceError, match="'target' has shape (3,)"),
    ErrorCase("nll_loss", T(4, 5), T(4), error=TypeInferenceError, match="'target' has dtype float32"),
    ErrorCase("nll_loss", T(4, 5), ROWS, T(4), error=TypeInferenceError, match="'weight' has shape (4,)"),
    ErrorCase(
        "cross_entropy", T(4, 5), ROWS, label_smoothing=2.0, error=TypeInferenceError, match="label_smoothing is 2.0"
    ),
    ErrorCase("nll_loss", T(4, 0), ROWS, error=TypeInferenceError, match="at least one class along axis 1"),
    ErrorCase("cross_entropy", T(), T(dtype="int64"), error=TypeInferenceError, match="'x' is 0-d"),
    ErrorCase(
        "cross_entropy_dx", T(4, 5), ROWS, T(4), error=TypeInferenceError, match="'y' has shape (), 'dy' has (4,)"
    ),
]
