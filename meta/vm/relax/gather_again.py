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
from typing import Any, Final

from meta.backend.tvm import adapter as tvm
from meta.vm.relax.lifetimes import KernelCall, Lifetimes
from meta.vm.relax.steps import Step

_OTHERS: Final = 2
"""How many other gathered tensors are read between the two times, at least. Around the last layer nothing is freed."""


def kernels_of_state(lives: Lifetimes, state: Set[Any]) -> list[bool]:
    """Whether each kernel reads only state, or the results of such kernels, and other kernels need it.

    state: the parameters that "main" writes."""
    tensors, root = state | set(lives.tensors), lives.steps.root
    of_state: list[bool] = []
    for kernel in lives.kernels:
        reads_state = all(root(v) in tensors for v in kernel.step.uses)
        of_state.append(
            bool(kernel.writes and kernel.before) and reads_state and all(of_state[i] for i in kernel.after)
        )
    return of_state


def gather_again(module: Any, lives: Lifetimes, gathers: Set[int], state: Set[Any]) -> Any:
    """`module` with a second run of the kernels of state that compute gathered tensors.

    gathers: the collectives of state among the kernels, by index.  state: the parameters that "main" writes."""
    plan = _GatherPlan(lives, gathers, kernels_of_state(lives, state))
    if not plan.second:
        return module
    name = next(v for v in module.get_global_vars() if v.name_hint == "main")
    main = module[name]
    functions = dict(module.functions.items())
    body = tvm.SeqExpr([tvm.BindingBlock(plan.bindings())], main.body.body)
    functions[name] = tvm.RelaxFunction(main.params, body, main.ret_ty, main.is_pure, main.attrs)
    return tvm.relax_transform.Normalize()(tvm.IRModule(functions, attrs=module.attrs))


class _GatherPlan:
    """sources: kernel -> the kernels of state that its operands come from.  second: collective -> the first kernel that
    reads what is gathered the second time.  copies: tensors and views of the first run -> those of the second."""

    def __init__(self, lives: Lifetimes, gathers: Set[int], of_state: Sequence[bool]) -> None:
        self.lives = lives
        self.of_state = of_state
        self.sources = self.find_sources()
        self.copies: dict[Any, Any] = {}
        uses: dict[int, list[int]] = {i: [] for i in sorted(gathers)}
        for kernel in lives.kernels:
            if not of_state[kernel.index]:
                for i in self.sources[kernel.index] & gathers:
                    uses[i].append(kernel.index)
        second = {i: _second_use(i, uses) for i in uses}
        writers = {j for j in lives.last_users.values() if of_state[j]}
        self.second = {i: first for i, first in second.items() if first and not self.related(i) & writers}

    def find_sources(self) -> list[set[int]]:
        """From what kernels read; the order of those that use one parameter is no source."""
        writers: dict[int, int] = {}
        sources: list[set[int]] = []
        for kernel in self.lives.kernels:
            before = {writers[t] for t in kernel.reads}
            sources.append({j for i in before if self.of_state[i] for j in (i, *sources[i])})
            writers.update(dict.fromkeys(kernel.writes, kernel.index))
        return sources

    def related(self, gather: int) -> set[int]:
        """The kernels of state that compute what is gathered, or from that."""
        readers = {i for i, sources in enumerate(self.sources) if self.of_state[i] and gather in sources}
        return {gather} | self.sources[gather] | readers

    def second_runs(self, kernel: KernelCall) -> list[int]:
        """The kernels of state whose second run a kernel needs, in order."""
        sources = set[int]() if self.of_state[kernel.index] else self.sources[kernel.index]
        late = {i for i in sources if self.second.get(i, kernel.index + 1) <= kernel.index}
        before = {j for i in late for j in self.sources[i]}
        return sorted(j for j in sources if j in late or j in before or late & self.sources[j])

    def bindings(self) -> list[Any]:
        """The body with the second runs, each before the first kernel that reads their results, and before what they
        read is written."""
        second_runs = {kernel.step: indices for kernel in self.lives.kernels if (indices := self.second_runs(kernel))}
        early: dict[Step, list[int]] = {}
        positions = {kernel.step: kernel.index for kernel in self.lives.kernels}
        for step, indices in second_runs.items():
            place = min(positions[step], *map(self.first_writer, indices))
            early.setdefault(self.lives.kernels[place].step, []).extend(indices)
        out: list[Any] = []
        for step in self.lives.steps.list:
            for index in early.get(step, ()):
                self.run_again(index, out)
            if step in second_runs:
                written = {t for i in second_runs[step] for t in self.lives.kernels[i].writes}
                step.value = self.renamed(step, written, out)
            out.append(step.binding)
        return out

    def first_writer(self, index: int) -> int:
        """The first kernel that writes a parameter which the second run of a kernel reads."""
        roots = {self.lives.steps.root(v) for v in self.lives.kernels[index].step.uses}
        users = self.lives.last_users
        return min((users[r] for r in roots if r in users), default=len(self.lives.kernels) - 1)

    def run_again(self, index: int, out: list[Any]) -> None:
        """Add the bindings of the second run of a kernel, once."""
        kernel = self.lives.kernels[index]
        tensors = [self.lives.tensors[t] for t in kernel.writes]
        if tensors[0] in self.copies:
            return
        for tensor in tensors:
            allocation = tvm.relax.op.builtin.alloc_tensor(tensor.ty.shape, str(tensor.ty.dtype), 0)
            self.copies[tensor] = tvm.RelaxVar(f"{tensor.name}_again", tensor.ty)
            out.append(tvm.VarBinding(self.copies[tensor], allocation))
        copied = {t for t in (*kernel.reads, *kernel.writes) if self.lives.tensors[t] in self.copies}
        var = tvm.RelaxVar(kernel.step.var.name, kernel.step.var.ty)
        out.append(tvm.VarBinding(var, self.renamed(kernel.step, copied, out)))

    def renamed(self, step: Step, tensors: Set[int], out: list[Any]) -> Any:
        """The call of a kernel with tensors of the second run in place of some, and views of them."""
        roots = {self.lives.tensors[t] for t in tensors}

        def argument(arg: Any) -> Any:
            root = self.lives.steps.root(arg) if isinstance(arg, tvm.RelaxVar) else None
            if root is None or root not in roots:
                return arg
            if arg not in self.copies:
                self.copies[arg] = tvm.RelaxVar(f"{arg.name}_again", arg.ty)
                out.append(tvm.VarBinding(self.copies[arg], tvm.relax.op.reshape(self.copies[root], arg.ty.shape)))
            return self.copies[arg]

        call = step.value
        return tvm.RelaxCall(call.op, list(map(argument, call.args)), call.attrs, call.ty_args)


def _second_use(gather: int, uses: Mapping[int, Sequence[int]]) -> int:
    """The reader of a gathered tensor before which, since its last reader, most others were read; 0 where those are
    few."""
    most, second = _OTHERS - 1, 0
    for last, first in pairwise(uses[gather]):
        others = sum(bisect_right(u, last) < bisect_left(u, first) for i, u in uses.items() if i != gather)
        if others > most:
            most, second = others, first
    return second
