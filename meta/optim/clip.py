"""Bounds on gradients between `backward` and the optimizer's step."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Literal, TypeAlias, cast

import meta
from meta._generated.methods import Tensor
from meta.dtype import accumulation_dtype
from meta.eager.ndarray import NDArray
from meta.errors import ArgumentError, GradientError
from meta.model.model import Model
from meta.modes import no_grad
from meta.optim.checks import nonnegative
from meta.optim.number import widened
from meta.optim.optimizer import Optimizer
from meta.schema._dsl import TensorLike
from meta.schema.annotations import checked
from meta.tracing.symbol import exact

EPS: Final = 1e-6
"""Added to the norm, so that gradients of 0 are divided by something; torch's value."""
Groups: TypeAlias = "tuple[str, int] | Callable[[NDArray], Sequence[tuple[str, int]]] | None"
Clipped: TypeAlias = "Model | Optimizer | NDArray | Iterable[NDArray]"


@checked
def clip_grad_norm(
    parameters: Clipped,
    max_norm: object,
    norm_type: float = 2.0,
    *,
    error_if_nonfinite: bool = False,
    group: Groups = None,
) -> Any:
    """Scale the gradients of all parameters by min(1, max_norm / (norm + 1e-6)). Returns the total norm of all
    gradients before clipping: a 0-d tensor, float64 if a gradient is, else float32. Also runs in traced steps.

    parameters: a Model, an optimizer, or arrays; those without a gradient do not matter.
    max_norm: a number or, for values that change between calls of a program, a 0-d tensor.
    norm_type: the order of the norm, above 0; math.inf is the largest magnitude.
    error_if_nonfinite: raise GradientError for a norm that is infinite or NaN, which waits for the device; in a trace
    TraceError. Otherwise an infinite norm makes gradients 0 or NaN, as in torch.
    group: name and number of the ranks among which the gradients are divided (`mesh["dp"]`); the norm covers all of
    them. None if gradients are not divided. A function says for each parameter the groups, perhaps none, among which
    its gradient is divided."""
    if not isinstance(max_norm, TensorLike):
        nonnegative("clip_grad_norm", "max_norm", max_norm, finite=False)
    with no_grad():
        arrays, norm = _total("clip_grad_norm", parameters, norm_type, group)
        if error_if_nonfinite and not meta.isfinite(norm):
            raise GradientError(
                "clip_grad_norm", f"the norm of the gradients is {norm.item()}", "a finite one",
                "look for the gradient that is not, or scale the loss by meta.amp.GradScaler",
            )  # fmt: skip
        bound = max_norm.cast(norm.dtype) if isinstance(max_norm, NDArray) else max_norm
        factor = meta.minimum(bound / (norm + EPS), 1.0)
        for x in arrays:
            x.grad = (widened(exact(x.grad)) * factor.cast(accumulation_dtype(x.grad.dtype))).cast(x.grad.dtype)
        return norm


@checked
def grad_norm(parameters: Clipped, norm_type: float = 2.0, *, group: Groups = None) -> Any:
    """The norm of the gradients of all parameters together, as `clip_grad_norm` returns it. Also runs in traced
    steps."""
    with no_grad():
        return _total("grad_norm", parameters, norm_type, group)[1]


def _total(subject: str, parameters: object, norm_type: float, group: object) -> tuple[list[Any], Any]:
    """The arrays with gradients, and the norm of all gradients."""
    order = nonnegative(subject, "norm_type", norm_type, finite=False)
    if order == 0:
        raise ArgumentError(subject, "norm_type is 0", "a number above 0, or math.inf")
    arrays = _with_gradients(subject, parameters)
    return arrays, _norm(_by_groups(arrays, group), order) if arrays else meta.zeros(())


@checked
def clip_grad_value(parameters: Clipped, clip_value: float) -> None:
    """Clip each element of the gradients of all parameters to [-clip_value, clip_value]. Also runs in traced steps.

    parameters: a Model, an optimizer, or arrays; those without a gradient do not matter."""
    bound = nonnegative("clip_grad_value", "clip_value", clip_value, finite=False)
    with no_grad():
        for x in _with_gradients("clip_grad_value", parameters):
            x.grad = meta.clip(x.grad, -bound, bound)


_Groups: TypeAlias = "tuple[tuple[str, int], ...]"


def _by_groups(arrays: list[Any], group: object) -> dict[_Groups, list[Any]]:
    """The gradients of arrays by the groups among which they are divided."""
    divided: dict[_Groups, list[Any]] = {}
    for x in arrays:
        own: Any = group(x) if callable(group) else () if group is None else (group,)
        groups: _Groups = tuple(own)
        divided.setdefault(groups, []).append(exact(x.grad))
    return divided


def _norm(gradients: dict[_Groups, list[Any]], order: float) -> Any:
    every = [g for listed in gradients.values() for g in listed]
    dtype = "float64" if any(g.dtype == "float64" for g in every) else "float32"
    if math.isinf(order):
        return _of_all(gradients, "max", lambda g: meta.max(meta.abs(_wide(g, dtype))))
    if order == 2:
        return meta.sqrt(_of_all(gradients, "sum", lambda g: meta.sum(_wide(g, dtype) * _wide(g, dtype))))
    return _of_all(gradients, "sum", lambda g: meta.sum(meta.abs(_wide(g, dtype)) ** order)) ** (1 / order)


def _wide(x: Tensor, dtype: str) -> Any:
    return x if x.dtype == dtype else x.cast(dtype)


def _of_all(gradients: dict[_Groups, list[Any]], kind: Literal["sum", "max"], part: Callable[[Any], Any]) -> Any:
    """The reduction of all ranks' gradients. part: the reduction of one gradient on this rank."""
    reduce = meta.max if kind == "max" else meta.sum
    totals: list[Any] = []
    for groups, listed in gradients.items():
        total = reduce(meta.stack([part(g) for g in listed]))
        for group in groups:
            total = meta.all_reduce(total, kind, *group)
        totals.append(total)
    return totals[0] if len(totals) == 1 else reduce(meta.stack(totals))


def _with_gradients(subject: str, parameters: object) -> list[Any]:
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
