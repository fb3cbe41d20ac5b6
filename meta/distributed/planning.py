"""The memory and the communication of a training step on each rank, from its program, for any number of ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from meta.distributed.exchanges import arrays_of
from meta.distributed.held_arrays import HeldArray
from meta.dtype import itemsize
from meta.errors import ArgumentError, NotSupportedError
from meta.ir.builder import Module
from meta.ir.expr import Call
from meta.ir.type import TensorType, flat_types
from meta.ir.visitor import walk
from meta.op.registry import Op
from meta.optim.train_step import TrainStep
from meta.passes.standard import standard
from meta.vm.build.generate import plan_source
from meta.vm.lower.choose import prepare
from meta.vm.plan.communication import overlaps

_SENT: Mapping[str, Callable[[int, int], float]] = {
    **dict.fromkeys(("all_reduce", "all_reduce_when"), lambda ranks, size: 2 * (ranks - 1) / ranks * size),
    "all_gather": lambda ranks, size: (ranks - 1) * size,
    "reduce_scatter": lambda ranks, size: (ranks - 1) / ranks * size,
    "all_to_all": lambda ranks, size: (ranks - 1) / ranks * size,
}
"""Bytes that a rank sends in ring algorithms, from the bytes of its operand; in other collectives it sends the
operand."""

_Key: TypeAlias = tuple[str, str, int]
"""An operator, the name of a group and its number of ranks."""


@dataclass(frozen=True, slots=True)
class Communication:
    """The calls of a collective in one step. sent: bytes that a rank sends in all of them. after: how many of the other
    operators of the program come before the first call, as a share.  meanwhile: bytes that other kernels of the
    compiled program read and write while calls are on their way; 0 for collectives inside of a conditional."""

    operator: str
    group: str
    ranks: int
    calls: int
    sent: int
    after: float
    meanwhile: int


@dataclass(frozen=True, slots=True)
class Plan:
    """The arrays and the collectives of a step, on one rank. `str(plan)` is a table.

    intermediates: bytes of what a call of the compiled program has on the way: activations, gradients, gathered
        parameters."""

    arrays: tuple[HeldArray, ...]
    collectives: tuple[Communication, ...]
    intermediates: int

    @property
    def held(self) -> int:
        """Bytes of parameters and state that a rank keeps between steps."""
        return sum(array.size for array in self.arrays)

    @property
    def whole(self) -> int:
        """Bytes of parameters and state that one process keeps."""
        return sum(array.whole for array in self.arrays)

    @property
    def sent(self) -> int:
        """Bytes that a rank sends in a step."""
        return sum(c.sent for c in self.collectives)

    def __str__(self) -> str:
        width = max([*(len(a.name) for a in self.arrays), 22])
        lines = [f"{'array':{width}}  share  bytes of a rank  where"]
        lines += [f"{a.name:{width}}  {a.share:5.3g}  {a.size:15,}  {a.where}" for a in self.arrays]
        lines += [
            f"{'all':{width}}  {self.held / self.whole:5.3g}  {self.held:15,}",
            f"{'more during a call':{width}}         {self.intermediates:15,}",
            "",
            "collective      group    ranks  calls     bytes sent  starts after          bytes of kernels meanwhile",
        ]
        for c in self.collectives:
            lines.append(
                f"{c.operator:14}  {c.group:8} {c.ranks:5}  {c.calls:5}  {c.sent:13,}  {c.after:4.0%} of the operators"
                f"  {c.meanwhile:15,}"
            )
        lines.append(f"all {'':36}{self.sent:15,}")
        return "\n".join(lines)


def plan(step: TrainStep, *args: Any) -> Plan:
    """The plan of a training step for the arguments of a call, from its program; nothing runs.

    A single process plans for any number of ranks: `plan(zero(2, Group("dp", 64), broadcast=False)(step), x, y)`.
    Raises ArgumentError for something other than a TrainStep."""
    if not isinstance(step, TrainStep):
        raise ArgumentError("distributed.plan", f"the step is of class {type(step).__name__}", "a TrainStep")
    module = step.record(*args).module
    planned = _planned(module)
    return Plan(arrays_of(step), _communications(module, planned.calls), planned.intermediates)


def _communications(module: Module, planned: Mapping[_Key, tuple[int, int, int]]) -> tuple[Communication, ...]:
    bindings = [b for f in module.functions.values() for b in walk(f)]
    calls = Counter[_Key]()
    sent = Counter[_Key]()
    first: dict[_Key, float] = {}
    for i, binding in enumerate(bindings):
        value = binding.value
        if not isinstance(value, Call) or not isinstance(value.op, Op) or value.op.family != "collective":
            continue
        arguments = dict(zip(value.op.schema.names, value.args, strict=True))
        if arguments["ranks"] == 1 or "x" not in arguments:
            continue
        key = value.op.name, arguments["group"], arguments["ranks"]
        size = _bytes(arguments["x"].type)
        calls[key] += 1
        sent[key] += _sent(value.op.name, arguments["ranks"], size)
        first.setdefault(key, i / len(bindings))
    return tuple(
        Communication(*key, *planned[key][:2], first[key], planned[key][2])
        if key in planned
        else Communication(*key, calls[key], sent[key], first[key], 0)
        for key in calls
    )


@dataclass(frozen=True, slots=True)
class _Planned:
    """Of the compiled program. calls: for each collective its calls (some gather parameters twice), the bytes that a
    rank sends, and the bytes that other kernels read and write while the calls are on their way."""

    calls: Mapping[_Key, tuple[int, int, int]]
    intermediates: int


def _planned(module: Module) -> _Planned:
    device = next(t.device for p in module.main.params for t in flat_types((p.type,)))
    source = prepare(standard()(module), device)
    choices = source.choices.packed()
    program = plan_source(source, fuse=True)
    totals: dict[_Key, tuple[int, int, int]] = {}
    for each in overlaps(program.main):
        info = choices[each.name].info
        arguments = dict(zip(info.op.schema.names, info.args, strict=True))
        key = info.op.name, arguments["group"], arguments["ranks"]
        calls, sent, meanwhile = totals.get(key, (0, 0, 0))
        totals[key] = calls + 1, sent + _sent(info.op.name, arguments["ranks"], each.size), meanwhile + each.bytes
    return _Planned(totals, program.memory.intermediates)


def _sent(operator: str, ranks: int, size: int) -> int:
    """The bytes that a rank sends in a call, from the bytes of its operand."""
    return round(_SENT.get(operator, lambda _, size: size)(ranks, size))


def _bytes(kind: TensorType) -> int:
    """The size of a tensor. Raises NotSupportedError for one of symbolic size."""
    if not isinstance(kind.size, int):
        raise NotSupportedError("distributed.plan", f"a collective of {kind!r}", "sizes that are numbers")
    return kind.size * itemsize(kind.dtype)
