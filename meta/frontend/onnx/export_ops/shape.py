"""Operators that move, repeat, select and create elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from meta.dim import Dim, SymDim, maximum
from meta.frontend.onnx.export_ops._table import OnnxSite, row, rows

_END: Final = (1 << 63) - 1
_BEGIN: Final = -(1 << 63) + 1


rows({
    "concatenate": lambda call, xs, axis: call.node("Concat", *_common(call, xs), axis=axis),
    "embedding": lambda call, weight, indices: call.node("Gather", weight, _positions(call, indices, 1), axis=0),
    "index_select": lambda call, x, axis, indices: call.node("Gather", x, _positions(call, indices, 2), axis=axis),
    "scatter_add": lambda call, x, axis, indices, src: scatter_elements(call, x, axis, indices, src, "add"),
})  # fmt: skip
row("reshape", "reshape_like", "expand_dims", "squeeze")(
    lambda call, x, *_: call.node("Reshape", x, call.integers(call.result.shape), allowzero=1)
)
row("broadcast_to", "broadcast_to_like")(lambda call, x, *_: call.node("Expand", x, call.integers(call.result.shape)))


@row("transpose")
def transpose(call: OnnxSite, x: str, axes: tuple[int, ...] | None) -> str:
    ndim = call.result.ndim
    return call.node("Transpose", x, perm=[a % ndim for a in axes] if axes else list(range(ndim))[::-1])


def _common(call: OnnxSite, xs: Sequence[str]) -> list[str]:
    return [call.cast(x, kind.dtype, call.dtype) for x, kind in zip(xs, call.types, strict=True)]


@row("split")
def split(call: OnnxSite, x: str, sections: Any, axis: int) -> Any:
    sizes = [kind.shape[axis] for kind in call.results]
    if len(sizes) == 1:
        return (call.node("Identity", x),)
    return call.node("Split", x, call.integers(sizes), outputs=len(sizes), axis=axis)


@row("tile")
def tile(call: OnnxSite, x: str, reps: tuple[int, ...]) -> str:
    ndim = max(len(reps), call.types[0].ndim)
    missing = ndim - call.types[0].ndim
    wide = call.node("Unsqueeze", x, call.integers(range(missing))) if missing else x
    return call.node("Tile", wide, call.integers((1,) * (ndim - len(reps)) + tuple(reps)))


@row("flip")
def flip(call: OnnxSite, x: str, axis: tuple[int, ...] | None) -> str:
    axes = list(range(call.result.ndim)) if axis is None else [a % call.result.ndim for a in axis]
    return _slice(call, x, [-1] * len(axes), [_BEGIN] * len(axes), axes, [-1] * len(axes)) if axes else x


def _slice(
    call: OnnxSite, x: str, begin: Sequence[Dim], end: Sequence[Dim], axes: Sequence[int], steps: Sequence[int]
) -> str:
    return call.node("Slice", x, *map(call.integers, (begin, end, axes, steps)))


@row("strided_slice")
def strided_slice(
    call: OnnxSite, x: str, begin: tuple[int, ...], end: tuple[int, ...], strides: tuple[int, ...]
) -> str | None:
    if any(isinstance(b, SymDim) for b in (*begin, *end)):
        return None
    if not begin:
        return call.node("Identity", x)
    ends = [min(max(e, _BEGIN), _END) for e in end]
    return _slice(call, x, begin, ends, range(len(begin)), strides or (1,) * len(begin))


@row("roll")
def roll(call: OnnxSite, x: str, shift: tuple[int, ...], axis: tuple[int, ...]) -> str:
    for distance, a in zip(shift, axis, strict=True):
        size = call.result.shape[a]
        counted = maximum(size, 1)
        cut = -distance % counted if distance <= 0 else counted - distance % counted
        if cut in (0, counted):
            continue
        tail, head = (_slice(call, x, [b], [e], [a % call.result.ndim], [1]) for b, e in ((cut, _END), (0, cut)))
        x = call.node("Concat", tail, head, axis=a)
    return x if shift else call.node("Identity", x)


_PAD_MODES: Final = {"constant": "constant", "edge": "edge", "reflect": "reflect", "wrap": "wrap"}


@row("pad")
def pad(call: OnnxSite, x: str, width: tuple[int, ...], value: float, mode: str) -> str | None:
    if mode not in _PAD_MODES or (mode != "constant" and min(width, default=0) < 0):
        return None
    if mode == "wrap" and call.opset < 19:
        return None
    if not width:
        return call.node("Identity", x)
    fill = call.number(value) if mode == "constant" else ""
    return call.node("Pad", x, call.integers((*width[::2], *width[1::2])), fill, mode=_PAD_MODES[mode])


@row("tril", "triu")
def triangle(call: OnnxSite, x: str, k: int) -> str:
    return call.node("Trilu", x, call.number(k, "int64"), upper=int(call.call.op_name == "triu"))


@row("take")
def take(call: OnnxSite, x: str, indices: str, axis: int | None, mode: str) -> str | None:
    if mode == "wrap":
        return None
    source = x if axis is not None else call.node("Reshape", x, call.integers([-1]))
    positions = _positions(call, indices, 1)
    if mode == "clip":
        size = call.types[0].size if axis is None else call.types[0].shape[axis]
        last = call.node("Sub", call.number(size, "int64"), call.number(1, "int64"))
        positions = call.cast(positions, call.args[1].dtype, "int64") if call.args[1].dtype == "int32" else positions
        positions = call.node("Max", call.node("Min", positions, last), call.number(0, "int64"))
    return call.node("Gather", source, positions, axis=axis or 0)


@row("gather")
def gather(call: OnnxSite, x: str, axis: int, indices: str) -> str | None:
    if call.types[0].ndim == 0:
        return None
    return call.node("GatherElements", x, _positions(call, indices, 2), axis=axis)


def _positions(call: OnnxSite, indices: str, argument: int) -> str:
    """Positions as int64, unless they are of a dtype that ONNX takes."""
    dtype = call.args[argument].dtype
    return indices if dtype == "int32" else call.cast(indices, dtype, "int64")


_REDUCTIONS: Final = {"update": "none", "add": "add", "mul": "mul", "min": "min", "max": "max"}


@row("scatter_elements")
def scatter_elements(call: OnnxSite, x: str, axis: int, indices: str, src: str, reduction: str) -> str | None:
    if call.args[2].shape != call.args[3].shape:
        return None
    positions = _positions(call, indices, 2)
    return call.node("ScatterElements", x, positions, src, axis=axis, reduction=_REDUCTIONS[reduction])


@row("full")
def full(call: OnnxSite, shape: Any, value: Any, dtype: str, device: Any) -> str:
    return call.node("Expand", call.number(value), call.integers(call.result.shape))


@row("arange")
def arange(call: OnnxSite, start: Any, stop: Any, step: Any, *_: Any) -> str | None:
    first, last = (0, start) if stop is None else (start, stop)
    if not isinstance(step, int) or not all(isinstance(b, (int, SymDim)) for b in (first, last)):
        return None
    return call.cast(call.range(first, last, step), "int64", call.dtype)


@row("eye")
def eye(call: OnnxSite, *_: Any) -> str:
    rows, columns = (call.range(0, size) for size in call.result.shape)
    column = call.node("Unsqueeze", rows, call.integers([1]))
    return call.cast(call.node("Equal", column, columns), "bool", call.dtype)


@row("linspace")
def linspace(call: OnnxSite, start: float, stop: float, num: Dim, *_: Any) -> str:
    """In float64, from the nearer end, so that both ends are exact."""
    wide = "float64"
    first, last, count = (call.number(value, wide) for value in (start, stop, num))
    one, two = call.number(1, wide), call.number(2, wide)
    intervals = call.node("Max", call.node("Sub", count, one), one)
    step = call.node("Div", call.node("Sub", last, first), intervals)
    i = call.cast(call.range(0, num), "int64", wide)
    lower = call.node("Add", first, call.node("Mul", i, step))
    upper = call.node("Sub", last, call.node("Mul", call.node("Sub", intervals, i), step))
    is_lower = call.node("LessOrEqual", call.node("Mul", i, two), intervals)
    return call.cast(call.node("Where", is_lower, lower, upper), wide, call.dtype)
