"""Samples of reductions."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch

from meta.errors import TypeInferenceError
from meta.testing.samples import ErrorCase, Sample, T


def axes(x: Any, axis: Any) -> tuple[int, ...]:
    """meta's axis as torch's dim."""
    return tuple(range(x.ndim)) if axis is None else (axis,) if isinstance(axis, int) else tuple(axis)


def by_axes(function: Callable[..., Any]) -> Callable[..., Any]:
    """A torch reduction over several dims at once as (x, axis, keepdims)."""
    return lambda x, axis=None, keepdims=False: (
        function(x, dim=axes(x, axis), keepdim=keepdims) if axis != () else function(x[None], dim=0)
    )


def by_turns(function: Callable[..., Any]) -> Callable[..., Any]:
    """A torch reduction over one dim at a time as (x, axis, keepdims)."""

    def run(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        for dim in sorted((d % max(x.ndim, 1) for d in axes(x, axis)), reverse=True):
            x = function(x, dim=dim, keepdim=keepdims)
        return x

    return run


def truth(function: Callable[..., Any]) -> Callable[..., Any]:
    """`by_turns` with bools as results, also for a scalar, which has no axis to reduce."""
    return lambda x, axis=None, keepdims=False: by_turns(function)(x, axis, keepdims).bool()


def moment(function: Callable[..., Any]) -> Callable[..., Any]:
    def run(x: Any, axis: Any = None, correction: int = 1, keepdims: bool = False) -> Any:
        with warnings.catch_warnings():
            # torch warns that the result for too few elements is NaN.
            warnings.filterwarnings("ignore", message=".*degrees of freedom")
            return function(floating(x), dim=axes(x, axis), correction=correction, keepdim=keepdims)

    return run


def floating(x: Any) -> Any:
    return x if x.is_floating_point() else x.float()


def mean(x: Any, dim: Any, keepdim: bool = False) -> Any:
    return torch.mean(floating(x), dim=dim, keepdim=keepdim)


def logsumexp(x: Any, dim: Any, keepdim: bool = False) -> Any:
    return torch.logsumexp(floating(x), dim=dim, keepdim=keepdim)


def position(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, axis=None, keepdims=False: function(x, dim=axis, keepdim=keepdims)


def extremum_dx(forward: Callable[..., Any]) -> Callable[..., Any]:
    """The gradient of (x, y, dy, axis, keepdims) by torch's."""

    def run(x: Any, y: Any, dy: Any, axis: Any = None, keepdims: bool = False) -> Any:
        share = (x == spread(y, x, axis, keepdims)).to(x.dtype)
        return share * spread(dy, x, axis, keepdims) / share.sum(dim=axes(x, axis), keepdim=True)

    return run


def spread(y: Any, x: Any, axis: Any, keepdims: bool) -> Any:
    reduced_axes = {a % x.ndim for a in axes(x, axis)}
    return y if keepdims else y.reshape([1 if d in reduced_axes else n for d, n in enumerate(x.shape)])


def prod_dx(x: Any, dy: Any, axis: Any = None, keepdims: bool = False) -> Any:
    with torch.enable_grad():
        x = x if x.requires_grad else x.detach().requires_grad_()
        return torch.autograd.grad(by_turns(torch.prod)(x, axis, keepdims), x, dy, create_graph=True)[0]


def scan(x: Any, axis: int, exclusive: bool = False, reverse: bool = False) -> Any:
    x = x.flip(axis) if reverse else x
    out = torch.cumsum(x, axis)
    out = out - x if exclusive else out
    return out.flip(axis) if reverse else out


def cumprod(x: Any, axis: int, exclusive: bool = False, reverse: bool = False) -> Any:
    x = x.flip(axis) if reverse else x
    if exclusive:
        x = torch.cat([torch.ones_like(x.narrow(axis, 0, 1)), x.narrow(axis, 0, x.shape[axis] - 1)], axis)
    out = torch.cumprod(x, axis)
    return out.flip(axis) if reverse else out


def logcumsumexp(x: Any, axis: int, exclusive: bool = False, reverse: bool = False) -> Any:
    x = floating(x).flip(axis) if reverse else floating(x)
    out = torch.logcumsumexp(x, axis)
    if exclusive:
        first = torch.full_like(out.narrow(axis, 0, 1), -float("inf"))
        out = torch.cat([first, out.narrow(axis, 0, x.shape[axis] - 1)], axis)
    return out.flip(axis) if reverse else out


def running(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, axis: tuple(function(x, axis))


FUNCTIONS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "all": (truth(torch.all), {}),
    "any": (truth(torch.any), {}),
    "logsumexp": (by_axes(logsumexp), {"low": -5, "high": 5}),
    "max": (by_axes(torch.amax), {"distinct": True}),
    "mean": (by_axes(mean), {}),
    "min": (by_axes(torch.amin), {"distinct": True}),
    "prod": (by_turns(torch.prod), {"low": 0.5, "high": 2}),
    "sum": (by_axes(torch.sum), {}),
}

