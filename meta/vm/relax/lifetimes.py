"""The kernels of a straight-line "main" with explicit memory, the tensors between them, and how long those live."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import prod
from typing import Any

from meta.backend.tvm import adapter as tvm
from meta.dtype import itemsize
from meta.vm.relax.steps import Step, Steps, is_kernel, op_name


@dataclass(slots=True, eq=False)
class KernelCall:
    """A call of a kernel. reads, writes: the new tensors, by number.  after, before: the kernels that must run before
    and after it, by index."""

    index: int
    step: Step
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    after: set[int] = field(default_factory=set[int])
    before: set[int] = field(default_factory=set[int])


@dataclass(frozen=True, slots=True, eq=False)
class Lifetimes:
    """kernels: in order.  tensors: the variables of the new tensors; those of results are not among them.
    sizes: their bytes.  readers: tensor -> the kernels that read it.  steps: all steps of "main".
    rest: the steps that make tuples of results.  result: what "main" returns.
    last_users: for results, and parameters that "main" writes, the last kernel to use them, which writes the latter."""

    kernels: list[KernelCall]
    tensors: list[Any]
    sizes: list[int]
    readers: dict[int, list[int]]
    steps: Steps
    rest: list[Step]
    result: Any
    last_users: dict[Any, int]

    def peak(self, order: Sequence[KernelCall]) -> tuple[int, int]:
        """The most bytes of tensors that live at one time, and the sum of the bytes that live after each kernel."""
        left = {t: len(users) for t, users in self.readers.items()}
        live = peak = total = 0
        for kernel in order:
            live += sum(self.sizes[t] for t in kernel.writes)
            peak = max(peak, live)
            for t in kernel.reads:
                left[t] -= 1
                live -= 0 if left[t] else self.sizes[t]
            live -= sum(self.sizes[t] for t in kernel.writes if not left.get(t))
            total += live
        return peak, total

    def live(self) -> list[int]:
        """The bytes that live while each kernel runs, in the order of `kernels`."""
        changes = [0] * (len(self.kernels) + 1)
        for size, (first, last) in zip(self.sizes, self.spans(), strict=True):
            if first >= 0:
                changes[first] += size
                changes[last + 1] -= size
        return list(accumulate(changes))[:-1]

    def spans(self) -> list[tuple[int, int]]:
        """For each tensor the positions of the kernels that first and last use it."""
        spans = [(-1, -1)] * len(self.tensors)
        for i, kernel in enumerate(self.kernels):
            for t in (*kernel.writes, *kernel.reads):
                spans[t] = (spans[t][0] if spans[t][0] >= 0 else i, i)
        return spans

    def bindings(self, order: Sequence[KernelCall]) -> list[Any]:
        """The body with the kernels in another order: each new tensor and view is made for the first that uses it."""
        bound: set[Any] = set()
        out: list[Any] = []

        def make(var: Any) -> None:
            if var in bound:
                return
            step = self.steps.definition(var)
            if step is None:
                return
            bound.add(var)
            for each in step.uses:
                make(each)
            out.append(step.binding)

        for kernel in order:
            for var in kernel.step.uses:
                make(var)
            out.append(kernel.step.binding)
        for step in self.rest:
            for var in step.uses:
                make(var)
            out.append(step.binding)
        for var in tvm.relax.analysis.free_vars(self.result):
            make(var)
        return out

    def renamed(self, names: Mapping[Any, Any]) -> list[Any]:
        """The body with other variables in place of some new tensors, which are not allocated."""

        def final(var: Any) -> Any:
            while var in names:
                var = names[var]
            return var

        def operand(arg: Any) -> Any:
            return final(arg) if isinstance(arg, tvm.RelaxVar) else arg

        out: list[Any] = []
        for step in self.steps.list:
            if step.var in names:
                continue
            if any(v in names for v in step.uses):
                call = step.value
                step.value = tvm.RelaxCall(call.op, list(map(operand, call.args)), call.attrs, call.ty_args)
            out.append(step.binding)
        return out


def lifetimes(module: Any, mutates: Iterable[int] = ()) -> Lifetimes | None:
    """The kernels and tensors of "main"; None where it branches, calls other functions or has symbolic sizes.

    mutates: the parameters that "main" writes."""
    main = module["main"]
    steps = Steps(main)
    results = _results(main, steps)
    numbers: dict[Any, int] = {}
    tensors: list[Any] = []
    sizes: list[int] = []
    calls: list[Step] = []
    rest: list[Step] = []
    for step in steps.list:
        name = op_name(step.value)
        if name == "relax.builtin.alloc_tensor":
            size = _bytes(step.value)
            if size is None:
                return None
            if step.var not in results:
                numbers[step.var] = len(tensors)
                tensors.append(step.var)
                sizes.append(size)
        elif isinstance(step.value, tvm.RelaxTuple):
            rest.append(step)
        elif is_kernel(step.value) and _returns_nothing(step, module):
            calls.append(step)
        elif name != "relax.reshape" or step.kind is not None:
            return None
    ordered = {main.params[i] for i in mutates}
    return _linked(steps, calls, rest, numbers, tensors, sizes, ordered | results, main.body.body)


def _linked(
    steps: Steps, calls: list[Step], rest: list[Step], numbers: dict[Any, int], tensors: list[Any], sizes: list[int],
    ordered: set[Any], result: Any,
) -> Lifetimes:  # fmt: skip
    """The kernels with their dependencies. ordered: tensors whose users keep their order."""
    kernels: list[KernelCall] = []
    readers: dict[int, list[int]] = {}
    writer: dict[int, int] = {}
    last: dict[Any, int] = {}
    for i, step in enumerate(calls):
        roots = dict.fromkeys(steps.root(v) for v in step.uses)
        used = [numbers[r] for r in roots if r in numbers]
        writes = tuple(t for t in used if t not in writer)
        kernel = KernelCall(i, step, tuple(t for t in used if t in writer), writes)
        kernel.after = {writer[t] for t in kernel.reads} | {last[r] for r in roots if r in ordered and r in last}
        writer.update(dict.fromkeys(writes, i))
        last.update({r: i for r in roots if r in ordered})
        for t in kernel.reads:
            readers.setdefault(t, []).append(i)
        for j in kernel.after:
            kernels[j].before.add(i)
        kernels.append(kernel)
    return Lifetimes(kernels, tensors, sizes, readers, steps, rest, result, last)


def _results(main: Any, steps: Steps) -> set[Any]:
    """The tensors that "main" returns."""
    pending, roots = [main.body.body], set[Any]()
    tuples = {s.var: s.value for s in steps.list if isinstance(s.value, tvm.RelaxTuple)}
    while pending:
        value = pending.pop()
        value = tuples.get(value, value) if isinstance(value, tvm.RelaxVar) else value
        if isinstance(value, tvm.RelaxTuple):
            pending.extend(value.fields)
        else:
            roots.add(steps.root(value))
    return roots


def _returns_nothing(step: Step, module: Any) -> bool:
    """Whether a call writes to its arguments and returns no tensor, which could be one of them."""
    op = step.value.op
    if isinstance(op, tvm.GlobalVar) and not isinstance(module[op], tvm.PrimFunc):
        return False
    kind = step.var.ty
    return not isinstance(kind, tvm.TensorType) and not (isinstance(kind, tvm.TupleType) and len(kind.fields))


def _bytes(allocation: Any) -> int | None:
    sizes = allocation.args[0].values
    if not all(isinstance(d, (int, tvm.IntImm)) for d in sizes):
        return None
    return prod(map(int, sizes)) * itemsize(str(allocation.args[1].value))


def argument_bytes(argument: Any) -> int:
    """The bytes of a tensor with a static size; 0 for any other argument or parameter."""
    kind: Any = argument.ty if isinstance(argument, tvm.RelaxVar) else None
    if not isinstance(kind, tvm.TensorType) or not all(isinstance(d, tvm.IntImm) for d in kind.shape):
        return 0
    return prod(int(d) for d in kind.shape) * itemsize(str(kind.dtype))
