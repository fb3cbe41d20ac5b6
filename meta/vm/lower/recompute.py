"""Tensors that each kernel computes anew on a GPU, because that reads fewer bytes than the tensors have.

    y = cast(x, "float32"); a = max(y); b = exp(y - a)      with x of 16 bits

If y were computed once, both kernels would read 4 bytes an element, and a third would write them. Each has a cast of
its own instead, which Relax fuses with it, and y needs no memory.

The same holds of x and y of one size if only such kernels read y: it is not written, and x lives as long as y would.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from meta.ir.expr import Atom, Binding, Call, Constant, FunctionExpr, Var
from meta.ir.type import TensorType
from meta.ir.visitor import reads, walk, walk_blocks
from meta.op.registry import Op
from meta.tree import leaves_of
from meta.vm.lower.choose import Choice, Choices
from meta.vm.lower.open_calls import is_open

_TAKERS: Final = ("elemwise", "broadcast", "injective", "reduce")
"""The patterns of operators that Relax fuses with the elementwise operators before them."""
_MOST_BYTES: Final = 0.505
"""Bytes that a tensor is computed from, at most, as a part of its own: half, and a little for rows and columns."""
_MOST_BYTES_UNWRITTEN: Final = 1.01
"""The same for tensors of at least `_LEAST_UNWRITTEN` bytes that nothing else needs."""
_LEAST_UNWRITTEN: Final = 1 << 28
_MOST_OPERATORS: Final = 12
"""Operators that compute a tensor, at most."""


@dataclass(frozen=True, slots=True)
class _Recipe:
    """How a tensor is computed. read: the bytes that this takes.  length: the number of operators."""

    call: Call
    read: int
    length: int


class Recomputed:
    """The tensors of a function that are computed anew; none on the CPU."""

    def __init__(self, choices: Choices) -> None:
        self.choices = choices
        self._recipes: dict[Var, _Recipe] = {}
        self._unwritten: set[Atom] = set()

    def enter(self, function: FunctionExpr) -> None:
        """Record the large tensors of a function whose readers are all kernels that can compute them."""
        if self.choices.device.kind != "cuda":
            return
        atoms_read: set[Atom] = {atom for block in walk_blocks(function) for atom in reads(block.result)}
        for binding in walk(function):
            if not self._is_taker(binding.value):
                atoms_read.update(reads(binding.value))
        variables = (binding.var for binding in walk(function) if isinstance(binding.var.type, TensorType))
        self._unwritten.update(v for v in variables if v not in atoms_read and _is_large(v.type))

    def _is_taker(self, value: Any) -> bool:
        if not isinstance(value, Call) or not isinstance(value.op, Op) or value.op.view or is_open(value):
            return False
        return value.op.pattern in _TAKERS and self.choices.of(value).compiled

    def add(self, binding: Binding) -> None:
        """Record the tensor of a binding if it is such a tensor. Its operands come first."""
        call, kind = binding.value, binding.var.type
        if self.choices.device.kind != "cuda" or not isinstance(kind, TensorType) or not isinstance(kind.nbytes, int):
            return
        if not isinstance(call, Call) or not isinstance(call.op, Op) or call.op.view or is_open(call):
            return
        tensors: list[Atom] = [leaf for leaf in leaves_of(call.args) if isinstance(leaf, (Var, Constant))]
        # An operator without operands, such as arange, computes its elements from their positions.
        is_cheap = call.op.pattern in ("elemwise", "broadcast") or (call.op.pattern == "injective" and not tensors)
        if not is_cheap or not self.choices.of(call).compiled:
            return
        recipes = [self._recipes.get(t) if isinstance(t, Var) else None for t in tensors]
        read: Any = sum(r.read if r else t.type.nbytes for r, t in zip(recipes, tensors, strict=True))  # type: ignore[union-attr]
        length = 1 + sum(r.length for r in recipes if r)
        most = _MOST_BYTES_UNWRITTEN if binding.var in self._unwritten else _MOST_BYTES
        if read <= most * kind.nbytes and length <= _MOST_OPERATORS:
            self._recipes[binding.var] = _Recipe(call, read, length)

    def recipe(self, atom: Any, choice: Choice) -> Call | None:
        """The call that computes an operand anew for a kernel; None for other operands and other kernels."""
        if not isinstance(atom, Var) or atom not in self._recipes:
            return None
        return self._recipes[atom].call if choice.compiled and choice.info.op.pattern in _TAKERS else None


def _is_large(kind: Any) -> bool:
    return isinstance(kind.nbytes, int) and kind.nbytes >= _LEAST_UNWRITTEN
