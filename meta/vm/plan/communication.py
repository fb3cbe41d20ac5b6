"""Collectives while other kernels run: they start as soon as their operands exist and are waited for late.

    dw2 = ...; s2 = all_reduce(dw2); update(w2, s2); dw1 = ...       =>

    dw2 = ...; start(0, dw2, s2); dw1 = ...; wait(0, dw2, s2); update(w2, s2)

A collective of values that the program computes starts at once, and kernels that need its result are put off while
others can run. A collective that reads only state, such as the gathering of sharded parameters, starts before the
kernel that needs it, and once more where its result is needed much later (`gather_again`). In both cases the operands
and results of collectives in progress are at most `limits.IN_FLIGHT_BYTES` bytes, or belong to a single collective.
Programs that divide parameters or gradients are to have little whole at one time: there the limit is also the size of
the median collective, twice that for values. All ranks have equal programs, and so they start collectives in one
order.

`start` and `wait` have the tensors of the collective as arguments, so that passes after this one keep their memory.

Sharded parameters are gathered twice, so that they need no memory in between.

    w = all_gather(shard); y = f(x, w); ...; dx = g(dy, w)      =>      w = all_gather(shard); y = f(x, w); ...;
                                                                       w1 = all_gather(shard); dx = g(dy, w1)

The forward pass reads the parameters of one layer after the other, the backward pass in the opposite order: whole
parameters would live in between. A tensor is gathered once more where two of its readers come before and after readers
of several other gathered tensors. The second time reads the shards as they are before their update.
"""

from __future__ import annotations

import heapq
import re
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence, Set
from itertools import pairwise
from typing import Final

from meta._generated import limits
from meta.records import record
from meta.vm.lower.choose import ASYNCHRONOUS, WAIT, start_name
from meta.vm.plan.functions import KernelTable
from meta.vm.plan.graph import Dependencies, OrderedCall
from meta.vm.plan.kernels import PARAMETER, PLANNED, KernelCall, KernelList, Memory, Step, Tensor

_COLLECTIVE: Final = re.compile(rf"meta\.torch\.({'|'.join(ASYNCHRONOUS)})\.\w+")


def collective(call: KernelCall) -> str:
    """The name by which a program calls a collective of several ranks, "" for other calls."""
    return call.function if call.packed and _COLLECTIVE.fullmatch(call.function) else ""


def overlap_collectives(function: KernelList, functions: KernelTable) -> None:
    """Put the collectives of a straight list in two halves: the start early, the wait late."""
    state = {param.memory for _, param in function.updates}
    graph = Dependencies(function)
    of_state = kernels_of_state(graph, state)
    gathers = {n.index for n in graph.nodes if of_state[n.index] and collective(n.call)}
    if gathers and gather_again(function, graph, gathers, of_state):
        graph = Dependencies(function)
    _split([node.call for node in _Order(graph, state).run()], function, functions)


