"""Tensors that are computed again where they are read next, so that they need no memory in between.

    a = f(x); ...; y = g(a)      =>      a = f(x); ...; a1 = f(x); y = g(a1)

The kernel that computed a tensor runs once more, on the same operands, so that results stay the same bit by bit. At the
peak of memory, the tensors come first whose kernels move the fewest bytes for each byte that they save.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final

from meta.backend.tvm import adapter as tvm
from meta.vm.relax.lifetimes import KernelCall, Lifetimes, argument_bytes

Kernels = dict[str, tuple[str, ...]]
"""The operators in each kernel."""
_LIBRARY: Final = 16
"""The cost of a byte that a library's kernel moves, in bytes that a compiled kernel moves: libraries multiply
matrices."""
_MOST_RUNS: Final = 4
"""How often a kernel runs again, at most."""
_MOST_ROUNDS: Final = 1000


@dataclass(frozen=True, slots=True)
class RepeatedKernels:
    """Kernels that run again: the operators in them, the number of further runs, the bytes that those read and write,
    and the bytes of results that need not be kept."""

    operators: tuple[str, ...]
    runs: int
    moved: int
    kept: int


@dataclass(slots=True, eq=False)
class _Node:
    """A run of a kernel. names: the tensors that it reads and writes, by their variables.  again: not the first run."""

    kernel: KernelCall
    names: dict[Any, int]
    reads: list[int]
    writes: list[int]
    again: bool = False


class Rematerialiser:
    """Plans for one module. peak: the bytes of living tensors at its peak."""

    def __init__(self, module: Any, kernels: Kernels, lives: Lifetimes) -> None:
        self.module = module
        self.kernels = kernels
        self.lives = lives
        self.peak = lives.peak(lives.kernels)[0]

    def run(self, target: int) -> tuple[Any, tuple[RepeatedKernels, ...]]:
        """The module with tensors computed again until at most `target` bytes live, or as few as possible."""
        plan = _RecomputationPlan(self.lives, target)
        plan.run()
        if not any(n.again for n in plan.nodes):
            return self.module, ()
        name = next(v for v in self.module.get_global_vars() if v.name_hint == "main")
        main = self.module[name]
        body = tvm.SeqExpr([tvm.BindingBlock(plan.bindings())], main.body.body)
        functions = dict(self.module.functions.items())
        functions[name] = tvm.RelaxFunction(main.params, body, main.ret_ty, main.is_pure, main.attrs)
        module = tvm.relax_transform.Normalize()(tvm.IRModule(functions, attrs=self.module.attrs))
        return module, self.report(plan)

    def report(self, plan: _RecomputationPlan) -> tuple[RepeatedKernels, ...]:
        """The kernels that run again, most bytes saved first."""
        rows: dict[tuple[str, ...], list[int]] = {}
        for node in plan.nodes:
            if node.again:
                call = node.kernel.step.value
                name = call.op.name_hint if isinstance(call.op, tvm.GlobalVar) else str(call.op.global_symbol)
                row = rows.setdefault(self.kernels.get(name, (name,)), [0, 0, 0])
                byte_count = sum(plan.sizes[t] for t in node.writes if plan.readers.get(t))
                for i, value in enumerate((1, plan.moved[node.kernel.index], byte_count)):
                    row[i] += value
        return tuple(sorted((RepeatedKernels(ops, *row) for ops, row in rows.items()), key=lambda r: -r.kept))


class _RecomputationPlan:
    """The runs of kernels in order. sizes, origins: of tensors, those that are computed again included."""

    def __init__(self, lives: Lifetimes, target: int) -> None:
        self.lives = lives
        self.target = target
        self.sizes = list(lives.sizes)
        self.origins = list(lives.tensors)
        numbers = {var: t for t, var in enumerate(lives.tensors)}
        self.nodes: list[_Node] = []
        for kernel in lives.kernels:
            roots = dict.fromkeys(lives.steps.root(v) for v in kernel.step.uses)
            names = {r: numbers[r] for r in roots if r in numbers}
            self.nodes.append(_Node(kernel, names, list(kernel.reads), list(kernel.writes)))
        self.runs = [1] * len(lives.kernels)
        self.pure = [self.is_pure(kernel) for kernel in lives.kernels]
        self.moved = [sum(map(argument_bytes, k.step.value.args)) for k in lives.kernels]
        """The bytes that each kernel reads and writes."""
        self.readers: dict[int, list[int]] = {}
        self.writers: dict[int, int] = {}
        self.position = [0] * len(lives.kernels)
        """Where each kernel runs for the first time."""
        self.live: list[int] = []

    def run(self) -> None:
        """Compute tensors again, round by round; ends with the plan of the lowest peak."""
        best, lowest = list(self.nodes), -1
        for _ in range(_MOST_ROUNDS):
            self.measure()
            peak = max(self.live, default=0)
            if lowest < 0 or peak < lowest:
                best, lowest = [_Node(n.kernel, n.names, n.reads, n.writes, n.again) for n in self.nodes], peak
            if peak <= self.target or not self.improve(self.live.index(peak)):
                break
        self.nodes = best
        self.measure()

    def measure(self) -> None:
        """Find where each tensor is written and read, and the bytes that live during each run."""
        self.readers, self.writers = {}, {}
        for i, node in enumerate(self.nodes):
            if not node.again:
                self.position[node.kernel.index] = i
            for t in node.writes:
                self.writers[t] = i
            for t in node.reads:
                self.readers.setdefault(t, []).append(i)
        changes = [0] * (len(self.nodes) + 1)
        for t, first in self.writers.items():
            changes[first] += self.sizes[t]
            changes[self.last(t) + 1] -= self.sizes[t]
        self.live = list(accumulate(changes))[:-1]

    def last(self, tensor: int) -> int:
        """The last run that reads or writes a tensor."""
        reads = self.readers.get(tensor)
        return reads[-1] if reads else self.writers[tensor]

    def improve(self, peak: int) -> bool:
        """Compute again what lives at the peak and is not used there; False if there is nothing."""
        choices = sorted(self.choices(peak), key=lambda c: c[0])
        need = self.live[peak] - self.target
        inserted: list[tuple[int, _Node]] = []
        used: set[int] = set()
        for _, gain, tensors, use in choices:
            node = self.nodes[self.writers[tensors[0]]]
            if need <= 0:
                break
            if used & {*tensors, *node.reads}:
                continue
            used |= {*tensors, *node.reads}
            need -= gain
            inserted.append((use, self.copy(node, tensors, peak)))
        for use, node in sorted(inserted, key=lambda item: -item[0]):
            self.nodes.insert(use, node)
        return bool(inserted)

    def choices(self, peak: int) -> list[tuple[float, int, list[int], int]]:
        """For each kernel whose results are only kept at the peak: the cost of a byte, the bytes that are saved, the
        tensors, and the next run that reads one of them."""
        candidates: list[tuple[float, int, list[int], int]] = []
        for i in range(peak):
            node = self.nodes[i]
            if not self.pure[node.kernel.index] or self.runs[node.kernel.index] > _MOST_RUNS:
                continue
            results = [t for t in node.writes if self.last(t) > peak and peak not in self.readers[t]]
            if not results:
                continue
            use = min(r for t in results for r in self.readers[t] if r > peak)
            if not self.unchanged(node.kernel, use):
                continue
            gain = sum(self.sizes[t] for t in results) - sum(self.sizes[t] for t in node.reads if self.last(t) < peak)
            if gain > 0:
                candidates.append((self.moved[node.kernel.index] * self.weight(node.kernel) / gain, gain, results, use))
        return candidates

    def copy(self, node: _Node, tensors: Sequence[int], peak: int) -> _Node:
        """Another run of a kernel, whose results the runs after the peak read."""
        names = dict(node.names)
        new: dict[int, int] = {}
        for var, t in node.names.items():
            if t in node.writes:
                new[t] = names[var] = len(self.sizes)
                self.sizes.append(self.sizes[t])
                self.origins.append(self.origins[t])
        for t in tensors:
            for i in self.readers[t]:
                if i > peak:
                    reader = self.nodes[i]
                    reader.names = {v: new[t] if n == t else n for v, n in reader.names.items()}
                    reader.reads = [new[t] if n == t else n for n in reader.reads]
        self.runs[node.kernel.index] += 1
        return _Node(node.kernel, names, list(node.reads), [new[t] for t in node.writes], again=True)

    def is_pure(self, kernel: KernelCall) -> bool:
        """Whether a kernel writes only new tensors, no results and no parameters."""
        steps = self.lives.steps
        for root in {steps.root(v) for v in kernel.step.uses} & self.lives.last_users.keys():
            is_last = self.lives.last_users[root] == kernel.index
            if steps.users(root)[0] is kernel.step if steps.is_new(root) else is_last:
                return False
        return bool(kernel.writes)

    def unchanged(self, kernel: KernelCall, use: int) -> bool:
        """Whether the parameters that a kernel reads are as they were, just before the run at `use`."""
        roots = (self.lives.steps.root(v) for v in kernel.step.uses)
        writers = [self.lives.last_users[r] for r in roots if r in self.lives.last_users]
        return all(self.position[i] >= use for i in writers)

    def weight(self, kernel: KernelCall) -> int:
        return 1 if isinstance(kernel.step.value.op, tvm.GlobalVar) else _LIBRARY

    def bindings(self) -> list[Any]:
        """The body of "main", with memory for the tensors that are computed again."""
        return _Body(self).run()


class _Body:
    """Bindings for the runs of a plan."""

    def __init__(self, plan: _RecomputationPlan) -> None:
        self.plan = plan
        self.steps = plan.lives.steps
        self.out: list[Any] = []
        self.placed: dict[Any, Any] = {}

    def run(self) -> list[Any]:
        for node in self.plan.nodes:
            call = node.kernel.step.value
            args = [self.argument(a, node) if isinstance(a, tvm.RelaxVar) else a for a in call.args]
            var = (
                tvm.RelaxVar(node.kernel.step.var.name, node.kernel.step.var.ty) if node.again else node.kernel.step.var
            )
            self.out.append(tvm.VarBinding(var, tvm.RelaxCall(call.op, args, call.attrs, call.ty_args)))
        for step in self.plan.lives.rest:
            for var in step.uses:
                self.defined(var)
            self.out.append(step.binding)
        for var in tvm.relax.analysis.free_vars(self.plan.lives.result):
            self.defined(var)
        return self.out

    def argument(self, var: Any, node: _Node) -> Any:
        """An argument of a run: the tensor that it uses, or a view of that."""
        root = self.steps.root(var)
        tensor = node.names.get(root)
        if tensor is None or tensor < len(self.plan.lives.tensors):
            return self.defined(var)
        if tensor not in self.placed:
            allocation = tvm.relax.op.builtin.alloc_tensor(root.ty.shape, str(root.ty.dtype), 0)
            self.placed[tensor] = tvm.RelaxVar(f"{root.name}_again", root.ty)
            self.out.append(tvm.VarBinding(self.placed[tensor], allocation))
        if var == root:
            return self.placed[tensor]
        key = tensor, var
        if key not in self.placed:
            self.placed[key] = tvm.RelaxVar(f"{var.name}_again", var.ty)
            self.out.append(tvm.VarBinding(self.placed[key], tvm.relax.op.reshape(self.placed[tensor], var.ty.shape)))
        return self.placed[key]

    def defined(self, var: Any) -> Any:
        """A variable of the program, whose definition is placed before its first use."""
        step = self.steps.definition(var)
        if step is not None and var not in self.placed:
            self.placed[var] = var
            for each in step.uses:
                self.defined(each)
            self.out.append(step.binding)
        return var
