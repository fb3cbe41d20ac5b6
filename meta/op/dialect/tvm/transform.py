"""TE computes of operators that change shape, dtype or device, join or split."""

from __future__ import annotations

from typing import Any

from meta._generated import limits
from meta.backend.memory import allocation
from meta.backend.tvm.adapter import te, tirx
from meta.backend.tvm.compute import RuntimeFunction
from meta.backend.tvm.intrinsic import Expr, Tensor
from meta.backend.tvm.spec import Outs
from meta.backend.tvm.te.elementwise import cast as element_cast
from meta.backend.tvm.te.elementwise import is_one
from meta.op.dialect.tvm import DIALECT, Registrar
from meta.op.rules import moved, swapped

compute = Registrar(__file__).compute


@compute("cast")
def cast(x: Tensor, dtype: str) -> Any:
    return _cast(x, dtype)


@compute("cast_like")
def cast_like(x: Tensor, like: Any) -> Any:
    return _cast(x, like.dtype)


def _cast(x: Tensor, dtype: str) -> Any:
    return te.compute(x.shape, lambda *i: element_cast(x(*i), dtype), "cast")


@compute("bitcast")
def bitcast(x: Tensor, dtype: str) -> Any:
    return te.compute(x.shape, lambda *i: tirx.reinterpret(dtype, x(*i)), "bitcast")


DIALECT.implement("device_copy", RuntimeFunction(allocation.copy_into))


@compute("broadcast_to", sizes=("shape",))
def broadcast_to(x: Tensor, shape: tuple[int, ...], *, out: Outs) -> Any:
    return _broadcast(x, out[0].shape)


@compute("broadcast_to_like")
def broadcast_to_like(x: Tensor, like: Any, *, out: Outs) -> Any:
    return _broadcast(x, out[0].shape)


def _broadcast(x: Tensor, shape: Any) -> Any:
    lead = len(shape) - len(x.shape)
    return te.compute(
        shape, lambda *i: x(*(0 if is_one(d) else j for d, j in zip(x.shape, i[lead:], strict=True))), "broadcast"
    )


def _permute(x: Tensor, order: tuple[int, ...]) -> Any:
    inverse = [order.index(axis) for axis in range(len(order))]
    return te.compute(tuple(x.shape[axis] for axis in order), lambda *i: x(*(i[b] for b in inverse)), "transpose")


@compute("transpose")
def transpose(x: Tensor, axes: tuple[int, ...] | None) -> Any:
    rank = len(x.shape)
    return _permute(x, tuple(reversed(range(rank))) if axes is None else tuple(axis % rank for axis in axes))


@compute("swap_axis")
def swap_axis(x: Tensor, axis1: int, axis2: int) -> Any:
    return _permute(x, swapped(axis1, axis2, len(x.shape)))


@compute("moveaxis")
def moveaxis(x: Tensor, source: tuple[int, ...], destination: tuple[int, ...]) -> Any:
    return _permute(x, moved(source, destination, len(x.shape)))


@compute("concatenate", most_joined=limits.JOINED_TENSORS)
def concatenate(xs: list[Any], axis: int, *, out: Outs) -> Any:
    axis = axis % len(xs[0].shape)

    def element(parts: list[Any], i: tuple[Any, ...]) -> Any:
        if len(parts) == 1:
            return parts[0](*i)
        first, rest = parts[: len(parts) // 2], parts[len(parts) // 2 :]
        size = sum(x.shape[axis] for x in first)
        shifted = (*i[:axis], i[axis] - size, *i[axis + 1 :])
        return tirx.if_then_else(i[axis] < size, element(first, i), element(rest, shifted))

    return te.compute(out[0].shape, lambda *i: element(xs, i), "concatenate")


@compute("stack", most_joined=limits.JOINED_TENSORS)
def stack(xs: list[Any], axis: int, *, out: Outs) -> Any:
    axis = axis % len(out[0].shape)

    def element(first: int, end: int, position: Expr, rest: tuple[Any, ...]) -> Any:
        if end - first == 1:
            return xs[first](*rest)
        middle = (first + end) // 2
        below, above = (element(*half, position, rest) for half in ((first, middle), (middle, end)))
        return tirx.if_then_else(position < middle, below, above)

    return te.compute(out[0].shape, lambda *i: element(0, len(xs), i[axis], (*i[:axis], *i[axis + 1 :])), "stack")


@compute("split", sizes=("indices_or_sections",))
def split(x: Tensor, indices_or_sections: Any, axis: int, *, out: Any) -> Any:
    axis = axis % len(x.shape)
    begin: Any = 0
    results: list[Any] = []
    for section in out:
        results.append(_section(x, section.shape, axis, begin))
        begin = begin + section.shape[axis]
    return tuple(results)


def _section(x: Tensor, shape: Any, axis: int, begin: Any) -> Any:
    return te.compute(shape, lambda *i: x(*i[:axis], i[axis] + begin, *i[axis + 1 :]), "split")
