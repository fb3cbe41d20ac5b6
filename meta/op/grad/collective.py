"""Gradients of collectives. The gradient of a rank's tensor is the gradient of the sum of all ranks' losses."""

from __future__ import annotations

import meta
from meta import dtype as dtypes
from meta._generated.methods import Tensor


def all_reduce_grad(x: Tensor, y: Tensor, reduction: str, group: str, ranks: int, dy: Tensor) -> Tensor:
    """Equal maxima or minima share the gradient, on one rank or several. The derivative of a product is the product of
    the other ranks' elements."""
    if reduction in ("sum", "mean"):
        return meta.all_reduce(dy, reduction, group, ranks)
    total = meta.all_reduce(dy, "sum", group, ranks)
    if reduction == "product":
        rows = meta.reshape(meta.all_gather(meta.reshape(x, (1, -1)), 0, group, ranks), (ranks, *x.shape))
        own = meta.equal(meta.arange(ranks, device=x.device), meta.group_rank(group, ranks, device=x.device))
        others = meta.where(meta.reshape(own, (ranks, *(1,) * len(x.shape))), meta.ones_like(rows), rows)
        return total * _conjugate(meta.prod(others, 0))
    attained = meta.equal(x, y)
    count = meta.all_reduce(meta.cast(attained, dy.dtype), "sum", group, ranks)
    return meta.where(attained, total / count, 0)


def _conjugate(x: Tensor) -> Tensor:
    return meta.conj(x) if dtypes.is_complex(x.dtype) else x


def all_gather_grad(axis: int, group: str, ranks: int, dy: Tensor) -> Tensor:
    return meta.reduce_scatter(dy, axis, "sum", group, ranks)


def reduce_scatter_grad(axis: int, reduction: str, group: str, ranks: int, dy: Tensor) -> Tensor:
    gathered = meta.all_gather(dy, axis, group, ranks)
    return gathered / ranks if reduction == "mean" else gathered


def reduce_to_grad(destination: int, reduction: str, group: str, ranks: int, dy: Tensor) -> Tensor:
    sent = meta.broadcast_from(dy, destination, group, ranks)
    return sent / ranks if reduction == "mean" else sent


def send_receive_grad(pairs: tuple[int, ...], group: str, ranks: int, dy: Tensor) -> Tensor:
    """dy sent back."""
    back = [(pairs[i + 1], pairs[i]) for i in range(0, len(pairs), 2)]
    return meta.send_receive(dy, back, group, ranks)