SAMPLES = [
    *(
        Sample(name, T(3, 4, 5, **spread), axis, keepdims, ref=ref)
        for name, (ref, spread) in FUNCTIONS.items()
        for axis, keepdims in ((None, False), (1, False), (-1, True), ((0, 2), False), ((2, 0), True))
    ),
    *(Sample(name, T(**spread), ref=ref) for name, (ref, spread) in FUNCTIONS.items()),
    *(
        Sample(name, T(70, 33, **spread), 0, ref=ref, grad=False)
        for name, (ref, spread) in FUNCTIONS.items()
        if name != "prod"
    ),
    Sample("sum", T(3, 4), (), ref=lambda x, axis: x, id="no-axis"),
    Sample("max", T(40, dtype="int32", low=-9, high=9), ref=by_axes(torch.amax)),
    Sample("min", T(40, dtype="uint8", low=0, high=9), ref=by_axes(torch.amin)),
    *(
        Sample(name, T(3, 4, 5, distinct=True), axis, keepdims, ref=position(ref))
        for name, ref in {"argmax": torch.argmax, "argmin": torch.argmin}.items()
        for axis, keepdims in ((None, False), (1, False), (-1, True), (0, False))
    ),
    Sample("argmax", T(50, dtype="int64", low=0, high=3), ref=lambda x: (x == x.max()).int().argmax(), id="ties"),
    Sample("argmin", T(50, dtype="int64", low=0, high=3), ref=lambda x: (x == x.min()).int().argmax(), id="ties"),
    Sample("argmax", T(3, 50), 1, ref=position(torch.argmax), id="rows-with-a-rest"),
    Sample("argmin", T(3, 100), 1, ref=position(torch.argmin), id="rows-with-a-rest"),
    *(
        Sample(name, T(3, 4, 5), axis, correction, keepdims, ref=moment(ref))
        for name, ref in {"std": torch.std, "var": torch.var}.items()
        for axis, correction, keepdims in ((None, 1, False), (1, 0, False), ((0, -1), 1, True), (2, 2, False))
    ),
    Sample("cumprod", T(3, 4, 5, low=0.5, high=2), 1, ref=cumprod),
    Sample("cumprod", T(3, 5, low=0.5, high=2), -1, True, True, ref=cumprod),
    Sample("cumsum", T(3, 4, 5), 1, ref=scan),
    Sample("cumsum", T(7), -1, True, ref=scan),
    Sample("cumsum", T(3, 4), 0, False, True, ref=scan),
    Sample("cumsum", T(3, 4), 1, True, True, ref=scan),
    Sample("cummax", T(3, 4, 5, distinct=True), 1, ref=running(torch.cummax)),
    Sample("cummax", T(30, dtype="uint8", high=3), 0, ref=running(torch.cummax), id="ties"),
    Sample("cummin", T(3, 5, distinct=True), -1, ref=running(torch.cummin)),
    Sample("cummin", T(2, 37, distinct=True), 1, ref=running(torch.cummin), id="blocks"),
    Sample("logcumsumexp", T(3, 4, 5, low=-5, high=5), 1, ref=logcumsumexp),
    Sample("logcumsumexp", T(3, 5, low=-5, high=5), -1, True, True, ref=logcumsumexp, grad=False),
    Sample("max_dx", T(3, 4, distinct=True), T(3), T(3), 1, ref=extremum_dx(torch.amax), grad=False),
    Sample("prod_dx", T(3, 4, low=0.5, high=2), T(3), 1, ref=prod_dx),
    Sample("prod_dx", T(3, 2, 4, low=0.5, high=2), T(1, 2, 1), (0, 2), True, ref=prod_dx),
    Sample("sum_to", T(3, 4, 5), (4, 1), ref=lambda x, shape: x.sum_to_size(shape).to(x.dtype)),
    Sample("sum_to", T(3, 4, 5), (1, 4, 5), ref=lambda x, shape: x.sum_to_size(shape)),
    Sample("sum_to", T(3, 4), (), ref=lambda x, shape: x.sum()),
    Sample("sum_to", T(3, 4), (3, 4), ref=lambda x, shape: x),
]
ERRORS = [
    ErrorCase("sum", T(3, 4), 2, error=TypeInferenceError, match="axis 2 is out of range for rank 2"),
    ErrorCase("mean", T(3, 4), (0, -2), error=TypeInferenceError, match="names an axis twice"),
    ErrorCase("max", T(3, 0), 1, error=TypeInferenceError, match="axis 1 of shape (3, 0) has no elements"),
    ErrorCase("argmin", T(0), error=TypeInferenceError, match="axis 0 of shape (0,) has no elements"),
    ErrorCase("argmax", T(3, dtype="bool"), error=TypeInferenceError, match="'x' has dtype bool"),
    ErrorCase("cumprod", T(3), -2, error=TypeInferenceError, match="axis -2 is out of range"),
    ErrorCase("cummax", T(3), 1, error=TypeInferenceError, match="axis 1 is out of range"),
    ErrorCase("logcumsumexp", T(3), 2, error=TypeInferenceError, match="axis 2 is out of range"),
    ErrorCase("cumsum", T(3), 1, error=TypeInferenceError, match="axis 1 is out of range"),
    ErrorCase("sum_to", T(3), (2,), error=TypeInferenceError, match="do not broadcast"),
    ErrorCase("sum_to", T(1), (2,), error=TypeInferenceError, match="(2,) does not broadcast to (1,)"),
    ErrorCase("max_dx", T(3, 4), T(3), T(4), 1, error=TypeInferenceError, match="'result' has shape (3,)"),
]
