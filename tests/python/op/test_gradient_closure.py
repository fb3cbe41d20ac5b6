"""Gradients emit declared operators that have an enabled kernel of TVM, and only those that are needed."""

from __future__ import annotations

from functools import cache

from meta import inspect
from meta.inspect.called_operators import operators_called
from meta.ir.expr import Call, FunctionExpr, operands
from meta.ir.visitor import walk
from meta.op.grad.rule import gradient_rule
from meta.op.registry import Op, all_ops, names
from meta.passes import auto_diff
from meta.testing.derivatives import gradient_inputs, is_differentiable
from meta.testing.generic import make_call
from meta.testing.programs import trace_call
from tests.python.op.samples import first_rows, samples

OF_PYTHON = frozenset(op.name for op in all_ops() if op.operator) | {"strided_slice"}
"""Operators that gradient functions call as Python's: `x - y`, `x[0]`."""
OF_THE_WALK = frozenset({"add", "zeros", "reshape", "broadcast_to", "stop_gradient", "straight_through"})
"""Operators by which gradients start, are added up and end."""


@cache
def emitted(name: str) -> frozenset[str]:
    """The operators that the gradient of an operator calls, and its formula of forward mode."""
    rule = gradient_rule(name)
    if rule is None:
        return frozenset()
    functions = [rule.function, *([rule.forward] if callable(rule.forward) else [])]
    return frozenset(called for f in functions for called in operators_called(f, methods=True))


@cache
def closure(name: str) -> frozenset[str]:
    """The operators that gradients of any order emit."""
    reached: set[str] = set()
    waiting = set(emitted(name))
    while waiting:
        reached |= waiting
        waiting = {called for each in waiting for called in emitted(each)} - reached
    return frozenset(reached)


@cache
def lacks_kernel(name: str) -> str:
    """Why TVM has no enabled kernel of an operator; "" if it has one, or needs none."""
    part = inspect.checklist(name)["tvm"]
    return part.note if part.state == "missing" or part.note.startswith("off") else ""


def test_gradients_emit_operators_with_kernels() -> None:
    declared = names()
    wrong: list[str] = []
    for op in all_ops():
        if "::" in op.name:
            continue
        by_others = inspect.checklist(op.name)["tvm"].state != "present"  # for a reason that its checklist gives
        for called in sorted(closure(op.name) | OF_PYTHON | OF_THE_WALK):
            why = "not declared" if called not in declared else "" if by_others else lacks_kernel(called)
            wrong += [f"{op.name} -> {called}: {why}"] if why else []
    assert not wrong


ONE_KERNEL = frozenset({"attention_with_lse", "layer_norm", "layer_norm_train", "rms_norm",
                        "batch_norm_train", "stack", "solve_ex", "solve_triangular"})  # fmt: skip
"""Operators whose gradients are results of one operator or share values; what is not needed is a cheap part."""

DIFFERENTIABLE = [row for row in samples() if is_differentiable(row) and row.is_floating]
ROWS = [row for row in DIFFERENTIABLE if row in first_rows()]


def test_programs_emit_what_the_formulas_say() -> None:
    """The closure is read from the code of the formulas; programs of the samples emit nothing else."""
    wrong: list[str] = []
    for sample in DIFFERENTIABLE:
        call = make_call(sample, "float32").to_meta()
        record = trace_call(call).record(call.arrays())
        gradient = auto_diff([record.inputs[i] for i in gradient_inputs(call)])(record.module)
        ops = {b.value.op.name for b in walk(gradient.main) if isinstance(b.value, Call) and isinstance(b.value.op, Op)}
        extra = ops - closure(sample.op) - OF_PYTHON - OF_THE_WALK - {sample.op}
        wrong += [f"{sample!r} -> {', '.join(sorted(extra))}"] if extra else []
    assert not wrong


def test_gradients_that_are_not_wanted_are_not_emitted() -> None:
    """Of the operators of two arguments or more, forward ones; gradients of gradients share more."""
    wrong: list[str] = []
    for sample in ROWS:
        call = make_call(sample, "float32").to_meta()
        inputs = gradient_inputs(call)
        backward = {"dy", "dz"} & set(sample.operator.schema.names)
        if len(inputs) < 2 or backward or sample.op in ONE_KERNEL:
            continue
        record = trace_call(call).record(call.arrays())
        for i in inputs:
            unused = _unused_calls(auto_diff([record.inputs[i]])(record.module).main)
            wrong += [f"{sample!r}, argument {i}: {', '.join(unused)}"] if unused else []
    assert not wrong


def _unused_calls(function: FunctionExpr) -> list[str]:
    """The operators of calls that no result depends on."""
    live = set(function.body.results)
    unused: list[str] = []
    for binding in reversed(function.body.bindings):
        if binding.var in live:
            live.update(operands(binding.value))
        elif isinstance(binding.value, Call) and isinstance(binding.value.op, Op):
            unused.append(binding.value.op.name)
    return unused
