"""The buffers of scheduled kernels: their alignment, those that hold one row between the passes over it, what kernels
allocate themselves, and results that are written over an operand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, Final

from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.adapter import tirx
from meta.backend.tvm.lowering import SHRUNK
from meta.backend.tvm.schedule.blocks import is_one, uses_variable
from meta.dtype import itemsize

Expr = Any
Stmt = Any

_COMPACTION: Final = ("PlanAndUpdateBufferAllocationLocation", "ConvertBlocksToOpaque", "CompactBufferAllocation")
"""TVM's passes that reduce buffers to the parts that are in use."""
_ADDRESSES: Final = frozenset({"tirx.address_of", "tirx.tvm_access_ptr", "tirx.call_extern", "tirx.call_packed"})
"""Calls that may touch memory in ways that loads and stores do not show."""


def relax_alignment(func: tvm.PrimFunc) -> Any:
    """`func` with its global buffers aligned to their elements only, so that kernels accept tensors at any address.

    TVM assumes that every buffer starts on a 64-byte boundary and emits aligned vector moves, which fault on other
    addresses. NumPy guarantees 16 bytes, a slice of an array only the size of an element. Unaligned moves take equally
    long on aligned data, so that arrays of other libraries need no copy."""
    return tvm.structural_map(func, (tvm.BufferType, _align_to_element))


def _align_to_element(buffer_type: Any) -> Any:
    if buffer_type.storage_scope not in ("", "global"):
        return buffer_type
    alignment = tvm.dtype(str(buffer_type.dtype)).itemsize
    return tvm.buffer_type(
        buffer_type.storage_scope, buffer_type.dtype, buffer_type.shape, buffer_type.strides, buffer_type.elem_offset,
        alignment, buffer_type.offset_factor, buffer_type.layout, buffer_type.allocated_addr, buffer_type.span,
    )  # fmt: skip


# Buffers of a row.


def shrink_row_buffers(func: tvm.PrimFunc) -> Any:
    """`func`, with an extent of 1 for each axis of a buffer that all accesses in an iteration of the outermost loops
    have at one position. A function with a buffer that has no such axis stays as it is.

    TE computes whole arrays. TVM shrinks the buffers of merged loops by an analysis of the regions of all accesses,
    which takes a tenth of the time in which the first kernel of a process is compiled. Here it suffices that every
    access to an axis is at the current row."""
    root = func.body.block
    rows = _row_variables(root.body)
    if not rows or not len(root.alloc_buffers):
        return func
    positions = _row_positions(root)
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

    def __init__(self, buffer: tvm.Buffer, axes: Sequence[int]) -> None:
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


def _row_positions(root: Any) -> dict[Any, list[list[Expr]]]:
    """The indices of all accesses to each buffer, with the values of blocks' variables in place of these."""
    values: dict[Any, Expr] = {}
    positions: dict[Any, list[list[Expr]]] = {}

    def realize(node: tvm.Object) -> None:
        values.update(zip((v.var for v in node.block.iter_vars), node.iter_values, strict=True))

    def access(buffer: tvm.Buffer, indices: Sequence[Expr]) -> None:
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
    """The body with the new buffers, all allocated in its root."""

    def load(node: tvm.Object) -> Any:
        row = new.get(node.source)
        return node if row is None else tirx.BufferLoad(row.buffer, row.indices(node.indices))

    def store(node: tvm.Object) -> Any:
        row = new.get(node.buffer)
        return node if row is None else tvm.BufferStore(row.buffer, node.value, row.indices(node.indices))

    def region(node: tvm.Object) -> Any:
        row = new.get(node.source)
        if row is None:
            return node
        unit = [tvm.Range(0, 1) if i in row.axes else each for i, each in enumerate(node.region)]
        return tirx.BufferRegion(row.buffer, unit)

    def block(node: tvm.Object) -> Any:
        return tvm.SBlock(
            node.iter_vars, list(map(region, node.reads)), list(map(region, node.writes)), node.name_hint, node.body,
            node.init, [new[b].buffer if b in new else b for b in node.alloc_buffers], node.match_buffers,
            node.annotations,
        )  # fmt: skip

    return tvm.structural_map(body, [(tvm.TensorLoad, load), (tvm.BufferStore, store), (tvm.SBlock, block)])


# Memory that a kernel allocates.


