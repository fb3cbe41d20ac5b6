"""Mixed precision: which dtype the floating operands of a call are cast to.

The rule is the operator's own (`Op.amp`), or the user's override of it; one function serves the AutoCast pass and the
eager autocast. "always" runs in the low dtype, "never" in float32, "infer" in the dtype of its largest operand, so
that a small float32 operand (a bias, a scale) follows the activations instead of widening them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from meta import dtype as dtypes
from meta.ir.type import TensorType
from meta.op.registry import Amp, Op

CASTABLE = ("float16", "bfloat16", "float32")
"""float64 is a choice of the user's, and stays."""


def target_dtype(op: Op, types: tuple[Any, ...], low: str, overrides: Mapping[str, Amp]) -> str | None:
    """The dtype that the castable operands of `op` should have, None to leave them alone.

    types: arguments in schema order, tensors as types.  low: "float16" or "bfloat16"."""
    if op.name in EXEMPT:
        return None
    operands = [t for t in _tensors(types) if t.dtype in CASTABLE]
    if not operands or any(t.dtype == "float64" for t in _tensors(types)):
        return None
    rule = overrides.get(op.name, op.amp)
    if rule == "always":
        return low
    if rule == "never":
        return "float32" if any(t.dtype in dtypes.HALVES for t in operands) else None
    if len({t.dtype for t in operands}) == 1:
        return None
    return max(operands, key=_weight).dtype


EXEMPT = frozenset({"cast", "device_copy", "stop_gradient"})
"""Operators whose result dtype the program states itself."""


def _weight(t: TensorType) -> tuple[int, int]:
    size = t.size
    return (size if isinstance(size, int) else 1 << 62, dtypes.itemsize(t.dtype))


def _tensors(types: tuple[Any, ...]) -> Iterator[TensorType]:
    for t in types:
        if isinstance(t, TensorType):
            yield t
        elif isinstance(t, tuple):
            yield from _tensors(t)  # pyright: ignore[reportUnknownArgumentType]
