"""Reports about a compiled program: dialects and reasons, memory, text, time of kernels.

The passes are imported where a report plans the program again.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, field
from typing import TYPE_CHECKING, Any

from meta.backend.cuda import streams
from meta.backend.tvm.cpu import check_runs_here
from meta.eager.ndarray import NDArray
from meta.errors import ArgumentError, NotSupportedError, did_you_mean
from meta.records import record
from meta.vm.lower.choose import Choice
from meta.vm.program import Program
from meta.vm.runner import Machine

if TYPE_CHECKING:
    from meta.pictures import Picture
    from meta.vm.located import LocatedPlan
    from meta.vm.plan.budget import MemoryTrade

RELAX_STAGES = ("relax", "planned")
STAGES = ("traced", "optimized", *RELAX_STAGES)


def explain(program: Program, *, fuse: bool, placements: Sequence[tuple[str, ...]] = ()) -> str:
    """One line for each operator and types: `dialect.op(types)  calls  reason`; then where the arrays of the state are,
    what collectives overlap with, and what a budget of memory costs.

    placements: rows of a table with a heading, for steps of several processes."""
    rows = [("operator", "calls", "why")]
    for choice in program.source.choices.listed():
        rows.append((_called(choice), str(choice.calls), choice.reason))
    tables = [_table(rows), *([_table(placements)] if placements else [])]
    if any(choice.info.op.family == "collective" for choice in program.source.choices.listed()):
        tables += _overlaps(program, fuse)
    return "\n".join(tables if program.loaded.trade is None else [*tables, str(program.loaded.trade)])


def _called(choice: Choice) -> str:
    types = ", ".join(f"{t.dtype}[{'x'.join(map(str, t.shape))}]" for t in choice.info.tensors())
    return f"{choice.implementation.name}({types})"


def _overlaps(program: Program, fuse: bool) -> list[str]:
    """A table of the collectives that travel while other kernels run; none where there are none."""
    from meta.vm.build.generate import plan_source
    from meta.vm.plan.communication import overlaps

    arena = program.loaded.destinations is not None
    planned = plan_source(program.source, fuse=fuse, arena=arena)
    choices = program.source.choices.packed()
    rows = [("collective", "group", "bytes", "kernels meanwhile", "their bytes")]
    for each in overlaps(planned.main):
        info = choices[each.name].info
        group = info.args[info.op.schema.index["group"]]
        rows.append((_called(choices[each.name]), group, f"{each.size:,}", str(each.kernels), f"{each.bytes:,}"))
    return [_table(rows)] if len(rows) > 1 else []


def _table(rows: Sequence[tuple[str, ...]]) -> str:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows)


@record
class MemoryReport:
    """Bytes of one call. state: parameters, buffers and optimizer state that the program reads or writes.
    inputs, constants: the call's inputs and constants.  outputs, intermediates, workspace, dynamic: see PlannedBytes.
    trade: what a budget of memory costs, None without one.
    `total` is everything that lives during the call; `draw` shows it step by step."""

    state: int
    inputs: int
    constants: int
    outputs: int
    intermediates: int
    workspace: int
    dynamic: int
    trade: MemoryTrade | None = None
    drawing: Callable[[], Picture] | None = field(default=None, repr=False, compare=False)

    def draw(self) -> Picture:
        """An SVG of parameters, state, activations and gradients over the steps of the program, with the ten largest
        tensors at the peak and the lines that they are from. Plans the program again, without running it.

        Raises NotSupportedError for a program from a file, which has no plan."""
        if self.drawing is None:
            problem = "a program that was loaded from a file has no plan"
            raise NotSupportedError("vm", problem, "a compiled program", "compile the model: meta.vm.compile(model)")
        return self.drawing()

    @property
    def total(self) -> int:
        return self.state + self.inputs + self.constants + self.outputs + self.intermediates + self.workspace

    def __str__(self) -> str:
        rows = [(name, getattr(self, name)) for name in
                ("state", "inputs", "constants", "outputs", "intermediates", "workspace", "total")]  # fmt: skip
        text = "\n".join(f"{name:<14}{value:>16,} bytes" for name, value in rows)
        text += f"\n{self.dynamic} tensors of symbolic size are not counted" if self.dynamic else ""
        return text if self.trade is None else f"{text}\n{self.trade}"


def memory(program: Program, inputs: Sequence[NDArray], *, fuse: bool | None = None, name: str = "") -> MemoryReport:
    """The memory of a call, from the plan and the arguments. fuse: None for a program that cannot be planned again."""

    def drawing() -> Picture:
        from meta.vm.located import timeline

        return timeline(program, _located(program, fuse=bool(fuse)), inputs).draw(f"memory of {name}", report.total)

    report = MemoryReport(
        state=sum(x.nbytes for _, x in program.record.state),
        inputs=sum(x.nbytes for x in inputs),
        constants=sum(x.nbytes for x in program.constants),
        **asdict(program.loaded.memory),
        trade=program.loaded.trade,
        drawing=None if fuse is None else drawing,
    )
    return report


def draw(program: Program, inputs: Sequence[NDArray], *, fuse: bool, repeat: int, name: str) -> Picture:
    """A drawing of the kernels, with their times if `repeat` is positive."""
    from meta.pictures.programs import kernel_graph
    from meta.vm.located import kernel_boxes

    times = profile(program, inputs, fuse=fuse, repeat=repeat).kernels if repeat else ()
    title = f"{name}: kernels and the operators in them"
    per_call = {k.name: k.microseconds / max(k.calls, 1) for k in times}
    return kernel_graph(title, kernel_boxes(_located(program, fuse=fuse), per_call))


def _located(program: Program, *, fuse: bool) -> LocatedPlan:
    from meta.vm.located import locate

    return locate(program.source, fuse=fuse, arena=program.loaded.destinations is not None)


def ir(program: Program, stage: str, *, fuse: bool) -> str:
    """The text of a program at a stage; raises ArgumentError for an unknown one."""
    if stage == "traced":
        return str(program.record.module)
    if stage == "optimized":
        return str(program.optimized)
    _check_stage("ir", stage, STAGES)
    return str(relax(program, stage, fuse=fuse).script())


def relax(program: Program, stage: str, *, fuse: bool) -> Any:
    """The IRModule of TVM at a stage; raises ArgumentError for an unknown one."""
    from meta.vm.build.generate import plan_source
    from meta.vm.lower.translate import lower

    _check_stage("relax", stage, RELAX_STAGES)
    return (lower(program.source) if stage == "relax" else plan_source(program.source, fuse=fuse)).module


def _check_stage(name: str, stage: str, stages: Sequence[str]) -> None:
    if stage not in stages:
        allowed = f"one of {', '.join(stages)}"
        raise ArgumentError(name, f"there is no stage '{stage}'", allowed, did_you_mean(stage, stages))


@record
class KernelTime:
    """Time of one kernel: its name, the operators in it, calls per run, microseconds of all of them per run.
    lines: `file:line` of the calls that it may run for."""

    name: str
    ops: tuple[str, ...]
    calls: int
    microseconds: float
    lines: tuple[str, ...] = ()


@record
class Profile:
    """Kernels by time, slowest first. total: microseconds of a run without the profiler, median."""

    kernels: tuple[KernelTime, ...]
    total: float

    def __str__(self) -> str:
        rows = [("kernel", "operators", "calls", "us")]
        rows += [(k.name, " + ".join(k.ops), str(k.calls), f"{k.microseconds:.1f}") for k in self.kernels]
        busy = sum(k.microseconds for k in self.kernels)
        return f"{_table(rows)}\nall kernels {busy:.1f} us; a run {self.total:.1f} us"

    def draw(self) -> Picture:
        """A bar chart of the slowest kernels, as SVG."""
        from meta.pictures.programs import times_chart

        return times_chart(f"kernels by time; a run takes {self.total:.1f} us", self.kernels)


def profile(program: Program, inputs: Sequence[NDArray], *, fuse: bool, repeat: int) -> Profile:
    """Time every kernel call of `repeat` runs in an instrumented machine, on copies of what the program overwrites."""
    from meta.vm.build.generate import build_module
    from meta.vm.located import locate

    check_runs_here("profile", program.source.cpu)
    located = locate(program.source, fuse=fuse)
    planned, source, device = located.planned, program.source, program.source.device
    machine = Machine(build_module(source, planned, mode="bytecode"), source)
    data = program.arguments(inputs)
    runs = max(repeat, 1)
    totals: list[float] = []
    for _ in range(runs):
        start = time.perf_counter()
        machine.main(*data)
        streams.synchronize(device)
        totals.append((time.perf_counter() - start) * 1e6)
    calls, seconds = Counter[str](), defaultdict[str, float](float)

    def measure(_: object, name: str, before: bool, *__: object) -> int:
        """The machine calls it before and after each of its calls."""
        if name in located.kernels:
            streams.synchronize(device)
            seconds[name] += -time.perf_counter() if before else time.perf_counter()
            calls[name] += before
        return 0

    machine.module["set_instrument"](measure)
    for _ in range(runs):
        machine.main(*data)
    rows = [
        KernelTime(n, info.operators, count // runs, seconds[n] * 1e6 / runs, info.lines)
        for n, count in calls.items()
        for info in (located.kernels[n],)
    ]
    return Profile(tuple(sorted(rows, key=lambda k: -k.microseconds)), sorted(totals)[len(totals) // 2])
