"""A program that computes with parts of its values: the pass behind `tensor_parallel`.

    w = all_gather(part)          # what the program says: parameters are gathered, and every rank computes everything
    y = dense(x, w)
    =>
    y' = dense(x, part)           # what it becomes: y' is a part of y along its last axis

The pass walks the program once and knows of each value where its elements are (`Placement`). A gathered parameter is
sharded; what is computed from it is sharded, or a partial sum, as the axes of its operator say (`meta.op.axes`), or
`special`. Collectives are inserted where an operand is needed elsewhere than it is: an all_reduce of a partial sum, an
all_gather of parts, a reduce_scatter where a sum is needed in parts. Gradients are computed in the same program, so the
same rules place them. An operator whose axes are not known is decomposed (`meta.op.decomposition`), or else
computes with whole operands on every rank, which is always right.

Contract: the program's inputs and results keep their types and values; inputs are equal on all ranks of the group,
except for those that are named local.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace
from typing import Any

from meta.dim import is_static
from meta.distributed.mesh import Group
from meta.distributed.tensor import special
from meta.distributed.tensor.conversions import Conversions, replaced, values_of
from meta.distributed.tensor.placement import (
    LOCAL,
    REPLICATED,
    Distributed,
    Partial,
    Placement,
    Sharded,
    Value,
    divides,
    part_type,
)
from meta.errors import MetaError
from meta.ir.builder import Builder, Module
from meta.ir.expr import (
    Atom,
    Binding,
    Call,
    Expr,
    FunctionExpr,
    Tuple,
    TupleGetItem,
    Var,
)
from meta.ir.type import TensorType, TupleType
from meta.ir.visitor import free_vars, nested_blocks, substituted, walk
from meta.op.axes import Axes, TypedCall, axes_of, with_attributes
from meta.op.grad.rule import rule_of
from meta.op.registry import Op
from meta.passes.cse import cse, dce
from meta.passes.manager import Pass
from meta.tracing.emitter import emit_decomposition
from meta.tracing.function_op import FunctionOp, forward_results
from meta.tracing.loop_op import LoopOp
from meta.tree import leaves_of, with_leaves

_OWN_RESULTS = frozenset({"group_rank", "reduce_scatter", "all_to_all", "reduce_to", "send_receive"})
"""Collectives whose results differ by rank."""


def partition(module: Module, group: Group, local: Collection[Var]) -> Module:
    """The program with its values divided among the ranks of a group.

    local: the parameters of main that differ by rank. See the module docstring."""
    functions = dict(module.functions)
    functions["main"] = Partitioner(group).function(module.main, local)
    return dce(cse(Module(functions)))  # a loss and its gradient share what their decompositions reduce


def partition_pass(group: Group, local: Collection[Var]) -> Pass:
    """`partition` as a pass."""
    return Pass("tensor_parallel", lambda module: partition(module, group, local), __doc__ or "")


class Partitioner(Conversions):
    """One walk over a program: its values so far, and the builder of the new one."""

    def function(self, function: FunctionExpr, local: Collection[Var]) -> FunctionExpr:
        for param in function.params:
            self.env[param] = self.value(param, LOCAL if param in local else REPLICATED)
        with self.builder.block() as scope:
            for binding in function.body.bindings:
                self.builder.span = binding.span
                self.env[binding.var] = self.bound(binding)
            result = function.body.result
            if isinstance(result, Tuple):
                scope.ret(replace(result, fields=tuple(self.whole(self.operand(f)) for f in result.fields)))
            else:
                scope.ret(self.whole(self.operand(result)))
        return replace(function, body=scope.block)

    def bound(self, binding: Binding) -> Value:
        value = binding.value
        if isinstance(value, Call) and isinstance(value.op, FunctionOp):
            results = tuple(self.operand(atom) for atom in forward_results(value))
            return results if isinstance(value.type, TupleType) else results[0]
        if isinstance(value, Call) and isinstance(value.op, Op):
            return self.call(value.op, self.arguments(value.args), value)
        if isinstance(value, Tuple):
            return tuple(map(self.operand, value.fields))
        if isinstance(value, TupleGetItem):
            operand = self.operand(value.value)
            if isinstance(operand, tuple):
                return operand[value.index]
        return self.nested(binding)

    def nested(self, binding: Binding) -> Value:
        """Conditionals, closures and calls of functions compute with whole operands."""
        value = binding.value
        outer = [var for var in free_vars(value) if var in self.env]
        atoms: dict[Any, Atom] = {var: self.whole(self.env[var]) for var in outer}
        local = any(self.is_local(self.env[var]) for var in outer) or _has_own_results(value)
        self.builder.bind(Binding(binding.var, substituted(value, atoms)))
        return self.value(binding.var, LOCAL if local else REPLICATED)

    # --- calls -------------------------------------------------------------------------------------------------------

    def call(self, op: Op, args: tuple[Any, ...], source: Call | None = None) -> Value:
        """The value of a call in the program. source: the call there."""
        operands = list(values_of(args))
        if op.family == "collective":
            return self.collective(op, args, operands, source)
        if any(map(self.is_local, operands)) or _loop_has_own_results(op):
            return self.as_written(op, args, LOCAL, source)
        result = special.compute(self, op, args)
        if result is None and any(v.placement != REPLICATED for v in operands):
            result = self.linear(op, args, operands, source) or self.by_axes(op, args, operands, source)
        if result is None and any(isinstance(v.placement, Sharded) for v in operands):
            result = self.decomposed(op, args, operands, source)
        return self.as_written(op, args, REPLICATED, source) if result is None else result

    def collective(self, op: Op, args: tuple[Any, ...], operands: list[Distributed], source: Call | None) -> Value:
        """Collectives stay as they are, but gathering a local tensor makes it a part, and scattering means of equal
        tensors gives parts."""
        arguments = dict(zip(op.schema.names, args, strict=True))
        if (arguments["group"], arguments["ranks"]) == tuple(self.group) and operands:
            (x,) = operands
            placement = Sharded(arguments["axis"] % x.type.ndim) if "axis" in arguments else None
            if op.name == "all_gather" and placement is not None and x.placement == LOCAL:
                size = x.type.shape[placement.axis] * self.ranks
                kind = x.type.with_shape(tuple(size if i == placement.axis else d for i, d in enumerate(x.type.shape)))
                return Distributed(kind, placement, x.atoms[LOCAL])
            is_mean = op.name == "reduce_scatter" and arguments["reduction"] == "mean"
            if is_mean and placement is not None and x.placement != LOCAL:
                return Distributed(part_type(x.type, placement, self.ranks), LOCAL, self.placed(x, placement))
        in_group = arguments["group"] == self.group.name
        differs = op.name in _OWN_RESULTS or (not in_group and any(map(self.is_local, operands)))
        return self.as_written(op, args, LOCAL if differs else REPLICATED, source)

    def linear(self, op: Op, args: tuple[Any, ...], operands: list[Distributed], source: Call | None) -> Value | None:
        """Operators that a sum of the ranks' tensors may pass through: the sum of two, and changes of shape."""
        first = operands[0].placement
        if not isinstance(first, Partial) or first.reduction not in ("sum", "mean"):
            return None
        if any(v.placement != first for v in operands):
            return None
        rule = rule_of(op)
        adds = op.name in ("add", "subtract") and len(operands) == 2
        if not adds and (rule is None or rule.forward != "linear" or len(operands) != 1):
            return None
        kinds = {v.type.dtype for v in operands}
        call = self.expression(op, args, lambda v: v.atoms[first], source)
        if not isinstance(call.type, TensorType) or kinds != {call.type.dtype}:
            return None
        if not adds and call.type.size != operands[0].type.size:
            return None
        result = Distributed(call.type, first, self.builder.emit(call))
        if not adds:  # one all_reduce serves the operand and all that is made of it
            result.makers[REPLICATED] = lambda: self.builder.emit(self.expression(op, args, self.whole, source))
        return result

    def by_axes(self, op: Op, args: tuple[Any, ...], operands: list[Distributed], source: Call | None) -> Value | None:
        """The call on parts, by the rule of its operator."""
        whole = TypedCall.of(op, replaced(args, lambda value: value.type))
        axes = axes_of(whole)
        if axes is None:
            return None
        for label, blocks in _labels(axes, operands):
            if not all(label in labels or label in axes.reductions for labels in axes.results):
                continue
            result = self.on_parts(args, whole, axes, label, blocks, source)
            if result is not None:
                return result
        return None

    def decomposed(
        self, op: Op, args: tuple[Any, ...], operands: list[Distributed], source: Call | None
    ) -> Value | None:
        """The decomposition of the call on parts; None if there is none, and if it gathers a value or reduces more
        elements than the operands have."""
        if source is not None and (source.attrs or source.dialect is not None):
            return None

        def variable(value: Distributed) -> Var:
            var = Var("x", value.type)
            self.env[var] = value
            return var

        steps = Builder(caller_spans=False)
        results = emit_decomposition(steps, steps.call_expr(op, replaced(args, variable)), wide=True)
        if results is None:
            return None
        sizes = [value.type.size for value in operands if isinstance(value.placement, Sharded)]
        most = sum(sizes) if is_static(sizes) else math.inf
        gathers, reduced = self.gathers, self.reduced
        for binding in steps.bindings:
            self.env[binding.var] = self.bound(binding)
            if self.gathers != gathers or self.reduced - reduced > most:
                return None
        return with_leaves(results, [self.operand(y) for y in leaves_of(results)])

    def on_parts(
        self, args: tuple[Any, ...], whole: TypedCall, axes: Axes, label: int, blocks: int, source: Call | None
    ) -> Value | None:
        """The call with its operands divided along the axes of one label."""
        operands = [_placement(labels, label, blocks) for labels in axes.operands]
        results = [_placement(labels, label, blocks) for labels in axes.results]
        pairs = [*zip(whole.operands, operands, strict=True), *zip(whole.results, results, strict=True)]
        if any(isinstance(p, Sharded) and not divides(kind.shape[p.axis], p, self.ranks) for kind, p in pairs):
            return None
        types = tuple(self.local_type(kind, p) for kind, p in zip(whole.results, results, strict=True))
        changed: dict[str, Any] = {"shape": types[0].shape}
        if label in axes.counts:
            name = axes.counts[label]
            if whole[name] % (blocks * self.ranks):
                return None
            changed[name] = whole[name] // self.ranks
        sized = with_attributes(whole.op, args, changed)
        places = iter(operands)
        try:
            local = TypedCall.of(whole.op, replaced(sized, lambda value: self.local_type(value.type, next(places))))
        except MetaError:
            return None
        if local.results != types:
            return None
        places = iter(operands)
        call = self.expression(whole.op, sized, lambda value: self.placed(value, next(places)), source)
        atom = self.builder.emit(call)
        is_tuple = isinstance(call.type, TupleType)
        atoms = [self.builder.get_item(atom, i) for i in range(len(types))] if is_tuple else [atom]
        values = tuple(
            Distributed(kind, Partial(axes.reductions[label]) if p == REPLICATED else p, each)
            for kind, p, each in zip(whole.results, results, atoms, strict=True)
        )
        return values if is_tuple else values[0]

    def local_type(self, kind: TensorType, placement: Placement) -> TensorType:
        return part_type(kind, placement, self.ranks) if isinstance(placement, Sharded) else kind


def _placement(labels: tuple[int | None, ...], label: int, blocks: int) -> Placement:
    return Sharded(labels.index(label), blocks) if label in labels else REPLICATED


def _labels(axes: Axes, operands: list[Distributed]) -> list[tuple[int, int]]:
    """The labels along which operands are sharded and their numbers of blocks, the labels of most operands first."""
    wishes: list[tuple[int, int]] = []
    for labels, value in zip(axes.operands, operands, strict=True):
        if isinstance(value.placement, Sharded):
            label = labels[value.placement.axis]
            if label is not None:
                wishes.append((label, value.placement.blocks))
    return sorted(dict.fromkeys(wishes), key=lambda each: -wishes.count(each))


def _has_own_results(value: Expr) -> bool:
    """Whether something inside of a value differs by rank."""
    for block in nested_blocks(value):
        for binding in walk(block):
            op = binding.value.op if isinstance(binding.value, Call) else None
            if isinstance(op, Op) and (op.name in _OWN_RESULTS or _loop_has_own_results(op)):
                return True
    return False


def _loop_has_own_results(op: Op) -> bool:
    return isinstance(op, LoopOp) and op.body is not None and _has_own_results(op.body)
