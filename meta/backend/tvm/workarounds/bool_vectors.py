"""Vectors of bools, in the memory of a GPU and in the variables of a CPU.

TVM's CUDA code has no vectors of bools: it computes them as vectors of 16-bit integers, and would also store those.
Here they are stored as bytes, and statements after a store read the variable in place of memory.

TVM bounds the values of variables while it writes LLVM's code, and fails at a vector of bools there, also inside of a
cast. It does not look into conditions: here a comparison becomes a choice between true and false.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.adapter import tirx
from meta.backend.tvm.intrinsic import dtype_of

_VECTOR = "boolx"
_UNBOUNDED = ("EQ", "NE", "LT", "LE", "GT", "GE", "And", "Or", "Not")
"""TVM's expressions of bools that it fails to bound."""


def choose_bools_in_variables(func: Any) -> Any:
    """A host function with vectors of bools in values of variables as choices by conditions, which LLVM folds."""
    kinds = tuple(getattr(tirx, name) for name in _UNBOUNDED)
    return tvm.structural_map(func, (tirx.Let, lambda let: _with_choices(let, kinds)))


def _with_choices(let: Any, kinds: tuple[Any, ...]) -> Any:
    value = tvm.structural_map(let.value, (kinds, _choice))
    return let if value.same_as(let.value) else tirx.Let(let.var, value, let.body)


def _choice(condition: Any) -> Any:
    kind = dtype_of(condition)
    return tirx.Select(condition, *(tirx.const(b, kind) for b in (True, False))) if _VECTOR in kind else condition


def store_bools_as_bytes(func: tvm.PrimFunc) -> Any:
    """A device function with its stores of vectors of bools as stores of bytes."""
    pointers: dict[Any, Any] = {}

    def sequence(node: tvm.Object) -> Any:
        if not any(map(_is_store, node.seq)):
            return node
        if not pointers:
            tvm.structural_walk(func, (tirx.DeclBuffer, lambda each: pointers.update({each.buffer: each.data})))
        return tvm.SeqStmt(_with_bytes(node.seq, pointers))

    return tvm.structural_map(func, (tvm.SeqStmt, sequence))


def _with_bytes(statements: Sequence[Any], pointers: Mapping[Any, Any]) -> list[Any]:
    """The statements of a sequence, in which bytes are stored. pointers: the memory of each buffer."""
    views: dict[Any, Any] = {}
    changed: list[Any] = []
    stored: list[tuple[Any, Any, Any]] = []
    for statement in statements:
        current = _with_variables(statement, stored)
        if not _is_store(current):
            changed.append(current)
            continue
        kept, (index,) = tirx.Var("kept", dtype_of(current.value)), current.indices
        bools = current.buffer
        if bools not in views:
            views[bools] = tirx.decl_buffer(bools.ty.shape, "uint8", f"{bools.name}_bytes")
        stored.append((bools, index, kept))
        value = kept.astype(dtype_of(kept).replace("bool", "uint8"))
        changed += [tirx.Bind(kept, current.value), tvm.BufferStore(views[bools], value, [index])]
    return [*(_declaration(view, pointers[bools]) for bools, view in views.items()), *changed]


def _declaration(view: Any, data: Any) -> Any:
    """The statement that declares a buffer of bytes at the address of another."""
    return tirx.DeclBuffer(view, data=tirx.reinterpret(tvm.PointerType(tvm.PrimType("uint8"), "global"), data))


def _is_store(statement: tvm.Object) -> bool:
    """Whether a statement stores a vector of bools."""
    return isinstance(statement, tvm.BufferStore) and dtype_of(statement.value).startswith(_VECTOR)


def _with_variables(statement: tvm.Object, stored: list[tuple[Any, Any, Any]]) -> Any:
    """A statement that reads the variables of stored vectors in place of memory."""

    def load(node: tvm.Object) -> Any:
        for buffer, index, kept in stored:
            if node.source.same_as(buffer) and tvm.structural_equal(node.indices[0], index):
                return kept
        return node

    return tvm.structural_map(statement, (tvm.TensorLoad, load)) if stored else statement
