"""What the calls of a list depend on, how long its tensors live, and the order that keeps the fewest bytes alive.

Programs come in the order of their trace: casts of weights long before the products that read them, gradients of
weights long after the tensors that they are computed from. Here a kernel that reads only parameters runs when its
result is first needed, and kernels run as soon as that frees more bytes than they allocate:

    dx = dy @ w; ...; dw = x.T @ dy; update(w, dw)      =>      dx = dy @ w; dw = x.T @ dy; update(w, dw); ...
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate

from meta._generated import limits
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


# --- the order of kernels ---------------------------------------------------------------------------------------------


def order_kernels(function: KernelList) -> None:
    """Put the calls of a straight list in the order of least memory, or leave them where that has no advantage."""
    graph = Dependencies(function)
    late = _late(graph)
    orders = [graph.nodes, late, _Greedy(graph, graph.nodes).run(), _Greedy(graph, late).run()]
    best = min(orders, key=graph.peak)
    if best is not orders[0]:
        function.steps = [node.call for node in best]


def _late(graph: Dependencies) -> list[OrderedCall]:
    """Kernels that read only parameters, or the results of such kernels, run when their results are first needed."""
    is_lazy: list[bool] = []
    for kernel in graph.nodes:
        is_lazy.append(bool(kernel.writes) and all(is_lazy[i] for i in kernel.after))
    # Kernels that write a result, or that no kernel reads, need a place too.
    return graph.late([lazy and bool(kernel.before) for lazy, kernel in zip(is_lazy, graph.nodes, strict=True)])


class _Greedy:
    """Follows an order, and runs kernels before their turn where that frees more than it allocates and needs no more
    memory than the order itself."""

    def __init__(self, graph: Dependencies, order: Sequence[OrderedCall]) -> None:
        self.graph = graph
        self.order = order
        self.limit = graph.peak(order)[0]
        self.rank = {k.index: i for i, k in enumerate(order)}
        self.waiting = [len(k.after) for k in graph.nodes]
        self.done = [False] * len(graph.nodes)
        self.readers = {t: len(users) for t, users in graph.readers.items()}
        self.live = 0
        self.out: list[OrderedCall] = []

    def run(self) -> list[OrderedCall]:
        for kernel in self.order:
            pending = [kernel, *reversed(self.small_readers(kernel))] if not self.done[kernel.index] else []
            while pending:
                each = pending.pop()
                if self.done[each.index]:
                    continue
                for _, tensor in sorted(self.execute(each), key=lambda c: -c[0]):
                    pending += reversed(self.group(tensor))
        return self.out

    def execute(self, kernel: OrderedCall) -> list[tuple[int, int]]:
        """Run a kernel; returns the tensors that may be freed now, by the rank of a kernel that reads them."""
        self.done[kernel.index] = True
        self.out.append(kernel)
        size = self.graph.sizes
        self.live += sum(size[t] for t in kernel.writes)
        touched = dict.fromkeys((*kernel.writes, *kernel.reads))
        for t in kernel.reads:
            self.readers[t] -= 1
            if not self.readers[t]:
                self.live -= size[t]
        for t in kernel.writes:
            if not self.readers.get(t):
                self.live -= size[t]
        for i in kernel.before:
            self.waiting[i] -= 1
            if not self.waiting[i]:
                touched |= dict.fromkeys(self.graph.nodes[i].reads)
        return [(self.next_rank(t), t) for t in touched if 0 < self.readers.get(t, 0) <= limits.FREEING_READERS]

    def growth(self, kernel: OrderedCall) -> int:
        """The bytes that a kernel allocates, less the bytes of the tensors that it is the last to read."""
        size = self.graph.sizes
        freed = sum(size[t] for t in kernel.reads if self.readers[t] == 1)
        return sum(size[t] for t in kernel.writes) - freed

    def small_readers(self, kernel: OrderedCall) -> list[OrderedCall]:
        """Kernels with small results that could run before `kernel`, which would then be the last to read a tensor that
        is as large as its result, and may write over it."""
        size = self.graph.sizes
        written = {size[t] for t in kernel.writes if size[t] >= limits.OVERWRITTEN_BYTES}
        first: dict[int, None] = {}
        for t in kernel.reads if written else ():
            others = [i for i in self.graph.readers[t] if not self.done[i] and i != kernel.index]
            if size[t] in written and len(others) <= limits.FREEING_READERS:
                first |= dict.fromkeys(self.small_kernels(others, kernel.index, size[t] // 16))
        return [self.graph.nodes[i] for i in sorted(first, key=self.rank.__getitem__)]

    def small_kernels(self, requested: Sequence[int], without: int, limit: int) -> list[int]:
        """Kernels, and those that must run before them, if all of their results are small and `without` is not one of
        them; none otherwise."""
        kernels: dict[int, None] = {}
        pending = list(requested)
        total = 0
        while pending:
            i = pending.pop()
            if self.done[i] or i in kernels:
                continue
            kernels[i] = None
            total += sum(self.graph.sizes[t] for t in self.graph.nodes[i].writes)
            if i == without or total > limit or len(kernels) > limits.SMALL_KERNELS:
                return []
            pending += self.graph.nodes[i].after
        return list(kernels)

    def next_rank(self, tensor: int) -> int:
        return min(self.rank[i] for i in self.graph.readers[tensor] if not self.done[i])

    def group(self, tensor: int) -> list[OrderedCall]:
        """The kernels that free a tensor if that is worth it now; none otherwise."""
        waiting = [i for i in self.graph.readers[tensor] if not self.done[i]]
        if not waiting or any(self.waiting[i] for i in waiting):
            return []
        kernels = sorted((self.graph.nodes[i] for i in waiting), key=lambda k: (self.growth(k), self.rank[k.index]))
        size, readers = self.graph.sizes, dict[int, int]()
        live = self.live
        for kernel in kernels:
            live += sum(size[t] for t in kernel.writes)
            if live > self.limit:
                return []
            for t in kernel.reads:
                readers[t] = readers.get(t, self.readers[t]) - 1
                if not readers[t]:
                    live -= size[t]
        return kernels if live < self.live else []
