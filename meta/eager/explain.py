"""`meta.explain`: which dialects could run a call, which one does, and why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from meta.eager.call import device_of
from meta.eager.ndarray import NDArray
from meta.eager.tape import any_tracked
from meta.ir.expr import CallInfo
from meta.ir.type import TensorType, Value, flat_types
from meta.modes import modes
from meta.op.dispatch import Candidate, candidates
from meta.op.registry import Op, as_type, find, get
from meta.schema._dsl import TensorLike
from meta.tree import leaves_of, with_leaves


@dataclass(frozen=True, slots=True)
class Explanation:
    """The candidates of one call in the order they are tried; `chosen` is the name of the dialect that runs it.

    without_kernel: the result follows from the arguments' types, or is their memory under another shape.
    notes: what happens to the call before the choice: casts by autocast, an operator that replaces it."""

    op: str
    candidates: tuple[Candidate, ...]
    without_kernel: bool = False
    notes: tuple[str, ...] = ()

    @property
    def chosen(self) -> str | None:
        return next((c.implementation.dialect.name for c in self.candidates if c.refusal is None), None)

    def __str__(self) -> str:
        if self.without_kernel:
            return f"{self.op}: needs no kernel"
        lines = [f"{self.op}: {self.chosen or 'no dialect accepts this call'}", *self.notes, *map(str, self.candidates)]
        return "\n  ".join(lines)


class _TypeOnly(TensorLike):
    """Lets a TensorType pass where a tensor is asked for."""

    __slots__ = ("type",)

    def __init__(self, kind: TensorType) -> None:
        self.type = kind


def explain(op: str | Callable[..., Any], *args: object, **kwargs: object) -> Explanation:
    """Every candidate for calling operator `op` (its name, or its function) with these arguments (arrays, or
    TensorTypes in their place), with the reason of each refusal.

    Autocast and gradient recording of this thread apply as in the call. Sizes that depend on values are computed, for
    arrays. Raises RegistryError, ArgumentError and TypeInferenceError as the call would."""
    operator_entry = find(op)
    wrapped = [_wrap(a) for a in args]
    bound = operator_entry.schema.bind(operator_entry.name, wrapped, {k: _wrap(v) for k, v in kwargs.items()})
    operator, notes = _recorded(operator_entry, bound)
    types = tuple(map(as_type, bound))
    if modes.autocast is not None:
        before, types = types, modes.autocast.cast_types(operator, types)
        dtypes = [t.dtype for t, old in zip(flat_types(types), flat_types(before), strict=True) if t is not old]
        notes += [f"autocast casts operands to {dtypes[0]}"] if dtypes else []
    out = operator.infer(types)
    if isinstance(out, Value) or operator.view:
        return Explanation(operator_entry.name, (), without_kernel=True)
    if operator.resolve is not None and not all(t.is_static for t in flat_types((out,))) and _has_values(bound):
        bound = operator.resolve(*bound)
        types = tuple(map(as_type, bound))
        out = operator.infer(types)
    call = CallInfo(operator, types, out, device_of(bound, out))
    return Explanation(operator_entry.name, tuple(candidates(call)), notes=tuple(notes))


def _recorded(op: Op, args: tuple[Any, ...]) -> tuple[Op, list[str]]:
    """The operator that runs a call: where a gradient is recorded, the operator that `op` is recorded as."""
    if not op.recorded_as or not modes.grad_enabled or not any_tracked(args):
        return op, []
    return get(op.recorded_as), [f"runs as {op.recorded_as}, which keeps what the gradient reads"]


def _has_values(args: tuple[Any, ...]) -> bool:
    return all(isinstance(leaf, NDArray) for leaf in leaves_of(args) if isinstance(leaf, TensorLike))


def _wrap(arg: object) -> Any:
    return with_leaves(arg, [_TypeOnly(leaf) if isinstance(leaf, TensorType) else leaf for leaf in leaves_of(arg)])
