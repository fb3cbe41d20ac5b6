"""Accumulation at computed places: the one thing here that TE cannot say, so it is written as loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from meta.op.dialect.tvm import _adapter as tvm

HALVES = ("float16", "bfloat16")


def scatter_add(
    shape: Sequence[Any],
    updates: Any,
    indices: Any,
    place: Callable[[tuple[Any, ...], Callable[..., Any]], Sequence[Any]],
    start: Any = None,
) -> Any:
    """A tensor of `shape` with every element of `updates` added at the place that `place` says.

    place: (index into updates, read) -> index into the result; `read(i...)` is an element of `indices` as int64.
    start: what is added to, of `shape`; None for zeros.  Halves are accumulated in float32.
    """
    wide = "float32" if updates.dtype in HALVES else updates.dtype
    inputs = [updates, indices] if start is None else [updates, indices, start]
    buffer = tvm.tirx.decl_buffer(list(shape), wide, "scattered")

    def loops(ins: Sequence[Any], outs: Sequence[Any]) -> Any:
        source, positions, *begin = [tvm.script_tirx.buffer_proxy(b) for b in ins]
        target = tvm.script_tirx.buffer_proxy(outs[0])

        def read(*i: Any) -> Any:
            return positions[_offset(i, indices.shape)].astype("int64")

        with tvm.IRBuilder() as fill, tvm.script_tirx.serial(0, _volume(shape)) as i:
            target[i] = begin[0][i].astype(wide) if begin else tvm.tirx.const(0, wide)
        with tvm.IRBuilder() as accumulate, ExitStack() as nest:
            index = tuple(nest.enter_context(tvm.script_tirx.serial(0, d)) for d in updates.shape)
            at = _offset(tuple(place(index, read)), shape)
            target[at] = target[at] + source[_offset(index, updates.shape)].astype(wide)
        return tvm.tirx.SeqStmt([fill.get(), accumulate.get()])

    total = tvm.te.extern([list(shape)], inputs, loops, out_buffers=[buffer], name="scatter_add")
    if wide == updates.dtype:
        return total
    return tvm.te.compute(shape, lambda *i: total(*i).astype(updates.dtype), "scatter_add_cast")


def _offset(index: Sequence[Any], shape: Sequence[Any]) -> Any:
    """The row-major offset of an element."""
    offset: Any = tvm.tirx.const(0, "int64")
    for i, size in zip(index, shape, strict=True):
        offset = offset * size + i
    return offset


def _volume(shape: Sequence[Any]) -> Any:
    volume: Any = tvm.tirx.const(1, "int64")
    for size in shape:
        volume = volume * size
    return volume
