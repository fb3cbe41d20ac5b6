"""CUDA schedule of sums over outer axes, as the statistics of each channel: all sums of a function in one read.

    total[c] = sum of x[r, c];  mean = total / n;  squares[c] = sum of (x[r, c] - mean[c])^2;  variance = squares / n

becomes two kernels. The first (`column_parts`) reads x once and sums parts of the rows, the second (`column_totals`)
adds the parts and computes everything that depends only on the sums of its column. Other blocks stay. No addition is
atomic: results repeat exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from meta._generated import limits
from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.schedule import blocks
from meta.backend.tvm.schedule.blocks import ComputeBlock
from meta.backend.tvm.schedule.gpu.column_group import ColumnGroup, ColumnSum, distinct_loads
from meta.backend.tvm.schedule.gpu.column_parts import sum_parts
from meta.backend.tvm.schedule.gpu.column_totals import add_parts
from meta.backend.tvm.schedule.gpu.columns import reduces_outer_axes
from meta.backend.tvm.schedule.nest import substitute

Expr = Any
Stmt = Any


def merge_column_sums(func: tvm.PrimFunc) -> Any:
    """`func` with its first floating sum over outer axes, and others over the same axes, in two kernels; `func` itself
    if it has no sum of enough rows."""
    all_blocks = blocks.read_blocks(func)
    sums = _list_sums(all_blocks)
    if not sums:
        return func
    group = ColumnGroup(sums)
    results = _list_results(group, all_blocks)
    merged_blocks = [*(s.block for s in sums), *(block for block, _ in results)]
    rest = [b for b in all_blocks if not any(b.name == other.name for other in merged_blocks)]
    inputs = [*func.params, *(buffer for b in rest for buffer in b.read_buffers)]
    stored = [_contains(inputs, s.result) for s in sums]
    outside = [s.result for s, is_stored in zip(sums, stored, strict=True) if is_stored]
    dropped = [s.result for s, is_stored in zip(sums, stored, strict=True) if not is_stored]
    parts = [tvm.tirx.decl_buffer([group.parts, group.columns], s.dtype, f"{s.result.name}_parts") for s in sums]
    read = [b for block in merged_blocks for b in block.read_buffers if not _contains([s.result for s in sums], b)]
    written = [b for block, _ in results for b in block.written_buffers]
    kernels = [
        _block("column_parts", sum_parts(group, parts), read, parts),
        _block("column_totals", add_parts(group, parts, stored, [store for _, store in results]), [*parts, *read],
               [*outside, *written]),
    ]  # fmt: skip
    return _replaced(func, [b.name for b in merged_blocks], kernels, parts, dropped)


def _is_long(block: ComputeBlock) -> bool:
    """Whether a sum over rows repays a second kernel."""
    rows = 1
    for extent in block.extents_of("R"):
        rows *= max(blocks.lower_bound(extent), 1)
    return rows >= limits.COLUMN_SUM_LEAST_ROWS


def _contains(buffers: Sequence[Any], buffer: tvm.Buffer) -> bool:
    return any(map(buffer.same_as, buffers))


# --- which blocks ----------------------------------------------------------------------------------------------------


def _list_sums(all_blocks: Sequence[ComputeBlock]) -> list[ColumnSum]:
    """The first sum over outer axes, and those over the same axes that depend on nothing from there on, or are squares
    about what follows from the others."""
    candidates = [(i, b, number) for i, b in enumerate(all_blocks) if (number := _added_number(b)) is not None]
    if not candidates:
        return []
    first, leader, first_number = candidates[0]
    written = [buffer for block in all_blocks[first:] for buffer in block.written_buffers]
    group, later = ColumnGroup([ColumnSum(leader, first_number)]), list[tuple[ComputeBlock, Expr]]()
    for _, block, number in candidates[1:]:
        if not _same_axes(block, leader):
            continue
        number = group.renamed(number, block)
        if any(_contains(written, load.source) for load in distinct_loads([number])):
            later.append((block, number))
        else:
            group = ColumnGroup([*group.sums, ColumnSum(block, number)])
    squares = [_match_squares(group, block, number, written) for block, number in later]
    return [*group.sums, *(s for s in squares if s is not None)]


def _added_number(block: ComputeBlock) -> Expr | None:
    """The summand of a block that sums the columns in a floating dtype; None for other blocks."""
    if len(block.node.writes) != 1 or 0 in block.extents or not reduces_outer_axes(block) or not _is_long(block):
        return None
    store, init = block.node.body, block.node.init
    if not isinstance(store, tvm.BufferStore) or not isinstance(store.value, tvm.tirx.Add):
        return None
    target, number = store.value.a, store.value.b
    is_sum = isinstance(target, tvm.TensorLoad) and target.source.same_as(store.buffer)
    is_floating = str(store.buffer.dtype) in ("float32", "float64")
    is_from_zero = isinstance(init.value, tvm.FloatImm) and init.value.value == 0
    return number if is_sum and is_floating and is_from_zero else None


def _same_axes(a: ComputeBlock, b: ComputeBlock) -> bool:
    return a.kinds == b.kinds and all(map(blocks.equal_extents, a.extents, b.extents))


def _match_squares(group: ColumnGroup, block: ComputeBlock, number: Expr, written: Sequence[Any]) -> ColumnSum | None:
    """The sum of (x - m)^2, where the group has the sum of x, and m follows from the sums of the column; None for other
    numbers, which are in the variables of the group."""
    is_square = isinstance(number, tvm.tirx.Mul) and tvm.structural_equal(number.a, number.b)
    if not is_square or not isinstance(number.a, tvm.tirx.Sub):
        return None
    x, mean = number.a.a, number.a.b
    total = next((i for i, s in enumerate(group.sums) if tvm.structural_equal(s.number, x)), None)
    if total is None or group.sums[total].dtype != str(block.written_buffers[0].dtype):
        return None
    moves = any(blocks.uses_variable(mean, row) for row, _ in group.row_axes)
    return None if moves or not _follows(group, mean, written) else ColumnSum(block, x, mean, total)


def _follows(group: ColumnGroup, expr: Expr, written: Sequence[Any]) -> bool:
    """Whether an expression reads the group's sums of its column, and nothing else that the function writes."""
    loads = [load for load in distinct_loads([expr]) if _contains(written, load.source)]
    return bool(loads) and all(any(group.reads(load, s) for s in group.sums) for load in loads)


