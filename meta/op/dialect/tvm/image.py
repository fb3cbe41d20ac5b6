"""TE computes of operators on images."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from itertools import product
from typing import Any

from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.adapter import script_tirx, te, tirx
from meta.backend.tvm.intrinsic import Expr, Tensor
from meta.backend.tvm.numbers import at_least
from meta.backend.tvm.spec import Outs
from meta.backend.tvm.te.elementwise import accumulation_dtype, cast, narrow
from meta.backend.tvm.te.loops import registers
from meta.backend.tvm.te.scan import Index, nest
from meta.backend.tvm.te.sort import argsort
from meta.backend.tvm.workarounds.exact import constant
from meta.op.dialect.tvm import Registrar

compute = Registrar(__file__).compute

Taps = list[tuple[Expr, Expr]]
"""Along one axis: (position, weight) of each element that a result element is interpolated from."""


def _source_position(i: Expr, size: Expr, count: Expr, coordinates: str, dtype: str) -> Expr:
    """The fractional position of element i of `count` among `size` elements: a quotient of integers, rounded once."""
    if coordinates == "align_corners":
        numerator, denominator = i * (size - 1), tirx.max(count - 1, _int(1))
    elif coordinates == "asymmetric":
        numerator, denominator = i * size, count
    else:
        numerator, denominator = (2 * i + 1) * size, 2 * count
        if coordinates != "tf_half_pixel_for_nn":
            numerator = numerator - count
        if coordinates == "pytorch_half_pixel":
            numerator = tirx.if_then_else(count > 1, numerator, _int(0))
    return numerator.astype(dtype) / denominator.astype(dtype)


def _taps(i: Expr, size: Expr, count: Expr, options: tuple[str, str, str, float], dtype: str) -> Taps:
    """The taps of element i of `count` along an axis of `size` elements.

    Weights that sizes of 1 make literals are opaque: times NaN or infinity, one of 0 is NaN."""
    taps = _simplified_taps(i, size, count, options, dtype)
    return [(index, constant(w.value, dtype) if isinstance(w, tvm.FloatImm) else w) for index, w in taps]


def _simplified_taps(i: Expr, size: Expr, count: Expr, options: tuple[str, str, str, float], dtype: str) -> Taps:
    method, coordinates, rounding, alpha = options
    position = _source_position(i, size, count, coordinates, dtype)
    half, one = tirx.const(0.5, dtype), tirx.const(1, dtype)
    if method == "nearest":
        rounded = {
            "floor": lambda: tirx.floor(position),
            "ceil": lambda: tirx.ceil(position),
            "round_prefer_floor": lambda: tirx.ceil(position - half),
            "round_prefer_ceil": lambda: tirx.floor(position + half),
        }[rounding]()
        return [(_clip_position(rounded, 0, size), one)]
    if method == "linear":
        # As in torch: an element past the edge has the weight and the position of the edge.
        position = tirx.max(position, tirx.const(0, dtype))
    first = tirx.floor(position)
    t = position - first
    if method == "linear":
        return [(_clip_position(first, 0, size), one - t), (_clip_position(first, 1, size), t)]
    weights = (
        _outer_cubic(t + one, alpha),
        _inner_cubic(t, alpha),
        _inner_cubic(one - t, alpha),
        _outer_cubic(2 * one - t, alpha),
    )
    return [(_clip_position(first, n - 1, size), weight) for n, weight in enumerate(weights)]


def _inner_cubic(d: Expr, alpha: float) -> Expr:
    """The weight at a distance of up to 1: (a + 2) d^3 - (a + 3) d^2 + 1."""
    return ((alpha + 2) * d - (alpha + 3)) * d * d + 1


def _outer_cubic(d: Expr, alpha: float) -> Expr:
    """The weight at a distance of 1 to 2: a (d^3 - 5 d^2 + 8 d - 4)."""
    return (((d - 5) * d + 8) * d - 4) * alpha


def _clip_position(position: Expr, offset: int, size: Expr) -> Expr:
    return tirx.max(tirx.min(position.astype("int64") + _int(offset), size - 1), _int(0))


def _int(value: int) -> Expr:
    return tirx.const(value, "int64")


def _resize(name: str) -> None:
    @compute(name, sizes=("size",))
    def resize(x: Tensor, size: Any, *options: Any, out: Outs) -> Any:
        shape, dtype = out[0].shape, accumulation_dtype(x.dtype) if "float" in str(x.dtype) else "float32"

        def element(*i: Expr) -> Any:
            taps = [
                _taps(o, before, after, options, dtype)
                for o, before, after in zip(i[2:], x.shape[2:], shape[2:], strict=True)
            ]
            if options[0] == "nearest":
                return x(*i[:2], *(axis_taps[0][0] for axis_taps in taps))
            return cast(_interpolate(x, i[:2], taps, dtype), x.dtype)

        return te.compute(shape, element, name)

    @compute(f"{name}_dx", sizes=("shape",))
    def resize_dx(dy: Tensor, shape: Any, *options: Any, out: Outs) -> Any:
        full, dtype = out[0].shape, accumulation_dtype(dy.dtype)

        def image(index: Index, buffers: list[Any]) -> None:
            source, target = buffers
            with ExitStack() as loops:
                target[(*index, *_open_loops(loops, full[2:]))] = tirx.const(0, dtype)
            with ExitStack() as loops:
                i = _open_loops(loops, dy.shape[2:])
                taps = [_taps(*axis, options, dtype) for axis in zip(i, full[2:], dy.shape[2:], strict=True)]
                for combination in product(*taps):
                    target_index = (*index, *(position for position, _ in combination))
                    part = source[(*index, *i)].astype(dtype)
                    for _, weight in combination:
                        part = part * weight
                    target[target_index] = target[target_index] + part

        total = te.extern([full], [dy], nest(full[:2], image), dtype=dtype, name=f"{name}_dx")
        return narrow(total, dy.dtype)


def _interpolate(x: Tensor, index: tuple[Any, ...], taps: Sequence[Taps], dtype: str) -> Expr:
    """The weighted sum over `taps`, one for each axis after `index`."""
    if not taps:
        return cast(x(*index), dtype)
    parts = [_interpolate(x, (*index, position), taps[1:], dtype) * weight for position, weight in taps[0]]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def _open_loops(stack: ExitStack, shape: Sequence[Any]) -> tuple[Any, ...]:
    """Open a serial loop per axis of `shape` and return the loop variables."""
    return tuple(stack.enter_context(script_tirx.serial(0, size)) for size in shape)


@compute("non_max_suppression", lift=("max_size",))
def non_max_suppression(
    boxes: Any, scores: Tensor, iou_threshold: float, score_threshold: float | None, max_size: int | None, *, kind: str
) -> Any:
    """Visit boxes by descending score and keep each that overlaps no kept box."""
    order = argsort(scores, 1, True, kind)
    batch, size = scores.shape
    limit = size if max_size is None else tirx.min(size, constant(at_least(max_size, 0), "int64"))
    dtype = accumulation_dtype(boxes.dtype)

    def image(index: Index, buffers: list[Any]) -> None:
        corners, score, ordered, selected, count = buffers
        (n,) = index
        overlaps = registers(1, "bool")

        def box(position: Expr) -> list[Expr]:
            return [corners[n, position, corner].astype(dtype) for corner in range(4)]

        count[n] = _int(0)
        with script_tirx.serial(0, size) as i:
            selected[n, i] = _int(-1)
        with script_tirx.serial(0, size) as i:
            position = ordered[n, i]
            is_candidate = count[n] < limit
            if score_threshold is not None:
                is_candidate = tirx.all(
                    is_candidate, score[n, position].astype(dtype) > constant(score_threshold, dtype)
                )
            with script_tirx.If(is_candidate), script_tirx.Then():
                overlaps[0] = tirx.const(False, "bool")
                with script_tirx.serial(0, count[n]) as j:
                    ratio = _overlap_ratio(box(position), box(selected[n, j]), dtype)
                    overlaps[0] = tirx.Or(overlaps[0], ratio > constant(iou_threshold, dtype))
                with script_tirx.If(tirx.Not(overlaps[0])), script_tirx.Then():
                    selected[n, count[n]] = position
                    count[n] = count[n] + 1

    return tuple(
        te.extern(
            [(batch, size), (batch,)], [boxes, scores, order], nest([batch], image), dtype=["int64"] * 2, name="nms"
        )
    )


def _overlap_ratio(a: list[Expr], b: list[Expr], dtype: str) -> Expr:
    """Intersection over union of two boxes; 0 where the union is empty."""
    zero = tirx.const(0, dtype)
    sides = [tirx.max(tirx.min(a[k + 2], b[k + 2]) - tirx.max(a[k], b[k]), zero) for k in (0, 1)]
    intersection = sides[0] * sides[1]
    union = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - intersection
    return tirx.if_then_else(union > zero, intersection / union, zero)


for _rank in (1, 2, 3):
    _resize(f"resize{_rank}d")
