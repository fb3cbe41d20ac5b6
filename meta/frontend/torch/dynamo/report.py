"""A report on the graphs of a model under `torch.compile`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

RANDOM = "it draws random numbers, as torch.manual_seed says"
"""The reason for which torch runs every random operator."""


@dataclass(frozen=True, slots=True)
class Fallback:
    """A call that torch runs inside of a program. operator: its name in torch.  reason: why meta does not run it."""

    operator: str
    reason: str


@dataclass(frozen=True, slots=True)
class GraphReport:
    """One graph. kind: "inference", "forward" or "backward".  operators: the number of its calls of operators.
    fallbacks: the calls that torch runs.  by_torch: why torch runs the whole graph, "" if it does not.
    per_size: why the graph is compiled for each of its sizes, "" if one program serves all of them."""

    kind: str
    operators: int
    fallbacks: tuple[Fallback, ...] = ()
    by_torch: str = ""
    per_size: str = ""

    def __str__(self) -> str:
        lines = [f"{self.kind}: {self.operators} operators, {len(self.fallbacks)} by torch"]
        if self.by_torch:
            lines = [f"{self.kind}: all by torch: {self.by_torch}"]
        if self.per_size:
            lines.append(f"  compiled for each size: {self.per_size}")
        counts: dict[Fallback, int] = {}
        for each in self.fallbacks:
            counts[each] = counts.get(each, 0) + 1
        lines += [f"  {each.operator} x {n}: {each.reason}" for each, n in sorted(counts.items(), key=lambda c: -c[1])]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Report:
    """The graphs of a model, in the order in which they were compiled."""

    graphs: tuple[GraphReport, ...]

    @property
    def fallbacks(self) -> dict[str, int]:
        """The operators that torch runs, with the number of their calls in the graphs."""
        counts: dict[str, int] = {}
        for each in self._listed():
            counts[each.operator] = counts.get(each.operator, 0) + 1
        return counts

    def _listed(self) -> Sequence[Fallback]:
        return [each for graph in self.graphs for each in graph.fallbacks]

    def __str__(self) -> str:
        return "\n".join(map(str, self.graphs)) or "no graph was compiled"
