"""Programs within a budget of memory, and what keeping to it costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from meta.errors import ArgumentError, NotSupportedError
from meta.vm.relax.allocations import planned_bytes
from meta.vm.relax.lifetimes import argument_bytes, lifetimes
from meta.vm.relax.rematerialise import Rematerialiser, RepeatedKernels

Kernels = dict[str, tuple[str, ...]]
"""The operators in each kernel."""
Complete = Callable[[Any, bool], tuple[Any, Kernels]]
"""(module, whether small kernels may be bundled) -> the module with memory assigned, and its kernels."""
_ATTEMPTS: Final = 6
_BUNDLED: Final = 3
"""Attempts that bundle small kernels, whose operands and results then live at one time."""


@dataclass(frozen=True, slots=True)
class MemoryTrade:
    """The costs of a budget of memory, in bytes.

    budget: the limit.  before, after: the total of the program without and with it.  recomputed: the kernels that run
    again.  moved: the bytes that those read and write.  moved_by_all: those of the program without the budget."""

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

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

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


def keep_to_budget(
    module: Any, kernels: Kernels, mutates: Sequence[int], budget: int, complete: Complete
) -> tuple[Any, Kernels, MemoryTrade]:
    """The module with memory assigned, at most `budget` bytes with its parameters: tensors are computed again until it
    fits.

    Raises ArgumentError for less than that can reach, NotSupportedError where "main" branches, calls other functions or
    has symbolic sizes."""
    lives = lifetimes(module, mutates)
    if lives is None:
        raise NotSupportedError(
            "vm",
            "memory_budget is set for a program with branches, loops, calls of functions or symbolic sizes",
            "a straight-line program of known sizes",
            "compile it without memory_budget, or for fixed sizes",
        )
    planned, names = complete(module, True)
    before = lowest = _total(planned)
    moved_by_all = sum(argument_bytes(a) for k in lives.kernels for a in k.step.value.args)
    if before <= budget:
        return planned, names, MemoryTrade(budget, before, before, (), 0, moved_by_all)
    search = Rematerialiser(module, kernels, lives)
    target = search.peak
    excess = before - budget
    for attempt in range(_ATTEMPTS):
        target = max(target - excess, 0) if attempt < _ATTEMPTS - 1 else 0
        changed, recomputed = search.run(target)
        planned, names = complete(changed, attempt < _BUNDLED and target > 0)
        after = _total(planned)
        lowest = min(lowest, after)
        if after <= budget:
            moved = sum(r.moved for r in recomputed)
            return planned, names, MemoryTrade(budget, before, after, recomputed, moved, moved_by_all)
        excess = after - budget
    raise ArgumentError(
        "vm",
        f"memory_budget is {budget:,} bytes; the program needs {before:,}, or {lowest:,} if it computes tensors again",
        f"at least {lowest:,} bytes ({lowest / 2**20:,.1f} MiB)",
        "raise the budget, or use smaller batches or mixed precision",
    )


def _total(module: Any) -> int:
    """The bytes of a planned program and of its parameters."""
    plan = planned_bytes(module)
    main = module["main"]
    params = sum(map(argument_bytes, main.params))
    return params + plan.intermediates + plan.outputs + plan.workspace
