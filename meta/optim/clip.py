"""Bounds on gradients between `backward` and the optimizer's step."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Literal, TypeAlias, cast

import meta
from meta.autograd.api import no_grad
from meta.eager.ndarray import NDArray
from meta.errors import ArgumentError, GradientError
from meta.model.model import Model
from meta.optim.checks import nonnegative
from meta.optim.number import widened
from meta.optim.optimizer import Optimizer
from meta.schema._types import TensorLike

Clipped: TypeAlias = "Model | Optimizer | NDArray | Iterable[NDArray]"
_EPS = 1e-6
"""Added to the norm, so that gradients of 0 are divided by something; torch's value."""


def clip_grad_norm(
    parameters: Clipped,
    max_norm: Any,
    norm_type: float = 2.0,
    *,
    error_if_nonfinite: bool = False,
    group: tuple[str, int] | None = None,
) -> Any:
    """Scale the gradients of all parameters by min(1, max_norm / (norm + 1e-6)). Returns the norm before, that of the
    vector of all gradients: a 0-d tensor, float64 if a gradient is, else float32. Runs in traced steps, too.

    parameters: a Model, an optimizer, or arrays; those without a gradient do not matter.
    max_norm: a number or, for values that change between calls of a program, a 0-d tensor.
    norm_type: the order of the norm, above 0; math.inf is the largest magnitude.
    error_if_nonfinite: raise GradientError for a norm that is infinite or NaN, which waits for the device; in a trace
    TraceError. Otherwise an infinite norm makes gradients 0 or NaN, as in torch.
    group: name and number of the ranks among which the gradients are divided (`mesh["dp"]`); the norm is that of all of
    them. None for gradients that this process has all of."""
    order = nonnegative("clip_grad_norm", "norm_type", norm_type, finite=False)
    if order == 0:
        raise ArgumentError("clip_grad_norm", "norm_type is 0", "a number above 0, or math.inf")
    if not isinstance(max_norm, TensorLike):
        nonnegative("clip_grad_norm", "max_norm", max_norm, finite=False)
    with no_grad():
        arrays = _with_gradients("clip_grad_norm", parameters)
        if not arrays:
            return meta.zeros(())
        norm = _norm([x.grad for x in arrays], order, group)
        if error_if_nonfinite and not meta.isfinite(norm):
            raise GradientError(
                "clip_grad_norm", f"the norm of the gradients is {norm.item()}", "a finite one",
                "look for the gradient that is not, or scale the loss by meta.amp.GradScaler",
            )  # fmt: skip
        bound = max_norm.cast(norm.dtype) if isinstance(max_norm, NDArray) else max_norm
        factor = meta.minimum(bound / (norm + _EPS), 1.0)
        for x in arrays:
            x.grad = (widened(x.grad) * factor.cast(widened(x.grad).dtype)).cast(x.grad.dtype)
        return norm


def clip_grad_value(parameters: Clipped, clip_value: float) -> None:
    """Clip each element of the gradients of all parameters to [-clip_value, clip_value]. Runs in traced steps, too.

    parameters: a Model, an optimizer, or arrays; those without a gradient do not matter."""
    bound = nonnegative("clip_grad_value", "clip_value", clip_value, finite=False)
    with no_grad():
        for x in _with_gradients("clip_grad_value", parameters):
            x.grad = meta.clip(x.grad, -bound, bound)


def _norm(gradients: list[Any], order: float, group: tuple[str, int] | None) -> Any:
    dtype = "float64" if any(g.dtype == "float64" for g in gradients) else "float32"
    wide = [g if g.dtype == dtype else g.cast(dtype) for g in gradients]
    if math.isinf(order):
        return _of_all(meta.max(meta.stack([meta.max(meta.abs(g)) for g in wide])), "max", group)
    if order == 2:
        return meta.sqrt(_of_all(meta.sum(meta.stack([meta.sum(g * g) for g in wide])), "sum", group))
    return _of_all(meta.sum(meta.stack([meta.sum(meta.abs(g) ** order) for g in wide])), "sum", group) ** (1 / order)


def _of_all(part: Any, reduction: Literal["sum", "max"], group: tuple[str, int] | None) -> Any:
    """The reduction of the ranks' parts."""
    return part if group is None else meta.all_reduce(part, reduction, *group)


def _with_gradients(subject: str, parameters: Any) -> list[Any]:
    if isinstance(parameters, NDArray):
        parameters = [parameters]
    listed = getattr(parameters, "parameters", parameters)
    listed = listed() if callable(listed) else listed
    if not isinstance(listed, Iterable):
        raise ArgumentError(subject, f"the parameters are {type(parameters).__name__}", "a Model, optimizer, or arrays")
    arrays = list(cast("Iterable[Any]", listed))
    for x in arrays:
        if not isinstance(x, TensorLike):
            raise ArgumentError(subject, f"a {type(x).__name__} is among the parameters", "arrays")
    return [x for x in arrays if getattr(x, "grad", None) is not None]
