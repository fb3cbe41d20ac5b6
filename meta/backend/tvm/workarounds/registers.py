"""Values of nested variables computed into registers, before and after TVM expands operators for LLVM.

The functions of `meta.backend.tvm.te.math` bind their operand with a `Let`, so that functions of functions are nested
`Let`s. TVM substitutes the values where it expands operators and where it writes LLVM's code, in time exponential in
the nesting: six seconds for `erfinv`, minutes for three functions. It does not substitute loads from memory, which LLVM
keeps in registers.
"""

from __future__ import annotations

from typing import Any

from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.adapter import tirx
from meta.backend.tvm.intrinsic import Expr, dtype_of, shared_value
from meta.backend.tvm.workarounds.small_buffers import on_stack


def values_in_registers(func: tvm.PrimFunc) -> Any:
    """`func` in which a statement computes each nested `Let` value before its use."""
    if not _has_nested(func):
        return func
    return tvm.structural_map(func, [(tvm.BufferStore, _in_store), (tvm.SeqStmt, _in_bindings)])


def shared_values_in_registers(func: tvm.PrimFunc) -> Any:
    """`func`, of a GPU, in which statements compute the values that several expressions share: TVM writes the text of
    others in place of their variables."""
    is_shared = any(shared_value(let.value) is not None for let in _lets(func))
    return values_in_registers(func) if is_shared else func


def _in_store(store: tvm.BufferStore) -> Any:
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
    """`value` with loads in place of variables, and the statements that store what they load. Variables in operands of
    `if_then_else` stay: the loads of an operand that is not taken may be out of bounds."""
    if not _has_nested(value):
        return value, []
    lazy = _lazy_variables(value)
    loads: dict[Any, Expr] = {}
    statements: list[Any] = []

    def body_of(let: Expr, mutator: Any) -> Expr:
        if let.var in lazy:
            return mutator.default_mutate(let)
        if let.var not in loads:  # an expression may occur several times
            stored = mutator.mutate(let.value)
            buffer = tirx.decl_buffer((1,), dtype_of(stored), "value", scope="local")
            statements.extend([tirx.AllocBuffer(buffer, on_stack()), tvm.BufferStore(buffer, stored, [0])])
            loads[let.var] = tirx.BufferLoad(buffer, [0])
        return mutator.mutate(let.body)

    return tvm.structural_mutate(value, [(tirx.Let, body_of), (tvm.Var, lambda v, _: loads.get(v, v))]), statements


def _lets(node: tvm.Object) -> list[Any]:
    lets: list[Any] = []
    tvm.structural_walk(node, (tirx.Let, lets.append))
    return lets


def _has_nested(node: tvm.Object) -> bool:
    """Whether the value of a variable binds another one, or is one that several expressions share."""
    return any(shared_value(let.value) is not None or _lets(let.value) for let in _lets(node))


def _lazy_variables(value: Expr) -> set[Any]:
    """The variables bound in operands of `if_then_else`, which computes only one operand."""
    variables: set[Any] = set()

    def visit(call: tvm.Call) -> None:
        if getattr(call.op, "name", "").endswith(".if_then_else"):
            variables.update(let.var for operand in call.args[1:] for let in _lets(operand))

    tvm.structural_walk(value, (tvm.Call, visit))
    return variables
