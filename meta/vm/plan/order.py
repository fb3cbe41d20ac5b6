"""The order of kernels that keeps the fewest bytes alive.

Programs come in the order of their trace: casts of weights long before the products that read them, gradients of
weights long after the tensors that they are computed from. Here a kernel that reads only parameters runs when its
result is first needed, and kernels run as soon as that frees more bytes than they allocate:

    dx = dy @ w; ...; dw = x.T @ dy; update(w, dw)      =>      dx = dy @ w; dw = x.T @ dy; update(w, dw); ...
"""

from __future__ import annotations

from collections.abc import Sequence

from meta._generated import limits
from meta.vm.plan.graph import Dependencies, OrderedCall
from meta.vm.plan.kernels import KernelList


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
