"""Sharded parameters that are gathered twice, so that they need no memory in between.

    w = all_gather(shard); y = f(x, w); ...; dx = g(dy, w)      =>      w = all_gather(shard); y = f(x, w); ...;
                                                                       w1 = all_gather(shard); dx = g(dy, w1)

The forward pass reads the parameters of one layer after the other, the backward pass in the opposite order: whole
parameters would live in between. A tensor is gathered once more where two of its readers come before and after readers
of several other gathered tensors. The second time reads the shards as they are before their update.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence, Set
from itertools import pairwise

from meta._generated import limits
from meta.vm.plan.graph import Dependencies, OrderedCall
from meta.vm.plan.kernels import PLANNED, KernelCall, KernelList, Memory, Tensor


def kernels_of_state(graph: Dependencies, state: Set[Memory]) -> list[bool]:
    """Whether each kernel reads only state, or the results of such kernels, and other kernels need it.

    state: the memory of the parameters that the program writes."""
    of_state: list[bool] = []
    for node in graph.nodes:
        memory = [o.tensor.memory for o in node.call.operands]
        reads_state = all(m.kind == PLANNED or m in state for m in memory)
        of_state.append(bool(node.writes and node.before) and reads_state and all(of_state[i] for i in node.after))
    return of_state


def sources_of_state(graph: Dependencies, of_state: Sequence[bool]) -> list[set[int]]:
    """For each kernel, the kernels of state that its operands come from; those that have to run before it for another
    reason are no sources."""
    writers = {t: node.index for node in graph.nodes for t in node.writes}
    sources: list[set[int]] = []
    for node in graph.nodes:
        before = {writers[t] for t in node.reads}
        sources.append({j for i in before if of_state[i] for j in (i, *sources[i])})
    return sources


def gather_again(function: KernelList, graph: Dependencies, gathers: Set[int], of_state: Sequence[bool]) -> bool:
    """Give the list a second run of the kernels of state that compute gathered tensors. Returns whether it has any.

    gathers: the collectives of state, by number.  of_state: see `kernels_of_state`."""
    plan = _GatherPlan(graph, gathers, of_state)
    if plan.second:
        function.steps = list(plan.calls())
    return bool(plan.second)


class _GatherPlan:
    """sources: see `sources_of_state`.  second: collective -> the first kernel that
    reads what is gathered the second time.  copies: tensor of the first run -> tensor of the second."""

    def __init__(self, graph: Dependencies, gathers: Set[int], of_state: Sequence[bool]) -> None:
        self.graph = graph
        self.of_state = of_state
        self.sources = sources_of_state(graph, of_state)
        self.copies: dict[Tensor, Tensor] = {}
        uses: dict[int, list[int]] = {i: [] for i in sorted(gathers)}
        for node in graph.nodes:
            if not of_state[node.index]:
                for i in self.sources[node.index] & gathers:
                    uses[i].append(node.index)
        second = {i: _second_use(i, uses) for i in uses}
        writers = {j for j in graph.writers.values() if of_state[j]}
        self.second = {i: first for i, first in second.items() if first and not self.related(i) & writers}

    def related(self, gather: int) -> set[int]:
        """The kernels of state that compute what is gathered, or from that."""
        readers = {i for i, sources in enumerate(self.sources) if self.of_state[i] and gather in sources}
        return {gather} | self.sources[gather] | readers

    def second_runs(self, node: OrderedCall) -> list[int]:
        """The kernels of state whose second run a kernel needs, in order."""
        sources = set[int]() if self.of_state[node.index] else self.sources[node.index]
        late = {i for i in sources if self.second.get(i, node.index + 1) <= node.index}
        before = {j for i in late for j in self.sources[i]}
        return sorted(j for j in sources if j in late or j in before or late & self.sources[j])

    def calls(self) -> list[KernelCall]:
        """The calls with the second runs, each before the first kernel that reads their results, and before what they
        read is written."""
        early: dict[int, list[int]] = {}
        runs = {node.index: found for node in self.graph.nodes if (found := self.second_runs(node))}
        for index, found in runs.items():
            early.setdefault(min(index, *map(self.first_writer, found)), []).extend(found)
        out: list[KernelCall] = []
        for node in self.graph.nodes:
            for index in early.get(node.index, ()):
                call = self.graph.nodes[index].call
                if call.results[0] not in self.copies:
                    self.copies.update({t: t.again() for t in call.results})
                    out.append(call.renamed(self.copies))
            made = {t for i in runs.get(node.index, ()) for t in self.graph.nodes[i].call.results}
            out.append(node.call.renamed({t: self.copies[t] for t in made}) if made else node.call)
        return out

    def first_writer(self, index: int) -> int:
        """The first kernel that writes a parameter which the second run of a kernel reads."""
        read = (o.tensor.memory for o in self.graph.nodes[index].call.reads)
        return min((self.graph.writers[m] for m in read if m in self.graph.writers), default=len(self.graph.nodes) - 1)


def _second_use(gather: int, uses: Mapping[int, Sequence[int]]) -> int:
    """The reader of a gathered tensor before which, since its last reader, most others were read; 0 where those are
    few."""
    most, second = limits.GATHERED_BETWEEN - 1, 0
    for last, first in pairwise(uses[gather]):
        others = sum(bisect_right(u, last) < bisect_left(u, first) for i, u in uses.items() if i != gather)
        if others > most:
            most, second = others, first
    return second
