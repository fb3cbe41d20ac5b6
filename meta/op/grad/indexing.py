"""Gradients of operators that pick elements by position, and put them there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import meta
from meta.ir.type import TensorType
from meta.op.grad.support import fit


def strided_set_dx(
    v: TensorType, begin: tuple[int, ...], end: tuple[int, ...], strides: tuple[int, ...], dy: Any
) -> Any:
    """dy with zeros where x was replaced."""
    zero = meta.zeros((1,) * len(dy.shape), dtype=v.dtype, device=v.device)
    return meta.strided_set(dy, zero, begin, end, strides)


def strided_set_dv(
    v: TensorType, begin: tuple[int, ...], end: tuple[int, ...], strides: tuple[int, ...], dy: Any
) -> Any:
    """dy where v was put, summed over what v was broadcast along."""
    return fit(meta.strided_slice(dy, begin, end, strides), v)


def scatter_elements_grad(
    x: Any, axis: int, indices: Any, src: Any, reduction: str, y: Any, dy: Any
) -> tuple[Any, Any]:
    """Gradients with respect to x and src."""

    def put(base: Any, values: Any, how: Any) -> Any:
        return meta.scatter_elements(base, axis, indices, values, how)

    return _scattered(x, src, reduction, y, dy, put, lambda base: meta.gather(base, axis, indices))


def scatter_nd_grad(x: Any, indices: Any, src: Any, reduction: str, y: Any, dy: Any) -> tuple[Any, Any]:
    """Gradients with respect to x and src."""

    def put(base: Any, values: Any, how: Any) -> Any:
        return meta.scatter_nd(base, indices, values, how)

    return _scattered(x, src, reduction, y, dy, put, lambda base: meta.gather_nd(base, indices))


def _scattered(
    x: Any, src: Any, reduction: str, y: Any, dy: Any, put: Callable[[Any, Any, str], Any], pick: Callable[[Any], Any]
) -> tuple[Any, Any]:
    """`put(base, values, reduction)` is the forward operator, `pick(base)` the elements at its places.

    "update" takes places to be distinct. Equal extrema share the gradient."""
    if reduction == "update":
        return put(dy, meta.zeros_like(src), "update"), pick(dy)
    if reduction == "add":
        return dy, pick(dy)
    if reduction == "mul":
        return dy * put(meta.ones_like(x), src, "mul"), _factor(x, src, y, dy, put, pick)
    mine = meta.cast(meta.equal(x, y), x.dtype)
    theirs = meta.cast(meta.equal(src, pick(y)), src.dtype)
    share = dy / put(mine, theirs, "add")
    return share * mine, pick(share) * theirs


def _factor(x: Any, src: Any, y: Any, dy: Any, put: Callable[[Any, Any, str], Any], pick: Callable[[Any], Any]) -> Any:
    """dy times the other factors: y / src, or for the only 0 of a place, the product with a 1 instead of it."""
    zero = meta.equal(src, 0)
    zeros = put(meta.zeros_like(x), meta.cast(zero, x.dtype), "add")
    alone = meta.logical_and(zero, meta.equal(pick(zeros), 1))
    others = put(x, meta.where(alone, 1, src), "mul")
    return meta.where(alone, pick(dy * others), pick(dy * y) / meta.where(zero, 1, src))
