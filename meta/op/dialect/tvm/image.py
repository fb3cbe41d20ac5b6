"""TE computes of operators on images."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from itertools import product
from typing import Any

from meta.op.dialect.tvm._adapter import script_tirx, te, tirx
from meta.op.dialect.tvm._elementwise import cast
from meta.op.dialect.tvm._precision import wide
from meta.op.dialect.tvm._register import compute
from meta.op.dialect.tvm._scan import Index, nest
from meta.op.dialect.tvm.sort import order as sorted_positions

Expr = Any
Taps = list[tuple[Expr, Expr]]
"""Positions and weights of what an element is interpolated from along an axis."""


def _position(i: Expr, size: Expr, count: Expr, coordinates: str, dtype: str) -> Expr:
    """Where element i of `count` lies among `size`: a quotient of whole numbers, rounded once."""
    if coordinates == "align_corners":
        above, below = i * (size - 1), tirx.max(count - 1, _int(1))
    elif coordinates == "asymmetric":
        above, below = i * size, count
    else:
        above, below = (2 * i + 1) * size, 2 * count
        if coordinates != "tf_half_pixel_for_nn":
            above = above - count
        if coordinates == "pytorch_half_pixel":
            above = tirx.if_then_else(count > 1, above, _int(0))
    return above.astype(dtype) / below.astype(dtype)


def _taps(i: Expr, size: Expr, count: Expr, how: tuple[str, str, str, float], dtype: str) -> Taps:
    method, coordinates, rounding, alpha = how
    at = _position(i, size, count, coordinates, dtype)
    half, one = tirx.const(0.5, dtype), tirx.const(1, dtype)
    if method == "nearest":
        rounded = {
            "floor": lambda: tirx.floor(at),
            "ceil": lambda: tirx.ceil(at),
            "round_prefer_floor": lambda: tirx.ceil(at - half),
            "round_prefer_ceil": lambda: tirx.floor(at + half),
        }[rounding]()
        return [(_inside(rounded, 0, size), one)]
    first = tirx.floor(at)
    t = at - first
    if method == "linear":
        return [(_inside(first, 0, size), one - t), (_inside(first, 1, size), t)]
    weights = (_outer(t + one, alpha), _inner(t, alpha), _inner(one - t, alpha), _outer(2 * one - t, alpha))
    return [(_inside(first, n - 1, size), weight) for n, weight in enumerate(weights)]


def _inner(d: Expr, alpha: float) -> Expr:
    """The weight at a distance of up to 1: (a + 2) d^3 - (a + 3) d^2 + 1."""
    return ((alpha + 2) * d - (alpha + 3)) * d * d + 1


def _outer(d: Expr, alpha: float) -> Expr:
    """The weight at a distance of 1 to 2: a (d^3 - 5 d^2 + 8 d - 4)."""
    return (((d - 5) * d + 8) * d - 4) * alpha


def _inside(position: Expr, offset: int, size: Expr) -> Expr:
    return tirx.max(tirx.min(position.astype("int64") + _int(offset), size - 1), _int(0))


def _int(value: int) -> Expr:
    return tirx.const(value, "int64")


def _resize(name: str) -> None:
    @compute(name, sizes=("size",))
    def resize(x: Any, size: Any, *how: Any, out: Any) -> Any:
        shape, dtype = out[0].shape, wide(x.dtype) if "float" in str(x.dtype) else "float32"

        def element(*i: Any) -> Any:
            taps = [
                _taps(o, before, after, how, dtype)
                for o, before, after in zip(i[2:], x.shape[2:], shape[2:], strict=True)
            ]
            if how[0] == "nearest":
                return x(*i[:2], *(found[0][0] for found in taps))
            return cast(_interpolated(x, i[:2], taps, dtype), x.dtype)

        return te.compute(shape, element, name)

    @compute(f"{name}_dx", sizes=("shape",))
    def resize_dx(dy: Any, shape: Any, *how: Any, out: Any) -> Any:
        full, dtype = out[0].shape, wide(dy.dtype)

        def image(index: Index, buffers: list[Any]) -> None:
            source, target = buffers
            with ExitStack() as loops:
                target[(*index, *_loops(loops, full[2:]))] = tirx.const(0, dtype)
            with ExitStack() as loops:
                i = _loops(loops, dy.shape[2:])
                taps = [_taps(*of_axis, how, dtype) for of_axis in zip(i, full[2:], dy.shape[2:], strict=True)]
                for chosen in product(*taps):
                    at = (*index, *(position for position, _ in chosen))
                    part = source[(*index, *i)].astype(dtype)
                    for _, weight in chosen:
                        part = part * weight
                    target[at] = target[at] + part

        total = te.extern([full], [dy], nest(full[:2], image), dtype=dtype, name=f"{name}_dx")
        return te.compute(full, lambda *i: cast(total(*i), dy.dtype), f"{name}_dx_cast")


def _interpolated(x: Any, index: tuple[Any, ...], taps: Sequence[Taps], dtype: str) -> Expr:
    """The weighted sum over the taps of the axes that `index` does not cover yet."""
    if not taps:
        return cast(x(*index), dtype)
    parts = [_interpolated(x, (*index, position), taps[1:], dtype) * weight for position, weight in taps[0]]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def _loops(opened: ExitStack, shape: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(opened.enter_context(script_tirx.serial(0, size)) for size in shape)


@compute("non_max_suppression")
def non_max_suppression(
    boxes: Any, scores: Any, iou_threshold: float, score_threshold: float | None, max_size: int | None
) -> Any:
    """Box by box in the order of the scores: kept unless it overlaps one of those kept before."""
    order, _ = sorted_positions(scores, 1, True)
    batch, size = scores.shape
    most = size if max_size is None else tirx.min(size, _int(max(max_size, 0)))
    dtype = wide(boxes.dtype)

    def image(index: Index, buffers: list[Any]) -> None:
        corners, score, ordered, kept, count = buffers
        (n,) = index
        overlaps = script_tirx.buffer_proxy(script_tirx.alloc_buffer((1,), "bool", scope="local"))

        def box(at: Expr) -> list[Expr]:
            return [corners[n, at, corner].astype(dtype) for corner in range(4)]

        count[n] = _int(0)
        with script_tirx.serial(0, size) as i:
            kept[n, i] = _int(-1)
        with script_tirx.serial(0, size) as i:
            at = ordered[n, i]
            wanted = count[n] < most
            if score_threshold is not None:
                wanted = tirx.all(wanted, score[n, at].astype(dtype) > tirx.const(score_threshold, dtype))
            with script_tirx.If(wanted), script_tirx.Then():
                overlaps[0] = tirx.const(False, "bool")
                with script_tirx.serial(0, count[n]) as j:
                    much = _iou(box(at), box(kept[n, j]), dtype) > tirx.const(iou_threshold, dtype)
                    overlaps[0] = tirx.Or(overlaps[0], much)
                with script_tirx.If(tirx.Not(overlaps[0])), script_tirx.Then():
                    kept[n, count[n]] = at
                    count[n] = count[n] + 1

    return tuple(
        te.extern(
            [(batch, size), (batch,)], [boxes, scores, order], nest([batch], image), dtype=["int64"] * 2, name="nms"
        )
    )


def _iou(a: list[Expr], b: list[Expr], dtype: str) -> Expr:
    zero = tirx.const(0, dtype)
    sides = [tirx.max(tirx.min(a[k + 2], b[k + 2]) - tirx.max(a[k], b[k]), zero) for k in (0, 1)]
    common = sides[0] * sides[1]
    union = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - common
    return tirx.if_then_else(union > zero, common / union, zero)


for _rank in (1, 2, 3):
    _resize(f"resize{_rank}d")
