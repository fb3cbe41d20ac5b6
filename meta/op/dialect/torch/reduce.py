"""Reductions by ATen, for complex numbers."""

from __future__ import annotations

import math
from typing import Any

from meta.op.dialect.torch import complex_only


def _reduction(name: str) -> Any:
    """A reduction along axes. ATen takes () for all of them."""
    return lambda torch: lambda x, axis, keepdims: x if axis == () else getattr(torch, name)(x, axis, keepdims)


def _truth(name: str) -> Any:
    return lambda torch: lambda x, axis, keepdims: _reduction(name)(torch)((x != 0), axis, keepdims)


def _variance(torch: Any) -> Any:
    """The mean square of distances from the mean. torch.var warns where the divisor is not positive."""

    def run(x: Any, axis: Any, correction: float, keepdims: bool) -> Any:
        axes = _axes(x, axis)
        centred = x - x.mean(axes, True) if axes else torch.zeros_like(x)
        squares = torch.view_as_real(centred).square().sum(-1)
        total = squares.sum(axes, keepdims) if axes else squares
        return total / max(math.prod(x.shape[d] for d in axes) - correction, 0)

    return run


def _deviation(torch: Any) -> Any:
    variance = _variance(torch)
    return lambda *arguments: variance(*arguments).sqrt()


def _product(torch: Any) -> Any:
    return lambda x, axis, keepdims: _joined(torch, x, axis)[0].prod(-1).reshape(_reduced(x, axis, keepdims))


def _axes(x: Any, axis: Any) -> tuple[int, ...]:
    return tuple(range(x.ndim)) if axis is None or not x.ndim else tuple(a % x.ndim for a in axis)


def _reduced(x: Any, axis: Any, keepdims: bool) -> list[int]:
    axes = _axes(x, axis)
    return [1 if d in axes else n for d, n in enumerate(x.shape) if keepdims or d not in axes]


def _joined(torch: Any, x: Any, axis: Any) -> tuple[Any, tuple[int, ...]]:
    """x with its reduced axes joined to the last one, and the order of axes before that."""
    axes = _axes(x, axis)
    order = (*(d for d in range(x.ndim) if d not in axes), *axes)
    moved = x.permute(order)
    lead = moved.shape[: x.ndim - len(axes)]
    return moved.reshape(*lead, math.prod(x.shape[d] for d in axes)), order


def _product_dx(torch: Any) -> Any:
    """dy times the products of the elements before and of those behind each one."""

    def run(x: Any, dy: Any, axis: Any, keepdims: bool) -> Any:
        rows, order = _joined(torch, x, axis)
        ones = torch.ones_like(rows[..., :1])
        before = torch.cat([ones, rows[..., :-1]], -1).cumprod(-1)
        behind = torch.cat([rows[..., 1:], ones], -1).flip(-1).cumprod(-1).flip(-1)
        others = (before * behind)[..., : rows.shape[-1]] * dy.reshape(*rows.shape[:-1], 1)
        back = [order.index(d) for d in range(x.ndim)]
        return others.reshape([x.shape[d] for d in order]).permute(back)

    return run


def _scan(name: str, start: int) -> Any:
    """A scan from either end; an exclusive one begins with `start` and omits the last element."""

    def build(torch: Any) -> Any:
        def run(x: Any, axis: int, exclusive: bool, reverse: bool) -> Any:
            if x.ndim == 0:
                return torch.full_like(x, start) if exclusive else x
            x = x.flip(axis) if reverse else x
            if exclusive:
                first = torch.full_like(x.narrow(axis, 0, min(1, x.shape[axis])), start)
                x = torch.cat([first, x], axis).narrow(axis, 0, x.shape[axis])
            out = getattr(torch, name)(x, axis)
            return out.flip(axis) if reverse else out

        return run

    return build


complex_only(
    {
        "cumprod": _scan("cumprod", 1),
        "cumsum": _scan("cumsum", 0),
        "prod": _product,
        "prod_dx": _product_dx,
        "std": _deviation,
        "var": _variance,
        "all": _truth("all"),
        "any": _truth("any"),
        "mean": _reduction("mean"),
        "sum": _reduction("sum"),
        "sum_to": lambda torch: lambda x, shape: x.sum_to_size(shape),
    }
)
