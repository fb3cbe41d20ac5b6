"""Buffers that hold one row between the passes over it.

TE computes whole arrays. TVM shrinks the buffers of merged loops by an analysis of the regions of all accesses, which
takes a tenth of the time in which the first kernel of a process is compiled. Here it suffices that every access to an
axis is at the current row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.adapter import tirx
from meta.backend.tvm.lowering import SHRUNK

Expr = Any
Stmt = Any


def shrink_row_buffers(func: Any) -> Any:
    """`func`, with an extent of 1 for each axis of a buffer that all accesses in an iteration of the outermost loops
    have at one position. Functions of which some buffer has no such axis stay as they are."""
    root = func.body.block
    rows = _row_variables(root.body)
    if not rows or not len(root.alloc_buffers):
        return func
    positions = _positions(root)
    new: dict[Any, _RowBuffer] = {}
    for buffer in root.alloc_buffers:
        axes = _row_axes(positions.get(buffer, []), rows)
        if not axes:
            return func
        new[buffer] = _RowBuffer(buffer, axes)
    return func.with_body(_replace(func.body, new)).with_attr(SHRUNK, True)


class _RowBuffer:
    """The buffer in place of one that holds all rows.

    Attributes:
        axes: those at which it holds one row.
        buffer: the new buffer.
    """

    def __init__(self, buffer: Any, axes: Sequence[int]) -> None:
        whole = buffer.ty
        shape = [tirx.const(1, str(d.ty.dtype)) if i in axes else d for i, d in enumerate(whole.shape)]
        self.axes = axes
        self.buffer = tirx.decl_buffer(
            shape,
            str(whole.dtype),
            str(buffer.name),
            scope=str(whole.storage_scope),
            data_alignment=whole.data_alignment,
        )

    def indices(self, indices: Sequence[Expr]) -> list[Expr]:
        return [tirx.const(0, str(x.ty.dtype)) if i in self.axes else x for i, x in enumerate(indices)]


def _row_variables(statement: Stmt) -> list[Any]:
    """The variables of the loops that hold all statements, from the outermost on."""
    variables: list[Any] = []
    while isinstance(statement, tvm.For):
        variables.append(statement.loop_var)
        statement = statement.body
    return variables


def _positions(root: Any) -> dict[Any, list[list[Expr]]]:
    """The indices of all accesses to each buffer, with the values of blocks' variables in place of these."""
    values: dict[Any, Expr] = {}
    positions: dict[Any, list[list[Expr]]] = {}

    def realize(node: Any) -> None:
        values.update(zip((v.var for v in node.block.iter_vars), node.iter_values, strict=True))

    def access(buffer: Any, indices: Sequence[Expr]) -> None:
        positions.setdefault(buffer, []).append([values.get(i, i) if isinstance(i, tvm.Var) else i for i in indices])

    tvm.structural_walk(root, [(tvm.SBlockRealize, realize)])
    tvm.structural_walk(
        root,
        [
            (tvm.TensorLoad, lambda load: access(load.source, load.indices)),
            (tvm.BufferStore, lambda store: access(store.buffer, store.indices)),
        ],
    )
    return positions


def _row_axes(positions: Sequence[Sequence[Expr]], rows: Sequence[Any]) -> list[int]:
    """The axes at which all positions are one, which the variables of rows decide."""
    if not positions:
        return []
    first = positions[0]
    return [
        axis
        for axis, position in enumerate(first)
        if _reads_only(position, rows) and all(tvm.structural_equal(p[axis], position) for p in positions[1:])
    ]


def _reads_only(position: Expr, rows: Sequence[Any]) -> bool:
    """Whether a position is computed of variables of rows, and of at least one of them."""
    read: list[Any] = []
    tvm.structural_walk(position, (tvm.Var, read.append))
    return bool(read) and all(any(v.same_as(row) for row in rows) for v in read)


def _replace(body: Stmt, new: Mapping[Any, _RowBuffer]) -> Stmt:
    """The body with the new buffers, of which it allocates all in its root."""

    def load(node: Any) -> Any:
        row = new.get(node.source)
        return node if row is None else tirx.BufferLoad(row.buffer, row.indices(node.indices))

    def store(node: Any) -> Any:
        row = new.get(node.buffer)
        return node if row is None else tvm.BufferStore(row.buffer, node.value, row.indices(node.indices))

    def region(node: Any) -> Any:
        row = new.get(node.source)
        if row is None:
            return node
        unit = [tvm.Range(0, 1) if i in row.axes else each for i, each in enumerate(node.region)]
        return tirx.BufferRegion(row.buffer, unit)

    def block(node: Any) -> Any:
        return tvm.SBlock(
            node.iter_vars, list(map(region, node.reads)), list(map(region, node.writes)), node.name_hint, node.body,
            node.init, [new[b].buffer if b in new else b for b in node.alloc_buffers], node.match_buffers,
            node.annotations,
        )  # fmt: skip

    return tvm.structural_map(body, [(tvm.TensorLoad, load), (tvm.BufferStore, store), (tvm.SBlock, block)])
