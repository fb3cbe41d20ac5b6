"""Constant folding."""

from __future__ import annotations

from typing import Any

from meta._generated import limits
from meta.dim import SymDim
from meta.eager.ndarray import NDArray
from meta.errors import DeviceError, DispatchError
from meta.ir.expr import Atom, Binding, Call, Constant, Expr, If, Tuple, is_atom, is_atom_list
from meta.ir.printer import to_array
from meta.ir.type import TensorType, TupleType, Type, leaf_types
from meta.op.registry import Op
from meta.passes.rewriting import Scope, rewrite_pass
from meta.tracing.foreign_op import ForeignOp


def _fold(binding: Binding, scope: Scope) -> Expr | Atom | None:
    """Evaluate a call whose tensors are constants, or small results of creation operators. A creation operator itself
    stays, because rules recognise it, and dead code elimination drops it."""
    value = binding.value
    if not isinstance(value, Call) or not _is_foldable(value) or value.attrs or value.dialect:
        return None
    tensors = [t for a in value.args for t in (a if is_atom_list(a) else (a,)) if is_atom(t)]
    sources = [_source(t, scope) for t in tensors]
    if not tensors or not all(sources) or not _small(value.type, max(_size(t.type) or 0 for t in tensors)):
        return None
    values = {t: _array(s) for t, s in zip(tensors, sources, strict=True) if s is not None}
    if any(v is None for v in values.values()):
        return None
    result = _array(value, values)
    if result is None:
        return None
    constants = [Constant(r, r.type, value.span) for r in (result if isinstance(value.type, TupleType) else (result,))]
    return Tuple(tuple(constants), value.span) if isinstance(value.type, TupleType) else constants[0]


def _source(atom: Atom, scope: Scope) -> Constant | Call | None:
    """The source of an operand's value: a constant, or the call of a small creation operator."""
    if isinstance(atom, Constant):
        return atom
    call = scope.definition(atom)
    if not isinstance(call, Call) or not _is_foldable(call) or not _small(call.type, 0):
        return None
    return None if any(is_atom(a) or is_atom_list(a) or isinstance(a, SymDim) for a in call.args) else call


def _is_foldable(call: Call) -> bool:
    """Whether a call is of an operator that gives the same result each time; library operators may draw numbers."""
    return isinstance(call.op, Op) and not isinstance(call.op, ForeignOp)


def _array(value: Constant | Call, operands: dict[Atom, Any] | None = None) -> Any:
    """The value as an array or a tuple of them; None where this machine cannot compute it."""
    from meta.interpreter.run import evaluate  # most programs have nothing to fold

    try:
        return evaluate(value, operands or {})
    except (DeviceError, DispatchError):
        return None


def _size(kind: Type) -> int | None:
    """Elements of the largest tensor of a value, None for symbolic sizes."""
    sizes = [t.size if isinstance(t, TensorType) else None for t in leaf_types(kind)]
    numbers = [size for size in sizes if isinstance(size, int)]
    return max(numbers, default=0) if len(numbers) == len(sizes) else None


def _small(kind: Type, allowed: int) -> bool:
    size = _size(kind)
    return size is not None and size <= max(limits.FOLDED_ELEMENTS, allowed)


def _constant_if(binding: Binding, scope: Scope) -> Expr | Atom | None:
    """A conditional on a constant is the branch that is taken."""
    value = binding.value
    if not isinstance(value, If) or not isinstance(value.cond, Constant):
        return None
    cond = value.cond.value
    branch = value.then if bool(cond.item() if isinstance(cond, NDArray) else to_array(cond).item()) else value.orelse
    for inner in branch.bindings:
        scope.bind(inner)
    return branch.result


fold_const = rewrite_pass(
    "fold_const",
    "Evaluate calls whose tensors are all constants (or small results of creation operators) when the result is small "
    "or no larger than they are, and take the branch of a conditional on a constant.",
    _fold,
    _constant_if,
)
