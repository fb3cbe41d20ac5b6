"""`rules` and `report`: the precision that operators run in, why, and what the casts cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from meta import tracing
from meta.dtype import itemsize
from meta.errors import ArgumentError
from meta.ir.builder import Module
from meta.ir.expr import Call, arg_types
from meta.ir.type import TensorType, flat_types
from meta.ir.visitor import walk
from meta.modes import modes
from meta.op.precision import CASTABLE, check_policy, data_positions
from meta.op.registry import Amp, Op, all_ops
from meta.passes.auto_cast import auto_cast
from meta.schema.annotations import checked

_REASONS = {
    "always": "always: runs in the low precision",
    "never": "never: runs in float32",
    "infer": "infer: follows its largest operand",
    "keep": "keep: operands stay as they are",
}


def rules(overrides: Mapping[str, Amp] | None = None) -> dict[str, Amp]:
    """The rule of every operator by name: "always" (low precision), "never" (float32), "infer" (the precision of its
    largest operand) or "keep" (operands stay as they are), with `overrides` in place of the operators' own.

    Inside of an `autocast` block the overrides of the block hold as well. Raises as `autocast` does."""
    outer = getattr(modes.autocast, "overrides", {})
    inner = check_policy("rules", "bfloat16", overrides)
    return {**{op.name: op.amp for op in all_ops()}, **outer, **inner}


@dataclass(frozen=True, slots=True)
class OperatorPrecision:
    """Calls of one operator in one precision. dtype: of its floating operands.  reason: the rule.  calls: how many."""

    operator: str
    dtype: str
    reason: str
    calls: int


@dataclass(frozen=True, slots=True)
class CastCost:
    """Casts from one dtype to another at one of the user's lines ("" if unknown).

    calls: how many.  arguments: how many of them cast an argument of the program, which is an input or a parameter.
    read, written: bytes, 0 for symbolic sizes."""

    source: str
    target: str
    line: str
    calls: int
    arguments: int
    read: int
    written: int


@dataclass(frozen=True, slots=True)
class AmpReport:
    """The operators of a program and its casts. Printing it gives both tables and the totals."""

    operators: tuple[OperatorPrecision, ...]
    casts: tuple[CastCost, ...]

    @property
    def cast_count(self) -> int:
        return sum(c.calls for c in self.casts)

    @property
    def cast_bytes(self) -> int:
        """Bytes that all casts read and write, if none is fused with its neighbours."""
        return sum(c.read + c.written for c in self.casts)

    def __str__(self) -> str:
        rows = [("operator", "precision", "calls", "why")]
        rows += [(o.operator, o.dtype, str(o.calls), o.reason) for o in self.operators]
        costs = [("cast", "calls", "of arguments", "bytes", "line")]
        costs += [
            (f"{c.source} -> {c.target}", str(c.calls), str(c.arguments), f"{c.read + c.written:,}", c.line)
            for c in self.casts
        ]
        total = f"{self.cast_count} casts, {self.cast_bytes:,} bytes read and written where they are not fused"
        return f"{_table(rows)}\n\n{_table(costs)}\n{total}"


@checked
def report(
    step: object, *args: object, dtype: str | None = None, overrides: Mapping[str, Amp] | None = None, **kwargs: object
) -> AmpReport:
    """The precision of every operator of a program in mixed precision, why, and the casts; nothing is run.

    step: a Model, a traced function, a training step, an IR Module, a function, or what `meta.vm.compile` made of one,
        with its passes.  args, kwargs: the arguments of a call.
    dtype, overrides: as in `meta.passes.auto_cast`, which is applied. A step with `autocast` inside, or one compiled
        with that pass, has its casts already, and gets no more.  dtype: by default the dtype of these casts, or
        bfloat16.
    Raises ArgumentError for something that cannot be traced."""
    policy = check_policy("report", dtype or "bfloat16", overrides)
    module = _traced(step, args, kwargs)
    module = auto_cast(dtype or _low_precision(module), policy)(module)
    operators: dict[tuple[str, str, str], int] = {}
    casts: dict[tuple[str, str, str], list[int]] = {}
    arguments = set(module.main.params)
    for call in _calls(module):
        op = call.op
        if not isinstance(op, Op):
            continue
        if op.name == "cast":
            _add_cast(casts, call, call.args[0] in arguments)
            continue
        key = (op.name, _dtype(op, call), _reason(op, call, policy))
        operators[key] = operators.get(key, 0) + 1
    listed = [OperatorPrecision(*key, calls) for key, calls in operators.items()]
    costs = [CastCost(*key, *numbers) for key, numbers in casts.items()]
    return AmpReport(
        tuple(sorted(listed, key=lambda o: (-o.calls, o.operator, o.dtype))),
        tuple(sorted(costs, key=lambda c: -(c.read + c.written))),
    )


def _traced(step: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Module:
    from meta.vm import Executor, LoadedExecutor  # eager calls in mixed precision need no virtual machine
    from meta.vm.runner import with_left_gradients

    if isinstance(step, Module):
        return step
    if isinstance(step, Executor):
        return cast("Executor[..., Any]", step).module(*args, **kwargs)
    traced: Callable[..., Any] | None = getattr(step, "record", None)
    if isinstance(step, LoadedExecutor) or (traced is None and not callable(step)):
        problem = f"the step is {type(step).__name__}"
        raise ArgumentError("report", problem, "a Model, a function, a training step or an IR Module")
    record = tracing.record(step, args, kwargs) if traced is None else traced(*args, **kwargs)
    return (with_left_gradients(record)[0] if record.left else record).module


def _low_precision(module: Module) -> str:
    """The dtype that a program casts float32 to most often, bfloat16 if it does not."""
    casts = [call for call in _calls(module) if call.op_name == "cast"]
    pairs = [tuple(t.dtype for t in flat_types((*arg_types(call.args), call.type))) for call in casts]
    return max(("bfloat16", "float16"), key=lambda low: pairs.count(("float32", low)))


def _calls(module: Module) -> Iterator[Call]:
    for function in module.functions.values():
        for binding in walk(function):
            if isinstance(binding.value, Call):
                yield binding.value


def _add_cast(casts: dict[tuple[str, str, str], list[int]], call: Call, of_argument: bool) -> None:
    (source,) = flat_types(arg_types(call.args))
    target = call.type
    assert isinstance(target, TensorType)
    if source.dtype == target.dtype:
        return
    numbers = casts.setdefault((source.dtype, target.dtype, str(call.span or "")), [0, 0, 0, 0])
    size = target.size if isinstance(target.size, int) else 0
    added = (1, int(of_argument), size * itemsize(source.dtype), size * itemsize(target.dtype))
    numbers[:] = [a + b for a, b in zip(numbers, added, strict=True)]


def _dtype(op: Op, call: Call) -> str:
    """The dtype of the floating operands that a rule may cast, or of the result."""
    types = arg_types(call.args)
    data = flat_types(tuple(types[i] for i in data_positions(op) or op.schema.tensor_positions))
    floats = dict.fromkeys(t.dtype for t in data if t.dtype in (*CASTABLE, "float64"))
    return ", ".join(floats) or next((t.dtype for t in flat_types((call.type,))), "")


def _reason(op: Op, call: Call, overrides: Mapping[str, Amp]) -> str:
    rule = overrides.get(op.name, op.amp)
    types = arg_types(call.args)
    data = flat_types(tuple(types[i] for i in data_positions(op)))
    if any(t.dtype == "float64" for t in data):
        return "has a float64 operand"
    if rule != "keep" and not any(t.dtype in CASTABLE for t in data):
        return "updates its operands in place" if op.inplace else "has no floating operand"
    if rule == "never" and op.inplace:
        return "never: runs in the dtype of what it updates"
    return _REASONS[rule] + (" (override)" if op.name in overrides else "")


def _table(rows: list[tuple[str, ...]]) -> str:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows)
