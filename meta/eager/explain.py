"""`meta.explain`: which dialects could run a call, which one does, and why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from meta.eager.call import device_of
from meta.ir.type import TensorType, Value
from meta.op.dispatch import CallInfo, Candidate, candidates
from meta.op.registry import as_type, get
from meta.schema._types import TensorLike
from meta.tree import map_leaves


@dataclass(frozen=True, slots=True)
class Explanation:
    """The candidates of one call in the order they are tried; `chosen` is the name of the dialect that runs it.

    without_kernel: the result follows from the arguments' types, or is their memory under another shape."""

    op: str
    candidates: tuple[Candidate, ...]
    without_kernel: bool = False

    @property
    def chosen(self) -> str | None:
        return next((c.implementation.dialect.name for c in self.candidates if c.refusal is None), None)

    def __str__(self) -> str:
        if self.without_kernel:
            return f"{self.op}: needs no kernel"
        lines = [f"{self.op}: {self.chosen or 'no dialect accepts this call'}"]
        return "\n".join([*lines, *(f"  {c}" for c in self.candidates)])


class _TypeOnly(TensorLike):
    """Lets a TensorType pass where a tensor is asked for."""

    __slots__ = ("type",)

    def __init__(self, kind: TensorType) -> None:
        self.type = kind


def explain(op: str | Callable[..., Any], *args: Any, **kwargs: Any) -> Explanation:
    """Every candidate for calling operator `op` (its name, or its function) with these arguments (arrays, or
    TensorTypes in their place), with the reason of each refusal.

    Raises RegistryError, ArgumentError and TypeInferenceError as the call would."""
    operator = get(op if isinstance(op, str) else getattr(op, "__name__", op))  # type: ignore[arg-type]
    wrapped = [_wrap(a) for a in args]
    bound = operator.schema.bind(operator.name, wrapped, {k: _wrap(v) for k, v in kwargs.items()})
    types = tuple(map(as_type, bound))
    out = operator.infer(types)
    if isinstance(out, Value) or operator.view:
        return Explanation(operator.name, (), without_kernel=True)
    return Explanation(operator.name, tuple(candidates(CallInfo(operator, types, out, device_of(bound, out)))))


def _wrap(arg: Any) -> Any:
    return map_leaves(lambda leaf: _TypeOnly(leaf) if isinstance(leaf, TensorType) else leaf, arg)
