"""What the calls of a list depend on, and how long its tensors live."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate

from meta.records import record
from meta.vm.plan.kernels import (
    PARAMETER,
    PLANNED,
    KernelCall,
    KernelList,
    Memory,
    ObjectCall,
    Step,
    Tensor,
    leaves,
)


class Aliases:
    """The memory that each tensor may be in. An object may be in the memory of each operand of its call."""

    def __init__(self, steps: Iterable[Step]) -> None:
        self._objects: dict[Tensor, frozenset[Memory]] = {}
        for step in steps:
            if isinstance(step, ObjectCall):
                operands = frozenset(m for o in step.reads for m in self.of(o.tensor))
                self._objects.update(dict.fromkeys(step.results, operands))

    def of(self, tensor: Tensor) -> frozenset[Memory]:
        return frozenset((tensor.memory,)) | self._objects.get(tensor, frozenset())

    def readers(self, steps: Sequence[Step]) -> dict[Memory, list[int]]:
        """Memory -> the steps that may read it, in order."""
        readers: dict[Memory, list[int]] = {}
        for i, step in enumerate(steps):
            for memory in dict.fromkeys(m for o in step.reads for m in self.of(o.tensor)):
                readers.setdefault(memory, []).append(i)
        return readers


def spans(function: KernelList, *kinds: str) -> dict[Memory, tuple[int, int]]:
    """For each memory of some kinds, by default planned memory, the first and last steps that use it; results that may
    be in it are used by the step after the last."""
    kinds = kinds or (PLANNED,)
    found: dict[Memory, tuple[int, int]] = {}
    aliases = Aliases(function.steps)

    def use(tensor: Tensor, i: int) -> None:
        for memory in aliases.of(tensor):
            if memory.kind in kinds:
                found[memory] = (found.get(memory, (i, i))[0], i)

    for i, step in enumerate(function.steps):
        for tensor in (*step.results, *(o.tensor for o in step.reads)):
            use(tensor, i)
    for operand in leaves(function.result):
        use(operand.tensor, len(function.steps))
    return found


@record(eq=False)
class OrderedCall:
    """A call in a graph, by its number. reads, writes: the numbers of the planned tensors.  after, before: the calls
    that have to run before and after it."""

    index: int
    call: KernelCall
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    after: set[int]
    before: set[int]


class Dependencies:
    """The dependencies of a straight list in which no two planned tensors share memory.

    tensors: the planned ones.  sizes: their bytes.  readers: tensor -> the calls that read it.
    makers: tensor -> the call that makes it.  writers: the memory of a parameter -> the call that writes it."""

    def __init__(self, function: KernelList) -> None:
        self.nodes: list[OrderedCall] = []
        self.tensors: list[Tensor] = []
        self.sizes: list[int] = []
        self.readers: dict[int, list[int]] = {}
        self.writers: dict[Memory, int] = {}
        numbers: dict[Tensor, int] = {}
        self.makers: dict[Tensor, int] = {}
        last_user: dict[Memory, int] = {}
        ordered = {param.memory for _, param in function.updates}
        for i, call in enumerate(function.calls):
            read = dict.fromkeys(o.tensor for o in call.reads)
            after = {self.makers[t] for t in read if t in self.makers}
            for t in call.results:
                self.makers[t] = i
                if t.memory.kind == PLANNED:
                    numbers[t] = len(self.tensors)
                    self.tensors.append(t)
                    self.sizes.append(t.bytes)
                elif t.memory.kind == PARAMETER:
                    self.writers[t.memory] = i
            for memory in {o.tensor.memory for o in call.operands} & ordered:  # the calls that use it keep their order
                if memory in last_user:
                    after.add(last_user[memory])
                last_user[memory] = i
            reads = tuple(numbers[t] for t in read if t in numbers)
            node = OrderedCall(i, call, reads, tuple(numbers[t] for t in call.results if t in numbers), after, set())
            for t in reads:
                self.readers.setdefault(t, []).append(i)
            for j in after:
                self.nodes[j].before.add(i)
            self.nodes.append(node)

    def missing(self, index: int, done: set[int]) -> list[OrderedCall]:
        """A call and those that have to run before it, in order, without those in `done`, which gets them."""
        found: list[OrderedCall] = []
        pending = [index]
        while pending:
            before = [i for i in self.nodes[pending[-1]].after if i not in done]
            if before:
                pending += reversed(before)
            elif (i := pending.pop()) not in done:
                done.add(i)
                found.append(self.nodes[i])
        return found

    def late(self, is_lazy: Sequence[bool]) -> list[OrderedCall]:
        """The calls in order, but a lazy call runs when another call first needs it."""
        done: set[int] = set()
        return [each for n in self.nodes if not is_lazy[n.index] for each in self.missing(n.index, done)]

    def peak(self, order: Sequence[OrderedCall]) -> tuple[int, int]:
        """The most bytes of tensors that live at one time, and the sum of the bytes that live after each call."""
        left = {t: len(users) for t, users in self.readers.items()}
        live = peak = total = 0
        for node in order:
            live += sum(self.sizes[t] for t in node.writes)
            peak = max(peak, live)
            for t in node.reads:
                left[t] -= 1
                live -= 0 if left[t] else self.sizes[t]
            live -= sum(self.sizes[t] for t in node.writes if not left.get(t))
            total += live
        return peak, total


def memory_sizes(function: KernelList, *kinds: str) -> dict[Memory, int]:
    """The bytes of each memory of some kinds, by default planned memory."""
    sizes: dict[Memory, int] = {}
    for tensor in function.tensors():
        if tensor.memory.kind in (kinds or (PLANNED,)):
            sizes[tensor.memory] = max(sizes.get(tensor.memory, 0), tensor.bytes)
    return sizes


def live_bytes(function: KernelList, *kinds: str) -> list[int]:
    """The bytes of memory of some kinds, by default planned memory, that live during each step."""
    sizes = memory_sizes(function, *kinds)
    changes = [0] * (len(function.steps) + 2)
    for memory, (first, last) in spans(function, *kinds).items():
        changes[first] += sizes[memory]
        changes[last + 1] -= sizes[memory]
    return list(accumulate(changes))[: len(function.steps)]
