"""AutoCast as a pass: a float32 program in mixed precision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from meta.ir.builder import Builder, Module
from meta.ir.expr import (
    Atom,
    Binding,
    Block,
    Call,
    Expr,
    FunctionExpr,
    If,
    Tuple,
    TupleGetItem,
    Var,
    arg_types,
    is_atom,
    operands,
)
from meta.ir.type import TensorType, TupleType, Type
from meta.ir.visitor import with_operands
from meta.op.precision import check_policy, data_positions, needs_cast, target_dtype
from meta.op.registry import Amp, Op, get
from meta.passes.inline_calls import inline_calls
from meta.passes.manager import Pass
from meta.tracing.loop_op import LoopOp, with_changed_body
from meta.tree import leaves_of, with_leaves


def auto_cast(dtype: str = "bfloat16", overrides: Mapping[str, Amp] | None = None) -> Pass:
    """The pass that casts operands by each operator's `amp` rule (meta.op.precision).

    The types of parameters and results stay as they are, those that replace parameters included. A value is cast to a
    dtype at most once in a block (so weights are cast once a step), and a cast back of a widened value is that value.
    The gradient of a broadcast operand, such as the bias of a dense layer, is the float32 sum of what the products in
    low precision read, so that the wider value needs no memory.
    `overrides` maps operator names to rules. Raises ArgumentError for a dtype other than float16 and bfloat16 or an
    unknown rule, RegistryError for an unknown operator."""
    policy = check_policy("auto_cast", dtype, overrides)

    def run(module: Module) -> Module:
        module = inline_calls(module)
        return Module({name: _Caster(dtype, policy).function(f) for name, f in module.functions.items()})

    return Pass("auto_cast", run, auto_cast.__doc__ or "")


_SUMS: Final = "sum_to"
"""The operator that adds the gradients of a broadcast operand."""


class _Caster:
    """One traversal of one function."""

    def __init__(self, low: str, overrides: Mapping[str, Amp]) -> None:
        self.low = low
        self.overrides = overrides
        self.builder = Builder(caller_spans=False)
        self.values: dict[Var, Atom] = {}
        """The new value of each variable with a new type."""
        self.casts: dict[tuple[Atom, str], Atom] = {}
        self.widened: dict[Atom, Atom] = {}
        """Result of a cast to float32 -> its operand; the cast back is exact."""

    def function(self, function: FunctionExpr) -> FunctionExpr:
        return replace(function, body=self.fitted_block(self.block(function.body), function.body.type))

    def block(self, block: Block) -> Block:
        """The block in mixed precision, with results of the types that follow. Casts inside are not visible outside."""
        outer = dict(self.casts)
        with self.builder.block() as scope:
            for binding in block.bindings:
                self.builder.span = binding.span
                self.bind(binding, self.value(binding.value))
            self.builder.span = None
            results = [self.atom(r) for r in block.results]
            scope.ret(results if isinstance(block.result, Tuple) else results[0])
        self.casts = outer
        return scope.block

    def bind(self, old: Binding, value: Expr) -> None:
        if value.type == old.var.type:  # the same variable: a closure may name itself in its body
            self.builder.bind(Binding(old.var, value))
        else:
            self.values[old.var] = self.builder.emit(value, old.var.name)

    def fitted_block(self, block: Block, target: Type) -> Block:
        """`block` with casts at its end, so that it has type `target`."""
        if block.type == target:
            return block
        with self.builder.block() as scope:
            for binding in block.bindings:
                self.builder.bind(binding)
            if isinstance(block.result, Tuple) and isinstance(target, TupleType):
                scope.ret([self.fitted(a, t) for a, t in zip(block.results, target.fields, strict=True)])
            else:
                scope.ret(self.fitted(block.results[0], target))
        return scope.block

    def fitted(self, atom: Atom, target: Type) -> Atom:
        """A value as one of type `target`."""
        if atom.type == target:
            return atom
        if isinstance(target, TupleType):
            fields = [self.builder.get_item(atom, i) for i in range(len(target.fields))]
            return self.builder.tuple([self.fitted(f, t) for f, t in zip(fields, target.fields, strict=True)])
        assert isinstance(target, TensorType)
        return self.cast(atom, target.dtype)

    def value(self, value: Expr) -> Expr:
        match value:
            case If():
                return self.conditional(value)
            case FunctionExpr():
                return self.function(value)
            case Tuple() | TupleGetItem():
                return with_operands(value, [self.atom(a) for a in operands(value)])
            case Call():
                return self.call(value)

    def conditional(self, value: If) -> If:
        then, orelse = self.block(value.then), self.block(value.orelse)
        if then.type != orelse.type:
            then, orelse = self.fitted_block(then, value.type), self.fitted_block(orelse, value.type)
        return replace(value, cond=self.atom(value.cond), then=then, orelse=orelse)

    def call(self, call: Call) -> Call:
        if not isinstance(call.op, Op):  # functions keep their types
            args = tuple(self.fitted(self.atom(a), a.type) if is_atom(a) else a for a in call.args)
            return replace(call, args=args, op=self.atom(call.op) if isinstance(call.op, Var) else call.op)
        if isinstance(call.op, LoopOp):
            return self.loop(call)
        args = [self.argument(a) for a in call.args]
        if call.op.name == _SUMS and _SUMS not in self.overrides:
            args[0] = self.rounded(args[0])
        target = target_dtype(call.op, arg_types(tuple(args)), self.low, self.overrides)
        if target is not None:
            for i in data_positions(call.op):
                args[i] = self.casted(args[i], target)
        return self.builder.call_expr(call.op, args, call.dialect, call.attrs)

    def loop(self, call: Call) -> Call:
        """A loop, whose operands and results keep their types."""
        same = replace(call, args=tuple(self.fitted(self.atom(a), a.type) for a in call.args))
        return with_changed_body(self.builder, same, _Caster(self.low, self.overrides).function)

    def atom(self, atom: Atom) -> Atom:
        return self.values.get(atom, atom) if isinstance(atom, Var) else atom

    def argument(self, arg: Any) -> Any:
        return with_leaves(arg, [self.atom(leaf) if is_atom(leaf) else leaf for leaf in leaves_of(arg)])

    def casted(self, arg: Any, dtype: str) -> Any:
        needed = [needs_cast(getattr(leaf, "type", None), dtype) for leaf in leaves_of(arg)]
        pairs = zip(needed, leaves_of(arg), strict=True)
        return with_leaves(arg, [self.cast(leaf, dtype) if need else leaf for need, leaf in pairs])

    def rounded(self, atom: Atom) -> Atom:
        """The operand of products for a float32 value: its cast to the low dtype, if there is one."""
        return self.casts.get((atom, self.low), atom)

    def cast(self, atom: Atom, dtype: str) -> Atom:
        source = self.widened.get(atom)
        if source is not None and getattr(source.type, "dtype", "") == dtype:
            return source
        key = (atom, dtype)
        if key not in self.casts:
            result = self.casts[key] = self.builder.call(get("cast"), (atom, dtype))
            if dtype == "float32":
                self.widened[result] = atom
        return self.casts[key]
