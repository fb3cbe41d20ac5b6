"""Checks of arguments, worded as those of operators."""

from __future__ import annotations

from typing import Any

from meta import dtype as dtypes
from meta.dim import same_dim
from meta.errors import TypeInferenceError
from meta.op.rules import same_shape, show


def require(name: str, condition: bool, problem: str, expected: str, remedy: str = "") -> None:
    """Raise TypeInferenceError in the name of a function unless `condition`."""
    if not condition:
        raise TypeInferenceError(name, problem, expected, remedy)


def require_ranks(name: str, tensors: dict[str, Any], ranks: dict[str, int]) -> None:
    """Each tensor has its number of axes."""
    for label, rank in ranks.items():
        shape = tensors[label].shape
        axes = "1 axis" if rank == 1 else f"{rank} axes"
        require(name, len(shape) == rank, f"'{label}' has shape {show(shape)}", axes)


def require_matrix(name: str, x: Any, label: str = "x") -> None:
    require(name, x.ndim >= 2, f"'{label}' has shape {show(x.shape)}", "at least 2 axes")


def require_square(name: str, x: Any, label: str = "x") -> None:
    """Square matrices (..., n, n)."""
    require_matrix(name, x, label)
    square = same_dim(*x.shape[-2:])
    require(name, square, f"'{label}' has shape {show(x.shape)}", "square matrices (..., n, n)")


def require_float(name: str, x: Any, label: str = "x") -> None:
    allowed = ", ".join(dtypes.FLOATS)
    remedy = f'cast it: {label}.cast("float32")'
    require(name, dtypes.is_float(x.dtype), f"'{label}' has dtype {x.dtype}", allowed, remedy)


def require_same_dtype(name: str, **tensors: Any) -> None:
    (first, head), *rest = tensors.items()
    for label, x in rest:
        problem = f"'{first}' is {head.dtype}, '{label}' is {x.dtype}"
        require(name, x.dtype == head.dtype, problem, "one dtype for both", f'cast one: {label}.cast("{head.dtype}")')


def require_sizes(name: str, **tensors: tuple[Any, Any]) -> None:
    """Two tensors have one shape: label -> shape, of the tensors that have to agree."""
    (first, head), *rest = tensors.items()
    for label, shape in rest:
        problem = f"'{first}' has shape {show(head)}, '{label}' has {show(shape)}"
        require(name, same_shape(head, shape), problem, "equal shapes")
