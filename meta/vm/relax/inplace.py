"""Updates in place: the new value of a parameter is written to the memory of the parameter.

    alloc = builtin.alloc_tensor(...)          update(w, g)
    update(w, g, alloc)                =>

Such a kernel runs as soon as its operands exist and the old value has had its last reader, so that gradients are freed
early. A kernel that reads the old value itself gets one buffer instead of two where overwriting is safe (`overlap`).
Where it is not, the new value is computed in separate memory and copied at the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.schedule.patterns import schedule
from meta.vm.relax.overlap import may_share, merged
from meta.vm.relax.steps import Step, Steps, is_kernel, step_of, takes

Kernels = dict[str, tuple[str, ...]]
"""The operators in each kernel."""
Update = tuple[Any, Any]
"""A new value and the parameter that it replaces."""


def update_in_place(
    module: Any, kernels: Kernels, mutates: Mapping[int, int], constants: int, target: Any
) -> tuple[Any, Kernels]:
    """`module` with "main" writing its parameters and returning only its other results; the kernels, new ones added.

    mutates: result of "main" (a tuple of tensors) -> parameter.  constants: how many of the last parameters hold
    constants of the program, which must not be returned to callers."""
    writer = _InPlaceWriter(module, kernels, target)
    writer.builder.update_func(writer.name, writer.run(mutates, constants))
    return tvm.relax_transform.Normalize()(writer.builder.get()), writer.kernels


class _InPlaceWriter:
    def __init__(self, module: Any, kernels: Kernels, target: Any) -> None:
        self.builder = tvm.BlockBuilder(module)
        self.functions: dict[Any, Any] = dict(module.functions.items())
        self.named = {name.name_hint: name for name in self.functions}
        self.kernels = dict(kernels)
        self.target = target
        self.name = self.named["main"]
        self.main = self.functions[self.name]
        self.steps = Steps(self.main)

    def run(self, mutates: Mapping[int, int], constants: int) -> Any:
        params = list(self.main.params)
        results = self.steps.take_results(self.main)
        outputs = [r for i, r in enumerate(results) if i not in mutates]
        updates = [(results[i], params[p]) for i, p in mutates.items() if results[i] != params[p]]
        guarded = {param for _, param in updates} | set(params[len(params) - constants :])
        outputs, updates = self.save_old_values(outputs, updates, guarded)
        self.steps.run_early(updates)
        counts: dict[Any, int] = {}
        for value in (*outputs, *(v for v, _ in updates)):
            root = self.steps.root(value)
            counts[root] = counts.get(root, 0) + 1
        for value, param in updates:
            unshared = self.steps.is_new(value) and counts[value] == 1
            if not (unshared and self.write_directly(value, param)):
                self.copy(value, param, self.steps.list)
        return self.finished(outputs)

    def save_old_values(
        self, outputs: list[Any], updates: list[Update], guarded: set[Any]
    ) -> tuple[list[Any], list[Update]]:
        """Results that are (views of) parameters about to be overwritten, or constants, are copied first."""
        endangered = [v for v in (*outputs, *(v for v, _ in updates)) if self.steps.root(v) in guarded]
        if not endangered:
            return outputs, updates
        first = self.steps.take_views(endangered)
        saved: dict[Any, Any] = {}
        for value in dict.fromkeys(endangered):
            saved[value] = self.fresh(value, first)
            self.copy(value, saved[value], first)
        self.steps.prepend(first)
        return [saved.get(v, v) for v in outputs], [(saved.get(v, v), param) for v, param in updates]

    def write_directly(self, value: Any, param: Any) -> bool:
        """Make the kernel that computes `value` write it to `param`; False, and no change, where that is unsafe."""
        users = self.steps.users(value)
        producer = users[0] if users else None
        if producer is None or not is_kernel(producer.value) or not all(takes(s.value, value) for s in users):
            return False
        if self.steps.read_after(param, producer):
            return False
        reads = [v for v in producer.uses if self.steps.root(v) == param]
        if reads:
            kernel = self.merged_kernel(producer.value, param, value) if reads == [param] else None
            if kernel is None:
                return False
            rest = [a for a in producer.value.args if a != value]
            producer.value = tvm.RelaxCall(kernel, rest, ty_args=producer.value.ty_args)
        self.steps.replace(value, param)
        return True

    def merged_kernel(self, call: Any, param: Any, value: Any) -> Any | None:
        """A kernel that writes `value` over `param`, None where that is not safe."""
        func = self.functions.get(call.op) if isinstance(call.op, tvm.GlobalVar) else None
        inputs = [i for i, a in enumerate(call.args) if a == param]
        outputs = [i for i, a in enumerate(call.args) if a == value]
        if func is None or len(inputs) != 1 or len(outputs) != 1:
            return None
        operand, result = func.params[inputs[0]], func.params[outputs[0]]
        name = f"{call.op.name_hint}_{outputs[0]}_over_{inputs[0]}"
        if name in self.named:
            return self.named[name]
        if not may_share(func, operand, result):
            return None
        return self.add(name, merged(func, operand, result), self.kernels.get(call.op.name_hint, ()))

    def add(self, name: str, func: Any, ops: tuple[str, ...]) -> Any:
        target = self.builder.add_func(func, name)
        self.functions[target] = func
        self.named[name] = target
        self.kernels[target.name_hint] = ops
        return target

    def fresh(self, like: Any, steps: list[Step]) -> Any:
        """A new tensor of the type of `like`."""
        var = tvm.RelaxVar(f"{like.name}_copy", like.ty)
        steps.append(step_of(var, tvm.relax.op.builtin.alloc_tensor(like.ty.shape, str(like.ty.dtype), 0)))
        return var

    def copy(self, source: Any, target: Any, steps: list[Step]) -> None:
        """Copy a tensor into another of its type."""
        call = tvm.RelaxCall(self.copy_kernel(source.ty), [source, target], ty_args=[tvm.TupleType([])])
        steps.append(step_of(tvm.RelaxVar("_", tvm.TupleType([])), call))

    def copy_kernel(self, kind: Any) -> Any:
        dims = [int(d) if isinstance(d, tvm.IntImm) else None for d in kind.shape]
        name = "_".join(["copy", str(kind.dtype), *("n" if d is None else str(d) for d in dims)])
        if name in self.named:
            return self.named[name]
        shape = [tvm.te.var(f"n{i}", "int64") if d is None else tvm.IntImm("int64", d) for i, d in enumerate(dims)]
        x = tvm.te.placeholder(shape, str(kind.dtype), "x")
        func = tvm.create_prim_func([x, tvm.te.compute(shape, lambda *i: x(*i), "copy")])
        return self.add(name, schedule(func.without_attr("global_symbol"), "elemwise", self.target), ("copy",))

    def finished(self, outputs: Sequence[Any]) -> Any:
        bindings = [s.binding for s in self.steps.list]
        result = outputs[0] if len(outputs) == 1 else tvm.RelaxVar("results", tvm.TupleType([o.ty for o in outputs]))
        if len(outputs) != 1:
            bindings.append(tvm.VarBinding(result, tvm.RelaxTuple(list(outputs))))
        body = tvm.SeqExpr([tvm.BindingBlock(bindings)], result)
        return tvm.RelaxFunction(self.main.params, body, result.ty, self.main.is_pure, self.main.attrs)
