"""Reductions and scans."""

from __future__ import annotations

from typing import Any

from meta.frontend.onnx.export_ops._table import OnnxSite, row, rows
from meta.frontend.onnx.names import REDUCTIONS
from meta.frontend.rows import Function

_Axes = tuple[int, ...] | None


def _reduced(call: OnnxSite, kind: str, x: str, axis: _Axes, keepdims: bool) -> str:
    """A reduction; of no axes, the tensor itself is not reduced."""
    axes = "" if axis is None else call.integers(axis)
    return call.node(kind, x, axes, keepdims=int(keepdims), noop_with_empty_axes=int(axis == ()))


def _reduction(kind: str) -> Function:
    def convert(call: OnnxSite, x: str, axis: _Axes, keepdims: bool) -> str | None:
        if call.dtype == "bool":
            return quantified(call, x, axis, keepdims)
        if call.types[0].size == 0 or (axis == () and kind == "ReduceLogSumExp"):
            return None
        return _reduced(call, kind, call.cast(x, call.types[0].dtype, call.dtype), axis, keepdims)

    return convert


rows({name: _reduction(kind) for name, kind in REDUCTIONS.items()})


@row("all", "any")
def quantified(call: OnnxSite, x: str, axis: _Axes, keepdims: bool) -> str | None:
    if call.types[0].size == 0:
        return None
    kind = "ReduceMin" if call.call.op_name in ("all", "min") else "ReduceMax"
    flags = call.cast(call.cast(x, call.types[0].dtype, "bool"), "bool", "int32")
    return call.cast(_reduced(call, kind, flags, axis, keepdims), "int32", "bool")


@row("argmax", "argmin")
def arg_reduce(call: OnnxSite, x: str, axis: int | None, keepdims: bool) -> str | None:
    kind = "ArgMax" if call.call.op_name == "argmax" else "ArgMin"
    if call.types[0].dtype == "bool" or call.types[0].ndim == 0:
        return None
    if axis is not None:
        return call.node(kind, x, axis=axis, keepdims=int(keepdims))
    flat = call.node(kind, call.node("Reshape", x, call.integers([-1])), axis=0, keepdims=0)
    return call.node("Reshape", flat, call.integers(call.result.shape)) if keepdims else flat


@row("cumsum")
def cumsum(call: OnnxSite, x: str, axis: int, exclusive: bool, reverse: bool) -> str | None:
    if call.types[0].ndim == 0:
        return None
    position = call.number(axis, "int32")
    wide = call.cast(x, call.types[0].dtype, call.dtype)
    return call.node("CumSum", wide, position, exclusive=int(exclusive), reverse=int(reverse))


@row("topk")
def topk(call: OnnxSite, x: str, k: int, axis: int, largest: bool) -> Any:
    if call.types[0].ndim == 0 or call.types[0].dtype == "bool":
        return None
    return call.node("TopK", x, call.integers([k]), outputs=2, axis=axis, largest=int(largest))


@row("sort", "argsort")
def sort(call: OnnxSite, x: str, axis: int, descending: bool) -> str | None:
    if call.types[0].ndim == 0 or call.types[0].dtype == "bool":
        return None
    size = call.graph.size(call.result.shape[axis])
    values, positions = call.node("TopK", x, size, outputs=2, axis=axis, largest=int(descending))
    return values if call.call.op_name == "sort" else positions
