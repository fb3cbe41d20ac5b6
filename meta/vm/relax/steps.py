"""The body of "main", once memory is explicit, as a list of steps that may be reordered and rewritten."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from meta.backend.tvm import adapter as tvm
from meta.records import mutable


@mutable(eq=False)
class Step:
    """A binding: its variable, its value, and the variables the value reads or writes.

    kind: for a binding that defines sizes (a match_cast), the type that has them."""

    var: Any
    value: Any
    uses: list[Any]
    kind: Any = None

    @property
    def binding(self) -> Any:
        if self.kind is None:
            return tvm.VarBinding(self.var, self.value)
        return tvm.MatchCast(self.var, self.value, self.kind)


def step_of(var: Any, value: Any, kind: Any = None) -> Step:
    return Step(var, value, elements(tvm.relax.analysis.free_vars(value)), kind)


def elements(array: Any) -> list[Any]:
    """The elements of an array of TVM, in a quarter of the time of its iterator."""
    get = tvm.array_item
    return [get(array, i) for i in range(len(array))]


def op_name(value: Any) -> str:
    """The Relax operator that a value calls, "" for anything else."""
    return str(getattr(value.op, "name", "")) if isinstance(value, tvm.RelaxCall) else ""


def is_kernel(value: Any) -> bool:
    """Whether it calls a PrimFunc or packed function, which writes its last arguments."""
    return isinstance(value, tvm.RelaxCall) and isinstance(value.op, (tvm.GlobalVar, tvm.ExternFunc))


def takes(value: Any, var: Any) -> bool:
    """Whether `var` is an argument of a call, and not only inside of one."""
    return isinstance(value, tvm.RelaxCall) and any(isinstance(a, tvm.RelaxVar) and a == var for a in value.args)


class Steps:
    """The steps in `list`, and the users of each variable. A view counts as the tensor that it views."""

    def __init__(self, function: Any) -> None:
        self._variables: dict[int, Any] = {}
        self.list = [self._step(b) for block in function.body.blocks for b in elements(block.bindings)]
        self._roots: dict[Any, Any] = {}
        self._views: dict[Any, Step] = {}
        self._views_of: dict[Any, list[Any]] = {}
        self._new: dict[Any, Step] = {}
        self._users: dict[Any, list[Step]] = {}
        for step in self.list:
            name = op_name(step.value)
            if name == "relax.reshape" or step.kind is not None:
                viewed = step.value if step.kind is not None else step.value.args[0]
                root = self._roots[step.var] = self.root(viewed)
                self._views[step.var] = step
                self._views_of.setdefault(root, []).append(step.var)
            elif name == "relax.builtin.alloc_tensor":
                self._new[step.var] = step
            for var in step.uses:
                self._users.setdefault(var, []).append(step)

    def _step(self, binding: Any) -> Step:
        step = step_of(self.unique(binding.var), binding.value)
        step.uses = [self.unique(v) for v in step.uses]
        step.kind = binding.ty if isinstance(binding, tvm.MatchCast) else None
        return step

    def unique(self, var: Any) -> Any:
        """One object of Python for each variable. TVM makes a new one each time, and takes 2 us to compare two."""
        return self._variables.setdefault(var.__chandle__(), var)

    def root(self, var: Any) -> Any:
        """The tensor that a view views; the variable itself for others."""
        return self._roots.get(var, var)

    def is_new(self, var: Any) -> bool:
        """Whether the program allocates it."""
        return var in self._new

    def allocation(self, var: Any) -> Step:
        """The step that allocates a new tensor."""
        return self._new[var]

    def definition(self, var: Any) -> Step | None:
        """The step that makes a new tensor or a view; None for other variables."""
        return self._new.get(var) or self._views.get(var)

    def users(self, var: Any) -> list[Step]:
        """The steps that use the variable itself; the first to use a new tensor is the kernel that writes it."""
        return self._users.get(var, [])

    def take_results(self, function: Any) -> list[Any]:
        """The results of the function; the step that makes a tuple of them is dropped."""
        result = function.body.body
        for step in reversed(self.list):
            if step.var == result and isinstance(step.value, tvm.RelaxTuple):
                self.list.remove(step)
                for var in step.uses:
                    self._users[var].remove(step)
                return list(step.value.fields)
        return list(result.fields) if isinstance(result, tvm.RelaxTuple) else [result]

    def take_views(self, variables: Iterable[Any]) -> list[Step]:
        """Remove the steps that make these views (of parameters) and return them in order."""
        view_steps: set[Step] = set()
        pending = [v for v in variables if v in self._views]
        while pending:
            step = self._views[pending.pop()]
            view_steps.add(step)
            pending += [v for v in step.uses if v in self._views]
        views = [s for s in self.list if s in view_steps]
        self.list = [s for s in self.list if s not in view_steps]
        return views

    def prepend(self, steps: list[Step]) -> None:
        """Put new steps first."""
        self.list[:0] = steps
        for step in steps:
            if op_name(step.value) == "relax.builtin.alloc_tensor":
                self._new[step.var] = step
            for var in step.uses:
                if step not in self._users.setdefault(var, []):
                    self._users[var].insert(0, step)

    def replace(self, old: Any, new: Any) -> None:
        """Use `new` in place of the new tensor `old`, and drop the allocation of `old`."""
        for step in self._users.pop(old):
            args = [new if isinstance(a, tvm.RelaxVar) and a == old else a for a in step.value.args]
            step.value = tvm.RelaxCall(step.value.op, args, step.value.attrs, step.value.ty_args)
            step.uses = list(tvm.relax.analysis.free_vars(step.value))
            if step not in self._users.setdefault(new, []):
                self._users[new].append(step)
        self.list.remove(self._new.pop(old))

    def read_after(self, var: Any, step: Step) -> bool:
        """Whether a step after `step` uses `var` or a view of it."""
        users = set(self._readers(var))
        return any(s in users for s in self.list[self.list.index(step) + 1 :])

    def run_early(self, updates: list[tuple[Any, Any]]) -> None:
        """Move the kernels that compute only new values of parameters to the first place where their operands exist and
        no later step reads those parameters. Kernels whose values are read before that place stay where they are."""
        targets = dict(updates)
        position = {s: (i, 0) for i, s in enumerate(self.list)}
        movable = [s for s in self.list if is_kernel(s.value) and self._writes_only(s, targets)]
        moved = set(movable)
        for order, step in enumerate(movable, 1):
            written = self._written_by(step)
            predecessors = [self.users(v)[0] for v in step.uses if self.is_new(v) and v not in written]
            predecessors += [self._views[v] for v in step.uses if v in self._views]
            predecessors += [s for v in written for s in self._readers(targets[v]) if s not in moved]
            last = max((position[s][0] for s in predecessors), default=-1)
            if any(position[s][0] <= last for v in written for s in self._readers(v) if s is not step):
                continue
            position[step] = (last, 2 * order)
            for v in written:
                position[self._new[v]] = (last, 2 * order - 1)
        self.list.sort(key=position.__getitem__)

    def _readers(self, var: Any) -> list[Step]:
        """The steps that use a variable or a view of it."""
        return [s for v in (var, *self._views_of.get(var, ())) for s in self.users(v)]

    def _written_by(self, step: Step) -> list[Any]:
        return [v for v in step.uses if self.is_new(v) and self.users(v)[0] is step]

    def _writes_only(self, step: Step, targets: dict[Any, Any]) -> bool:
        written = self._written_by(step)
        return bool(written) and all(v in targets for v in written)
