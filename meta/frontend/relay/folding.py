"""Values of tensors that follow from constants alone, for arguments that meta takes as attributes."""

from __future__ import annotations

from typing import Any

import numpy as np

from meta.eager.ndarray import asarray
from meta.interpreter.run import evaluate
from meta.ir.builder import Builder, suspended
from meta.ir.expr import Atom, Call, Constant, Tuple, TupleGetItem, Var, operands
from meta.ir.literal import to_array
from meta.ir.type import TensorType
from meta.tracing.symbol import Symbol

_MOST_ELEMENTS = 4096
"""Elements of a tensor worth computing now: shapes and lists of axes, not weights."""
_MOST_CALLS = 256


def fold(value: Symbol, builder: Builder) -> np.ndarray[Any, Any] | None:
    """The value of a tensor of the program being built, None when it depends on inputs (or on too much)."""
    atom = value.atom
    if isinstance(atom, Constant):
        return np.asarray(to_array(atom.value))
    order = _definitions(atom, builder)
    if order is None:
        return None
    known: dict[Atom, Any] = {}
    with suspended():
        for var, made in order:
            known[var] = _computed(made, known)
    return known[atom].numpy()


def _definitions(root: Var, builder: Builder) -> list[tuple[Var, Any]] | None:
    """What `root` is computed from, operands first; None when something is not known."""
    order: dict[Var, Any] = {}
    opened: set[Var] = set()
    stack: list[Var] = [root]
    while stack:
        var = stack[-1]
        if var in order:
            stack.pop()
            continue
        made = builder.definition(var)
        if not isinstance(made, (Call, Tuple, TupleGetItem)) or len(opened) > _MOST_CALLS or not _small(made.type):
            return None
        if isinstance(made, Call) and made.callee is not None:
            return None
        needed = [a for a in operands(made) if isinstance(a, Var) and a not in order]
        if not needed or var in opened:
            order[var] = made
            stack.pop()
        else:
            opened.add(var)
            stack.extend(needed)
    return list(order.items())


def _small(kind: Any) -> bool:
    if isinstance(kind, TensorType):
        return kind.is_static and int(kind.size) <= _MOST_ELEMENTS  # type: ignore[arg-type]
    return all(map(_small, getattr(kind, "fields", ())))


def _computed(made: Any, known: dict[Atom, Any]) -> Any:
    def value(a: Any) -> Any:
        return known[a] if isinstance(a, Var) else asarray(to_array(a.value), a.type.dtype)

    if isinstance(made, Tuple):
        return tuple(map(value, made.fields))
    if isinstance(made, TupleGetItem):
        return value(made.value)[made.index]
    return evaluate(made, known)
