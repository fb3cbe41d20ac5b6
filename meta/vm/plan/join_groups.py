"""Elementwise groups of operators joined with their first readers, as kernels of several results.

FuseOps makes groups of one result: where one of their values is returned, or read by other kernels as well, a group
ends. Its first reader then loads from memory what the kernel before it had in registers. If both compute one element
of the same shape at a time, they are one group, which returns both. Kernels of small tensors stay apart: they run side
by side where nothing orders them (see `meta.vm.plan.bundle`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from math import prod
from typing import Any

from meta._generated import limits
from meta.backend.tvm import adapter as tvm
from meta.dtype import itemsize
from meta.vm.plan.relax import is_group

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
            calls = [b.value for b in _bindings(group)] if is_group(group) else []
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
            for each in _bindings(group):
                local[each.var] = tvm.DataflowVar(each.var.name, each.var.ty)
                yield tvm.VarBinding(local[each.var], _with(each.value, local))
            values[binding.var] = local[group.body.body]
        else:
            values[binding.var] = tvm.DataflowVar(binding.var.name, binding.var.ty)
            yield tvm.VarBinding(values[binding.var], _with(call, values))


def _bindings(group: Any) -> list[Any]:
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
