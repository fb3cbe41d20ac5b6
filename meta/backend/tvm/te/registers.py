"""Values of nested variables computed into registers, after TVM's last pass.

The functions of `meta.backend.tvm.te.math` bind their operand with a `Let`, so that functions of functions are nested
`Let`s. TVM's LLVM code generator substitutes the values wherever it simplifies, in time exponential in the nesting:
minutes for three functions. It does not substitute loads from memory, which LLVM keeps in registers.
"""

from __future__ import annotations

from typing import Any

from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.adapter import tirx
from meta.backend.tvm.te.intrinsic import Expr, dtype_of


def values_in_registers(func: Any) -> Any:
    """`func` in which a statement computes each nested `Let` value before its use."""
    if not _has_nested(func):
        return func
    return tvm.structural_map(func, [(tvm.BufferStore, _in_store), (tvm.SeqStmt, _in_bindings)])


def _in_store(store: Any) -> Any:
    value, statements = _flattened(store.value)
    return tvm.SeqStmt([*statements, tvm.BufferStore(store.buffer, value, store.indices)]) if statements else store


def _in_bindings(sequence: Any) -> Any:
    out: list[Any] = []
    for statement in sequence.seq:
        if isinstance(statement, tirx.Bind):
            value, statements = _flattened(statement.value)
            out += statements
            statement = tirx.Bind(statement.var, value) if statements else statement
        out.append(statement)
    return tvm.SeqStmt(out) if len(out) > len(sequence.seq) else sequence


def _flattened(value: Expr) -> tuple[Expr, list[Any]]:
    """`value` with loads in place of the values of variables that have variables of their own, and the statements that
    store what they load. Those in operands of `if_then_else` stay: the loads of the one that is not taken may be out of
    bounds."""
    if not _has_nested(value):
        return value, []
    statements: list[Any] = []
    bound, lazy = {let.var for let in _lets(value)}, _lazy_variables(value)

    def load(let: Any) -> Any:
        if let.var in lazy or not _lets(let.value) or not bound.isdisjoint(_free_variables(let.value)):
            return let
        buffer = tirx.decl_buffer((1,), dtype_of(let.value), "value", scope="local")
        statements.extend([tirx.AllocBuffer(buffer), tvm.BufferStore(buffer, let.value, [0])])
        return tirx.Let(let.var, tirx.BufferLoad(buffer, [0]), let.body)

    return tvm.structural_map(value, (tirx.Let, load)), statements


def _lets(node: Any) -> list[Any]:
    lets: list[Any] = []
    tvm.structural_walk(node, (tirx.Let, lets.append))
    return lets


def _has_nested(node: Any) -> bool:
    return any(_lets(let.value) for let in _lets(node))


def _lazy_variables(value: Expr) -> set[Any]:
    """The variables bound in operands of `if_then_else`, of which one is computed."""
    variables: set[Any] = set()

    def visit(call: Any) -> None:
        if getattr(call.op, "name", "").endswith(".if_then_else"):
            variables.update(let.var for operand in call.args[1:] for let in _lets(operand))

    tvm.structural_walk(value, (tvm.Call, visit))
    return variables


def _free_variables(value: Expr) -> set[Any]:
    """The variables that an expression reads and does not bind."""
    read: set[Any] = set()
    tvm.structural_walk(value, (tvm.Var, read.add))
    return read - {let.var for let in _lets(value)}
