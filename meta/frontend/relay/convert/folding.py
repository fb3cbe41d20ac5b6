"""Constant folding, for tensor arguments of Relay that are attributes in meta."""

from __future__ import annotations

from typing import Any

import numpy as np

from meta.eager.ndarray import asarray
from meta.interpreter.run import evaluate
from meta.ir.builder import Builder
from meta.ir.expr import Atom, Call, Constant, Tuple, TupleGetItem, Var, operands
from meta.ir.printer import to_array
from meta.ir.type import TensorType
from meta.modes import suspended
from meta.tracing.symbol import Symbol

_MAX_ELEMENTS = 4096
"""Elements of a tensor that is folded: shapes and lists of axes, not weights."""
_MAX_CALLS = 256


def fold(value: Symbol, builder: Builder) -> np.ndarray[Any, Any] | None:
    """The value of a tensor of the program being built, None if it depends on inputs or on too much."""
    atom = value.atom
    if isinstance(atom, Constant):
        return np.asarray(to_array(atom.value))
    order = _definitions(atom, builder) if isinstance(atom, Var) else None
    if order is None:
        return None
    values: dict[Atom, Any] = {}
    with suspended():
        for var, definition in order:
            values[var] = _evaluated(definition, values)
    return values[atom].numpy()


def _definitions(root: Var, builder: Builder) -> list[tuple[Var, Any]] | None:
    """The definitions that `root` depends on, operands first; None if one of them cannot be folded."""
    order: dict[Var, Any] = {}
    opened: set[Var] = set()
    stack: list[Var] = [root]
    while stack:
        var = stack[-1]
        if var in order:
            stack.pop()
            continue
        value = builder.definition(var)
        if not isinstance(value, (Call, Tuple, TupleGetItem)) or len(opened) > _MAX_CALLS or not _is_small(value.type):
            return None
        if isinstance(value, Call) and value.callee is not None:
            return None
        pending = [a for a in operands(value) if isinstance(a, Var) and a not in order]
        if not pending or var in opened:
            order[var] = value
            stack.pop()
        else:
            opened.add(var)
            stack.extend(pending)
    return list(order.items())


def _is_small(kind: object) -> bool:
    if isinstance(kind, TensorType):
        return kind.is_static and int(kind.size) <= _MAX_ELEMENTS
    return all(map(_is_small, getattr(kind, "fields", ())))


def _evaluated(definition: Any, values: dict[Atom, Any]) -> Any:
    def value(a: Any) -> Any:
        return values[a] if isinstance(a, Var) else asarray(to_array(a.value), a.type.dtype)

    if isinstance(definition, Tuple):
        return tuple(map(value, definition.fields))
    if isinstance(definition, TupleGetItem):
        return value(definition.value)[definition.index]
    return evaluate(definition, values)
