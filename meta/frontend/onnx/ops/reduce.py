"""Reductions and scans along axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import meta
from meta._generated.methods import Tensor
from meta.dtype import int_range, is_float
from meta.frontend.onnx.ops._row import Node, row
from meta.frontend.onnx.ops._values import axes_of, axis_of, ints, number, value_of
from meta.functional._checks import as_dtype

Reduction = Callable[[Any, Any, bool], Any]


def _kept(function: Callable[..., Any]) -> Reduction:
    """A reduction whose result has the dtype of its operand."""
    return lambda x, axes, keep: as_dtype(function(x, axes, keep), x.dtype)


def _in_floats(function: Callable[..., Any]) -> Reduction:
    """A reduction that is computed in float64 for integers."""

    def reduce(x: Tensor, axes: Any, keep: bool) -> Any:
        y = x if is_float(x.dtype) else meta.cast(x, "float64")
        return as_dtype(function(y, axes, keep), x.dtype)

    return reduce


def _end(dtype: str, largest: bool) -> Any:
    """The maximum (or minimum) of nothing: the lower (or upper) end of a dtype's values."""
    if is_float(dtype):
        return float("-inf") if largest else float("inf")
    return int_range(dtype)[0 if largest else 1]


def _extreme(function: Callable[..., Any], largest: bool) -> Reduction:
    """An extreme, which is an infinity, or the end of the range, where there is nothing."""

    def reduce(x: Tensor, axes: Any, keep: bool) -> Any:
        if x.dtype == "bool":
            return (meta.any if largest else meta.all)(x, axes, keep)
        if not any(isinstance(n, int) and n == 0 for n in x.shape):
            return function(x, axes, keep)
        return meta.full_like(meta.sum(x, axes, keep), _end(x.dtype, largest), x.dtype)

    return reduce


def _integer_mean(x: Tensor, axes: Any, keep: bool) -> Any:
    return as_dtype(meta.trunc(meta.mean(meta.cast(x, "float64"), axes, keep)), x.dtype)


def _mean(x: Tensor, axes: Any, keep: bool) -> Any:
    return meta.mean(x, axes, keep) if is_float(x.dtype) else _integer_mean(x, axes, keep)


_REDUCTIONS: dict[str, Reduction] = {
    "ReduceSum": _kept(meta.sum),
    "ReduceProd": _kept(meta.prod),
    "ReduceMean": _mean,
    "ReduceMax": _extreme(meta.max, largest=True),
    "ReduceMin": _extreme(meta.min, largest=False),
    "ReduceL1": _kept(lambda x, axes, keep: meta.sum(meta.abs(x), axes, keep)),
    "ReduceSumSquare": _kept(lambda x, axes, keep: meta.sum(meta.multiply(x, x), axes, keep)),
    "ReduceL2": _in_floats(lambda x, axes, keep: meta.sqrt(meta.sum(meta.multiply(x, x), axes, keep))),
    "ReduceLogSum": _in_floats(lambda x, axes, keep: meta.log(meta.sum(x, axes, keep))),
    "ReduceLogSumExp": _in_floats(meta.logsumexp),
}
_FOLDED: dict[str, Callable[..., Any]] = {
    "ReduceSum": np.sum,
    "ReduceProd": np.prod,
    "ReduceMax": np.max,
    "ReduceMin": np.min,
}
_INPUT_SINCE = {"ReduceSum": 13}
"""The opset from which the axes are an input; 18 for the others."""
_ELEMENTWISE: dict[str, Callable[[Any], Any]] = {
    "ReduceLogSum": meta.log,
    "ReduceL1": meta.abs,
    "ReduceL2": meta.abs,
    "ReduceSumSquare": meta.square,
}
"""The function of each element that a reduction along no axes computes, if it is not the identity."""


def _reduced(name: str, x: Tensor, axes: tuple[int, ...] | None, keep: bool) -> Any:
    if axes == ():
        return _ELEMENTWISE[name](x) if name in _ELEMENTWISE else x
    return _REDUCTIONS[name](x, axes, keep)


def _fold(name: str) -> Callable[..., Any] | None:
    function = _FOLDED.get(name)
    if function is None:
        return None

    def fold(data: Any, axes: Any = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0) -> Any:
        reduced_axes = None if axes is None else ints(axes)
        if not reduced_axes and noop_with_empty_axes:
            return data
        options: dict[str, Any] = {}
        if not data.size and name in ("ReduceMax", "ReduceMin"):
            options["initial"] = _end(str(data.dtype), largest=name == "ReduceMax")
        return np.asarray(
            function(data, axis=reduced_axes or None, keepdims=bool(keepdims), **options), dtype=data.dtype
        )

    return fold


def _register(name: str) -> None:
    def convert(node: Node, data: Tensor, axes: Any = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0) -> Any:
        requested = None if axes is None else axes_of(name, value_of(node, axes, "axes"), data.ndim)
        reduced_axes = requested or (() if noop_with_empty_axes else None)
        return _reduced(name, data, reduced_axes, bool(keepdims))

    def convert_old(node: Node, data: Tensor, *, axes: Sequence[int] | None = None, keepdims: int = 1) -> Any:
        return _reduced(name, data, axes_of(name, axes, data.ndim) if axes else None, bool(keepdims))

    row(name, since=_INPUT_SINCE.get(name, 18), constants=("axes",), fold=_fold(name))(convert)
    row(name)(convert_old)


for _name in _REDUCTIONS:
    _register(_name)


# --- positions of extremes -------------------------------------------------------------------------------------------


def _position(name: str, function: Callable[..., Any]) -> None:
    def convert(node: Node, data: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Any:
        axis = axis_of(name, axis, data.ndim)
        if not select_last_index:
            return as_dtype(function(data, axis, bool(keepdims)), "int64")
        from_end = as_dtype(function(meta.flip(data, axis), axis, bool(keepdims)), "int64")
        return meta.subtract(data.shape[axis] - 1, from_end)

    row(name)(convert)


_position("ArgMax", meta.argmax)
_position("ArgMin", meta.argmin)


# --- running sums and products ---------------------------------------------------------------------------------------


@row("CumSum", since=11, constants=("axis",))
def cumsum(node: Node, x: Tensor, axis: Any, *, exclusive: int = 0, reverse: int = 0) -> Any:
    place = axis_of("CumSum", number(axis, "axis"), x.ndim)
    return as_dtype(meta.cumsum(x, place, bool(exclusive), bool(reverse)), x.dtype)


@row("CumProd", since=26, constants=("axis",))
def cumprod(node: Node, x: Tensor, axis: Any, *, exclusive: int = 0, reverse: int = 0) -> Any:
    place = axis_of("CumProd", number(axis, "axis"), x.ndim)
    return as_dtype(meta.cumprod(x, place, bool(exclusive), bool(reverse)), x.dtype)
