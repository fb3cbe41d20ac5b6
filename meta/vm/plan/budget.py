"""Programs within a budget of memory, and what keeping to it costs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from meta.errors import ArgumentError, NotSupportedError
from meta.vm.plan.functions import KernelTable
from meta.vm.plan.graph import Dependencies
from meta.vm.plan.kernels import KernelList, leaves
from meta.vm.plan.memory import planned_bytes
from meta.vm.plan.recompute import RepeatedKernels, compute_again

_ATTEMPTS: Final = 6
_BUNDLED: Final = 3
"""Attempts that bundle small kernels, whose operands and results then live at one time."""
_UNITS: Final = {"B": 1} | {
    f"{prefix}{suffix}": base**power
    for suffix, base in (("B", 1000), ("iB", 1024))
    for power, prefix in enumerate("KMGT", 1)
}
_TEXT: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*")


@dataclass(frozen=True, slots=True)
class MemoryTrade:
    """The costs of a budget of memory, in bytes.

    budget: the limit.  before, after: the total of the program without and with it.  recomputed: the kernels that run
    again.  moved: the bytes that those read and write.  moved_by_all: the same for the program without the budget."""

    budget: int
    before: int
    after: int
    recomputed: tuple[RepeatedKernels, ...]
    moved: int
    moved_by_all: int

    @property
    def saved(self) -> int:
        """The bytes by which the budget lowers the total."""
        return self.before - self.after

    @staticmethod
    def from_dict(facts: Mapping[str, Any]) -> MemoryTrade:
        rows = (RepeatedKernels(tuple(r["operators"]), r["runs"], r["moved"], r["kept"]) for r in facts["recomputed"])
        numbers = (facts[name] for name in ("moved", "moved_by_all"))
        return MemoryTrade(facts["budget"], facts["before"], facts["after"], tuple(rows), *numbers)

    def __str__(self) -> str:
        lines = [f"memory: {self.after:,} of {self.budget:,} bytes; without the budget {self.before:,}"]
        if not self.recomputed:
            return f"{lines[0]}, so that nothing is computed again"
        runs = sum(r.runs for r in self.recomputed)
        share = self.moved / max(self.moved_by_all, 1)
        lines.append(
            f"{runs} kernels run again and move {self.moved:,} bytes, {share:.1%} of what all kernels move without the "
            "budget (an estimate of the time that is added)"
        )
        lines += [
            f"  {r.runs} x {' + '.join(r.operators)}: {r.kept:,} bytes need not be kept, {r.moved:,} are moved again"
            for r in self.recomputed
        ]
        return "\n".join(lines)


def parse_bytes(value: int | str, name: str) -> int:
    """The number of bytes: an int, or a text such as "2GiB" or "500 MB" (B; KB, MB, GB, TB; KiB, MiB, GiB, TiB).

    name: of the argument. Raises ArgumentError for anything else, and below 1."""
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    matched = _TEXT.fullmatch(value) if isinstance(value, str) else None
    count = int(float(matched[1]) * _UNITS.get(matched[2], 0)) if matched is not None else 0
    if count <= 0:
        expected = f"a positive number of bytes, or a text with a unit ({', '.join(_UNITS)})"
        raise ArgumentError("vm", f"{name} is {value!r}", expected, f'for instance {name}="2GiB"')
    return count


def keep_to_budget(
    function: KernelList, functions: KernelTable, budget: int, complete: Callable[[KernelList, bool], KernelList]
) -> tuple[KernelList, MemoryTrade]:
    """The program with memory assigned, at most `budget` bytes with its parameters: tensors are computed again until it
    fits.

    complete: (list, whether small kernels may be bundled) -> a copy with memory assigned.
    Raises ArgumentError for less than that can reach, NotSupportedError where "main" branches, calls other functions or
    has symbolic sizes."""
    if not function.is_straight:
        raise NotSupportedError(
            "vm",
            "memory_budget is set for a program with branches, loops, calls of functions or symbolic sizes",
            "a straight-line program of known sizes",
            "compile it without memory_budget, or for fixed sizes",
        )
    parameter_bytes = sum(o.bytes for _, value in function.parameters for o in leaves(value))

    def needed_bytes(planned: KernelList) -> int:
        return planned_bytes([planned], functions).total + parameter_bytes

    planned = complete(function, True)
    lowest = before = needed_bytes(planned)
    moved_by_all = sum(call.moved for call in function.calls)
    if before <= budget:
        return planned, MemoryTrade(budget, before, before, (), 0, moved_by_all)
    graph = Dependencies(function)
    target = graph.peak(graph.nodes)[0]
    excess = before - budget
    for attempt in range(_ATTEMPTS):
        target = max(target - excess, 0) if attempt < _ATTEMPTS - 1 else 0
        changed, recomputed = compute_again(function, functions.kernels, target)
        planned = complete(changed, attempt < _BUNDLED and target > 0)
        after = needed_bytes(planned)
        lowest = min(lowest, after)
        if after <= budget:
            moved = sum(r.moved for r in recomputed)
            return planned, MemoryTrade(budget, before, after, recomputed, moved, moved_by_all)
        excess = after - budget
    raise ArgumentError(
        "vm",
        f"memory_budget is {budget:,} bytes; the program needs {before:,}, or {lowest:,} if it computes tensors again",
        f"at least {lowest:,} bytes ({lowest / 2**20:,.1f} MiB)",
        "raise the budget, or use smaller batches or mixed precision",
    )
