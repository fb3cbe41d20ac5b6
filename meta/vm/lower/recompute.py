"""Tensors that each kernel computes anew on a GPU, because that reads fewer bytes than the tensors have.

    y = cast(x, "float32"); a = max(y); b = exp(y - a)      with x of 16 bits

If y were computed once, both kernels would read 4 bytes an element, and a third would write them. Each has a cast of
its own instead, which Relax fuses with it, and y needs no memory.

The same holds of x and y of one size if only such kernels read y: it is not written, and x lives as long as y would.
A slice is of one size with what it reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from meta._generated import limits
from meta.ir.analysis import is_open
from meta.ir.builder import Module
from meta.ir.expr import Atom, Binding, Call, Constant, FunctionExpr, Var
from meta.ir.type import TensorType
from meta.ir.visitor import reads, walk, walk_blocks
from meta.op.registry import Op
from meta.tree import leaves_of
from meta.vm.lower.choose import Choices

TAKERS: Final = ("elemwise", "broadcast", "injective", "reduce")
"""The patterns of operators that Relax fuses with the elementwise operators before them."""


@dataclass(frozen=True, slots=True)
class _Recipe:
    """How a tensor is computed. read: the bytes that this takes.  length: the number of operators."""

    call: Call
    read: int
    length: int


def recomputed(module: Module, choices: Choices) -> dict[Any, Call]:
    """The calls that compute such tensors; compiled kernels of patterns in TAKERS have them instead of an operand."""
    recipes: dict[Var, _Recipe] = {}
    for function in module.functions.values():
        unwritten = _unwritten(function, choices)
        for binding in walk(function):
            if (recipe := _recipe(binding, binding.var in unwritten, recipes, choices)) is not None:
                recipes[binding.var] = recipe
    return {var: recipe.call for var, recipe in recipes.items()}


def _unwritten(function: FunctionExpr, choices: Choices) -> set[Var]:
    """The large tensors of a function whose readers are all kernels that can compute them."""
    atoms_read: set[Atom] = {atom for block in walk_blocks(function) for atom in reads(block.result)}
    for binding in walk(function):
        if _taker(binding.value, choices) is None:
            atoms_read.update(reads(binding.value))
    sizes = {b.var: b.var.type.nbytes for b in walk(function) if isinstance(b.var.type, TensorType)}
    return {v for v, n in sizes.items() if v not in atoms_read and isinstance(n, int) and n >= limits.UNWRITTEN_BYTES}


def _taker(value: Any, choices: Choices) -> Any:
    """The value if it is the call of a compiled kernel of a pattern in TAKERS; else None."""
    if not isinstance(value, Call) or not isinstance(value.op, Op) or value.op.view or is_open(value):
        return None
    return value if value.op.pattern in TAKERS and choices.of(value).compiled else None


def _recipe(binding: Binding, unwritten: bool, recipes: Mapping[Var, _Recipe], choices: Choices) -> _Recipe | None:
    """How the tensor of a binding is computed if it is such a tensor. recipes: the recipes of earlier bindings."""
    call, kind = _taker(binding.value, choices), binding.var.type
    if call is None or not isinstance(kind, TensorType) or not isinstance(kind.nbytes, int):
        return None
    tensors: list[Any] = [leaf for leaf in leaves_of(call.args) if isinstance(leaf, (Var, Constant))]
    # An operator without operands, such as arange, computes its elements from their positions.
    is_slice, pattern = call.op_name == "strided_slice", call.op.pattern
    if pattern not in ("elemwise", "broadcast") and not (pattern == "injective" and (is_slice or not tensors)):
        return None
    parts = [recipes.get(t) for t in tensors]
    read = sum(part.read if part else t.type.nbytes for part, t in zip(parts, tensors, strict=True))
    if is_slice:
        read = read * kind.nbytes // max(tensors[0].type.nbytes, 1)
    length = 1 + sum(part.length for part in parts if part)
    most = limits.UNWRITTEN_SHARE if unwritten else limits.RECOMPUTED_SHARE
    return _Recipe(call, read, length) if read <= most * kind.nbytes and length <= limits.RECOMPUTED_OPERATORS else None
