"""Parameters that a program replaces keep their memory: their new values are written there.

    alloc = builtin.alloc_tensor(...)          update(w, g)
    update(w, g, alloc)                =>

When the kernel that makes the new value reads the old one, it must be safe to overwrite it on the way (`overlap`); the
kernel then gets one buffer instead of two. Where it is not safe, or another reader follows, the new value is made aside
and copied at the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from meta.op.dialect.tvm import _adapter as tvm
from meta.op.dialect.tvm._schedule import schedule
from meta.vm.overlap import may_share, merged

Kernels = dict[str, tuple[str, ...]]
"""The operators in each kernel."""


@dataclass(slots=True)
class _Step:
    """A binding of "main": its variable, its value, and the variables the value reads or writes."""

    var: Any
    value: Any
    uses: list[Any]


def _step(var: Any, value: Any) -> _Step:
    return _Step(var, value, list(tvm.relax.analysis.free_vars(value)))


def _op_name(value: Any) -> str:
    return str(getattr(value.op, "name", "")) if isinstance(value, tvm.RelaxCall) else ""


def _is_kernel(value: Any) -> bool:
    """Whether it calls a PrimFunc or packed function, which writes its last arguments."""
    return isinstance(value, tvm.RelaxCall) and isinstance(value.op, (tvm.GlobalVar, tvm.ExternFunc))


def update_in_place(
    module: Any, kernels: Kernels, mutates: Mapping[int, int], constants: int, target: Any
) -> tuple[Any, Kernels]:
    """`module` with "main" writing its parameters and returning its other results alone; the kernels, new ones added.

    mutates: result of "main" (a tuple of tensors) -> parameter.  constants: how many of the last parameters hold
    constants of the program, which callers must not get hold of."""
    writer = _Writer(module, kernels, target)
    writer.builder.update_func(writer.name, writer.run(mutates, constants))
    return tvm.relax_transform.Normalize()(writer.builder.get()), writer.kernels


class _Writer:
    def __init__(self, module: Any, kernels: Kernels, target: Any) -> None:
        self.builder = tvm.BlockBuilder(module)
        self.functions: dict[Any, Any] = dict(module.functions.items())
        self.kernels = dict(kernels)
        self.target = target
        self.name = next(name for name in self.functions if name.name_hint == "main")
        self.main = self.functions[self.name]
        self.params: list[Any] = list(self.main.params)
        self.steps = [_step(b.var, b.value) for block in self.main.body.blocks for b in block.bindings]
        self.roots: dict[Any, Any] = {}
        """A view -> what it is a view of."""
        for step in self.steps:
            if _op_name(step.value) == "relax.reshape":
                self.roots[step.var] = self.root(step.value.args[0])
        self.allocated = {s.var for s in self.steps if _op_name(s.value) == "relax.builtin.alloc_tensor"}

    def root(self, var: Any) -> Any:
        return self.roots.get(var, var)

    def run(self, mutates: Mapping[int, int], constants: int) -> Any:
        results = self.results()
        outputs = [r for i, r in enumerate(results) if i not in mutates]
        updates = [(results[i], self.params[at]) for i, at in mutates.items() if results[i] != self.params[at]]
        self.sink([value for value, _ in updates])
        guarded = {param for _, param in updates} | set(self.params[len(self.params) - constants :])
        outputs, updates = self.save_old_values(outputs, updates, guarded)
        for i, (value, param) in enumerate(updates):
            others = [*outputs, *(v for j, (v, _) in enumerate(updates) if j != i)]
            alone = value in self.allocated and all(self.root(r) != value for r in others)
            if not (alone and self.write_directly(value, param)):
                self.copy(value, param, self.steps)
        return self.finished(outputs)

    def results(self) -> list[Any]:
        """The results of "main"; the tuple they are in is dropped."""
        value = self.main.body.body
        for step in self.steps:
            if step.var == value and isinstance(step.value, tvm.RelaxTuple):
                self.steps.remove(step)
                return list(step.value.fields)
        return list(value.fields) if isinstance(value, tvm.RelaxTuple) else [value]

    def sink(self, values: list[Any]) -> None:
        """Move the kernels whose results nobody but the caller reads to the end, after all readers of what they
        overwrite."""
        final = {v for v in values if v in self.allocated}
        late: list[_Step] = []
        for step in reversed(self.steps):
            if not _is_kernel(step.value):
                continue
            made = [v for v in step.uses if v in final and self.producer(v) is step]
            readers = [s for v in made for s in self.steps if v in s.uses and s is not step]
            outs = len(made) and all(any(r is s for s in late) for r in readers)
            if outs and len(made) == self.written_count(step):
                late.append(step)
        self.steps = [s for s in self.steps if not any(s is t for t in late)] + late[::-1]

    def producer(self, value: Any) -> _Step | None:
        """The kernel call that writes an allocated tensor: the first to use it."""
        return next((s for s in self.steps if value in s.uses), None)

    def written_count(self, step: _Step) -> int:
        """How many tensors a kernel call writes."""
        return sum(1 for v in step.uses if v in self.allocated and self.producer(v) is step)

    def save_old_values(
        self, outputs: list[Any], updates: list[tuple[Any, Any]], guarded: set[Any]
    ) -> tuple[list[Any], list[tuple[Any, Any]]]:
        """Results that are (views of) parameters about to be overwritten, or constants, are copied first."""
        saved: dict[Any, Any] = {}
        copies: list[_Step] = []
        views: list[_Step] = []
        for value in (*outputs, *(v for v, _ in updates)):
            if self.root(value) in guarded and value not in saved:
                views += [s for s in self.steps if s.var == value]
                saved[value] = self.fresh(value, copies)
                self.copy(value, saved[value], copies)
        self.steps = [*views, *copies, *(s for s in self.steps if not any(s is v for v in views))]
        return [saved.get(v, v) for v in outputs], [(saved.get(v, v), param) for v, param in updates]

    def write_directly(self, value: Any, param: Any) -> bool:
        """Have the kernel that makes `value` write it to `param`; False, and nothing done, when that is not safe."""
        users = [s for s in self.steps if value in s.uses]
        producer = users[0] if users else None
        if producer is None or not _is_kernel(producer.value) or not all(_takes(s.value, value) for s in users):
            return False
        at = next(i for i, s in enumerate(self.steps) if s is producer)
        if any(self.root(v) == param for s in self.steps[at + 1 :] for v in s.uses):
            return False
        reads = [v for v in producer.uses if self.root(v) == param]
        if reads:
            kernel = self.merged_kernel(producer.value, param, value) if reads == [param] else None
            if kernel is None:
                return False
            rest = [a for a in producer.value.args if a != value]
            producer.value = tvm.RelaxCall(kernel, rest, ty_args=producer.value.ty_args)
        for step in users:
            step.value = _replaced(step.value, value, param)
            step.uses = list(tvm.relax.analysis.free_vars(step.value))
        self.steps = [s for s in self.steps if s.var != value]
        return True

    def merged_kernel(self, call: Any, param: Any, value: Any) -> Any | None:
        """A kernel that writes `value` over `param`, None where that is not safe."""
        func = self.functions.get(call.op) if isinstance(call.op, tvm.GlobalVar) else None
        inputs = [i for i, a in enumerate(call.args) if a == param]
        outputs = [i for i, a in enumerate(call.args) if a == value]
        if func is None or len(inputs) != 1 or len(outputs) != 1:
            return None
        operand, result = func.params[inputs[0]], func.params[outputs[0]]
        name = f"{call.op.name_hint}_over{inputs[0]}"
        for known in self.functions:
            if known.name_hint == name:
                return known
        if not may_share(func, operand, result):
            return None
        return self.add(name, merged(func, operand, result), self.kernels.get(call.op.name_hint, ()))

    def add(self, name: str, func: Any, ops: tuple[str, ...]) -> Any:
        target = self.builder.add_func(func, name)
        self.functions[target] = func
        self.kernels[target.name_hint] = ops
        return target

    def fresh(self, like: Any, steps: list[_Step]) -> Any:
        """A new tensor of the type of `like`."""
        shape, dtype = like.ty.shape, like.ty.dtype
        var = tvm.RelaxVar(f"{like.name_hint}_copy", like.ty)
        steps.append(_step(var, tvm.relax.op.builtin.alloc_tensor(shape, str(dtype), 0)))
        self.allocated.add(var)
        return var

    def copy(self, source: Any, target: Any, steps: list[_Step]) -> None:
        """Copy a tensor into another of its type."""
        call = tvm.RelaxCall(self.copy_kernel(source.ty), [source, target], ty_args=[tvm.TupleType([])])
        steps.append(_step(tvm.RelaxVar("_", tvm.TupleType([])), call))

    def copy_kernel(self, kind: Any) -> Any:
        dims = [int(d) if isinstance(d, tvm.IntImm) else None for d in kind.shape]
        name = "_".join(["copy", str(kind.dtype), *("n" if d is None else str(d) for d in dims)])
        for known in self.functions:
            if known.name_hint == name:
                return known
        shape = [tvm.te.var(f"n{i}", "int64") if d is None else tvm.IntImm("int64", d) for i, d in enumerate(dims)]
        x = tvm.te.placeholder(shape, str(kind.dtype), "x")
        func = tvm.create_prim_func([x, tvm.te.compute(shape, lambda *i: x(*i), "copy")]).without_attr("global_symbol")
        return self.add(name, schedule(func, "elemwise", self.target), ("copy",))

    def finished(self, outputs: list[Any]) -> Any:
        bindings = [tvm.VarBinding(s.var, s.value) for s in self.steps]
        result = outputs[0] if len(outputs) == 1 else tvm.RelaxVar("results", tvm.TupleType([o.ty for o in outputs]))
        if len(outputs) != 1:
            bindings.append(tvm.VarBinding(result, tvm.RelaxTuple(outputs)))
        body = tvm.SeqExpr([tvm.BindingBlock(bindings)], result)
        return tvm.RelaxFunction(self.main.params, body, result.ty, self.main.is_pure, self.main.attrs)


def _takes(value: Any, var: Any) -> bool:
    """Whether `var` is an argument of a call, and not only inside of one."""
    return isinstance(value, tvm.RelaxCall) and any(isinstance(a, tvm.RelaxVar) and a == var for a in value.args)


def _replaced(call: Any, old: Any, new: Any) -> Any:
    args = [new if isinstance(a, tvm.RelaxVar) and a == old else a for a in call.args]
    return tvm.RelaxCall(call.op, args, call.attrs, call.ty_args)
