"""Fusion of operators that read items of several tuples.

TVM's FuseOps gives a group of operators one parameter for each item that it reads of a tuple from outside. It inserts
the items of one tuple after the other, in the order of a hash table, at the positions that the tuples had before: if
one of them has several items, a tuple behind it loses its own. The group then has a variable without a value, and
FuseTIR refuses it. Items that are variables of their own are not parts of groups, which take them as parameters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from meta.backend.tvm import adapter as tvm
from meta.vm.plan.substitution import Substitution


def fuse_operators(module: Any) -> Any:
    """The module with groups of operators as functions of their own. It has dataflow blocks, and its PrimFuncs their
    patterns."""
    fused = tvm.relax_transform.FuseOps()(module)
    names = {name for function in _functions(fused) for name in _confused_tuples(function, fused)}
    return tvm.relax_transform.FuseOps()(_with_items_apart(module, names)) if names else fused


def _functions(module: Any) -> list[Any]:
    return [f for f in module.functions.values() if isinstance(f, tvm.RelaxFunction)]


def _confused_tuples(function: Any, module: Any) -> Iterator[str]:
    """The names of the tuples of which groups read items, where one group reads several of one tuple and also another.

    Where FuseOps lost items, the tuple behind them is an argument as a whole."""
    bindings = list(_bindings(function.body))
    sources = {b.var: b.value.tuple_value for b in bindings if isinstance(b.value, tvm.RelaxTupleGetItem)}
    for call in (b.value for b in bindings if isinstance(b.value, tvm.RelaxCall)):
        callee: Any = module.functions.get(call.op) if isinstance(call.op, tvm.GlobalVar) else None
        attributes = callee.attrs if isinstance(callee, tvm.RelaxFunction) else None
        if not attributes or "Primitive" not in attributes:
            continue
        tuples = [arg if isinstance(arg.ty, tvm.TupleType) else sources.get(arg) for arg in call.args]
        counts = Counter(source.name for source in tuples if source is not None)
        if len(counts) > 1 and max(counts.values()) > 1:
            yield from counts


def _bindings(body: Any) -> Iterator[Any]:
    for block in body.blocks:
        for binding in block.bindings:
            yield binding
            if isinstance(binding.value, tvm.RelaxIf):
                yield from _bindings(binding.value.true_branch)
                yield from _bindings(binding.value.false_branch)


def _with_items_apart(module: Any, names: set[str]) -> Any:
    """The module with items of the named tuples bound to variables that FuseOps takes for results."""

    def binding(each: Any, items: Substitution) -> Any:
        item = each.value
        if isinstance(item, tvm.RelaxTupleGetItem) and getattr(item.tuple_value, "name", "") in names:
            variable = tvm.RelaxVar(each.var.name, each.var.ty)
            bound = tvm.VarBinding(variable, items.value(item))
            items.names[each.var] = variable
            return bound
        return items.binding(each)

    functions: dict[Any, Any] = {}
    for name, f in module.functions.items():
        functions[name] = f
        if isinstance(f, tvm.RelaxFunction):
            items = Substitution({})
            blocks = [type(block)([binding(each, items) for each in block.bindings]) for block in f.body.blocks]
            body = tvm.SeqExpr(blocks, items.value(f.body.body))
            functions[name] = tvm.RelaxFunction(f.params, body, f.ret_ty, f.is_pure, f.attrs)
    return tvm.relax_transform.Normalize()(tvm.IRModule(functions, attrs=module.attrs))
