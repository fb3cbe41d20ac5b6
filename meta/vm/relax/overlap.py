"""Kernels that write a result over one of their operands: when that is safe, and the kernel that does."""

from __future__ import annotations

from typing import Any

from meta.backend.tvm import adapter as tvm

_ADDRESSES = frozenset({"tirx.address_of", "tirx.tvm_access_ptr", "tirx.call_extern", "tirx.call_packed"})
"""Calls that may touch memory in ways that loads and stores do not show."""


def may_share(func: Any, operand: Any, result: Any) -> bool:
    """Whether the scheduled `func` stays right when the buffers `operand` and `result` are the same memory.

    It does when the operand has had its last read before the result is written. The block that writes an element may
    read that element of the operand, if it runs once for each element."""
    if _takes_addresses(func):
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
    blocks: list[Any] = []
    tvm.structural_walk(statement, (tvm.SBlock, lambda b: blocks.append(b) if _stores(b, result) else None))
    stores = _stores(statement, result)
    loads = _loads(statement, operand)
    if not loads:
        return True
    if len(blocks) != 1 or len(stores) != 1 or len(_loads(blocks[0].body, operand)) != len(loads):
        return False
    if blocks[0].init is not None or any(int(v.iter_type) != 0 for v in blocks[0].iter_vars):
        return False
    return all(_same_indices(load.indices, stores[0].indices) for load in loads)


def _same_indices(a: Any, b: Any) -> bool:
    return len(a) == len(b) and all(tvm.structural_equal(x, y) for x, y in zip(a, b, strict=True))


def _stores(node: Any, buffer: Any) -> list[Any]:
    stores: list[Any] = []
    tvm.structural_walk(node, (tvm.BufferStore, lambda s: stores.append(s) if s.buffer.same_as(buffer) else None))
    return stores


def _loads(node: Any, buffer: Any) -> list[Any]:
    loads: list[Any] = []
    tvm.structural_walk(node, (tvm.TensorLoad, lambda s: loads.append(s) if s.source.same_as(buffer) else None))
    return loads


def _takes_addresses(func: Any) -> bool:
    calls: list[Any] = []
    tvm.structural_walk(
        func.body, (tvm.Call, lambda c: calls.append(c) if getattr(c.op, "name", "") in _ADDRESSES else None)
    )
    return bool(calls)