def _list_results(group: ColumnGroup, all_blocks: Sequence[ComputeBlock]) -> list[tuple[ComputeBlock, Any]]:
    """The blocks of one element for each column that follows from the sums of that column, and their stores in the
    variables of the group."""
    written = [buffer for block in all_blocks for buffer in block.written_buffers]
    results = list[tuple[ComputeBlock, Any]]()
    for block in all_blocks:
        axes = list(zip(block.node.iter_vars, block.extents, strict=True))
        own = [(axis.var, extent) for axis, extent in axes if extent != 1]
        is_store = block.is_spatial and isinstance(block.node.body, tvm.BufferStore)
        if not is_store or len(own) != len(group.column_axes):
            continue
        if not all(blocks.equal_extents(a, b) for (_, a), (_, b) in zip(own, group.column_axes, strict=True)):
            continue
        values = {axis.var: group.int(0) for axis, extent in axes if extent == 1}
        values |= {var: column for (var, _), (column, _) in zip(own, group.column_axes, strict=True)}
        store = substitute(block.node.body, values)
        if _follows(group, store.value, written):
            results.append((block, store))
    return results


# --- the function ----------------------------------------------------------------------------------------------------


def _block(name: str, body: Stmt, reads: Sequence[Any], writes: Sequence[Any]) -> Stmt:
    """A block that binds its threads itself."""

    def regions(buffers: Sequence[Any]) -> list[Any]:
        distinct = [b for i, b in enumerate(buffers) if not _contains(buffers[:i], b)]
        return [tvm.tirx.BufferRegion(b, [tvm.Range(0, extent) for extent in b.shape]) for b in distinct]

    return tvm.SBlockRealize([], True, tvm.SBlock([], regions(reads), regions(writes), name, body))


def _replaced(
    func: tvm.PrimFunc, names: Sequence[str], kernels: Sequence[Stmt], added: Sequence[Any], dropped: Sequence[Any]
) -> Any:
    """`func` with kernels where the first of the named blocks was. added, dropped: intermediate buffers."""
    root = func.body.block
    statements = list(root.body.seq) if isinstance(root.body, tvm.SeqStmt) else [root.body]
    is_taken = [_name_of(statement) in names for statement in statements]
    first = is_taken.index(True)
    rest = [s for s, is_one in zip(statements[first:], is_taken[first:], strict=True) if not is_one]
    buffers = [*(b for b in root.alloc_buffers if not _contains(dropped, b)), *added]
    root = tvm.SBlock(
        root.iter_vars, root.reads, root.writes, root.name_hint, tvm.SeqStmt([*statements[:first], *kernels, *rest]),
        root.init, buffers, root.match_buffers, root.annotations,
    )  # fmt: skip
    return tvm.PrimFunc(func.params, tvm.SBlockRealize([], True, root), func.ret_type, func.attrs)


def _name_of(statement: Stmt) -> str:
    """The name of the block in a statement."""
    names = list[str]()
    tvm.structural_walk(statement, (tvm.SBlock, lambda block: names.append(str(block.name_hint))))
    return names[0]
