"""AutoCast as a pass: a float32 program in mixed precision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from meta.errors import ArgumentError, message
from meta.ir.builder import Builder
from meta.ir.expr import Atom, Block, Call, Expr, Function, GlobalVar, If, Tuple, TupleGetItem, Var, arg_types, is_atom
from meta.ir.module import Module
from meta.ir.type import TensorType
from meta.ir.visitor import map_operands
from meta.op.precision import CASTABLE, target_dtype
from meta.op.registry import Amp, Op, get
from meta.passes.inline_calls import inline_calls
from meta.passes.manager import Pass


def auto_cast(dtype: str = "bfloat16", overrides: Mapping[str, Amp] | None = None) -> Pass:
    """The pass that casts operands by each operator's `amp` rule (meta.op.precision).

    The types of parameters and results stay as they are; a value is cast to a dtype at most once (so weights are cast
    once a step), and a cast of a cast back to what was cast is dropped. `overrides` maps operator names to rules.
    Raises ArgumentError for a dtype other than float16 and bfloat16."""
    if dtype not in ("float16", "bfloat16"):
        raise ArgumentError(message("auto_cast", f"dtype is {dtype!r}", 'allowed: "float16", "bfloat16"'))
    chosen = dict(overrides or {})
    for name in chosen:
        get(name)

    def run(module: Module) -> Module:
        module = inline_calls(module)
        return Module({name: _Caster(dtype, chosen).function(f) for name, f in module.functions.items()})

    return Pass("auto_cast", run, auto_cast.__doc__ or "")


class _Caster:
    """One traversal of one function."""

    def __init__(self, low: str, overrides: Mapping[str, Amp]) -> None:
        self.low = low
        self.overrides = overrides
        self.builder = Builder(caller_spans=False)
        self.values: dict[Var, Atom] = {}
        self.casts: dict[tuple[Atom, str], Atom] = {}
        self.sources: dict[Atom, Atom] = {}

    def function(self, function: Function) -> Function:
        return replace(function, body=self.block(function.body))

    def block(self, block: Block) -> Block:
        """The block with the same result types; casts made inside it are not visible outside."""
        known = dict(self.casts)
        with self.builder.block() as scope:
            for binding in block.bindings:
                self.builder.span = binding.span
                new = self.builder.emit(self.value(binding.value), binding.var.name)
                self.values[binding.var] = new
            self.builder.span = None
            results = [self.fitted(r) for r in block.results]
            scope.ret(results if isinstance(block.result, Tuple) else results[0])
        self.casts = known
        return scope.block

    def fitted(self, old: Atom) -> Atom:
        """The new value of a result, in its old type."""
        new = self.atom(old)
        if isinstance(old.type, TensorType) and new.type != old.type:
            return self.cast(new, old.type.dtype)
        if new.type != old.type:
            fields = [self.builder.get_item(new, i) for i in range(len(old.type.fields))]  # type: ignore[union-attr]
            wanted = old.type.fields  # type: ignore[union-attr]
            return self.builder.tuple([f if f.type == t else self.cast(f, t.dtype) for f, t in zip(fields, wanted, strict=True)])  # type: ignore[union-attr]
        return new

    def value(self, value: Expr) -> Expr:
        if isinstance(value, If):
            return replace(value, cond=self.atom(value.cond), then=self.block(value.then), orelse=self.block(value.orelse))
        if isinstance(value, Function):
            return self.function(value)
        if isinstance(value, (Tuple, TupleGetItem)):
            return map_operands(value, self.atom)
        if not isinstance(value.op, Op):
            args = tuple(self.fitted(a) if is_atom(a) else a for a in value.args)
            return replace(value, args=args, op=self.callee(value))
        args = tuple(map(self.argument, value.args))
        wanted = target_dtype(value.op, arg_types(args), self.low, self.overrides)
        if wanted is not None:
            args = tuple(self.casted(a, wanted) for a in args)
        return self.builder.call_expr(value.op, args, value.dialect, value.attrs)

    def callee(self, call: Call) -> Any:
        return call.op if isinstance(call.op, GlobalVar) else self.atom(call.op)  # type: ignore[arg-type]

    def atom(self, atom: Atom) -> Atom:
        return self.values.get(atom, atom) if isinstance(atom, Var) else atom

    def argument(self, arg: Any) -> Any:
        if is_atom(arg):
            return self.atom(arg)
        return tuple(map(self.argument, arg)) if isinstance(arg, tuple) else arg  # pyright: ignore[reportUnknownArgumentType]

    def casted(self, arg: Any, dtype: str) -> Any:
        if isinstance(arg, tuple):
            return tuple(self.casted(a, dtype) for a in arg)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        kind = getattr(arg, "type", None)
        if not isinstance(kind, TensorType) or kind.dtype not in CASTABLE or kind.dtype == dtype:
            return arg
        return self.cast(arg, dtype)

    def cast(self, atom: Atom, dtype: str) -> Atom:
        source = self.sources.get(atom)
        if source is not None and source.type.dtype == dtype and dtype != "float32":  # type: ignore[union-attr]
            return source  # narrow -> wide -> narrow: the narrow value itself
        key = (atom, dtype)
        if key not in self.casts:
            made = self.builder.call(get("cast"), (atom, dtype))
            self.casts[key] = made
            self.sources[made] = atom
        return self.casts[key]
