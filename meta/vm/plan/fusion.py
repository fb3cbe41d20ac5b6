"""Groups of operators that share a kernel, and the schedules of kernels.

TVM's FuseOps gives a group of operators one parameter for each item that it reads of a tuple from outside. It inserts
the items of one tuple after the other, in the order of a hash table, at the positions that the tuples had before: if
one of them has several items, a tuple behind it loses its own. The group then has a variable without a value, and
FuseTIR refuses it. Items that are variables outside of dataflow blocks are not parts of groups, which take them as
parameters.

Programs that apply operators in ever different orders have groups that are all different, and LLVM compiles only some
hundred operators a second. Where tensors are small, such groups are cut after a few operators if the pieces repeat:
machine code that stays in the cache then saves more time than the additional calls take.
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
from meta.vm.plan.join_groups import is_small, join_groups
from meta.vm.plan.relax import is_group


def fuse_and_schedule(lowered: Lowered, fuse: bool, target: Any) -> tuple[Any, dict[str, tuple[str, ...]]]:
    """The module with scheduled kernels, and the operators of each."""
    progress.stage("fuse operators")
    module, kernels = _fused(lowered, fuse, on_gpu=str(target.kind.name) == "cuda")
    module = _scheduled(sequence("ToNonDataflow")(module), target)
    return module, kernels


def sequence(*names: str) -> Any:
    """Passes of Relax in order, by name."""
    return tvm.Sequential([getattr(tvm.relax_transform, name)() for name in names])


def _without_dead_code(module: Any) -> Any:
    return tvm.relax_transform.DeadCodeElimination(["main"])(module)


def _fused(lowered: Lowered, fuse: bool, *, on_gpu: bool) -> tuple[Any, dict[str, tuple[str, ...]]]:
    """The module with groups of operators as one PrimFunc each, and the operators of each."""
    kernels: dict[str, tuple[str, ...]] = {name: (op,) for name, op in lowered.ops.items()}
    if not fuse:
        return lowered.module, kernels
    module = _without_dead_code(lowered.module)  # a dead user of a tensor would keep it from being fused
    module = sequence("ConvertToDataflow", "AnnotateTIROpPattern")(module)
    with tvm.PassContext(config={"relax.FuseOps.max_depth": limits.FUSED_OPERATORS}):
        fused = fuse_operators(module)
        if on_gpu:
            fused = join_groups(fused)
        groups = _groups(fused, kernels)
        distinct = sum(map(len, groups.values()))
        if not on_gpu and distinct > limits.DISTINCT_OPERATORS:
            cut = fuse_operators(_with_variables_apart(module, _cuts(module)))
            pieces = _groups(cut, kernels)
            if 2 * sum(map(len, pieces.values())) < distinct:
                fused, groups = cut, pieces
    return _without_dead_code(sequence("FuseTIR")(fused)), kernels | groups


def _groups(module: Any, kernels: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """The operators of each group, by its name. Equal groups have one name."""
    return {str(n.name_hint): _members(f, kernels) for n, f in module.functions.items() if is_group(f)}


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


# --- variables that end groups ----------------------------------------------------------------------------------------


def _cuts(module: Any) -> set[Any]:
    """The variables of small tensors that end chains of `PIECE_OPERATORS` operators."""
    lengths: dict[Any, int] = {}
    cuts: set[Any] = set()
    for function in _functions(module):
        for binding in _bindings(function.body):
            variable, value = binding.var, binding.value
            if not isinstance(value, tvm.RelaxCall) or not isinstance(variable.ty, tvm.TensorType):
                continue
            operands = next((arg.fields for arg in value.args if isinstance(arg, tvm.RelaxTuple)), ())
            lengths[variable] = 1 + max((lengths.get(operand, 0) for operand in operands), default=0)
            if lengths[variable] >= limits.PIECE_OPERATORS and is_small(variable.ty):
                cuts.add(variable)
                lengths[variable] = 0
    return cuts


def fuse_operators(module: Any) -> Any:
    """The module with groups of operators as functions of their own. It has dataflow blocks, and its PrimFuncs their
    patterns."""
    fused = tvm.relax_transform.FuseOps()(module)
    names = {name for function in _functions(fused) for name in _confused_tuples(function, fused)}
    return tvm.relax_transform.FuseOps()(_with_variables_apart(module, _items(module, names))) if names else fused


def _functions(module: Any) -> list[Any]:
    return [f for f in module.functions.values() if isinstance(f, tvm.RelaxFunction)]


def _confused_tuples(function: Any, module: Any) -> Iterator[str]:
    """The names of the tuples whose items groups read, where one group reads several items of one tuple and also
    another tuple.

    Where FuseOps lost items, the tuple behind them is an argument as a whole."""
    bindings = list(_bindings(function.body))
    sources = {b.var: b.value.tuple_value for b in bindings if isinstance(b.value, tvm.RelaxTupleGetItem)}
    for call in (b.value for b in bindings if isinstance(b.value, tvm.RelaxCall)):
        callee: Any = module.functions.get(call.op) if isinstance(call.op, tvm.GlobalVar) else None
        if not is_group(callee):
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


def _items(module: Any, names: set[str]) -> set[Any]:
    """The variables of items of the named tuples."""
    items = (b for f in _functions(module) for b in _bindings(f.body) if isinstance(b.value, tvm.RelaxTupleGetItem))
    return {b.var for b in items if getattr(b.value.tuple_value, "name", "") in names}


def _with_variables_apart(module: Any, variables: set[Any]) -> Any:
    """The module with variables that FuseOps takes for results, at which groups end, in place of some."""
    apart = {variable: tvm.RelaxVar(variable.name, variable.ty) for variable in variables}

    def renamed(variable: Any) -> Any:
        return apart.get(variable, variable)

    functions = {
        name: tvm.structural_map(f, (tvm.DataflowVar, renamed)) if isinstance(f, tvm.RelaxFunction) else f
        for name, f in module.functions.items()
    }
    return tvm.IRModule(functions, attrs=module.attrs)
