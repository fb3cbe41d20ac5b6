"""Constant folding."""

from __future__ import annotations

from typing import Any

from meta.interpreter.invoke import invoke, state
from meta.ir.dim import is_static
from meta.ir.expr import Atom, Binding, Call, Constant, Expr, Tuple, is_atom, is_atom_list
from meta.ir.type import TensorType
from meta.ir.visitor import Scope
from meta.ndarray import NDArray, asarray
from meta.passes.manager import rewrite_pass

LIMIT = 1 << 16
"""Elements of the largest constant that folding makes: larger results are cheaper to compute than to carry."""


def _fold(binding: Binding, scope: Scope) -> Expr | Atom | None:
    value = binding.value
    if not isinstance(value, Call) or value.callee is not None:
        return None
    tensors = [a for a in value.args if is_atom(a) or is_atom_list(a)]
    if not tensors or not all(map(_known, tensors)) or not _small(value.type):
        return None
    result = invoke(state(value.op), *map(_concrete, value.args))  # type: ignore[arg-type]
    if isinstance(result, NDArray):
        return Constant(result, result.type, value.span)
    fields = [Constant(r, r.type, value.span) for r in result]
    return Tuple(tuple(fields), value.span)


def _known(arg: Any) -> bool:
    return isinstance(arg, Constant) or (isinstance(arg, tuple) and all(map(_known, arg)))  # pyright: ignore[reportUnknownArgumentType]


def _concrete(arg: Any) -> Any:
    if isinstance(arg, Constant):
        return arg.value if isinstance(arg.value, NDArray) else asarray(arg.value)
    return tuple(map(_concrete, arg)) if isinstance(arg, tuple) else arg  # pyright: ignore[reportUnknownArgumentType]


def _small(kind: Any) -> bool:
    fields = getattr(kind, "fields", None)
    if fields is not None:
        return all(map(_small, fields))
    return isinstance(kind, TensorType) and is_static(kind.shape) and int(kind.size) <= LIMIT


fold_const = rewrite_pass(
    "fold_const", "Evaluate calls whose tensors are all constants, when the result is small.", [_fold]
)