def allocated_bytes(func: tvm.PrimFunc) -> int:
    """Bytes of the buffers in global memory that a kernel allocates itself, where their sizes are known."""
    exact_bytes = 1 << 20  # Bytes from which a kernel is lowered to count them.
    total = _allocated(func)
    if total < exact_bytes:
        return total
    # Most are small parts of the tensors that they are declared as, which shows when blocks are lowered to loops.
    lowered = func.with_attr("global_symbol", "main")
    passes = [getattr(tvm.block_transform, name)() for name in _COMPACTION]
    return _allocated(tvm.Sequential(passes)(tvm.IRModule({"main": lowered}))["main"])


def _allocated(func: tvm.PrimFunc) -> int:
    found: list[Any] = []
    tvm.structural_walk(func.body, (tvm.SBlock, lambda block: found.extend(block.alloc_buffers)))
    return sum(map(_bytes, found))


def lasting_buffers(func: tvm.PrimFunc, least: int) -> list[Any]:
    """The buffers of at least `least` bytes that several loop nests of a kernel use, which are allocated as a whole."""
    if not any(_bytes(b) >= least for b in _root_buffers(func)):
        return []
    located = tvm.block_transform.PlanAndUpdateBufferAllocationLocation()
    module = located(tvm.IRModule({"main": func.with_attr("global_symbol", "main")}))
    remaining = _root_buffers(module["main"])
    return [b for b in _root_buffers(func) if _bytes(b) >= least and any(b.same_as(r) for r in remaining)]


def _root_buffers(func: tvm.PrimFunc) -> list[Any]:
    return list(func.body.block.alloc_buffers) if isinstance(func.body, tvm.SBlockRealize) else []


def _bytes(buffer: tvm.Buffer) -> int:
    """The bytes of a buffer in global memory; 0 for other memory, and if its size is symbolic."""
    if buffer.scope() not in ("", "global") or not all(isinstance(d, tvm.IntImm) for d in buffer.shape):
        return 0
    return prod(map(int, buffer.shape)) * itemsize(str(buffer.dtype))


def with_parameters(func: tvm.PrimFunc, buffers: list[Any]) -> Any:
    """A kernel that takes some of its buffers as further parameters."""
    root = func.body.block
    own_buffers = [b for b in root.alloc_buffers if not any(b.same_as(x) for x in buffers)]
    block = tvm.SBlock(
        root.iter_vars, root.reads, root.writes, root.name_hint, root.body, root.init, own_buffers, root.match_buffers,
        root.annotations,
    )  # fmt: skip
    body = tvm.SBlockRealize(func.body.iter_values, func.body.predicate, block)
    return tvm.PrimFunc([*func.params, *buffers], body, func.ret_type, func.attrs)


# Results over operands.


def may_share(func: tvm.PrimFunc, operand: tvm.Buffer, result: tvm.Buffer) -> bool:
    """Whether the scheduled `func` stays right when the buffers `operand` and `result` are the same memory.

    It does when the operand has had its last read before the result is written. The block that writes an element may
    read that element of the operand, if it runs once for each element. A result that starts as a copy of the operand,
    as a scatter's does, may be written at any positions afterwards."""
    if takes_addresses(func):
        return False
    statements = _statements(func)
    writers = [i for i, s in enumerate(statements) if _stores(s, result)]
    if not writers or any(_loads(s, operand) for s in statements[writers[0] + 1 :]):
        return False
    first = statements[writers[0]]
    return _is_copy(first, operand, result) or (len(writers) == 1 and _own_elements_only(first, operand, result))


def merged(func: tvm.PrimFunc, operand: tvm.Buffer, result: tvm.Buffer) -> Any:
    """`func` without the parameter `result`: what it wrote there it writes to `operand`. The copy of the operand that a
    result starts as is left out: a scatter then takes the time of its updates, whatever the size of the result."""

    def without_copy(sequence: Any) -> Any:
        rest = [s for s in sequence.seq if not _is_copy(s, operand, result)]
        return rest[0] if len(rest) == 1 else tvm.SeqStmt(rest)

    body = tvm.structural_map(func.body, (tvm.SeqStmt, without_copy))
    body = tvm.structural_map(body, (tvm.Var, lambda v: operand if v.same_as(result) else v))
    params = [p for p in func.params if not p.same_as(result)]
    return tvm.PrimFunc(params, body, func.ret_type, func.attrs)


def _statements(func: tvm.PrimFunc) -> list[Any]:
    """The statements under the root block, in order of execution."""
    body = func.body.block.body if isinstance(func.body, tvm.SBlockRealize) else func.body
    return list(body.seq) if isinstance(body, tvm.SeqStmt) else [body]


