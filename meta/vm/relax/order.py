"""The order of kernels that keeps the fewest bytes alive.

Programs come in the order of their trace: casts of weights long before the products that read them, gradients of
weights long after the tensors that they are computed from. Here a kernel that reads parameters alone runs when its
result is first needed, and kernels run as soon as that frees more bytes than they allocate:

    dx = dy @ w; ...; dw = x.T @ dy; update(w, dw)      =>      dx = dy @ w; dw = x.T @ dy; update(w, dw); ...
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import Any, Final

from meta.backend.tvm import adapter as tvm
from meta.vm.relax.lifetimes import Kernel, Lifetimes, lifetimes

_MOST_READERS: Final = 8
"""Kernels that are run at once to free a tensor, at most."""


def order_kernels(module: Any, mutates: Iterable[int]) -> Any:
    """`module` with the kernels of "main" in the order of least memory, or as it is where that has no advantage, and
    where "main" branches, calls other functions or has symbolic sizes.

    mutates: the parameters that "main" writes, whose readers and writers keep their order."""
    found = lifetimes(module, mutates)
    if found is None:
        return module
    late = _late(found)
    orders = [found.kernels, late, _Greedy(found, found.kernels).run(), _Greedy(found, late).run()]
    best = min(orders, key=found.peak)
    if best is orders[0]:
        return module
    name = next(v for v in module.get_global_vars() if v.name_hint == "main")
    main = module[name]
    functions = dict(module.functions.items())
    body = tvm.SeqExpr([tvm.BindingBlock(found.bindings(best))], main.body.body)
    functions[name] = tvm.RelaxFunction(main.params, body, main.ret_ty, main.is_pure, main.attrs)
    return tvm.IRModule(functions, attrs=module.attrs)


def _late(found: Lifetimes) -> list[Kernel]:
    """Kernels that read parameters alone, or the results of such kernels, run when their results are first needed."""
    is_lazy: list[bool] = []
    for kernel in found.kernels:
        is_lazy.append(bool(kernel.writes) and all(is_lazy[i] for i in kernel.after))
    for i, kernel in enumerate(found.kernels):
        # What writes a result or is read by none has to be somewhere.
        is_lazy[i] = is_lazy[i] and bool(kernel.before)
    order: list[Kernel] = []
    done = [False] * len(found.kernels)
    for kernel in found.kernels:
        if is_lazy[kernel.index]:
            continue
        pending = [kernel.index]
        while pending:
            i = pending[-1]
            missing = [j for j in found.kernels[i].after if not done[j]]
            if missing:
                pending += reversed(missing)
                continue
            pending.pop()
            if not done[i]:
                done[i] = True
                order.append(found.kernels[i])
    return order if len(order) == len(found.kernels) else found.kernels


class _Greedy:
    """Follows an order, and runs kernels before their turn where that frees more than it allocates and needs no more
    memory than the order itself."""

    def __init__(self, found: Lifetimes, order: Sequence[Kernel]) -> None:
        self.found = found
        self.order = order
        self.limit = found.peak(order)
        self.rank = {k.index: i for i, k in enumerate(order)}
        self.waiting = [len(k.after) for k in found.kernels]
        self.done = [False] * len(found.kernels)
        self.readers = {t: len(users) for t, users in found.readers.items()}
        self.live = 0
        self.out: list[Kernel] = []

    def run(self) -> list[Kernel]:
        for kernel in self.order:
            if self.done[kernel.index]:
                continue
            candidates = self.execute(kernel)
            heapq.heapify(candidates)
            while candidates:
                group = self.group(heapq.heappop(candidates)[1])
                for each in group:
                    for candidate in self.execute(each):
                        heapq.heappush(candidates, candidate)
        return self.out

    def execute(self, kernel: Kernel) -> list[tuple[int, Any]]:
        """Run a kernel; returns the tensors that may be freed now, by the rank of a kernel that reads them."""
        self.done[kernel.index] = True
        self.out.append(kernel)
        size = self.found.sizes
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
                touched |= dict.fromkeys(self.found.kernels[i].reads)
        return [(self.next_rank(t), t) for t in touched if 0 < self.readers.get(t, 0) <= _MOST_READERS]

    def next_rank(self, tensor: int) -> int:
        return min(self.rank[i] for i in self.found.readers[tensor] if not self.done[i])

    def group(self, tensor: int) -> list[Kernel]:
        """The kernels that free a tensor if that is worth it now; none otherwise."""
        waiting = [i for i in self.found.readers[tensor] if not self.done[i]]
        if not waiting or any(self.waiting[i] for i in waiting):
            return []
        kernels = sorted((self.found.kernels[i] for i in waiting), key=lambda k: self.rank[k.index])
        size, readers = self.found.sizes, dict[int, int]()
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
