"""Sums of one function over the same outer axes, and how threads share their rows and columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from meta._generated import limits
from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.devices import WARP
from meta.backend.tvm.schedule import blocks
from meta.backend.tvm.schedule.blocks import ComputeBlock
from meta.backend.tvm.schedule.gpu.columns import floor_power_of_two
from meta.backend.tvm.schedule.nest import substitute

Expr = Any
Axis = tuple[Any, Any]
"""The variable of a block's axis, and its extent."""


@dataclass(frozen=True, slots=True)
class ColumnSum:
    """The sum over all rows of each column.

    Attributes:
        block: the block that computes it.
        number: what is added, in the variables of the group's axes.
        mean: the m of a sum of (number - m)^2, where another sum of the group adds `number`; None for other sums.
        total: the position of that other sum.
    """

    block: ComputeBlock
    number: Expr
    mean: Expr | None = None
    total: int = -1

    @property
    def result(self) -> Any:
        return self.block.written_buffers[0]

    @property
    def dtype(self) -> str:
        return str(self.result.dtype)


class ColumnGroup:
    """Sums over the same axes.

    Attributes:
        sums: the sums; `sums[0].block` names the axes.
        dtype: the dtype of indices.
        row_axes, column_axes: the reduced axes, and the spatial axes whose extent is not 1.
        unit_axes: the variables of the other spatial axes.
        loads: the elements that a thread reads for each row, of adjacent columns at once.
        kept: the elements that a thread reads once, one for each column.
        lanes: adjacent columns of a thread.
        column_threads, row_threads: threads of a block along columns and along rows.
        step_rows: rows that a thread loads at once.
    """

    def __init__(self, sums: Sequence[ColumnSum]) -> None:
        self.sums = sums
        first = sums[0].block
        axes = list(zip(first.node.iter_vars, first.kinds, first.extents, strict=True))
        self.dtype = first.index_dtype
        self.row_axes: list[Axis] = [(axis.var, extent) for axis, kind, extent in axes if kind == "R"]
        self.column_axes: list[Axis] = [(a.var, extent) for a, kind, extent in axes if kind == "S" and extent != 1]
        self.unit_axes = [axis.var for axis, kind, extent in axes if kind == "S" and extent == 1]
        loads = distinct_loads([s.number for s in sums])
        moving = [load for load in loads if _moves(load, self.row_axes)]
        self.loads = [load for load in moving if load.indices[-1].same_as(self.column_axes[-1][0])]
        self.kept = [x for x in loads if not _moves(x, self.row_axes) and _moves(x, self.column_axes)]
        self.lanes = self._choose_lanes()
        lane_groups = None if self.static_columns is None else -(-self.static_columns // self.lanes)
        self.column_threads = WARP
        while lane_groups is not None and self.column_threads >= 2 * lane_groups:
            self.column_threads //= 2
        self.row_threads = limits.BLOCK_THREADS // self.column_threads
        self.step_rows = max(limits.COLUMN_SUM_LOADS // max(floor_power_of_two(len(self.loads)), 1), 2)

    def _choose_lanes(self) -> int:
        """Adjacent columns whose elements are one load: they divide the rows of all operands."""
        widths = [self.column_axes[-1][1], *(blocks.as_int(load.source.shape[-1]) for load in self.loads)]
        lanes = limits.COLUMN_SUM_LOAD_BYTES * 8 // max(blocks.element_bits(load.source) for load in self.loads)
        while lanes > 1 and (
            lanes * len(self.sums) > limits.COLUMN_SUM_LANES or any(not isinstance(w, int) or w % lanes for w in widths)
        ):
            lanes //= 2
        return lanes

    @property
    def static_columns(self) -> int | None:
        return blocks.volume([extent for _, extent in self.column_axes])

    @property
    def static_rows(self) -> int | None:
        return blocks.volume([extent for _, extent in self.row_axes])

    @property
    def step(self) -> int:
        """Rows that a block of threads loads at once."""
        return self.row_threads * self.step_rows

    @cached_property
    def columns(self) -> Expr:
        return self._product(self.column_axes)

    @cached_property
    def rows(self) -> Expr:
        return self._product(self.row_axes)

    @cached_property
    def parts(self) -> Expr:
        """The number of parts, 1 or more."""
        rows, columns = self.static_rows, self.static_columns
        if rows is None:
            parts = tvm.tirx.floordiv(self.rows + (self.step - 1), self.int(self.step))
            return tvm.tirx.Max(tvm.tirx.Min(parts, self.int(limits.SYMBOLIC_PARTS)), self.int(1))
        column_blocks = 1 if columns is None else -(-columns // (self.lanes * self.column_threads))
        steps = max(
            -(-rows // (max(limits.COLUMN_SUM_BLOCKS // column_blocks, 1) * self.step)), limits.COLUMN_SUM_LEAST_STEPS
        )
        return self.int(max(-(-rows // (steps * self.step)), 1))

    @cached_property
    def part_rows(self) -> Expr:
        """The rows of each part but the last, a multiple of `step`."""
        if self.static_rows is not None:
            return self.int(-(-self.static_rows // (int(self.parts) * self.step)) * self.step)
        all_parts = self.parts * self.step
        return tvm.tirx.floordiv(self.rows + (all_parts - 1), all_parts) * self.step

    @property
    def is_compensated(self) -> bool:
        """Whether sums in registers keep what their roundings lose."""
        return self.static_rows is None or int(self.part_rows) // self.step > limits.COLUMN_SUM_PLAIN_STEPS

    def rows_of(self, part: Expr) -> Expr:
        """The number of rows of a part; there are parts without rows if their number is symbolic."""
        rest = self.rows - part * self.part_rows
        return tvm.tirx.Max(tvm.tirx.Min(rest, self.part_rows), self.int(0))

    def int(self, number: int) -> Expr:
        return tvm.tirx.const(number, self.dtype)

    def var(self, name: str) -> Any:
        return tvm.Var(name, self.dtype)

    def _product(self, axes: Sequence[Axis]) -> Expr:
        total: Any = self.int(1)
        for _, extent in axes:
            total = total * extent
        return total

    def values(self, row: Expr | None, column: Expr, lane: Expr | None = None) -> dict[Any, Expr]:
        """The axes' variables at a row, if one is given, and a column; lane: an offset along the innermost axis."""
        values: dict[Any, Expr] = {var: self.int(0) for var in self.unit_axes}
        values |= _unfused(self.column_axes, column)
        if lane is not None:
            values[self.column_axes[-1][0]] = values[self.column_axes[-1][0]] + lane
        return values if row is None else values | _unfused(self.row_axes, row)

    def renamed(self, node: tvm.Object, block: ComputeBlock) -> Any:
        """A node in the variables of another block of the same axes, rewritten in the group's variables."""
        pairs = zip(block.node.iter_vars, self.sums[0].block.node.iter_vars, strict=True)
        return substitute(node, {own.var: other.var for own, other in pairs})

    def place(self, each: ColumnSum) -> Sequence[Expr]:
        """The indices of a sum's result, in the variables of the group."""
        return self.renamed(each.block.node.body, each.block).indices

    def reads(self, load: tvm.TensorLoad, each: ColumnSum) -> bool:
        """Whether a load, in the variables of the group, belongs to the sum of its column."""
        return load.source.same_as(each.result) and all(map(self._same_index, load.indices, self.place(each)))

    def _same_index(self, index: Expr, place: Expr) -> bool:
        is_unit = isinstance(index, tvm.IntImm) and int(index) == 0 and any(map(place.same_as, self.unit_axes))
        return index.same_as(place) or is_unit

    def with_sums(self, node: tvm.Object, sums: Sequence[Expr], values: Mapping[Any, Expr]) -> Any:
        """The node, in the variables of the group, with their values and with the sums in place of loads of them."""

        def in_registers(load: tvm.TensorLoad) -> Any:
            return next((x for x, each in zip(sums, self.sums, strict=True) if self.reads(load, each)), load)

        return substitute(tvm.structural_map(node, (tvm.TensorLoad, in_registers)), values)


def _moves(load: tvm.TensorLoad, axes: Sequence[Axis]) -> bool:
    return any(blocks.uses_variable(i, var) for i in load.indices for var, _ in axes)


def _unfused(axes: Sequence[Axis], position: Expr) -> dict[Any, Expr]:
    """The indices along `axes` of a position in row-major order."""
    values: dict[Any, Expr] = {}
    for var, extent in reversed(axes[1:]):
        values[var] = tvm.tirx.floormod(position, extent)
        position = tvm.tirx.floordiv(position, extent)
    return values | {axes[0][0]: position}


def distinct_loads(expressions: Sequence[Expr]) -> list[Any]:
    """The loads in expressions, each once."""
    loads: list[Any] = []

    def visit(load: tvm.TensorLoad) -> None:
        if not any(same_load(load, other) for other in loads):
            loads.append(load)

    for expression in expressions:
        tvm.structural_walk(expression, (tvm.TensorLoad, visit))
    return loads


def same_load(a: tvm.Expr, b: tvm.Expr) -> bool:
    return a.source.same_as(b.source) and all(map(tvm.structural_equal, a.indices, b.indices))
