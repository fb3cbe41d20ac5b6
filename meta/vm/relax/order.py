"""The order of kernels that keeps the fewest bytes alive.

Programs come in the order of their trace: casts of weights long before the products that read them, gradients of
weights long after the tensors that they are computed from. Here a kernel that reads only parameters runs when its
result is first needed, and kernels run as soon as that frees more bytes than they allocate:

    dx = dy @ w; ...; dw = x.T @ dy; update(w, dw)      =>      dx = dy @ w; dw = x.T @ dy; update(w, dw); ...
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from meta.backend.tvm import adapter as tvm
from meta.vm.relax.lifetimes import KernelCall, Lifetimes, lifetimes

_MOST_READERS: Final = 8
"""Kernels that are run at once to free a tensor, at most."""
_MOST_SMALL: Final = 32
"""Kernels that are run at once so that a tensor has a single reader left, at most."""

_LARGE: Final = 1 << 20
"""Bytes of results that are worth writing over an operand."""


def order_kernels(module: Any, mutates: Iterable[int]) -> Any:
    """`module` with the kernels of "main" in the order of least memory, or as it is where that has no advantage, and
    where "main" branches, calls other functions or has symbolic sizes.

    mutates: the parameters that "main" writes, whose readers and writers keep their order."""
    lives = lifetimes(module, mutates)
    if lives is None:
        return module
    late = _late(lives)
    orders = [lives.kernels, late, _Greedy(lives, lives.kernels).run(), _Greedy(lives, late).run()]
    best = min(orders, key=lives.peak)
    if best is orders[0]:
        return module
    name = next(v for v in module.get_global_vars() if v.name_hint == "main")
    main = module[name]
    functions = dict(module.functions.items())
    body = tvm.SeqExpr([tvm.BindingBlock(lives.bindings(best))], main.body.body)
    functions[name] = tvm.RelaxFunction(main.params, body, main.ret_ty, main.is_pure, main.attrs)
    return tvm.IRModule(functions, attrs=module.attrs)


def _late(lives: Lifetimes) -> list[KernelCall]:
    """Kernels that read only parameters, or the results of such kernels, run when their results are first needed."""
    is_lazy: list[bool] = []
    for kernel in lives.kernels:
        is_lazy.append(bool(kernel.writes) and all(is_lazy[i] for i in kernel.after))
    for i, kernel in enumerate(lives.kernels):
        # Kernels that write a result, or that no kernel reads, need a place too.
        is_lazy[i] = is_lazy[i] and bool(kernel.before)
    order: list[KernelCall] = []
    done = [False] * len(lives.kernels)
    for kernel in lives.kernels:
        if is_lazy[kernel.index]:
            continue
        pending = [kernel.index]
        while pending:
            i = pending[-1]
            missing = [j for j in lives.kernels[i].after if not done[j]]
            if missing:
                pending += reversed(missing)
                continue
            pending.pop()
            if not done[i]:
                done[i] = True
                order.append(lives.kernels[i])
    return order if len(order) == len(lives.kernels) else lives.kernels


class _Greedy:
    """Follows an order, and runs kernels before their turn where that frees more than it allocates and needs no more
    memory than the order itself."""

    def __init__(self, lives: Lifetimes, order: Sequence[KernelCall]) -> None:
        self.lives = lives
        self.order = order
        self.limit = lives.peak(order)[0]
        self.rank = {k.index: i for i, k in enumerate(order)}
        self.waiting = [len(k.after) for k in lives.kernels]
        self.done = [False] * len(lives.kernels)
        self.readers = {t: len(users) for t, users in lives.readers.items()}
        self.live = 0
        self.out: list[KernelCall] = []

    def run(self) -> list[KernelCall]:
        for kernel in self.order:
            pending = [kernel, *reversed(self.small_readers(kernel))] if not self.done[kernel.index] else []
            while pending:
                each = pending.pop()
                if self.done[each.index]:
                    continue
                for _, tensor in sorted(self.execute(each), key=lambda c: -c[0]):
                    pending += reversed(self.group(tensor))
        return self.out

    def execute(self, kernel: KernelCall) -> list[tuple[int, Any]]:
        """Run a kernel; returns the tensors that may be freed now, by the rank of a kernel that reads them."""
        self.done[kernel.index] = True
        self.out.append(kernel)
        size = self.lives.sizes
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
                touched |= dict.fromkeys(self.lives.kernels[i].reads)
        return [(self.next_rank(t), t) for t in touched if 0 < self.readers.get(t, 0) <= _MOST_READERS]

    def growth(self, kernel: KernelCall) -> int:
        """The bytes that a kernel allocates, less those of the tensors that it is the last to read."""
        size = self.lives.sizes
        freed = sum(size[t] for t in kernel.reads if self.readers[t] == 1)
        return sum(size[t] for t in kernel.writes) - freed

    def small_readers(self, kernel: KernelCall) -> list[KernelCall]:
        """Kernels with small results that could run before `kernel`, which would then be the last to read a tensor that
        is as large as its result, and may write over it."""
        size = self.lives.sizes
        written = {size[t] for t in kernel.writes if size[t] >= _LARGE}
        first: dict[int, None] = {}
        for t in kernel.reads if written else ():
            others = [i for i in self.lives.readers[t] if not self.done[i] and i != kernel.index]
            if size[t] in written and len(others) <= _MOST_READERS:
                first |= dict.fromkeys(self.small_kernels(others, kernel.index, size[t] // 16))
        return [self.lives.kernels[i] for i in sorted(first, key=self.rank.__getitem__)]

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
            total += sum(self.lives.sizes[t] for t in self.lives.kernels[i].writes)
            if i == without or total > limit or len(kernels) > _MOST_SMALL:
                return []
            pending += self.lives.kernels[i].after
        return list(kernels)

    def next_rank(self, tensor: int) -> int:
        return min(self.rank[i] for i in self.lives.readers[tensor] if not self.done[i])

    def group(self, tensor: int) -> list[KernelCall]:
        """The kernels that free a tensor if that is worth it now; none otherwise."""
        waiting = [i for i in self.lives.readers[tensor] if not self.done[i]]
        if not waiting or any(self.waiting[i] for i in waiting):
            return []
        kernels = sorted((self.lives.kernels[i] for i in waiting), key=lambda k: (self.growth(k), self.rank[k.index]))
        size, readers = self.lives.sizes, dict[int, int]()
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
