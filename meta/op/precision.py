"""Mixed precision: which dtype the floating operands of a call are cast to.

The rule is the operator's own (`Op.amp`), or the user's override of it; one function serves the AutoCast pass and the
eager autocast. "always" runs in the low dtype, "never" in float32, "infer" in the dtype of its largest operand, so
that a small float32 operand (a bias, a scale) follows the activations instead of widening them; "keep" leaves its
operands unchanged.

Only an operator's data is cast: the arguments in `Op.amp_args`, or all tensors if there are none. Arguments that it
updates in place keep their dtype, and "never" casts the data to it (a gradient to the dtype of its parameter). An
operator that updates arguments and has no `amp_args` is not cast. Calls with a float64 operand are not cast either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from meta import dtype as dtypes
from meta.errors import ArgumentError, TypeInferenceError, did_you_mean, value_text
from meta.ir.type import TensorType, flat_types
from meta.op.registry import AMP_RULES, Amp, Op, get

CASTABLE = ("float16", "bfloat16", "float32")


@cache
def data_positions(op: Op) -> tuple[int, ...]:
    """Positions in the schema of the arguments that mixed precision may cast."""
    if op.amp_args:
        return tuple(op.schema.index[name] for name in op.amp_args)
    return () if op.inplace else op.schema.tensor_positions


def target_dtype(op: Op, types: tuple[Any, ...], low: str, overrides: Mapping[str, Amp]) -> str | None:
    """The dtype that the castable tensors at `data_positions(op)` should have, None to leave them alone.

    types: arguments in schema order, tensors as types.  low: "float16" or "bfloat16".
    Raises TypeInferenceError for an operand that the operator refuses in low precision (`Op.amp_refusal`)."""
    rule = overrides.get(op.name, op.amp)
    if rule == "keep":
        return None
    if op.amp_refusal and op.name not in overrides:
        _refuse_low(op, types[0])
    data = flat_types(types[i] for i in data_positions(op))
    return common_dtype(data, rule, low, _exact(op, types))


def common_dtype(data: Sequence[TensorType], rule: Amp, low: str, exact: str = "float32") -> str | None:
    """The dtype that a rule gives the castable tensors among the operands of a call, None to leave them alone. exact:
    the dtype of the rule "never"."""
    operands = [t for t in data if t.dtype in CASTABLE]
    if not operands or any(t.dtype == "float64" for t in data):
        return None
    dtype = low if rule == "always" else exact if rule == "never" else max(operands, key=_weight).dtype
    return None if all(t.dtype == dtype for t in operands) else dtype


def _refuse_low(op: Op, operand: object) -> None:
    if isinstance(operand, TensorType) and operand.dtype in dtypes.HALVES:
        name = op.schema.names[0]
        problem = f"'{name}' was computed in {operand.dtype} by mixed precision, which lacks digits that a result needs"
        raise TypeInferenceError(op.name, problem, "float32", op.amp_refusal)


def _exact(op: Op, types: tuple[Any, ...]) -> str:
    """The dtype of the rule "never": float32, or for an update in place the dtype of the updated argument."""
    for name in op.inplace.values():
        target = types[op.schema.index[name]]
        if isinstance(target, TensorType) and dtypes.is_float(target.dtype):
            return target.dtype
    return "float32"


def needs_cast(kind: object, dtype: str) -> bool:
    """Whether a tensor of type `kind` is cast where `target_dtype` says `dtype`."""
    return isinstance(kind, TensorType) and kind.dtype in CASTABLE and kind.dtype != dtype


def _half_of(dtype: object) -> str:
    """The half precision that a dtype of another library means; bfloat16 for others, which needs no scaled losses."""
    return "float16" if str(dtype).endswith(("float16", "half")) and "bfloat16" not in str(dtype) else "bfloat16"


def check_policy(where: str, dtype: str, overrides: Mapping[str, Any] | None) -> dict[str, Amp]:
    """The overrides. Raises ArgumentError for a dtype other than float16 and bfloat16, for overrides that are not a
    mapping and for an unknown rule, RegistryError for an unknown operator."""
    if dtype not in dtypes.HALVES:
        allowed = f"{', '.join(map(repr, dtypes.HALVES))}"
        raise ArgumentError(where, f"dtype is {dtype!r}", allowed, f'write "{_half_of(dtype)}", for all devices')
    if overrides is not None and not isinstance(overrides, Mapping):
        raise ArgumentError(where, f"overrides is {value_text(overrides)}", "a mapping from operators to rules")
    for name, rule in (overrides or {}).items():
        get(name)
        if rule not in AMP_RULES:
            allowed = f"{', '.join(map(repr, AMP_RULES))}"
            raise ArgumentError(where, f"the rule of '{name}' is {rule!r}", allowed, did_you_mean(str(rule), AMP_RULES))
    return dict(overrides or {})


def _weight(t: TensorType) -> tuple[int, int]:
    """Order by size, wider dtypes winning among equals; a symbolic size counts as larger than any number."""
    size = t.size
    return (size if isinstance(size, int) else 1 << 62, dtypes.itemsize(t.dtype))
