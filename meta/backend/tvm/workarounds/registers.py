"""Values of nested variables computed into registers, before and after TVM expands operators for LLVM.

The functions of `meta.backend.tvm.te.math` bind their operand with a `Let`, so that functions of functions are nested
`Let`s. TVM substitutes the values where it expands operators and where it writes LLVM's code, in time exponential in
the nesting: six seconds for `erfinv`, minutes for three functions. It does not substitute loads from memory, which LLVM
keeps in registers.
"""

from __future__ import annotations

from collections.abc import Mapping
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


def _flattened(value: Expr, outer: Mapping[Any, Expr] | None = None) -> tuple[Expr, list[Any]]:
    """`value` with loads in place of variables, and the statements that store what they load. Values in an operand of
    `if_then_else` are computed in a branch: the loads of an operand that is not taken may be out of bounds.

    outer: the loads of variables that an expression around `value` binds."""
    if outer is None and not _has_nested(value):
        return value, []
    loads: dict[Any, Expr] = dict(outer or {})
    statements: list[Any] = []

    def of_let(let: Expr, mutator: Any) -> Expr:
        if let.var not in loads:  # an expression may occur several times
            stored = mutator.mutate(let.value)
            register = _Register(dtype_of(stored))
            statements.extend([register.allocation(), register.store(stored)])
            loads[let.var] = register.load()
        return mutator.mutate(let.body)

    def of_call(call: tvm.Call, mutator: Any) -> Expr:
        is_choice = getattr(call.op, "name", "").endswith(".if_then_else")
        if not is_choice or not any(map(_lets, call.args[1:])):
            return mutator.default_mutate(call)
        condition, register = mutator.mutate(call.args[0]), _Register(dtype_of(call))
        results = [_flattened(operand, loads) for operand in call.args[1:]]
        branches = [tvm.SeqStmt([*s, register.store(r)]) if s else register.store(r) for r, s in results]
        statements.extend([register.allocation(), tirx.IfThenElse(condition, *branches)])
        return register.load()

    changes = [(tirx.Let, of_let), (tvm.Call, of_call), (tvm.Var, lambda v, _: loads.get(v, v))]
    return tvm.structural_mutate(value, changes), statements


class _Register:
    """A buffer of one value, which LLVM keeps in a register. Bools are kept as bytes: TVM's LLVM code reads vectors of
    bools from elsewhere than it wrote them."""

    def __init__(self, dtype: str) -> None:
        self.dtype, self.kept = dtype, dtype.replace("bool", "uint8")
        self.buffer = tirx.decl_buffer((1,), self.kept, "value", scope="local")

    def allocation(self) -> Any:
        return tirx.AllocBuffer(self.buffer, on_stack())

    def store(self, value: Expr) -> Any:
        kept = value if self.kept == self.dtype else tirx.Cast(self.kept, value)
        return tvm.BufferStore(self.buffer, kept, [0])

    def load(self) -> Expr:
        load = tirx.BufferLoad(self.buffer, [0])
        return load if self.kept == self.dtype else tirx.Cast(self.dtype, load)


def _lets(node: tvm.Object) -> list[Any]:
    lets: list[Any] = []
    tvm.structural_walk(node, (tirx.Let, lets.append))
    return lets


def _has_nested(node: tvm.Object) -> bool:
    """Whether the value of a variable binds another one, or is one that several expressions share."""
    return any(shared_value(let.value) is not None or _lets(let.value) for let in _lets(node))