def _is_copy(statement: Any, operand: tvm.Buffer, result: tvm.Buffer) -> bool:
    """Whether a statement does nothing but store elements of `operand` at their positions in `result`."""
    while isinstance(statement, (tvm.For, tirx.IfThenElse)):
        statement = statement.body if isinstance(statement, tvm.For) else statement.then_case
    if not isinstance(statement, tvm.BufferStore) or not statement.buffer.same_as(result):
        return False
    value = statement.value
    return (
        isinstance(value, tvm.TensorLoad)
        and value.source.same_as(operand)
        and _same_indices(value.indices, statement.indices)
    )


def _own_elements_only(statement: tvm.Object, operand: tvm.Buffer, result: tvm.Buffer) -> bool:
    """Whether each element of the operand has had its last read when that element of the result is written: all reads
    are in the one block that writes, or in blocks before it in the same loops, at the position that is written."""
    if not _loads(statement, operand):
        return True
    realizes: list[Any] = []
    tvm.structural_walk(
        statement,
        (tvm.SBlockRealize, lambda r: realizes.append(r) if _stores(r, result) or _loads(r, operand) else None),
    )
    if not realizes:  # a hand-written nest without blocks
        return False
    writer = realizes[-1]
    stores = _stores(writer, result)
    if len(stores) != 1 or any(_stores(r, result) for r in realizes[:-1]) or not all(map(_is_plain, realizes)):
        return False
    if _is_repeated(statement, writer):
        return False
    written = _positions(writer, stores)[0]
    return all(
        _same_indices(position, written) for r in realizes for position in _positions(r, _loads(r.block.body, operand))
    )


def _is_plain(realize: tvm.SBlockRealize) -> bool:
    """Whether a block runs once for each element of its result."""
    return realize.block.init is None and all(int(v.iter_type) == 0 for v in realize.block.iter_vars)


def _is_repeated(statement: tvm.Object, realize: tvm.SBlockRealize) -> bool:
    """Whether a block runs again for the same element, in a loop that neither its position nor its predicate depends
    on. By its predicate, one of many threads runs a block of one element."""
    loops: list[Any] = []
    tvm.structural_walk(statement, (tvm.For, loops.append))
    return any(
        not is_one(loop.extent)
        and not any(uses_variable(value, loop.loop_var) for value in (*realize.iter_values, realize.predicate))
        and _contains(loop, realize)
        for loop in loops
    )


def _contains(loop: tvm.For, realize: tvm.SBlockRealize) -> bool:
    inner: list[Any] = []
    tvm.structural_walk(loop, (tvm.SBlockRealize, lambda r: inner.append(r) if r.same_as(realize) else None))
    return bool(inner)


def _positions(realize: tvm.SBlockRealize, accesses: list[Any]) -> list[list[Any]]:
    """The indices of a block's accesses in terms of the loops around it; 0 along axes of extent 1."""
    values = {
        v.var: tirx.const(0, str(v.var.ty.dtype)) if is_one(v.dom.extent) else value
        for v, value in zip(realize.block.iter_vars, realize.iter_values, strict=True)
    }
    replaced = (tvm.Var, lambda v: values.get(v, v))
    return [[tvm.structural_map(i, replaced) for i in access.indices] for access in accesses]


def _same_indices(a: Any, b: Any) -> bool:
    return len(a) == len(b) and all(map(_same_index, a, b))


def _same_index(a: Any, b: Any) -> bool:
    if isinstance(a, tvm.IntImm) and isinstance(b, tvm.IntImm):
        return int(a) == int(b)  # of any dtype
    return bool(tvm.structural_equal(a, b))


def _stores(node: tvm.Object, buffer: tvm.Buffer) -> list[Any]:
    stores: list[Any] = []
    tvm.structural_walk(node, (tvm.BufferStore, lambda s: stores.append(s) if s.buffer.same_as(buffer) else None))
    return stores


def _loads(node: tvm.Object, buffer: tvm.Buffer) -> list[Any]:
    loads: list[Any] = []
    tvm.structural_walk(node, (tvm.TensorLoad, lambda s: loads.append(s) if s.source.same_as(buffer) else None))
    return loads


def takes_addresses(func: tvm.PrimFunc) -> bool:
    """Whether loads and stores may not show all that the function reads and writes."""
    calls: list[Any] = []
    tvm.structural_walk(
        func.body, (tvm.Call, lambda c: calls.append(c) if getattr(c.op, "name", "") in _ADDRESSES else None)
    )
    return bool(calls)
