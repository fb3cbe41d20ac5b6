"""Removes aliases, projections of built tuples and duplicate tensor objects from Relax functions with explicit memory.

Earlier passes leave `y = x`, `t = (a, b); c = t[0]` and a separate object for each tensor in a storage that the memory
plan reuses. Each of those costs the virtual machine a call (the last one a heap allocation), and together more than
the kernels of small programs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from meta.backend.tvm import adapter as tvm

Rule = Callable[["Rebuilder", Any, Any], Any]
"""(rebuilder, variable, value with operands replaced) -> what to replace the variable by, None to keep the binding."""


class Rebuilder:
    """Copies the body of one function, each binding offered to a rule."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.substitution: dict[Any, Any] = {}
        self.tuples: dict[Any, list[Any]] = {}
        self.tensors: dict[Any, Any] = {}

    def function(self, function: Any) -> Any:
        body = self.sequence(function.body)
        return rebuilt(function, body)

    def sequence(self, body: Any) -> Any:
        blocks = [type(block)([n for b in block.bindings for n in self.binding(b)]) for block in body.blocks]
        return tvm.SeqExpr(blocks, self.operand(body.body))

    def binding(self, binding: Any) -> list[Any]:
        if not isinstance(binding, tvm.VarBinding):  # a match_cast: it defines sizes, and stays
            return [tvm.MatchCast(binding.var, self.operand(binding.value), binding.ty)]
        value = self.value(binding.value)
        replacement = self.rule(self, binding.var, value)
        if replacement is None:
            return [tvm.VarBinding(binding.var, value)]
        self.substitution[binding.var] = replacement
        return []

    def value(self, value: Any) -> Any:
        if isinstance(value, tvm.RelaxIf):
            return tvm.RelaxIf(
                self.operand(value.cond), self.branch(value.true_branch), self.branch(value.false_branch)
            )
        if isinstance(value, tvm.RelaxCall):
            return tvm.RelaxCall(value.op, list(map(self.operand, value.args)), value.attrs, value.ty_args)
        if isinstance(value, tvm.RelaxTupleGetItem):
            return tvm.RelaxTupleGetItem(self.operand(value.tuple_value), value.index)
        return self.operand(value)

    def branch(self, body: Any) -> Any:
        tensors = dict(self.tensors)
        new = self.sequence(body)
        self.tensors = tensors  # tensors of one branch do not exist in the other, nor afterwards
        return new

    def operand(self, value: Any) -> Any:
        if isinstance(value, tvm.RelaxTuple):
            return tvm.RelaxTuple(list(map(self.operand, value.fields)))
        return self.substitution.get(value, value) if isinstance(value, tvm.RelaxVar) else value


def rebuilt(function: Any, body: Any) -> Any:
    """`function` with another body."""
    return tvm.RelaxFunction(function.params, body, function.ret_ty, function.is_pure, function.attrs)


def rebuild(module: Any, rule: Rule) -> Any:
    """Apply a rule to every Relax function of the module."""
    functions = {
        name: Rebuilder(rule).function(f) if isinstance(f, tvm.RelaxFunction) else f
        for name, f in module.functions.items()
    }
    return tvm.relax_transform.Normalize()(tvm.IRModule(functions, attrs=module.attrs))


def remove_aliases(module: Any) -> Any:
    """The module without aliases, and with the fields of built tuples in place of their projections."""
    return rebuild(module, _alias)


def _alias(rebuilder: Rebuilder, var: Any, value: Any) -> Any:
    if isinstance(value, tvm.RelaxVar):
        return value
    if isinstance(value, tvm.RelaxTuple):
        rebuilder.tuples[var] = list(value.fields)
        return None
    if isinstance(value, tvm.RelaxTupleGetItem):
        fields = rebuilder.tuples.get(value.tuple_value)
        return fields[value.index] if fields is not None else None
    return None


def share_tensors(module: Any) -> Any:
    """One tensor object for all tensors of one storage, offset, shape and dtype."""
    return rebuild(module, _share)


def _share(rebuilder: Rebuilder, var: Any, value: Any) -> Any:
    if isinstance(value, tvm.RelaxVar):
        return value
    if isinstance(value, tvm.RelaxCall) and getattr(value.op, "name", "") == "relax.memory.alloc_tensor":
        storage, *layout = value.args
        key = (storage, str(layout))
        first = rebuilder.tensors.setdefault(key, var)
        return None if first is var else first
    return None
