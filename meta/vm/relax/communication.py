"""Collectives while other kernels run: they start as soon as their operands exist and are waited for late.

    dw2 = ...; s2 = all_reduce(dw2); update(w2, s2); dw1 = ...       =>

    dw2 = ...; start(0, dw2, s2); dw1 = ...; wait(0, dw2, s2); update(w2, s2)

A collective of values that the program computes starts at once, and kernels that need its result are put off while
others can run. A collective that reads only state, such as the gathering of sharded parameters, starts before the
kernel that needs it, and once more where its result is needed much later (`gather_again`). In both cases the operands
and results of collectives in progress are at most IN_FLIGHT bytes, or those of a single collective. Programs that
divide parameters or gradients are to have little whole at one time: there the limit is also the size of the median
collective, twice that for values. All ranks have equal programs, and so they start collectives in one order.

`start` and `wait` have the tensors of the collective as arguments, so that passes after this one keep their memory.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Collection, Sequence, Set
from dataclasses import dataclass
from typing import Any, Final

from meta.backend.tvm import adapter as tvm
from meta.vm.lower.choose import WAIT, start_name
from meta.vm.relax.gather_again import gather_again, kernels_of_state
from meta.vm.relax.lifetimes import KernelCall, Lifetimes, argument_bytes, lifetimes
from meta.vm.relax.steps import Step, Steps, is_kernel, step_of

Kernels = dict[str, tuple[str, ...]]
"""The operators in each kernel."""
IN_FLIGHT: Final = 128 << 20
"""Bytes of the operands and results of collectives in progress, at most: five buckets of gradients."""
_FEEDERS: Final = 3
"""How many kernels in a row, the last before a collective, run as soon as they can."""
_COLLECTIVE: Final = re.compile(
    r"meta\.torch\.(all_reduce|all_reduce_when|all_gather|reduce_scatter|broadcast_from|reduce_to|all_to_all|"
    r"send_receive)\.\w+"
)


def collective(value: Any) -> str:
    """The name by which a value calls a collective of several ranks, "" for other values."""
    if not is_kernel(value) or not isinstance(value.op, tvm.ExternFunc):
        return ""
    return collective_name(str(value.op.global_symbol))


def collective_name(name: str) -> str:
    """The name of a function, if it is a collective; else ""."""
    return name if _COLLECTIVE.fullmatch(name) else ""


def overlap_collectives(module: Any, kernels: Kernels, mutates: Collection[int]) -> tuple[Any, Kernels]:
    """`module` with the collectives of "main" in two halves, and the operators in each kernel. Where "main" branches,
    calls other functions or has symbolic sizes, collectives stay whole.

    mutates: the parameters that "main" writes."""
    lives = lifetimes(module, mutates)
    if lives is None or not any(collective(k.step.value) for k in lives.kernels):
        return module, kernels
    name = next(v for v in module.get_global_vars() if v.name_hint == "main")
    main = module[name]
    state = {main.params[i] for i in mutates}
    gathers = {k.index for k, of_state in zip(lives.kernels, kernels_of_state(lives, state), strict=True) if of_state}
    gathers = {i for i in gathers if collective(lives.kernels[i].step.value)}
    if gathers:
        module = gather_again(module, lives, gathers, state)
        main, lives = module[name], lifetimes(module, mutates)
        assert lives is not None
    order = _Order(lives, {main.params[i] for i in mutates}).run()
    ordered = _function(main, lives.bindings(order))
    functions = dict(module.functions.items())
    functions[name], more = _split(ordered, kernels)
    return tvm.IRModule(functions, attrs=module.attrs), {**kernels, **more}


def _function(main: Any, bindings: Sequence[Any]) -> Any:
    body = tvm.SeqExpr([tvm.BindingBlock(list(bindings))], main.body.body)
    return tvm.RelaxFunction(main.params, body, main.ret_ty, main.is_pure, main.attrs)


class _Order:
    """Runs the kernels of a program in their order, but for collectives, and what feeds or needs them.

    lazy: whether a kernel reads only state; it runs when another needs it.  eager: what runs as soon as it can.
    settled: kernels that no later collective needs, such as updates.  urgent: what runs as soon as it can, because
    collectives in progress take too much memory.
    in_flight: collectives that kernels wait for -> bytes.  ahead: collectives of state that no kernel needed yet."""

    def __init__(self, lives: Lifetimes, state: Set[Any]) -> None:
        self.kernels = lives.kernels
        self.bytes = {k.index: _bytes(k) for k in lives.kernels if collective(k.step.value)}
        self.lazy = kernels_of_state(lives, state)
        self.most_ahead, self.most_in_flight = self.limits()
        self.settled = self.last_kernels()
        self.eager = self.feeders()
        self.urgent: set[int] = set()
        self.waiting = [sum(not self.lazy[i] for i in k.after) for k in lives.kernels]
        self.done = [False] * len(lives.kernels)
        self.ready: list[tuple[bool, int]] = []
        self.in_flight: dict[int, int] = {}
        self.ahead: dict[int, int] = {}
        self.out: list[KernelCall] = []
        self.gathers = iter(self.first_needed())
        self.next_gather = next(self.gathers, None)

    def run(self) -> list[KernelCall]:
        for kernel in self.kernels:
            if not self.lazy[kernel.index] and not self.waiting[kernel.index]:
                self.push(kernel.index)
        self.gather_ahead()
        while self.ready or self.in_flight:
            if not self.ready:
                self.release()
                continue
            index = heapq.heappop(self.ready)[1]
            if not self.done[index]:  # urgent kernels are there twice
                self.execute(index)
        for kernel in self.kernels:  # lazy ones that no other kernel needs
            self.need(kernel.index)
        return self.out

    # --- what kind each kernel is of ---------------------------------------------------------------------------------

    def feeders(self) -> set[int]:
        """Collectives, and kernels before them whose results nothing else needs, or only updates: accumulated
        gradients are also written to the sums."""
        feeders = {i for i in self.bytes if not self.lazy[i]}
        last = feeders
        for _ in range(_FEEDERS):
            before = {j for i in last for j in self.kernels[i].after}
            last = {j for j in before if self.feeds(j, feeders) and not self.lazy[j]} - feeders
            feeders |= last
        return feeders

    def feeds(self, index: int, feeders: Set[int]) -> bool:
        """Whether nothing but these kernels, and updates that read the same results, needs a kernel."""
        kernel = self.kernels[index]
        others = kernel.before - feeders
        return others <= self.settled and all(set(kernel.writes) & set(self.kernels[i].reads) for i in others)

    def last_kernels(self) -> set[int]:
        last: set[int] = set()
        for kernel in reversed(self.kernels):
            if kernel.before <= last and not any(i in self.bytes for i in kernel.before):
                last.add(kernel.index)
        return last

    def limits(self) -> tuple[int, int]:
        """The most bytes of collectives of state that are ahead, and of others in progress."""
        names = [collective(self.kernels[i].step.value) for i in self.bytes]
        if not any(".reduce_scatter." in name for name in names) and not any(self.lazy[i] for i in self.bytes):
            return IN_FLIGHT, IN_FLIGHT
        median = sorted(self.bytes.values())[len(self.bytes) // 2]
        return min(IN_FLIGHT, median), min(IN_FLIGHT, 2 * median)

    def first_needed(self) -> list[int]:
        """The collectives of state, in the order in which kernels need them."""
        seen: dict[int, None] = {}
        for kernel in self.kernels:
            if self.lazy[kernel.index]:
                continue
            pending = sorted((i for i in kernel.after if self.lazy[i]), reverse=True)
            while pending:
                i = pending.pop()
                if i not in seen:
                    seen[i] = None
                    pending += sorted((j for j in self.kernels[i].after if self.lazy[j]), reverse=True)
        return [i for i in seen if i in self.bytes]

    # --- running -----------------------------------------------------------------------------------------------------

    def push(self, index: int) -> None:
        heapq.heappush(self.ready, (index not in self.eager and index not in self.urgent, index))

    def need(self, index: int) -> None:
        """Run a kernel of state, and those before it, unless that was done."""
        pending = [index]
        while pending:
            i = pending[-1]
            missing = [j for j in self.kernels[i].after if not self.done[j]]
            if self.done[i] or not missing:
                pending.pop()
                if not self.done[i]:
                    self.done[i] = True
                    self.out.append(self.kernels[i])
                continue
            pending += sorted(missing, reverse=True)
        self.ahead.pop(index, None)

    def gather_ahead(self) -> None:
        """Start collectives of state that will be needed next."""
        while self.next_gather is not None:
            index = self.next_gather
            if not self.done[index]:
                if self.ahead and sum(self.ahead.values()) + self.bytes[index] > self.most_ahead:
                    return
                self.need(index)
                self.ahead[index] = self.bytes[index]
            self.next_gather = next(self.gathers, None)

    def execute(self, index: int) -> None:
        kernel = self.kernels[index]
        for i in sorted(i for i in kernel.after if self.lazy[i]):
            self.need(i)
            self.arrive(i)
        self.gather_ahead()
        self.done[index] = True
        self.out.append(kernel)
        if index in self.bytes:
            self.in_flight[index] = self.bytes[index]
            while len(self.in_flight) > 1 and sum(self.in_flight.values()) > self.most_in_flight:
                self.release()
        else:
            self.follow(kernel, index in self.urgent and index in self.settled)

    def arrive(self, index: int) -> None:
        """The collectives of state before a kernel that runs now are no longer ahead."""
        pending, seen = [index], set[int]()
        while pending and self.ahead:
            i = pending.pop()
            if i not in seen:
                seen.add(i)
                self.ahead.pop(i, None)
                pending += [j for j in self.kernels[i].after if self.lazy[j]]

    def release(self) -> None:
        """Let kernels that need the oldest collective in progress run."""
        index = next(iter(self.in_flight))
        del self.in_flight[index]
        self.follow(self.kernels[index], True)

    def follow(self, kernel: KernelCall, urgent: bool) -> None:
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
            if i in self.urgent or self.done[i] or self.lazy[i]:
                continue
            self.urgent.add(i)
            if not self.waiting[i]:
                self.push(i)
            pending += self.kernels[i].after & self.settled


def _bytes(kernel: KernelCall) -> int:
    return sum(map(argument_bytes, kernel.step.value.args))


def _split(main: Any, kernels: Kernels) -> tuple[Any, Kernels]:
    """`main` with `start` in the place of each collective, and `wait` before the first later step that touches its
    result or writes its operand; the operators of the new kernels."""
    steps = Steps(main)
    new: list[Step] = []
    names: Kernels = {}
    open_calls: dict[int, tuple[Step, set[Any]]] = {}

    def wait(number: int) -> None:
        begun, _ = open_calls.pop(number)
        args = [tvm.IntImm("int64", number), *begun.value.args]
        value = tvm.RelaxCall(tvm.ExternFunc(WAIT), args, ty_args=begun.value.ty_args)
        new.append(step_of(tvm.RelaxVar("_", begun.var.ty), value))

    count = 0
    params = set(main.params)
    for step in steps.list:
        name = collective(step.value)
        if is_kernel(step.value):
            touched = {steps.root(v) for v in step.uses}
            for number in [n for n, (_, tensors) in open_calls.items() if tensors & touched]:
                wait(number)
        if not name:
            new.append(step)
            continue
        *operands, out = step.value.args
        root_tensors = {steps.root(out)} | {steps.root(v) for v in operands if steps.root(v) in params}
        args = [tvm.IntImm("int64", count), *step.value.args]
        value = tvm.RelaxCall(tvm.ExternFunc(start_name(name)), args, ty_args=step.value.ty_args)
        new.append(step_of(step.var, value))
        open_calls[count] = step, root_tensors
        names[start_name(name)] = kernels.get(name, ())
        count += 1
    for number in list(open_calls):
        wait(number)
    names[WAIT] = ("wait",)
    # Tuples of results come last: what is waited for at the end is complete when the program returns.
    return _function(main, [s.binding for s in new]), names


@dataclass(frozen=True, slots=True)
class Overlap:
    """The kernels between the start of a collective and the wait for it.

    name: that by which programs call the whole collective.  size: bytes of its operand.
    kernels: how many other kernels run meanwhile.  bytes: those of their operands and results."""

    name: str
    size: int
    kernels: int
    bytes: int


def overlaps(main: Any) -> list[Overlap]:
    """For each collective of a planned "main" what it overlaps with, in the order in which they start."""
    started: dict[int, Overlap] = {}
    in_flight: list[int] = []
    for step in Steps(main).list:
        call = step.value
        if not is_kernel(call):
            continue
        name = str(call.op.global_symbol) if isinstance(call.op, tvm.ExternFunc) else ""
        if name == WAIT:
            in_flight.remove(int(call.args[0].value))
        elif name.endswith(start_name("")) and collective_name(name.removesuffix(start_name(""))):
            number = int(call.args[0].value)
            started[number] = Overlap(name.removesuffix(start_name("")), argument_bytes(call.args[1]), 0, 0)
            in_flight.append(number)
        else:
            moved = sum(map(argument_bytes, call.args))
            for number in in_flight:
                o = started[number]
                started[number] = Overlap(o.name, o.size, o.kernels + 1, o.bytes + moved)
    return list(started.values())
