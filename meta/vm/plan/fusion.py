"""Groups of operators that share a kernel, and the schedules of kernels.

TVM's FuseOps gives a group of operators one parameter for each item that it reads of a tuple from outside. It inserts
the items of one tuple after the other, in the order of a hash table, at the positions that the tuples had before: if
one of them has several items, a tuple behind it loses its own. The group then has a variable without a value, and
FuseTIR refuses it. Items that are variables outside of dataflow blocks are not parts of groups, which take them as
parameters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from meta import progress
from meta._generated import limits
from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.schedule.patterns import schedule
from meta.vm.lower.translate import Lowered


def fuse_and_schedule(lowered: Lowered, fuse: bool, target: Any) -> tuple[Any, dict[str, tuple[str, ...]]]:
    """The module with scheduled kernels, and the operators of each."""
    progress.stage("fuse operators")
    module, kernels = _fused(lowered, fuse)
    module = _scheduled(sequence("ToNonDataflow")(module), target)
    return module, kernels


def sequence(*names: str) -> Any:
    """Passes of Relax in order, by name."""
    return tvm.Sequential([getattr(tvm.relax_transform, name)() for name in names])


def _without_dead_code(module: Any) -> Any:
    return tvm.relax_transform.DeadCodeElimination(["main"])(module)


def _fused(lowered: Lowered, fuse: bool) -> tuple[Any, dict[str, tuple[str, ...]]]:
    """The module with groups of operators as one PrimFunc each, and the operators of each."""
    kernels: dict[str, tuple[str, ...]] = {name: (op,) for name, op in lowered.ops.items()}
    if not fuse:
        return lowered.module, kernels
    module = _without_dead_code(lowered.module)  # a dead user of a tensor would keep it from being fused
    with tvm.PassContext(config={"relax.FuseOps.max_depth": limits.FUSED_OPERATORS}):
        module = fuse_operators(sequence("ConvertToDataflow", "AnnotateTIROpPattern")(module))
    for target, function in module.functions.items():
        if _is_group(function):
            kernels[target.name_hint] = _members(function, kernels)
    return _without_dead_code(sequence("FuseTIR")(module)), kernels


def _is_group(function: Any) -> bool:
    """Whether a function is a group made by FuseOps."""
    return isinstance(function, tvm.RelaxFunction) and bool(function.attrs) and "Primitive" in function.attrs


def _members(group: Any, kernels: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """The operators that a group calls, in order."""
    calls = (b.value for b in _bindings(group.body) if isinstance(b.value, tvm.RelaxCall) and len(b.value.args))
    callees = (call.args[0] for call in calls)
    return tuple(op for c in callees if isinstance(c, tvm.GlobalVar) for op in kernels.get(c.name_hint, ()))


def _scheduled(module: Any, target: Any) -> Any:
    functions = {}
    progress.stage("schedule kernels", total=len(module.functions))
    for name, function in module.functions.items():
        functions[name] = schedule(function, "", target) if isinstance(function, tvm.PrimFunc) else function
        progress.advance()
    return tvm.IRModule(functions, attrs=module.attrs)


# --- items of tuples ------------------------------------------------------------------------------------------------


def fuse_operators(module: Any) -> Any:
    """The module with groups of operators as functions of their own. It has dataflow blocks, and its PrimFuncs their
    patterns."""
    fused = tvm.relax_transform.FuseOps()(module)
    functions = [f for f in fused.functions.values() if isinstance(f, tvm.RelaxFunction)]
    names = {name for function in functions for name in _confused_tuples(function, fused)}
    return tvm.relax_transform.FuseOps()(_with_items_apart(module, names)) if names else fused


def _confused_tuples(function: Any, module: Any) -> Iterator[str]:
    """The names of the tuples whose items groups read, where one group reads several items of one tuple and also
    another tuple.

    Where FuseOps lost items, the tuple behind them is an argument as a whole."""
    bindings = list(_bindings(function.body))
    sources = {b.var: b.value.tuple_value for b in bindings if isinstance(b.value, tvm.RelaxTupleGetItem)}
    for call in (b.value for b in bindings if isinstance(b.value, tvm.RelaxCall)):
        callee: Any = module.functions.get(call.op) if isinstance(call.op, tvm.GlobalVar) else None
        if not _is_group(callee):
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
    apart: dict[Any, Any] = {}
    functions = dict(module.functions.items())

    def renamed(variable: Any) -> Any:
        return apart.get(variable, variable)

    for name, function in functions.items():
        if isinstance(function, tvm.RelaxFunction):
            items = (b for b in _bindings(function.body) if isinstance(b.value, tvm.RelaxTupleGetItem))
            variables = (b.var for b in items if getattr(b.value.tuple_value, "name", "") in names)
            apart.update({variable: tvm.RelaxVar(variable.name, variable.ty) for variable in variables})
            functions[name] = tvm.structural_map(function, (tvm.DataflowVar, renamed))
    return tvm.IRModule(functions, attrs=module.attrs)
