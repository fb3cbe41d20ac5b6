"""Programs whose parameters are constants: the arrays that a model only reads, with the values of the moment.

Passes fold and pack constants when the program is compiled: batch norms into convolutions, kernels into panels, and
weights of 8 bits into the operands of integer products. Later writes to those arrays do not change the program.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from meta import tracing
from meta.eager.ndarray import copied
from meta.ir.expr import MUTATES, Constant
from meta.ir.visitor import substituted
from meta.modes import no_grad


class Frozen:
    """Something to compile, with the arrays that it only reads as constants.

    source: its `record` method.  what: itself, whose name and open sizes it keeps."""

    def __init__(self, source: Callable[..., tracing.Record], what: Any) -> None:
        self.source = source
        self.__name__ = str(getattr(what, "__name__", type(what).__name__))
        self.open_sizes: Any = getattr(what, "open_sizes", None)

    def record(self, *args: object, **kwargs: object) -> tracing.Record:
        return _frozen(self.source(*args, **kwargs))


def _frozen(record: tracing.Record) -> tracing.Record:
    """The record without the state that it only reads."""
    main, first = record.main, len(record.inputs)
    mutates: dict[int, int] = main.attrs.get(MUTATES, {})
    read = [i for i in range(len(record.state)) if first + i not in mutates.values()]
    with no_grad():
        values = {main.params[first + i]: copied(record.state[i][1].detach()) for i in read}
    constants = {var: Constant(value, value.type, var.span) for var, value in values.items()}
    params = tuple(p for p in main.params if p not in constants)
    places = {result: params.index(main.params[i]) for result, i in mutates.items()}
    body = substituted(replace(main, params=()), constants).body
    new = replace(main, params=params, body=body, attrs={**main.attrs, **({MUTATES: places} if mutates else {})})
    kept = [i for i in range(len(record.state)) if i not in read]
    positions = {main.params.index(p): i for i, p in enumerate(params)}
    return replace(
        record,
        module=record.module.with_function("main", new),
        state=tuple(record.state[i] for i in kept),
        tracked=tuple(record.tracked[i] for i in kept if i < len(record.tracked)),
        recorded=frozenset(positions[i] for i in record.recorded),
    )
