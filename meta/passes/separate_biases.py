"""Adds biases of products on CPUs in the elementwise operators that read the products.

y = dense(x, w, b)                     z = dense(x, w)
a = gelu(y); c = gelu_dx(y, d)    =>   a = gelu(z + b); c = gelu_dx(z + b, d)

A library writes the bias into the result before the product, which then reads the result and writes it once more. TVM
fuses a sum for each reader with it, so that the bias costs a vector that stays in the cache.
"""

from __future__ import annotations

from typing import Any

from meta.backend.tvm.compute import TEImplementation
from meta.dtype import HALVES
from meta.ir.expr import Atom, Binding, Call, CallInfo, Constant, Expr, FunctionExpr, Var, arg_types
from meta.ir.type import TensorType
from meta.ir.visitor import reads, walk, walk_blocks
from meta.op.dispatch import first_accepting
from meta.op.registry import Op, get
from meta.passes.manager import function_pass
from meta.passes.rewriting import Scope, counted, plain_call, rewrite


@function_pass("separate_biases", "dense", device="cpu")
def separate_biases(function: FunctionExpr) -> FunctionExpr:
    """Add the bias of a `dense` on a CPU that a library computes in each of its one or two readers, if all of them are
    elementwise operators of its shape that TVM computes. Halves stay as they are. Results stay the same up to
    rounding."""
    biases = _separable(function)
    if not biases:
        return function

    def is_separated(arg: Any) -> bool:
        return isinstance(arg, Var) and arg in biases

    def rule(binding: Binding, scope: Scope) -> Expr | None:
        call = binding.value
        if not isinstance(call, Call):
            return None
        if is_separated(binding.var):
            return scope.call_expr(call.op, (*call.args[:2], None))
        if not any(map(is_separated, call.args)):
            return None
        add = get("add")
        args = [scope.call(add, (arg, biases[arg])) if is_separated(arg) else arg for arg in call.args]
        return scope.call_expr(call.op, tuple(args))

    return rewrite(function, counted("separate_biases", rule))


def _separable(function: FunctionExpr) -> dict[Var, Atom]:
    """The results of products whose biases are to be added by their readers -> the biases."""
    most_readers = 2
    biases: dict[Var, Atom] = {}
    for binding in walk(function):
        call: Any = binding.value
        bias: Any = call.args[2] if plain_call(call, "dense") else None
        # Other variables may not be known where the readers are, and halves would be rounded once more.
        is_known = isinstance(bias, Constant) or bias in function.params
        if bias is not None and is_known and bias.type.dtype not in HALVES and _runs_on_cpu(call, False):
            biases[binding.var] = bias
    counts: dict[Any, int] = dict.fromkeys(biases, 0)
    for binding in walk(function):
        for atom in set(reads(binding.value)) & biases.keys():
            is_taker = _is_elementwise(binding.value, atom) and _runs_on_cpu(binding.value, True)
            counts[atom] += 1 if is_taker else most_readers + 1
    for block in walk_blocks(function):
        for atom in set(block.results) & biases.keys():
            counts[atom] += most_readers + 1
    return {var: bias for var, bias in biases.items() if 1 <= counts[var] <= most_readers}


def _is_elementwise(value: Any, operand: Atom) -> bool:
    """Whether a value is a call of an elementwise operator on tensors of the shape of its operand."""
    if not isinstance(value, Call) or not isinstance(value.op, Op) or plain_call(value) is None:
        return False
    if value.op.view or value.op.pattern not in ("elemwise", "broadcast") or not isinstance(value.type, TensorType):
        return False
    return value.type.shape == operand.type.shape  # type: ignore[union-attr]


def _runs_on_cpu(call: Any, compiled: bool) -> bool:
    """Whether a call of known sizes runs on a CPU, in a kernel of TVM (compiled) or of a library."""
    kind = call.type
    if kind.device.kind != "cpu" or not kind.is_static:
        return False
    implementation = first_accepting(CallInfo(call.op, arg_types(call.args), kind, kind.device), in_program=True)
    return implementation is not None and isinstance(implementation.payload, TEImplementation) == compiled
