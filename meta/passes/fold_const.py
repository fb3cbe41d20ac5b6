"""Constant folding."""

from __future__ import annotations

from typing import Any

from meta.dim import is_static
from meta.eager.ndarray import NDArray
from meta.errors import DeviceError, DispatchError
from meta.interpreter.run import evaluate
from meta.ir.expr import Atom, Binding, Call, Constant, Expr, If, Tuple, is_atom, is_atom_list
from meta.ir.literal import to_array
from meta.ir.type import TensorType, TupleType, Type
from meta.ir.visitor import Scope
from meta.op.registry import Op
from meta.passes.manager import rewrite_pass

LIMIT = 1 << 12
"""Elements of a constant that folding makes; more only where the constants that it is made of are as large: other
results are cheaper to compute than to carry."""


def _fold(binding: Binding, scope: Scope) -> Expr | Atom | None:
    """A call whose tensors are constants, or small results of creation operators. A creation operator itself stays:
    rules know what it is full of, and it goes when nobody needs it."""
    value = binding.value
    if not isinstance(value, Call) or not isinstance(value.op, Op) or value.attrs or value.dialect:
        return None
    tensors = [t for a in value.args for t in (a if is_atom_list(a) else (a,)) if is_atom(t)]
    sources = [_known(t, scope) for t in tensors]
    if not tensors or not all(sources) or not _small(value.type, max(_size(t.type) or 0 for t in tensors)):
        return None
    known = {t: _evaluated(s) for t, s in zip(tensors, sources, strict=True) if s is not None}
    if any(v is None for v in known.values()):
        return None
    result = _evaluated(value, known)
    if result is None:
        return None
    made = [Constant(r, r.type, value.span) for r in (result if isinstance(value.type, TupleType) else (result,))]
    return Tuple(tuple(made), value.span) if isinstance(value.type, TupleType) else made[0]


def _known(atom: Atom, scope: Scope) -> Constant | Call | None:
    """What gives an operand's value: a constant, or the small creation operator that made it."""
    if isinstance(atom, Constant):
        return atom
    made = scope.definition(atom)
    if not isinstance(made, Call) or not isinstance(made.op, Op) or not _small(made.type, 0):
        return None
    return None if any(is_atom(a) or is_atom_list(a) for a in made.args) else made


def _evaluated(value: Constant | Call, known: dict[Atom, Any] | None = None) -> Any:
    """The value as an array or a tuple of them; None where this machine cannot compute it."""
    try:
        return evaluate(value, known or {})
    except (DeviceError, DispatchError):
        return None


def _size(kind: Type) -> int | None:
    """Elements of the largest tensor of a value, None when that is not known."""
    if isinstance(kind, TupleType):
        sizes = [_size(f) for f in kind.fields]
        return None if None in sizes else max((s for s in sizes if s is not None), default=0)
    return int(kind.size) if isinstance(kind, TensorType) and is_static(kind.shape) else None


def _small(kind: Type, allowed: int) -> bool:
    size = _size(kind)
    return size is not None and size <= max(LIMIT, allowed)


def _constant_if(binding: Binding, scope: Scope) -> Expr | Atom | None:
    """A conditional whose condition is known is the branch that is taken."""
    value = binding.value
    if not isinstance(value, If) or not isinstance(value.cond, Constant):
        return None
    cond = value.cond.value
    taken = value.then if bool(cond.item() if isinstance(cond, NDArray) else to_array(cond).item()) else value.orelse
    for inner in taken.bindings:
        scope.bind(inner)
    return taken.result


fold_const = rewrite_pass(
    "fold_const",
    "Evaluate calls whose tensors are all constants (or small and made by creation operators) when the result is small "
    "or no larger than they are, and take the branch of a conditional on a constant.",
    [_fold, _constant_if],
)
