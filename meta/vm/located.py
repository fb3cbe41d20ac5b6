"""The plan of a program with the user's lines of every kernel: for profiles, and for pictures of programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from meta.ir.expr import Call, GlobalVar, Var
from meta.records import record
from meta.vm.build.generate import plan_source
from meta.vm.lower.calls import function_name
from meta.vm.lower.choose import Choice, Source, is_open, packed_name
from meta.vm.lower.translate import Lowered, Lowering
from meta.vm.plan.kernels import KernelCall, Step
from meta.vm.plan.pipeline import Planned


@record
class KernelInfo:
    """operators: those in the kernel, in order.  lines: `file:line` of the calls that it may run for."""

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
    lowering = _SpannedLowering(source.module, source.choices, source.calls)
    lowered = lowering.run()
    # Planned with the names of the kernels as operators: a fused kernel then lists the kernels it is made of.
    members = Lowered(lowered.module, {name: name for name in lowered.ops})
    planned = plan_source(source, fuse=fuse, lowered=members, arena=arena)
    return LocatedPlan(planned, dict(_kernels(planned.kernels, lowered.ops, lowering.lines)))


def called_function(step: Step) -> str:
    """The name of the function that a step calls, "" for a conditional."""
    if isinstance(step, KernelCall):
        return step.function
    return str(getattr(getattr(step.expression, "op", None), "global_symbol", ""))


class _SpannedLowering(Lowering):
    """Lowering that keeps the lines of the calls of every kernel."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.line: str = ""
        self.lines: dict[str, dict[str, None]] = {}

    def call(self, scope: Any, call: Call) -> Any:
        before = self.line
        self.line = str(call.span or before)
        packed = None if isinstance(call.op, (Var, GlobalVar)) or call.op.view else self._packed(call)
        if packed:
            self._keep_line(packed)
        try:
            return super().call(scope, call)
        finally:
            self.line = before

    def _packed(self, call: Call) -> str:
        """The name of the function in Python or of the kernel outside of the program that a call calls, "" for none."""
        if is_open(call):
            return function_name(call)
        choice = self.choices.of(call)
        return "" if choice.compiled else packed_name(choice)

    def kernel(self, kernel_spec: Any, choice: Choice) -> Any:
        target = super().kernel(kernel_spec, choice)
        self._keep_line(target.name_hint)
        return target

    def _keep_line(self, name: str) -> None:
        if self.line:
            self.lines.setdefault(name, {})[self.line] = None


def _kernels(
    planned: Mapping[str, tuple[str, ...]], operators: Mapping[str, str], lines: Mapping[str, Mapping[str, None]]
) -> Iterator[tuple[str, KernelInfo]]:
    for name, members in planned.items():
        source_lines = dict.fromkeys(line for member in members for line in lines.get(member, ()))
        yield name, KernelInfo(tuple(operators.get(m, m) for m in members), tuple(source_lines))
