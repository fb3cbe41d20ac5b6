"""Programs within a budget of memory: tensors are computed again where they are read next, and need none in between.

    a = f(x); ...; y = g(a)      =>      a = f(x); ...; a1 = f(x); y = g(a1)

The kernel that computed a tensor runs once more, on the same operands, so that results stay the same bit by bit. At the
peak of memory, the tensors come first whose kernels move the fewest bytes for each byte that they save.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, Final

from meta._generated import limits
from meta.errors import ArgumentError, NotSupportedError
from meta.vm.plan.functions import Kernels, KernelTable
from meta.vm.plan.graph import Dependencies, OrderedCall
from meta.vm.plan.kernels import KernelCall, KernelList, Step, leaves
from meta.vm.plan.memory import planned_bytes


@dataclass(frozen=True, slots=True)
class RepeatedKernels:
    """Kernels that run again: the operators in them, the number of further runs, the bytes that those read and write,
    and the bytes of results that need not be kept."""

    operators: tuple[str, ...]
    runs: int
    moved: int
    kept: int


@dataclass(slots=True, eq=False)
class _Run:
    """A run of a kernel. reads, writes: numbers of tensors.  again: not the first run."""

    node: OrderedCall
    reads: list[int]
    writes: list[int]
    again: bool = False


def compute_again(
    function: KernelList, kernels: Kernels, target: int
) -> tuple[KernelList, tuple[RepeatedKernels, ...]]:
    """A straight list that computes tensors again until at most `target` bytes of them live, or as few as possible; and
    the kernels that it repeats, most bytes saved first."""
    plan = _RecomputationPlan(Dependencies(function), target)
    plan.run()
    if not any(run.again for run in plan.runs):
        return function, ()
    return replace(function, steps=plan.calls()), plan.report(kernels)


class _RecomputationPlan:
    """The runs of kernels in order. sizes, tensors: of those that are computed again too.  live: the bytes that live
    during each run."""

    def __init__(self, graph: Dependencies, target: int) -> None:
        self.graph = graph
        self.target = target
        self.sizes = list(graph.sizes)
        self.tensors = list(graph.tensors)
        self.runs = [_Run(n, list(n.reads), list(n.writes)) for n in graph.nodes]
        self.counts = [1] * len(graph.nodes)
        # A kernel may run again if all that it writes is planned memory.
        self.pure = [bool(n.writes) and len(n.writes) == len(n.call.results) for n in graph.nodes]
        self.readers: dict[int, list[int]] = {}
        self.writers: dict[int, int] = {}
        self.position = [0] * len(graph.nodes)
        """Where each kernel runs for the first time."""
        self.live: list[int] = []

    def run(self) -> None:
        """Compute tensors again, round by round; ends with the plan of the lowest peak."""
        most_rounds = 1000
        best, lowest = list(self.runs), -1
        for _ in range(most_rounds):
            self.measure()
            peak = max(self.live, default=0)
            if lowest < 0 or peak < lowest:
                best, lowest = [_Run(r.node, r.reads, r.writes, r.again) for r in self.runs], peak
            if peak <= self.target or not self.improve(self.live.index(peak)):
                break
        self.runs = best
        self.measure()

    def measure(self) -> None:
        """Find where each tensor is written and read, and the bytes that live during each run."""
        self.readers, self.writers = {}, {}
        for i, run in enumerate(self.runs):
            if not run.again:
                self.position[run.node.index] = i
            for t in run.writes:
                self.writers[t] = i
            for t in run.reads:
                self.readers.setdefault(t, []).append(i)
        changes = [0] * (len(self.runs) + 1)
        for t, first in self.writers.items():
            changes[first] += self.sizes[t]
            changes[self.last(t) + 1] -= self.sizes[t]
        self.live = list(accumulate(changes))[:-1]

    def last(self, tensor: int) -> int:
        """The last run that reads or writes a tensor."""
        reads = self.readers.get(tensor)
        return reads[-1] if reads else self.writers[tensor]

    def improve(self, peak: int) -> bool:
        """Compute again what lives at the peak and is not used there; False if there is nothing."""
        choices = sorted(self.choices(peak), key=lambda c: c[0])
        need = self.live[peak] - self.target
        inserted: list[tuple[int, _Run]] = []
        used: set[int] = set()
        for _, gain, tensors, use in choices:
            run = self.runs[self.writers[tensors[0]]]
            if need <= 0:
                break
            if used & {*tensors, *run.reads}:
                continue
            used |= {*tensors, *run.reads}
            need -= gain
            inserted.append((use, self.again(run, tensors, peak)))
        for use, run in sorted(inserted, key=lambda item: -item[0]):
            self.runs.insert(use, run)
        return bool(inserted)

    def choices(self, peak: int) -> list[tuple[float, int, list[int], int]]:
        """For each kernel whose results are only kept at the peak: the cost of a byte, the bytes that are saved, the
        tensors, and the next run that reads one of them."""
        candidates: list[tuple[float, int, list[int], int]] = []
        for i in range(peak):
            run = self.runs[i]
            index, call = run.node.index, run.node.call
            if not self.pure[index] or self.counts[index] > limits.KERNEL_RUNS:
                continue
            results = [t for t in run.writes if self.last(t) > peak and peak not in self.readers[t]]
            if not results:
                continue
            use = min(r for t in results for r in self.readers[t] if r > peak)
            if not self.unchanged(call, use):
                continue
            gain = sum(self.sizes[t] for t in results) - sum(self.sizes[t] for t in run.reads if self.last(t) < peak)
            if gain > 0:
                weight = limits.LIBRARY_BYTE_COST if call.packed else 1
                candidates.append((call.moved * weight / gain, gain, results, use))
        return candidates

    def unchanged(self, call: KernelCall, use: int) -> bool:
        """Whether the parameters that a kernel reads are as they were, just before the run at `use`."""
        old = (o.tensor.memory for o in call.reads if o.tensor not in self.graph.makers)
        writers = [self.graph.writers[m] for m in old if m in self.graph.writers]
        return all(self.position[i] >= use for i in writers)

    def again(self, run: _Run, tensors: Sequence[int], peak: int) -> _Run:
        """Another run of a kernel, whose results the runs after the peak read."""
        new = {t: len(self.sizes) + i for i, t in enumerate(run.writes)}
        for t in run.writes:
            self.sizes.append(self.sizes[t])
            self.tensors.append(self.tensors[t].again())
        for t in tensors:
            for i in self.readers[t]:
                if i > peak:
                    self.runs[i].reads = [new[t] if n == t else n for n in self.runs[i].reads]
        self.counts[run.node.index] += 1
        return _Run(run.node, list(run.reads), list(new.values()), again=True)

    def calls(self) -> list[Step]:
        """The calls of the runs."""
        out: list[Step] = []
        for run in self.runs:
            numbers = [*zip(run.node.reads, run.reads, strict=True), *zip(run.node.writes, run.writes, strict=True)]
            names = {self.tensors[old]: self.tensors[new] for old, new in numbers if old != new}
            out.append(run.node.call.renamed(names) if names else run.node.call)
        return out

    def report(self, kernels: Kernels) -> tuple[RepeatedKernels, ...]:
        """The kernels that run again, most bytes saved first."""
        rows: dict[tuple[str, ...], list[int]] = {}
        for run in self.runs:
            if run.again:
                call = run.node.call
                row = rows.setdefault(kernels.get(call.function, (call.function,)), [0, 0, 0])
                kept = sum(self.sizes[t] for t in run.writes if self.readers.get(t))
                for i, value in enumerate((1, call.moved, kept)):
                    row[i] += value
        return tuple(sorted((RepeatedKernels(ops, *row) for ops, row in rows.items()), key=lambda r: -r.kept))


# --- the budget ------------------------------------------------------------------------------------------------------


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
