"""The operator of one loop of a program: `meta.scan` and `meta.while_loop`.

A loop repeats a body, a function `(carry, elements, captured) -> (carry, items)`:

- carry: values from the previous step, at first the first operands of the call;
- elements: element i, along axis 0, of each of the next operands;
- captured: the other operands, the same in each step;
- items: stacked along axis 0 over all steps.

The results are the last carry, then the stacks. A loop without a length repeats while the first value that it carries,
a 0-d bool tensor, is true; it has no elements and no items.

What the gradient reads from a step is stacked too: the carry before the step, and the results of operators that cost
more than to compute them from those. The gradient is a loop in the opposite order that computes the other values again
(A. Griewank and A. Walther, "Evaluating Derivatives", 2008, chapter 12). `meta.passes.outline_loops` drops the stacks
that nothing reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from meta import dtype as dtypes
from meta.dim import Dim
from meta.eager.seeds import add_up, zeros_of
from meta.errors import GradientError, TypeInferenceError
from meta.ir.builder import Builder
from meta.ir.expr import (
    Atom,
    Binding,
    Block,
    Call,
    Constant,
    Expr,
    FunctionExpr,
    GlobalVar,
    If,
    Span,
    Tuple,
    Var,
    operands,
)
from meta.ir.type import FunctionType, TensorType, TupleType, Type, tensor_type
from meta.ir.visitor import block_reads, free_vars, inline, substituted
from meta.op.grad.rule import GradRule, ProgramOp
from meta.op.registry import Op
from meta.records import record
from meta.schema._dsl import Arg, ArgType, Schema, Tensor
from meta.tracing.differentiate import gradients
from meta.tracing.emitter import current_emitter, recording
from meta.tracing.symbol import Symbol

NAMESPACE = "Loop"
"""The namespace of these operators in IR text: `Loop::scan_1_2(@step, %h, %xs, %w)`. They are not registered."""


_BODY = ArgType("Function", "Function", "attr", "a function of the module", lambda value: value)


@record(eq=False)
class LoopOp(ProgramOp):
    """A loop. Arguments: the first carry, the operands whose elements are taken, the captured values; in a module with
    its loops outlined, the function of the body before them.

    body: the body, None once it is outlined.  result: the type of the results.  carried, scanned: the number of values
    carried, and of operands whose elements are taken.  length: the number of steps, None while a condition holds.
    reverse: from the last element to the first.
    """

    rule: GradRule = field(kw_only=True)
    body: FunctionExpr | None = field(kw_only=True)
    result: TupleType = field(kw_only=True)
    carried: int = field(kw_only=True)
    scanned: int = field(kw_only=True)
    length: Dim | None = field(kw_only=True)
    reverse: bool = field(kw_only=True)

    def infer(self, args: Sequence[Any]) -> Type:
        """The type of the results. Raises TypeInferenceError where the arguments do not fit the body."""
        types: list[Any] = [a if isinstance(a, (TensorType, FunctionType)) else a.type for a in args]
        function = types.pop(0) if self.body is None else self.body.type
        c, s = self.carried, self.scanned
        parameter_types = (*types[:c], *map(element, types[c : c + s]), *types[c + s :])
        if not isinstance(function, FunctionType) or function.params != parameter_types:
            problem = f"a body of type {function!r} is called with operands of types {types!r}"
            raise TypeInferenceError(self.name, problem, "the carry, stacks of elements, captured values")
        results = function.result.fields if isinstance(function.result, TupleType) else (function.result,)
        length = self.length
        return TupleType((*results[:c], *(stacked(r, length) for r in results[c:] if length is not None)))

    def with_body(self, body: FunctionExpr | None, stacks: Sequence[int] | None = None) -> LoopOp:
        """The loop with another body of the same types; None for the loop whose first argument is the function.

        stacks: which of the stacks the loop returns, all by default."""
        fields = self.result.fields
        result_types = (
            fields if stacks is None else (*fields[: self.carried], *(fields[self.carried + i] for i in stacks))
        )
        schema = self.schema if body is not None else Schema(self.name, Arg("step", _BODY), *self.schema.args)
        return replace(self, body=body, schema=schema, result=TupleType(tuple(result_types)))


def stacked(kind: Any, length: Dim) -> TensorType:
    """The type of a stack of tensors of one type."""
    return tensor_type((length, *kind.shape), kind.dtype, kind.device)


def element(kind: Any) -> TensorType:
    """The type of an element along axis 0."""
    return tensor_type(kind.shape[1:], kind.dtype, kind.device)


def emit_loop(
    builder: Builder, body: FunctionExpr, carry: Sequence[Atom], operands: Sequence[Atom], length: Dim | None,
    reverse: bool, span: Span | None,
) -> Var:  # fmt: skip
    """Emit the loop of a body whose parameters are the carry and the elements; the results.

    Variables of the blocks around are captured. What a step computes only from those is computed before the loop.
    """
    body, captured = _closed(_hoisted(builder, body))
    items = len(body.body.results) - len(carry)
    if length is not None:
        body = _with_saved(body, len(carry))
    gradient = _LoopGradient(body, len(carry), len(operands), items, length, reverse, span)
    return builder.emit(_call(gradient, (*carry, *operands, *captured)))


def with_changed_body(builder: Builder, call: Call, change: Callable[[FunctionExpr], FunctionExpr]) -> Call:
    """The call of a loop with another body of the same types. What a step then computes only from captured values is
    computed before the loop."""
    assert isinstance(call.op, LoopOp)
    old: Any = call.op.rule.function
    iterated = old.carried + old.scanned
    body = change(old.body)
    outside = dict(zip(body.params[iterated:], call.args[iterated:], strict=True))
    opened = substituted(replace(body, params=body.params[:iterated]), outside)
    body, captured = _closed(_hoisted(builder, opened))
    return _call(replace(old, body=body), (*call.args[:iterated], *captured))


def with_rewritten_body(call: Call, args: Sequence[Atom], change: Callable[[FunctionExpr], FunctionExpr]) -> Call:
    """The call of a loop, not outlined, with other operands and a body that takes them; types may differ."""
    assert isinstance(call.op, LoopOp)
    gradient: Any = call.op.rule.function
    return _call(replace(gradient, body=change(gradient.body)), tuple(args))


def with_captured(call: Call, step: GlobalVar, captured: Sequence[Atom]) -> Call:
    """The call of an outlined loop with further captured values, which `step` takes as its last parameters."""
    op, first = call.op, len(call.args) - 1
    assert isinstance(op, LoopOp)
    args = (Arg(f"x{first + i}", Tensor) for i in range(len(captured)))
    new = replace(op, schema=Schema(op.name, *op.schema.args, *args))
    return replace(call, op=new, args=(step, *call.args[1:], *captured))


def _call(gradient: _LoopGradient, args: tuple[Atom, ...]) -> Call:
    """The call of the loop that a gradient describes."""
    body, carried, length = gradient.body, gradient.carried, gradient.length
    results = body.body.results
    stacks = [stacked(r.type, length) for r in results[carried:]] if length is not None else []
    result = TupleType((*(r.type for r in results[:carried]), *stacks))
    kind = "while" if length is None else "scan_reverse" if gradient.reverse else "scan"
    name = f"{NAMESPACE}::{kind}_{carried}_{gradient.scanned}"
    schema = Schema(name, *(Arg(f"x{i}", Tensor) for i in range(len(args))))
    rule = GradRule(
        name, gradient, tuple(i for i, a in enumerate(args) if _is_float(a.type)), outputs=None,
        saved_outputs=frozenset({0}), undefined=frozenset(range(len(result.fields))),
    )  # fmt: skip
    op = LoopOp(
        name, "control", schema, lambda *_: result, "A loop.", amp="keep", body=body, result=result, carried=carried,
        scanned=gradient.scanned, length=length, reverse=gradient.reverse, rule=rule,
    )  # fmt: skip
    return Call(op, args, result, gradient.span)


def _is_float(kind: Type) -> bool:
    return isinstance(kind, TensorType) and dtypes.is_inexact(kind.dtype)


def _hoisted(builder: Builder, body: FunctionExpr) -> FunctionExpr:
    """The body without the calls whose operands are all from outside of it, which go to `builder`."""
    inside = set(body.params)
    inner_bindings: list[Binding] = []
    for binding in body.body.bindings:
        value, read = binding.value, list(operands(binding.value))
        moves = not isinstance(value, (If, FunctionExpr)) and read and not any(a in inside for a in read)
        if moves:
            builder.bind(binding)
        else:
            inside.add(binding.var)
            inner_bindings.append(binding)
    return replace(body, body=Block(tuple(inner_bindings), body.body.result))


def _closed(body: FunctionExpr) -> tuple[FunctionExpr, tuple[Atom, ...]]:
    """The body with parameters for what it reads from outside, and what those are."""
    constants = dict.fromkeys(a for a in block_reads(body.body) if isinstance(a, Constant))
    captured: tuple[Atom, ...] = (*free_vars(body), *constants)
    params = {a: Var(getattr(a, "name", "") or "constant", a.type) for a in captured}
    renamed = substituted(body, params)
    return replace(renamed, params=(*renamed.params, *params.values())), captured


_COSTLY = ("opaque", "out_ewise_fusable")
"""The patterns of operators whose results are stacked for the gradient."""


def _with_saved(body: FunctionExpr, carried: int) -> FunctionExpr:
    """The body that also returns what its gradient reads: the carry, then the results of costly operators."""
    saved: list[Atom] = list(body.params[:carried])
    for binding in body.body.bindings:
        op = binding.value.op if isinstance(binding.value, Call) else None
        if isinstance(op, Op) and not op.view and op.pattern in _COSTLY and isinstance(binding.var.type, TensorType):
            saved.append(binding.var)
    return replace(body, body=Block(body.body.bindings, Tuple((*body.body.results, *saved))))


@record
class _LoopGradient:
    """The gradient of a loop in the form of a generated gradient function. items: the number of stacks before the
    stacks of saved values."""

    body: FunctionExpr
    carried: int
    scanned: int
    items: int
    length: Dim | None
    reverse: bool
    span: Span | None

    def __call__(self, needs: tuple[bool, ...], *args_outs_dys: Any) -> tuple[Any, ...]:
        *args, outs, dys = args_outs_dys
        if self.length is None:
            raise GradientError(
                "while_loop",
                "the gradient goes through a loop whose number of steps is not known before it ends",
                "loops with a bound",
                "pass max_steps=..., or use meta.scan",
                location=str(self.span) if self.span else None,
            )
        differentiable = [i for i, a in enumerate(args) if dtypes.is_inexact(a.dtype)]
        needed_positions = {i for i, need in zip(differentiable, needs, strict=True) if need}
        return self.emit(differentiable, needed_positions, [a.atom for a in args], list(outs), list(dys))

    def emit(
        self,
        differentiable: Sequence[int],
        needed_positions: set[int],
        args: list[Any],
        outs: list[Any],
        dys: list[Any],
    ) -> tuple[Any, ...]:
        """Emit the loop backwards. differentiable: the arguments with gradients.  dys: the results' gradients or
        None."""
        emitter = current_emitter()
        c, s = self.carried, self.scanned
        carry = [i for i in differentiable if i < c]
        captured = [i for i in differentiable if i >= c + s and i in needed_positions]
        elements = [i for i in differentiable if c <= i < c + s and i in needed_positions]
        # Second derivatives reach the saved values too.
        items = [i for i, dy in enumerate(dys) if i >= c and dy is not None]
        saved = [o.atom for o in outs[c + self.items :]]
        first = [zeros_of(outs[i]) if dys[i] is None else dys[i] for i in carry]
        first += [zeros_of(Symbol(args[i])) for i in captured]
        stacks = [*(dys[i].atom for i in items), *args[c : c + s], *saved]
        step, arrived = self.step(carry, captured, elements, items, args[c + s :])
        assert self.length is not None
        start = [x.atom for x in first]
        var = emit_loop(emitter.builder, step, start, stacks, self.length, not self.reverse, self.span)
        results = [emitter.result(emitter.builder.get_item(var, i)) for i in range(len(start) + len(elements))]
        by_argument = dict(zip((*carry, *captured, *elements), results, strict=True))
        if not isinstance(self.length, int) or self.length == 0:  # without a step, the results are the first carry
            arrived.update(carry)
        return tuple(by_argument[i] if i in arrived else None for i in differentiable)

    def step(
        self, carry: Sequence[int], captured: Sequence[int], elements: Sequence[int], items: Sequence[int],
        outside: Sequence[Atom],
    ) -> tuple[FunctionExpr, set[int]]:  # fmt: skip
        """The body of the gradient, which captures `outside`, and the arguments that it passes gradients to.

        Parameters: the gradients of the carry, the summed gradients of captured values; the gradients of the items, the
        elements, the saved values. Results: the former, then the gradients of elements."""
        c, s, results = self.carried, self.scanned, self.body.body.results
        first = c + self.items
        builder = Builder(caller_spans=False)
        params = [Var("", self.body.params[i].type) for i in (*carry, *captured)]
        dys = [Var("", results[i].type) for i in items]
        values = [Var("", p.type) for p in self.body.params[c : c + s]]
        saved = [Var("", r.type) for r in results[first:]]
        with builder.function("gradient", (*params, *dys, *values, *saved)) as scope, recording(builder):
            # The values of the body are variables here, so that gradients stop at them.
            inputs = [Var("", p.type) for p in self.body.params]
            computed = inline(builder, self.body, tuple(inputs))
            assert isinstance(computed, Tuple)
            incoming: dict[Atom, Any] = {}
            for i, dy in zip((*carry, *items), (*params[: len(carry)], *dys), strict=True):
                atom = computed.fields[i]
                incoming[atom] = add_up(incoming.get(atom), Symbol(dy))
            arrived = gradients(builder, incoming, [inputs[i] for i in (*carry, *captured, *elements)])
            sums = params[len(carry) :]
            out = [_or_zeros(arrived, inputs[i]) for i in carry]
            out += [add_up(Symbol(total), arrived.get(inputs[i])) for i, total in zip(captured, sums, strict=True)]
            out += [_or_zeros(arrived, inputs[i]) for i in elements]
            scope.ret([x.atom for x in out])
        by_variable: dict[Any, Atom] = dict(zip(inputs, (*saved[:c], *values, *outside), strict=True))
        by_variable |= zip(computed.fields[first + c :], saved[c:], strict=True)
        return _with_values(scope.function, by_variable), {i for i, x in enumerate(inputs) if x in arrived}


def _or_zeros(arrived: Mapping[Var, Any], source: Var) -> Any:
    return arrived[source] if source in arrived else zeros_of(Symbol(source))


def _with_values(function: FunctionExpr, values: Mapping[Any, Atom]) -> FunctionExpr:
    """The function with values in place of variables, and without what nothing reads then."""
    left = tuple(b for b in function.body.bindings if b.var not in values)
    body = substituted(FunctionExpr((), Block(left, function.body.result)), values).body
    # Parameters of the function are not renamed: only what `known` maps is.
    live: set[Any] = set(body.results)
    bindings: list[Binding] = []
    for binding in reversed(body.bindings):
        if binding.var in live:
            bindings.append(binding)
            live.update(_reads(binding.value))
    return replace(function, body=Block(tuple(reversed(bindings)), body.result))


def _reads(value: Expr) -> Sequence[Atom]:
    return (
        tuple(operands(value)) if not isinstance(value, (If, FunctionExpr)) else (*operands(value), *free_vars(value))
    )
