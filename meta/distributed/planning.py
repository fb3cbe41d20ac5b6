"""What a training step keeps on each rank and communicates, from its program, for any number of ranks."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from meta.distributed.exchanges import exchanges
from meta.distributed.sharding import shards_of
from meta.distributed.tensor.parallel import TensorParallel
from meta.dtype import itemsize
from meta.errors import ArgumentError, NotSupportedError
from meta.ir.expr import Call
from meta.ir.module import Module
from meta.ir.type import TensorType, flat_types
from meta.ir.visitor import walk
from meta.op.registry import Op
from meta.optim.train_step import TrainStep
from meta.passes.standard import standard
from meta.vm.lower.dispatched import prepare
from meta.vm.relax.build import plan_source
from meta.vm.relax.communication import overlaps

_SENT: Mapping[str, Callable[[int, int], float]] = {
    "all_reduce": lambda ranks, size: 2 * (ranks - 1) / ranks * size,
    "all_gather": lambda ranks, size: (ranks - 1) * size,
    "reduce_scatter": lambda ranks, size: (ranks - 1) / ranks * size,
    "all_to_all": lambda ranks, size: (ranks - 1) / ranks * size,
}
"""Bytes that a rank sends in ring algorithms, by the bytes of its operand; those of the others are the operand's."""


@dataclass(frozen=True, slots=True)
class Placement:
    """An array of a step's state. share: of its elements that a rank keeps, 1 for the whole array.
    size: bytes on a rank, with the padding of a shard.  where: "each rank", or what is divided among which ranks, such
    as "axis 0 over tp, elements over dp"."""

    name: str
    share: float
    size: int
    where: str = "each rank"


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
    """The arrays and the collectives of a step, on one rank. `str(plan)` is a table."""

    arrays: tuple[Placement, ...]
    collectives: tuple[Communication, ...]

    @property
    def held(self) -> int:
        """Bytes of parameters and state that a rank keeps between steps."""
        return sum(array.size for array in self.arrays)

    @property
    def sent(self) -> int:
        """Bytes that a rank sends in a step."""
        return sum(c.sent for c in self.collectives)

    def __str__(self) -> str:
        width = max([*(len(a.name) for a in self.arrays), 10])
        lines = [f"{'array':{width}}  share  bytes of a rank  where"]
        lines += [f"{a.name:{width}}  {a.share:5.3g}  {a.size:15,}  {a.where}" for a in self.arrays]
        lines += [
            f"{'all':{width}}         {self.held:15,}",
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

    A process that is alone plans for any number: `plan(zero(2, Group("dp", 64), broadcast=False)(step), x, y)`.
    Raises ArgumentError for something other than a TrainStep."""
    if not isinstance(step, TrainStep):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ArgumentError("distributed.plan", f"the step is of class {type(step).__name__}", "a TrainStep")
    return Plan(_placements(step), _communications(step, args))


def _placements(step: TrainStep) -> tuple[Placement, ...]:
    shards = shards_of(step)
    parts = [part for exchange in exchanges(step, TensorParallel) for part in exchange.parts]
    ranks = {shard.array.shape: shard.group for shard in shards}
    own = {id(shard.array) for shard in shards}
    names = {f"{shard.name}.shard" for shard in shards}
    placements: list[Placement] = []
    for name, x in step.named_state():
        divided = id(x) in own or (name.rpartition(".")[0] in names and x.shape in ranks)
        part = next((p for p in parts if p.owns(name) and (divided or x.shape == p.shape)), None)
        where = [] if part is None else [f"{part.placement} over {part.group.name}"]
        where += [f"elements over {ranks[x.shape].name}"] if divided else []
        share = (1 / ranks[x.shape].ranks if divided else 1.0) / (1 if part is None else part.group.ranks)
        size = math.prod(x.shape) * itemsize(x.dtype)
        placements.append(Placement(name, share, size, ", ".join(where) or "each rank"))
    return tuple(placements)


def _communications(step: TrainStep, args: Sequence[Any]) -> tuple[Communication, ...]:
    module = step.record(*args).module
    bindings = [b for f in module.functions.values() for b in walk(f)]
    calls = Counter[tuple[str, str, int]]()
    sent = Counter[tuple[str, str, int]]()
    first: dict[tuple[str, str, int], float] = {}
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
    planned = _planned(module) if calls else {}
    return tuple(
        Communication(*key, *planned[key][:2], first[key], planned[key][2])
        if key in planned
        else Communication(*key, calls[key], sent[key], first[key], 0)
        for key in calls
    )


def _planned(module: Module) -> dict[tuple[str, str, int], tuple[int, int, int]]:
    """For each operator, group and number of ranks the calls in the compiled program, which gathers parameters twice,
    the bytes that a rank sends, and those that other kernels read and write while the calls are on their way."""
    device = next(t.device for p in module.main.params for t in flat_types((p.type,)))
    source = prepare(standard()(module), device)
    choices = source.choices.packed()
    totals: dict[tuple[str, str, int], tuple[int, int, int]] = {}
    for each in overlaps(plan_source(source, fuse=True)[1].module["main"]):
        info = choices[each.name].info
        arguments = dict(zip(info.op.schema.names, info.args, strict=True))
        key = info.op.name, arguments["group"], arguments["ranks"]
        calls, sent, meanwhile = totals.get(key, (0, 0, 0))
        totals[key] = calls + 1, sent + _sent(info.op.name, arguments["ranks"], each.size), meanwhile + each.bytes
    return totals


def _sent(operator: str, ranks: int, size: int) -> int:
    """The bytes that a rank sends in a call, by those of its operand."""
    return round(_SENT.get(operator, lambda _, size: size)(ranks, size))


def _bytes(kind: TensorType) -> int:
    """The size of a tensor. Raises NotSupportedError for one of symbolic size."""
    if not isinstance(kind.size, int):
        raise NotSupportedError("distributed.plan", f"a collective of {kind!r}", "sizes that are numbers")
    return kind.size * itemsize(kind.dtype)
