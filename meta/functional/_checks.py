"""Checks and promotions that composed functions share. Their errors are worded like operators' errors, and name the
function that was called."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any, Literal

import meta
from meta import dtype as dtypes
from meta._generated.methods import T, Tensor
from meta.dim import same_dim
from meta.dim_expressions import Order
from meta.dtype import Number
from meta.errors import ArgumentError, MetaError, TypeInferenceError, attributed
from meta.modes import modes
from meta.op import rules
from meta.op.rules import show


def require(
    name: str, condition: bool | Order, problem: str, expected: str, remedy: str = "",
    error: type[MetaError] = TypeInferenceError,
) -> None:  # fmt: skip
    """Raise an error in the name of a function unless `condition`. The order of symbolic sizes becomes a condition of
    the program that is traced."""
    if isinstance(condition, Order) and modes.trace is not None:
        modes.trace.conditions.append((condition.distance, error(name, problem, expected, remedy)))
    elif not condition:
        raise error(name, problem, expected, remedy)


def require_ranks(name: str, tensors: dict[str, Any], ranks: dict[str, int], remedy: str = "") -> None:
    """Each tensor has its number of axes."""
    for label, rank in ranks.items():
        shape = tensors[label].shape
        axes = "1 axis" if rank == 1 else f"{rank} axes"
        require(name, len(shape) == rank, f"'{label}' has shape {show(shape)}", axes, remedy)


def require_matrix(name: str, x: Tensor, label: str = "x") -> None:
    require(name, x.ndim >= 2, f"'{label}' has shape {show(x.shape)}", "at least 2 axes")


def require_square(name: str, x: Tensor, label: str = "x") -> None:
    """Square matrices (..., n, n)."""
    require_matrix(name, x, label)
    square = same_dim(*x.shape[-2:])
    require(name, square, f"'{label}' has shape {show(x.shape)}", "square matrices (..., n, n)")


def require_float(name: str, x: Tensor, label: str = "x") -> None:
    allowed = ", ".join(dtypes.FLOATS)
    remedy = f'cast it: {label}.cast("float32")'
    require(name, dtypes.is_float(x.dtype), f"'{label}' has dtype {x.dtype}", allowed, remedy)


def require_inexact(name: str, x: Tensor, label: str = "x") -> None:
    """Raise TypeInferenceError unless x is floating or complex."""
    with attributed(name):
        rules.require_inexact(label, x.type)


def require_same_dtype(name: str, **tensors: Any) -> None:
    (first, head), *rest = tensors.items()
    for label, x in rest:
        problem = f"'{first}' is {head.dtype}, '{label}' is {x.dtype}"
        require(name, x.dtype == head.dtype, problem, "one dtype for both", f'cast one: {label}.cast("{head.dtype}")')


def require_factors(name: str, x: Tensor, **factors: Number) -> None:
    """Raise TypeInferenceError of the function `name` unless products with numbers have the dtype of x."""
    allowed = "any number" if dtypes.is_complex(x.dtype) else "a real number" if dtypes.is_float(x.dtype) else "an int"
    for label, factor in factors.items():
        fits = not isinstance(factor, (float, complex)) or dtypes.promote_scalar(x.dtype, factor) == x.dtype
        require(name, fits, f"{label} is {factor} for tensors of dtype {x.dtype}", allowed, "cast the tensors")


def is_tensor(value: Tensor | Number) -> bool:
    """Whether a value is an array or a traced symbol."""
    return isinstance(value, Tensor)


def axis_of(name: str, axis: int, ndim: int) -> int:
    """`axis` counted from the front. A 0-d tensor has an axis 0. Raises TypeInferenceError of the function `name`."""
    with attributed(name):
        return rules.axis_index(axis, ndim)


def axes_of(name: str, axes: Sequence[int] | int | None, ndim: int) -> tuple[int, ...]:
    """Distinct axes counted from the front; None means all of them. Raises TypeInferenceError of `name`."""
    with attributed(name):
        return rules.axis_indices((axes,) if isinstance(axes, int) else axes, ndim)


def distinct_axes(name: str, axis1: int, axis2: int, ndim: int) -> tuple[int, int]:
    """Two different axes, counted from the front. Raises TypeInferenceError of the function `name`."""
    require(name, ndim >= 2, f"'x' has rank {ndim}", "at least two axes")
    first, second = axis_of(name, axis1, ndim), axis_of(name, axis2, ndim)
    require(name, first != second, f"axes {axis1} and {axis2} are the same", "two different axes")
    return first, second


def require_rank(name: str, x: Tensor, *, least: int) -> None:
    """At least so many axes."""
    require(name, x.ndim >= least, f"'x' has shape {show(x.shape)}", f"rank {least} or more")


def require_number(name: str, x: Tensor, label: str = "x") -> None:
    """Any dtype but bool."""
    remedy = f'cast it: {label}.cast("int64")'
    require(name, x.dtype != "bool", f"'{label}' has dtype bool", "numbers", remedy)


def require_same_device(name: str, *xs: Tensor) -> None:
    """Raise DeviceError of the function `name` unless the tensors are on one device."""
    with attributed(name):
        rules.same_device(*(x.type for x in xs))


def broadcast_shape(name: str, *xs: Tensor) -> tuple[Any, ...]:
    """The shape that the tensors broadcast to. Raises TypeInferenceError of the function `name`."""
    with attributed(name):
        return rules.broadcast_shapes(*(x.shape for x in xs))


def as_dtype(x: T, dtype: str) -> T:
    """x in another dtype; x itself if it has it."""
    return x if x.dtype == dtype else meta.cast(x, dtype)


def promoted(name: str, xs: Sequence[Any]) -> list[Any]:
    """Tensors and NumPy arrays as tensors of one dtype. Raises TypeInferenceError of the function `name` for an
    empty list, DeviceError for tensors on several devices."""
    require(name, len(xs) > 0, "no tensors", "at least one")
    xs = [x if isinstance(x, Tensor) else meta.asarray(x) for x in xs]
    require_same_device(name, *xs)
    common = reduce(dtypes.promote, (x.dtype for x in xs))
    return [as_dtype(x, common) for x in xs]


Reduction = Literal["mean", "sum", "none"]


def check_reduction(name: str, reduction: str, *more: str) -> None:
    """Raise ArgumentError unless `reduction` is "mean", "sum", "none" or one of `more`."""
    if reduction not in ("mean", "sum", "none", *more):
        allowed = ", ".join(f'"{r}"' for r in ("mean", "sum", *more))
        raise ArgumentError(name, f"reduction is {reduction!r}", f'{allowed} or "none"')


def reduced(losses: T, reduction: str) -> T:
    """The mean or the sum of all losses, or the losses themselves."""
    if reduction == "none":
        return losses
    return meta.mean(losses) if reduction == "mean" else meta.sum(losses)
