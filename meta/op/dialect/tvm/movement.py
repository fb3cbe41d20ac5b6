"""TE computes of operators that repeat, reorder, frame or mask the elements along axes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from meta.op.dialect.tvm._adapter import te, tirx
from meta.op.dialect.tvm._register import compute
from meta.op.dispatch import CallInfo


@compute("repeat")
def repeat(x: Any, repeats: int, axis: int | None, *, out: Any) -> Any:
    count = tirx.const(max(repeats, 1), "int64")
    if axis is None:
        return te.compute(out[0].shape, lambda i: x(*unflattened(tirx.floordiv(i, count), x.shape)), "repeat")
    at = axis % len(x.shape)
    return te.compute(out[0].shape, lambda *i: x(*i[:at], tirx.floordiv(i[at], count), *i[at + 1 :]), "repeat")


def unflattened(offset: Any, shape: Any) -> list[Any]:
    """The index, axis by axis, of the element at `offset` of a row-major tensor."""
    index: list[Any] = []
    for size in reversed(tuple(shape)[1:]):
        index.append(modulo(offset, size))
        offset = offset if is_zero(size) else tirx.floordiv(offset, size)
    return [offset, *reversed(index)] if len(shape) else []


def modulo(offset: Any, size: Any) -> Any:
    """`offset` modulo an extent; of an empty axis, whose elements nobody reads, just the offset."""
    return offset if is_zero(size) else tirx.floormod(offset, size)


def is_zero(extent: Any) -> bool:
    return getattr(extent, "value", extent) == 0


@compute("tile", sizes=("reps",))
def tile(x: Any, reps: tuple[int, ...], *, out: Any) -> Any:
    lead = len(out[0].shape) - len(x.shape)
    return te.compute(out[0].shape, lambda *i: x(*map(modulo, i[lead:], x.shape)), "tile")


@compute("flip")
def flip(x: Any, axis: tuple[int, ...] | None) -> Any:
    rank = len(x.shape)
    turned = range(rank) if axis is None else [a % rank for a in axis] if rank else []
    return te.compute(
        x.shape,
        lambda *i: x(*(d - 1 - j if n in turned else j for n, (j, d) in enumerate(zip(i, x.shape, strict=True)))),
        "flip",
    )


def _shifts(call: CallInfo) -> dict[str, tuple[int, ...]]:
    """By how many places, from 0 to the size, elements move along each axis."""
    x, shift, axis = call.args
    return {"shift": tuple(s % max(x.shape[a], 1) for s, a in zip(shift, axis, strict=True))}


@compute("roll", vectors=_shifts)
def roll(x: Any, shift: Any, axis: tuple[int, ...]) -> Any:
    rank = len(x.shape)
    moves = {a % rank: n for n, a in enumerate(axis)}

    def place(n: int, i: Any) -> Any:
        return i if n not in moves else modulo(i - shift[moves[n]], x.shape[n])

    return te.compute(x.shape, lambda *i: x(*(place(n, j) for n, j in enumerate(i))), "roll")


def _before(call: CallInfo) -> dict[str, tuple[int, ...]]:
    return {"pad_width": call.args[1]}


@compute("pad", vectors=_before, lift=("pad_value",))
def pad(x: Any, pad_width: Any, pad_value: Any, mode: str, *, out: Any) -> Any:
    if mode != "constant":
        return _extended(x, pad_width, _EXTENSIONS[mode], out[0].shape)
    value = pad_value() if isinstance(pad_value, te.Tensor) else tirx.const(pad_value, x.dtype)

    def element(*i: Any) -> Any:
        inner = [j - pad_width[2 * n] for n, j in enumerate(i)]
        inside = [c for j, d in zip(inner, x.shape, strict=True) for c in (j >= 0, j < d)]
        return tirx.if_then_else(tirx.all(*inside), x(*inner), value.astype(x.dtype)) if inside else x()

    return te.compute(out[0].shape, element, "pad")


def _extended(x: Any, pad_width: Any, position: Callable[[Any, Any], Any], shape: Any) -> Any:
    def element(*i: Any) -> Any:
        inside = [position(j - pad_width[2 * n], d - 1) for n, (j, d) in enumerate(zip(i, x.shape, strict=True))]
        return x(*inside)

    return te.compute(shape, element, "pad")


def _mirrored(position: Any, last: Any, at: int) -> Any:
    """The position of a copy of which the first element has position -at and the last 2 * last + at."""
    return tirx.min(tirx.max(position, -at - position), 2 * last + at - tirx.max(position, -at - position))


_EXTENSIONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "edge": lambda position, last: tirx.max(tirx.min(position, last), tirx.const(0, "int64")),
    "reflect": lambda position, last: _mirrored(position, last, 0),
    "symmetric": lambda position, last: _mirrored(position, last, 1),
}
"""(position, which may be outside, last position) -> that of the element to repeat there."""


def _triangle(name: str, keep: Callable[[Any, Any], Any]) -> None:
    def triangle(x: Any, k: int) -> Any:
        zero = tirx.const(0, x.dtype)
        return te.compute(x.shape, lambda *i: tirx.if_then_else(keep(i[-1] - i[-2], k), x(*i), zero), name)

    compute(name)(triangle)


_triangle("tril", lambda above, k: above <= k)
_triangle("triu", lambda above, k: above >= k)
