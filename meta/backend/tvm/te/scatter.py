"""Scatter: updates stored or accumulated at computed positions, as hand-written loops, because TE only gathers."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.intrinsic import Expr, Tensor
from meta.backend.tvm.te.elementwise import accumulation_dtype
from meta.backend.tvm.te.indexing import Located
from meta.backend.tvm.te.loops import ACCUMULATE, INDEPENDENT

Place = Callable[[tuple[Any, ...], Callable[..., Any]], Located]
"""(index into the updates, read) -> index into the result; `read(i...)` is an element of `indices`."""


def scatter(
    shape: Sequence[Any], updates: Tensor, indices: Any, place: Place, start: Any = None,
    combine: Callable[[Any, Any], Any] = operator.add,
) -> Any:  # fmt: skip
    """A tensor of `shape` with every element of `updates`, in order, combined into the element at `place(...)`; those
    outside are left out.

    start: the tensor before the updates, of `shape`; None for zeros.
    combine: (element, update) -> new element; by default their sum.  Halves are combined in float32.
    """
    dtype = accumulation_dtype(updates.dtype)
    inputs = [updates, indices] if start is None else [updates, indices, start]
    buffer = tvm.tirx.decl_buffer(list(shape), dtype, "scattered")

    def loops(ins: Sequence[Any], outs: Sequence[Any]) -> Any:
        source, positions, *initial = ins
        (target,) = outs

        def read(*i: Expr) -> Any:
            return _load(positions, i)

        with tvm.IRBuilder() as fill, ExitStack() as nest:
            i = _open_loops(nest, shape, INDEPENDENT)
            _store(target, _load(initial[0], i).astype(dtype) if initial else tvm.tirx.const(0, dtype), i)
        with tvm.IRBuilder() as accumulate, ExitStack() as nest:
            i = _open_loops(nest, updates.shape, ACCUMULATE if combine is operator.add else "")
            located = place(i, read)
            if located.inside is not None:
                nest.enter_context(tvm.script_tirx.If(located.inside))
                nest.enter_context(tvm.script_tirx.Then())
            _store(target, combine(_load(target, located.index), _load(source, i).astype(dtype)), located.index)
        return tvm.tirx.SeqStmt([fill.get(), accumulate.get()])

    total = tvm.te.extern([list(shape)], inputs, loops, out_buffers=[buffer], name="scatter")
    if dtype == updates.dtype:
        return total
    return tvm.te.compute(shape, lambda *i: total(*i).astype(updates.dtype), "scatter_cast")


def _open_loops(nest: ExitStack, shape: Sequence[Any], annotation: str) -> tuple[Any, ...]:
    """Open a loop for each axis, annotated with `annotation` if it is not empty; returns the loop variables."""
    annotations = {annotation: 1} if annotation else None
    return tuple(nest.enter_context(tvm.script_tirx.serial(0, size, annotations=annotations)) for size in shape)


def _load(buffer: Any, index: Sequence[Any]) -> Any:
    return buffer[tuple(index)]


def _store(buffer: Any, value: Any, index: Sequence[Any]) -> None:
    tvm.script_tirx.buffer_store(buffer, value, list(index))
