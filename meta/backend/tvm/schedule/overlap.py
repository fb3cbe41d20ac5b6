"""Kernels that write a result over one of their operands: when that is safe, and the kernel that does."""

from __future__ import annotations

from typing import Any

from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.schedule.blocks import is_one, uses_variable

_ADDRESSES = frozenset({"tirx.address_of", "tirx.tvm_access_ptr", "tirx.call_extern", "tirx.call_packed"})
"""Calls that may touch memory in ways that loads and stores do not show."""


def may_share(func: Any, operand: Any, result: Any) -> bool:
    """Whether the scheduled `func` stays right when the buffers `operand` and `result` are the same memory.

    It does when the operand has had its last read before the result is written. The block that writes an element may
    read that element of the operand, if it runs once for each element."""
    if takes_addresses(func):
        return False
    statements = _statements(func)
    writers = [i for i, s in enumerate(statements) if _stores(s, result)]
    if len(writers) != 1 or any(_loads(s, operand) for s in statements[writers[0] + 1 :]):
        return False
    return _own_elements_only(statements[writers[0]], operand, result)


def merged(func: Any, operand: Any, result: Any) -> Any:
    """`func` without the parameter `result`: what it wrote there it writes to `operand`."""
    body = tvm.structural_map(func.body, (tvm.Var, lambda v: operand if v.same_as(result) else v))
    params = [p for p in func.params if not p.same_as(result)]
    return tvm.PrimFunc(params, body, func.ret_type, func.attrs)


def _statements(func: Any) -> list[Any]:
    """The statements under the root block, in order of execution."""
    body = func.body.block.body if isinstance(func.body, tvm.SBlockRealize) else func.body
    return list(body.seq) if isinstance(body, tvm.SeqStmt) else [body]


def _own_elements_only(statement: Any, operand: Any, result: Any) -> bool:
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


def _is_plain(realize: Any) -> bool:
    """Whether a block runs once for each element of its result."""
    return realize.block.init is None and all(int(v.iter_type) == 0 for v in realize.block.iter_vars)


def _is_repeated(statement: Any, realize: Any) -> bool:
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


def _contains(loop: Any, realize: Any) -> bool:
    inner: list[Any] = []
    tvm.structural_walk(loop, (tvm.SBlockRealize, lambda r: inner.append(r) if r.same_as(realize) else None))
    return bool(inner)


def _positions(realize: Any, accesses: list[Any]) -> list[list[Any]]:
    """The indices of a block's accesses in terms of the loops around it; 0 along axes of extent 1."""
    values = {
        v.var: tvm.tirx.const(0, str(v.var.ty.dtype)) if is_one(v.dom.extent) else value
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


def _stores(node: Any, buffer: Any) -> list[Any]:
    stores: list[Any] = []
    tvm.structural_walk(node, (tvm.BufferStore, lambda s: stores.append(s) if s.buffer.same_as(buffer) else None))
    return stores


def _loads(node: Any, buffer: Any) -> list[Any]:
    loads: list[Any] = []
    tvm.structural_walk(node, (tvm.TensorLoad, lambda s: loads.append(s) if s.source.same_as(buffer) else None))
    return loads


def takes_addresses(func: Any) -> bool:
    """Whether loads and stores may not show all that the function reads and writes."""
    calls: list[Any] = []
    tvm.structural_walk(
        func.body, (tvm.Call, lambda c: calls.append(c) if getattr(c.op, "name", "") in _ADDRESSES else None)
    )
    return bool(calls)
