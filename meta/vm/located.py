"""The plan of a program with the user's lines of every kernel, for profiles, and what pictures show of a plan."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, cast

from meta.eager.ndarray import NDArray
from meta.pictures.programs import Holding, KernelBox, Timeline, joined
from meta.records import record
from meta.vm.build.generate import plan_source
from meta.vm.lower.choose import Source
from meta.vm.lower.translate import Lowered, lower
from meta.vm.plan.graph import memory_sizes, spans
from meta.vm.plan.kernels import OWN, PARAMETER, PLANNED, KernelCall, KernelList, Memory, Step, Tensor, Value, leaves
from meta.vm.plan.pipeline import Planned
from meta.vm.program import Program

_BACKWARD: Final = re.compile(r"_d(x|w|b|q|k|v|y|x?wb|x\d|scale)(_\w+)?$")
"""The end of the name of an operator that computes gradients."""


@record
class KernelInfo:
    """operators: of the kernel, in order.  lines: `file:line` of the calls that it may run for."""

    operators: tuple[str, ...]
    lines: tuple[str, ...]


@record(eq=False)
class LocatedPlan:
    """kernels: by name."""

    planned: Planned
    kernels: Mapping[str, KernelInfo]

    def info(self, step: Step) -> KernelInfo:
        """What a step runs; nothing for a conditional."""
        return self.kernels.get(called_function(step), KernelInfo((), ()))


def locate(source: Source, *, fuse: bool, arena: bool = False) -> LocatedPlan:
    """Plan a program, and find the lines of its kernels."""
    lowered = lower(source)
    # Planned with the names of the kernels as operators: a fused kernel then lists the kernels it is made of.
    members = replace(lowered, ops={name: name for name in lowered.ops})
    planned = plan_source(source, fuse=fuse, lowered=members, arena=arena)
    return LocatedPlan(planned, dict(_kernels(planned.kernels, lowered)))


def called_function(step: Step) -> str:
    """The name of the function that a step calls, "" for a conditional."""
    if isinstance(step, KernelCall):
        return step.function
    return str(getattr(getattr(step.expression, "op", None), "global_symbol", ""))


def _kernels(members: Mapping[str, tuple[str, ...]], lowered: Lowered) -> Iterator[tuple[str, KernelInfo]]:
    """members: the names of the kernels in each kernel."""
    for name, names in members.items():
        lines = dict.fromkeys(str(span) for member in names for span in lowered.lines.get(member, ()))
        yield name, KernelInfo(tuple(lowered.ops.get(m, m) for m in names), tuple(lines))


# --- for pictures -----------------------------------------------------------------------------------------------------


def timeline(program: Program, plan: LocatedPlan, inputs: Sequence[NDArray]) -> Timeline:
    """What lives during each step of a program. Tensors of symbolic size are not counted."""
    main = plan.planned.main
    base = [Holding("parameters" if x.requires_grad else "state", x.nbytes, name) for name, x in program.record.state]
    arrays = [*inputs, *program.constants]
    base += [Holding("inputs and constants", x.nbytes, f"{x.dtype} of shape {tuple(x.shape)}") for x in arrays]
    gradients = _gradients(main, plan, {i for i in program.left if i is not None})
    sizes, lives = memory_sizes(main, PLANNED, OWN), spans(main, PLANNED, OWN)
    steps: list[list[Holding]] = [list(base) for _ in main.steps]
    for memory, tenants in _tenants(main).items():
        if memory in lives and sizes[memory]:
            last = min(lives[memory][1], len(steps) - 1)
            ends = [*(made for made, _ in tenants[1:]), last + 1]
            for (made, tensor), end in zip(tenants, ends, strict=True):
                layer = "gradients" if tensor in gradients else "activations"
                info = plan.info(main.steps[made])
                what = f"{tensor.dtype} of shape {tuple(tensor.shape or ())} of {joined(info.operators)}"
                holding = Holding(layer, sizes[memory], what, info.lines)
                for step in steps[made:end]:
                    step.append(holding)
    return Timeline(tuple(map(tuple, steps)))


def _tenants(main: KernelList) -> dict[Memory, list[tuple[int, Tensor]]]:
    """The tensors in each memory, with the steps that make them."""
    tenants: dict[Memory, list[tuple[int, Tensor]]] = {}
    for i, step in enumerate(main.steps):
        for tensor in step.results:
            tenants.setdefault(tensor.memory, []).append((i, tensor))
    return tenants


def _gradients(main: KernelList, plan: LocatedPlan, left: set[int]) -> set[Tensor]:
    """The tensors that a backward operator computes, that depend on one, or that no result but gradients and new
    values of parameters depends on. left: the positions of gradients among the results."""
    found: set[Tensor] = set()
    for step in main.steps:
        is_backward = any(_BACKWARD.search(name) for name in plan.info(step).operators)
        if is_backward or any(o.tensor in found for o in step.reads):
            found.update(step.results)
    needed = {o.tensor for o in leaves(_without(main.result, left)) if o.tensor.memory.kind != PARAMETER}
    for step in reversed(main.steps):
        if any(t in needed for t in step.results):
            needed.update(o.tensor for o in step.reads)
    return found | {t for t in main.tensors() if t not in needed}


def _without(result: Value, positions: set[int]) -> Value:
    """The result of a function without some of its fields."""
    if not isinstance(result, tuple):
        return result
    return tuple([value for i, value in enumerate(cast("tuple[Value, ...]", result)) if i not in positions])


def kernel_boxes(plan: LocatedPlan, times: Mapping[str, float]) -> list[KernelBox]:
    """The kernels of a program to draw. times: microseconds of a call by the name of the kernel."""
    steps = plan.planned.main.steps
    makers = {tensor: i for i, step in enumerate(steps) for tensor in step.results}

    def box(i: int, step: Step) -> KernelBox:
        name = getattr(step, "function", "") or "control flow"
        info = plan.info(step)
        moved = sum(o.bytes for o in step.reads) + sum(t.bytes for t in step.results)
        sources = sorted({makers[o.tensor] for o in step.reads if o.tensor in makers} - {i})
        return KernelBox(name, info.operators, info.lines, moved, times.get(name), tuple(sources))

    return [box(i, step) for i, step in enumerate(steps)]
