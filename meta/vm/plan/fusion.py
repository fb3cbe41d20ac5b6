"""Groups of operators that share a kernel, and the schedules of kernels.

TVM's FuseOps gives a group of operators one parameter for each item that it reads of a tuple from outside. It inserts
the items of one tuple after the other, in the order of a hash table, at the positions that the tuples had before: if
one of them has several items, a tuple behind it loses its own. The group then has a variable without a value, and
FuseTIR refuses it. Items that are variables outside of dataflow blocks are not parts of groups, which take them as
parameters.

Programs that apply operators in ever different orders have groups that are all different, and LLVM compiles only some
hundred operators a second. Where tensors are small, such groups are cut after a few operators if the pieces repeat:
machine code that stays in the cache then saves more time than the additional calls take.

On GPUs, elementwise groups are then joined with their first readers, as kernels of several results.

FuseOps makes groups of one result: where one of their values is returned, or read by other kernels as well, a group
ends. Its first reader then loads from memory what the kernel before it had in registers. If both compute one element
of the same shape at a time, they are one group, which returns both. Kernels of small tensors stay apart: they run side
by side where nothing orders them (see `meta.vm.plan.bundle`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from math import prod
from typing import Any

from meta import progress
from meta._generated import limits
from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.kernel import schedule_key
from meta.backend.tvm.schedule.patterns import schedule
from meta.backend.tvm.target import knobs_of
from meta.dtype import itemsize
from meta.vm.lower.translate import ELEMENTWISE, Lowered
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
    module, kernels = grouped(lowered, fuse, on_gpu=on_gpu)
    return (_without_dead_code(sequence("FuseTIR")(module)) if fuse else module), kernels


def grouped(lowered: Lowered, fuse: bool, *, on_gpu: bool) -> tuple[Any, dict[str, tuple[str, ...]]]:
    """The module with groups of operators as one function of Relax each, and the operators of each."""
    kernels: dict[str, tuple[str, ...]] = {name: (op,) for name, op in lowered.ops.items()}
    if not fuse:
        return lowered.module, kernels
    module = _without_dead_code(lowered.module)  # a dead user of a tensor would keep it from being fused
    module = _with_elementwise(sequence("ConvertToDataflow", "AnnotateTIROpPattern")(module))
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
    return fused, kernels | groups


def _with_elementwise(module: Any) -> Any:
    """The module with the pattern of elementwise kernels corrected."""
    functions = {
        name: f.with_attr("op_pattern", 0) if isinstance(f, tvm.PrimFunc) and f.attrs and ELEMENTWISE in f.attrs else f
        for name, f in module.functions.items()
    }
    return tvm.IRModule(functions, attrs=module.attrs)


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
        functions[name] = _schedule(function, target) if isinstance(function, tvm.PrimFunc) else function
        progress.advance()
    return tvm.IRModule(functions, attrs=module.attrs)


def _schedule(function: Any, target: Any) -> Any:
    with knobs_of(lambda: schedule_key(function)):
        return schedule(function, "", target)


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


# --- groups of several results ---------------------------------------------------------------------------------------


MOST_TENSORS = 16
"""Most operands and results of a joined group."""
_BROADCAST = 1
"""FuseOps' patterns up to this one read operands of the result's shape element by element."""


def join_groups(module: Any) -> Any:
    """The module of FuseOps with elementwise groups joined with their first readers. Results stay the same."""
    functions: dict[Any, Any] = dict(module.functions.items())
    joiner = _Joiner(functions)
    for name, function in list(functions.items()):
        if isinstance(function, tvm.RelaxFunction) and not is_group(function):
            functions[name] = joiner.function(function)
    return tvm.IRModule(functions, attrs=module.attrs)


def is_small(kind: Any) -> bool:
    """Whether a tensor is known to have few bytes: what it costs is the start of its kernel."""
    shape = getattr(kind.shape, "values", None)
    known = shape is not None and all(isinstance(d, tvm.IntImm) for d in shape)
    return known and prod(map(int, shape or ())) * itemsize(str(kind.dtype)) <= limits.PIECE_BYTES


@dataclass(slots=True, eq=False)
class _Unit:
    """Bindings that become one kernel, in order. place: the position of the last one."""

    bindings: list[Any]
    place: int

    def operands(self) -> dict[Any, None]:
        inside = {b.var for b in self.bindings}
        return {x: None for b in self.bindings for x in _operands(b.value) if x not in inside}


@dataclass(slots=True)
class _Joiner:
    """functions: of the module; joined groups are added."""

    functions: dict[Any, Any]
    made: dict[str, tuple[Any, Any]] = field(default_factory=dict[str, tuple[Any, Any]])

    def function(self, function: Any) -> Any:
        blocks = [self.block(block) for block in function.body.blocks]
        if all(new is old for new, old in zip(blocks, function.body.blocks, strict=True)):
            return function
        body = tvm.SeqExpr(blocks, function.body.body)
        return tvm.RelaxFunction(function.params, body, function.ret_ty, function.is_pure, function.attrs)

    def block(self, block: Any) -> Any:
        bindings = list(block.bindings)
        units = self.units(bindings)
        if not units:
            return block
        joined = {unit.place: unit for unit in units}
        members = {b.var for unit in units for b in unit.bindings}
        out: list[Any] = []
        for i, binding in enumerate(bindings):
            if i in joined:
                out += self.joined(joined[i])
            elif binding.var not in members:
                out.append(binding)
        return type(block)(out)

    def units(self, bindings: Sequence[Any]) -> list[_Unit]:
        """Groups to be joined. Each stands at the place of its last member, before which nothing reads the others."""
        readers: dict[Any, list[int]] = {}
        for i, binding in enumerate(bindings):
            for x in _read(binding.value):
                readers.setdefault(x, []).append(i)
        units: dict[Any, _Unit] = {}
        for i, binding in enumerate(bindings):
            unit = self.unit(binding, i)
            if unit is None:
                continue
            for x in list(unit.operands()):
                before = units.get(x)
                if before is None or x in {b.var for b in unit.bindings} or not _same_shape(x, binding.var):
                    continue
                first = min((j for b in before.bindings for j in readers[b.var] if j > before.place), default=i)
                both = _Unit([*before.bindings, *unit.bindings], i)
                if first >= i and len(both.operands()) + len(both.bindings) <= MOST_TENSORS:
                    unit = both
            units |= dict.fromkeys([b.var for b in unit.bindings], unit)
        return [unit for unit in dict.fromkeys(units.values()) if len(unit.bindings) > 1]

    def unit(self, binding: Any, place: int) -> _Unit | None:
        """The binding alone, if it is an elementwise group of one tensor."""
        call = binding.value
        kind = binding.var.ty
        if not isinstance(call, tvm.RelaxCall) or not isinstance(kind, tvm.TensorType) or is_small(kind):
            return None
        if isinstance(call.op, tvm.GlobalVar):
            group = self.functions.get(call.op)
            calls = [b.value for b in _block_bindings(group)] if is_group(group) else []
            plain = all(isinstance(x, tvm.RelaxVar) for x in call.args)
        else:
            calls, plain = [call], True
        return _Unit([binding], place) if plain and calls and all(map(self.is_elementwise, calls)) else None

    def is_elementwise(self, call: Any) -> bool:
        if not isinstance(call, tvm.RelaxCall) or str(getattr(call.op, "name", "")) != "relax.call_tir":
            return False
        kernel = self.functions.get(call.args[0])
        pattern = kernel.attrs.get("op_pattern") if isinstance(kernel, tvm.PrimFunc) and kernel.attrs else None
        return pattern is not None and int(pattern) <= _BROADCAST and len(call.args) == 2

    def joined(self, unit: _Unit) -> Iterator[Any]:
        """The bindings of a joined group and of its results."""
        operands = list(unit.operands())
        values: dict[Any, Any] = {x: tvm.RelaxVar(x.name, x.ty) for x in operands}
        params, inner = list(values.values()), list[Any]()
        for binding in unit.bindings:
            inner += self.inlined(binding, values)
        results = [b.var for b in unit.bindings]
        kind = tvm.TupleType([x.ty for x in results])
        out = tvm.RelaxVar("results", kind)
        inner.append(tvm.VarBinding(out, tvm.RelaxTuple([values[x] for x in results])))
        body = tvm.SeqExpr([tvm.DataflowBlock(inner)], out)
        name = self.named(unit, tvm.RelaxFunction(params, body, kind).with_attr("Primitive", 1))
        together = tvm.DataflowVar("joined", kind)
        yield tvm.VarBinding(together, tvm.RelaxCall(name, operands))
        for i, x in enumerate(results):
            yield tvm.VarBinding(x, tvm.RelaxTupleGetItem(together, i))

    def named(self, unit: _Unit, group: Any) -> Any:
        """The name of a joined group, under which it is added, unless there is an equal one."""
        calls = [b.value for b in unit.bindings]
        title = "_".join((c.op if isinstance(c.op, tvm.GlobalVar) else c.args[0]).name_hint for c in calls)
        for number in count():
            key = f"{title}_joined{number or ''}"
            if key not in self.made:
                variable = tvm.GlobalVar(key)
                tvm.update_type(variable, tvm.FuncType([p.ty for p in group.params], group.ret_ty))
                self.made[key] = variable, group
            name, known = self.made[key]
            if tvm.structural_equal(known, group):
                self.functions[name] = known
                return name
        raise AssertionError

    def inlined(self, binding: Any, values: dict[Any, Any]) -> Iterator[Any]:
        """The calls of a binding, with the variables of the joined group, to which they add."""
        call = binding.value
        if isinstance(call.op, tvm.GlobalVar):
            group = self.functions[call.op]
            local: dict[Any, Any] = dict(zip(group.params, [values[x] for x in call.args], strict=True))
            for each in _block_bindings(group):
                local[each.var] = tvm.DataflowVar(each.var.name, each.var.ty)
                yield tvm.VarBinding(local[each.var], _with(each.value, local))
            values[binding.var] = local[group.body.body]
        else:
            values[binding.var] = tvm.DataflowVar(binding.var.name, binding.var.ty)
            yield tvm.VarBinding(values[binding.var], _with(call, values))


def _block_bindings(group: Any) -> list[Any]:
    return [b for block in group.body.blocks for b in block.bindings]


def _operands(call: Any) -> list[Any]:
    """The variables that a call of a kernel or of a group reads."""
    fields = call.args if isinstance(call.op, tvm.GlobalVar) else call.args[1].fields
    return [x for x in fields if isinstance(x, tvm.RelaxVar)]


def _read(value: Any) -> set[Any]:
    """All variables in a value."""
    found: set[Any] = set()
    tvm.structural_walk(value, (tvm.RelaxVar, found.add))
    return found


def _with(call: Any, values: Mapping[Any, Any]) -> Any:
    def renamed(variable: Any) -> Any:
        return values.get(variable, variable)

    return tvm.structural_map(call, (tvm.RelaxVar, renamed))


def _same_shape(a: Any, b: Any) -> bool:
    return bool(tvm.structural_equal(a.ty.shape, b.ty.shape))