class _Order:
    """Runs the kernels of a program in their order, but for collectives, and what feeds or needs them.

    lazy: whether a kernel reads only state; it runs when another needs it.  eager: what runs as soon as it can.
    settled: kernels that no later collective needs, such as updates.  urgent: what runs as soon as it can, because
    collectives in progress take too much memory.
    in_flight: collectives that kernels wait for -> bytes.  ahead: collectives of state that no kernel needed yet."""

    def __init__(self, graph: Dependencies, state: Set[Memory]) -> None:
        self.graph = graph
        self.nodes = graph.nodes
        self.bytes = {k.index: k.call.moved for k in graph.nodes if collective(k.call)}
        self.lazy = kernels_of_state(graph, state)
        self.sources = sources_of_state(graph, self.lazy)
        self.most_ahead, self.most_in_flight = self.limits()
        self.settled = self.last_kernels()
        self.eager = self.feeders()
        self.urgent: set[int] = set()
        self.waiting = [sum(not self.lazy[i] for i in k.after) for k in graph.nodes]
        self.done: set[int] = set()
        self.ready: list[tuple[bool, int]] = []
        self.in_flight: dict[int, int] = {}
        self.ahead: dict[int, int] = {}
        self.out: list[OrderedCall] = []
        self.gathers = iter([n.index for n in graph.late(self.lazy) if self.lazy[n.index] and n.index in self.bytes])
        self.next_gather = next(self.gathers, None)

    def run(self) -> list[OrderedCall]:
        for kernel in self.nodes:
            if not self.lazy[kernel.index] and not self.waiting[kernel.index]:
                self.push(kernel.index)
        self.gather_ahead()
        while self.ready or self.in_flight:
            if not self.ready:
                self.release()
                continue
            index = heapq.heappop(self.ready)[1]
            if index not in self.done:  # urgent kernels are there twice
                self.execute(index)
        return self.out

    # --- what kind each kernel is of ---------------------------------------------------------------------------------

    def feeders(self) -> set[int]:
        """Collectives, and kernels before them whose results nothing else needs, or only updates: accumulated
        gradients are also written to the sums."""
        feeders = {i for i in self.bytes if not self.lazy[i]}
        last = feeders
        for _ in range(limits.COLLECTIVE_FEEDERS):
            before = {j for i in last for j in self.nodes[i].after}
            last = {j for j in before if self.feeds(j, feeders) and not self.lazy[j]} - feeders
            feeders |= last
        return feeders

    def feeds(self, index: int, feeders: Set[int]) -> bool:
        """Whether nothing but these kernels, and updates that read the same results, needs a kernel."""
        kernel = self.nodes[index]
        others = kernel.before - feeders
        return others <= self.settled and all(set(kernel.writes) & set(self.nodes[i].reads) for i in others)

    def last_kernels(self) -> set[int]:
        last: set[int] = set()
        for kernel in reversed(self.nodes):
            if kernel.before <= last and not any(i in self.bytes for i in kernel.before):
                last.add(kernel.index)
        return last

    def limits(self) -> tuple[int, int]:
        """The most bytes of collectives of state that are ahead, and of others in progress."""
        names = [collective(self.nodes[i].call) for i in self.bytes]
        if not any(".reduce_scatter." in name for name in names) and not any(self.lazy[i] for i in self.bytes):
            return limits.IN_FLIGHT_BYTES, limits.IN_FLIGHT_BYTES
        median = sorted(self.bytes.values())[len(self.bytes) // 2]
        return min(limits.IN_FLIGHT_BYTES, median), min(limits.IN_FLIGHT_BYTES, 2 * median)

    # --- running -----------------------------------------------------------------------------------------------------

    def push(self, index: int) -> None:
        heapq.heappush(self.ready, (index not in self.eager and index not in self.urgent, index))

    def need(self, index: int) -> None:
        """Run a kernel of state, and those before it, unless that was done."""
        self.out += self.graph.missing(index, self.done)
        self.ahead.pop(index, None)

    def gather_ahead(self) -> None:
        """Start collectives of state that will be needed next."""
        while self.next_gather is not None:
            index = self.next_gather
            if index not in self.done:
                if self.ahead and sum(self.ahead.values()) + self.bytes[index] > self.most_ahead:
                    return
                self.need(index)
                self.ahead[index] = self.bytes[index]
            self.next_gather = next(self.gathers, None)

    def execute(self, index: int) -> None:
        kernel = self.nodes[index]
        for i in sorted(i for i in kernel.after if self.lazy[i]):
            self.need(i)
        for i in self.sources[index]:
            self.ahead.pop(i, None)
        self.gather_ahead()
        self.done.add(index)
        self.out.append(kernel)
        if index in self.bytes:
            self.in_flight[index] = self.bytes[index]
            while len(self.in_flight) > 1 and sum(self.in_flight.values()) > self.most_in_flight:
                self.release()
        else:
            self.follow(kernel, index in self.urgent and index in self.settled)

    def release(self) -> None:
        """Let kernels that need the oldest collective in progress run."""
        index = next(iter(self.in_flight))
        del self.in_flight[index]
        self.follow(self.nodes[index], True)

    def follow(self, kernel: OrderedCall, urgent: bool) -> None:
        for i in sorted(kernel.before):
            if not self.lazy[i]:
                self.waiting[i] -= 1
                if urgent:
                    self.hurry(i)
                if not self.waiting[i]:
                    self.push(i)

    def hurry(self, index: int) -> None:
        """Run a kernel, and what it waits for, as soon as it can."""
        pending = [index]
        while pending:
            i = pending.pop()
            if i in self.urgent or i in self.done or self.lazy[i]:
                continue
            self.urgent.add(i)
            if not self.waiting[i]:
                self.push(i)
            pending += self.nodes[i].after & self.settled


def _split(calls: list[KernelCall], function: KernelList, functions: KernelTable) -> None:
    """Give the list `start` in the place of each collective, and `wait` before the first later step that touches its
    result or writes its operand."""
    steps: list[Step] = []
    in_progress: dict[int, tuple[KernelCall, set[Memory]]] = {}

    def wait(number: int) -> None:
        started, _ = in_progress.pop(number)
        steps.append(KernelCall(WAIT, True, (number, *started.arguments), {}))

    count = 0
    for call in calls:
        touched = {o.tensor.memory for o in call.operands}
        for number in [n for n, (_, memory) in in_progress.items() if memory & touched]:
            wait(number)
        name = collective(call)
        if not name:
            steps.append(call)
            continue
        writes = {i + 1: t for i, t in call.writes.items()}
        arguments = (count, *call.arguments)
        start = KernelCall(start_name(name), True, arguments, writes, source=call.source or call, starts=name)
        parameters = {o.tensor.memory for o in call.reads if o.tensor.memory.kind == PARAMETER}
        steps.append(start)
        in_progress[count] = call, parameters | {t.memory for t in call.results}
        functions.kernels[start.function] = functions.kernels.get(name, ())
        count += 1
    for number in list(in_progress):
        wait(number)
    functions.kernels[WAIT] = ("wait",)
    function.steps = steps


@record
class Overlap:
    """The kernels between the start of a collective and the wait for it.

    name: of the function that is the whole collective.  size: bytes of its operand.
    kernels: how many other kernels run meanwhile.  bytes: of their operands and results."""

    name: str
    size: int
    kernels: int
    bytes: int


def overlaps(function: KernelList) -> list[Overlap]:
    """For each collective of a planned list what it overlaps with, in the order in which they start."""
    started: dict[int, Overlap] = {}
    in_flight: list[int] = []
    for call in function.calls:
        if call.function == WAIT:
            in_flight.remove(call.arguments[0])
        elif call.starts:
            started[call.arguments[0]] = Overlap(call.starts, call.operands[0].bytes, 0, 0)
            in_flight.append(call.arguments[0])
        else:
            for number in in_flight:
                o = started[number]
                started[number] = Overlap(o.name, o.size, o.kernels + 1, o.bytes + call.moved)
    return list(started.values())


# --- parameters that are gathered twice ------------------------------------------------------------------------------


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
