"""Gradients of operators that read and write elements by position."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import meta
from meta._generated.methods import Tensor
from meta.ir.type import TensorType
from meta.op.grad.support import fit


def strided_set_dx(
    v: TensorType, begin: tuple[int, ...], end: tuple[int, ...], strides: tuple[int, ...], dy: Tensor
) -> Tensor:
    """dy with zeros in the replaced slice."""
    zero = meta.zeros((1,) * len(dy.shape), dtype=v.dtype, device=v.device)
    return meta.strided_set(dy, zero, begin, end, strides)


def strided_set_dv(
    v: TensorType, begin: tuple[int, ...], end: tuple[int, ...], strides: tuple[int, ...], dy: Tensor
) -> Tensor:
    """The slice of dy that v replaced, summed over the broadcast axes of v."""
    return fit(meta.strided_slice(dy, begin, end, strides), v)


def index_select_grad(x: TensorType, axis: int, indices: Tensor, dy: Tensor) -> Tensor:
    """The slices of dy added up by position: embedding_dx along an axis."""
    axis = axis % x.ndim
    size: Any = x.shape[axis]
    if axis == 0:
        return meta.embedding_dx(dy, indices, size)
    table = meta.embedding_dx(meta.moveaxis(dy, (axis,), (0,)), indices, size)
    return meta.moveaxis(table, (0,), (axis,))


def scatter_elements_grad(
    needs: tuple[bool, bool], x: Tensor, axis: int, indices: Tensor, src: Tensor, reduction: str, y: Tensor, dy: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients with respect to x and src."""

    def scatter(base: Tensor, values: Tensor, combine: Any) -> Tensor:
        return meta.scatter_elements(base, axis, indices, values, combine)

    return _scatter_grad(needs, x, src, reduction, y, dy, scatter, lambda base: meta.gather(base, axis, indices))


def scatter_elements_tangent(
    x: Tensor, axis: int, indices: Tensor, src: Tensor, reduction: str, y: Tensor, x_t: Tensor, src_t: Tensor
) -> Tensor:
    """The tangent of the result."""

    def scatter(base: Tensor, values: Tensor, combine: Any) -> Tensor:
        return meta.scatter_elements(base, axis, indices, values, combine)

    return _scatter_tangent(x, src, reduction, y, x_t, src_t, scatter, lambda base: meta.gather(base, axis, indices))


def scatter_nd_tangent(
    x: Tensor, indices: Tensor, src: Tensor, reduction: str, y: Tensor, x_t: Tensor, src_t: Tensor
) -> Tensor:
    """The tangent of the result."""

    def scatter(base: Tensor, values: Tensor, combine: Any) -> Tensor:
        return meta.scatter_nd(base, indices, values, combine)

    return _scatter_tangent(x, src, reduction, y, x_t, src_t, scatter, lambda base: meta.gather_nd(base, indices))


def scatter_nd_grad(
    needs: tuple[bool, bool], x: Tensor, indices: Tensor, src: Tensor, reduction: str, y: Tensor, dy: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients with respect to x and src."""

    def scatter(base: Tensor, values: Tensor, combine: Any) -> Tensor:
        return meta.scatter_nd(base, indices, values, combine)

    return _scatter_grad(needs, x, src, reduction, y, dy, scatter, lambda base: meta.gather_nd(base, indices))


def _scatter_grad(
    needs: tuple[bool, bool],
    x: Tensor,
    src: Tensor,
    reduction: str,
    y: Tensor,
    dy: Tensor,
    scatter: Callable[[Any, Any, str], Any],
    gather: Callable[[Any], Any],
) -> tuple[Any, Any]:
    """Gradients with respect to x and src.

    scatter: the forward operator, `scatter(base, values, reduction)`.  gather: reads the scattered positions of `base`.
    "update" assumes distinct positions. Equal extrema share the gradient."""
    if reduction == "update":
        dx = scatter(dy, meta.zeros_like(src), "update") if needs[0] else None
        return dx, gather(dy) if needs[1] else None
    if reduction == "add":
        return dy, gather(dy) if needs[1] else None
    if reduction == "mul":
        dx = dy * scatter(meta.ones_like(x), src, "mul") if needs[0] else None
        return dx, _product_grad_src(x, src, y, dy, scatter, gather) if needs[1] else None
    x_ties = meta.cast(meta.equal(x, y), x.dtype)
    src_ties = meta.cast(meta.equal(src, gather(y)), src.dtype)
    share = dy / scatter(x_ties, src_ties, "add")
    return share * x_ties if needs[0] else None, gather(share) * src_ties if needs[1] else None


def _scatter_tangent(
    x: Tensor,
    src: Tensor,
    reduction: str,
    y: Tensor,
    x_t: Tensor,
    src_t: Tensor,
    scatter: Callable[[Any, Any, str], Any],
    gather: Callable[[Any], Any],
) -> Tensor:
    """The tangent of the result, for `scatter` and `gather` as in `_scatter_grad`. Where "update" writes several values
    to one position, the tangent of the value that stays; equal extrema share theirs."""
    if reduction in ("update", "add"):
        return scatter(x_t, src_t, reduction)
    if reduction == "mul":
        others = _product_grad_src(x, src, y, meta.ones_like(y), scatter, gather)
        return scatter(x_t * scatter(meta.ones_like(x), src, "mul"), src_t * others, "add")
    x_ties = meta.cast(meta.equal(x, y), x.dtype)
    src_ties = meta.cast(meta.equal(src, gather(y)), src.dtype)
    return scatter(x_t * x_ties, src_t * src_ties, "add") / scatter(x_ties, src_ties, "add")


def _product_grad_src(
    x: Tensor, src: Tensor, y: Tensor, dy: Tensor, scatter: Callable[[Any, Any, str], Any], gather: Callable[[Any], Any]
) -> Tensor:
    """dy times the product of the other factors: y / src. Where src is the only 0 of its position, the product with
    that 0 replaced by 1."""
    is_zero = meta.equal(src, 0)
    zero_count = scatter(meta.zeros_like(x), meta.cast(is_zero, x.dtype), "add")
    only_zero = meta.logical_and(is_zero, meta.equal(gather(zero_count), 1))
    others = scatter(x, meta.where(only_zero, 1, src), "mul")
    return meta.where(only_zero, gather(dy * others), gather(dy * y) / meta.where(is_zero, 1, src))
