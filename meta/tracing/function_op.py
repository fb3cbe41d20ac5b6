"""The operator of one call of an autograd.Function in a program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

from meta.ir.expr import Atom, Call
from meta.ir.type import TupleType, Type
from meta.op.grad.rule import GradRule, ProgramOp
from meta.records import record
from meta.schema._dsl import Arg, Schema, Tensor, TensorList

NAMESPACE = "Function"
"""The namespace of these operators in IR text: `Function::Cube(%x, [%result], [%saved])`. They are not registered, so
the text of a program with one cannot be parsed; `drop_stop_gradient` removes them."""


@record(eq=False)
class FunctionOp(ProgramOp):
    """A call of an autograd.Function, whose `forward` the program contains: the results of `forward`, with a gradient.

    Arguments: the tensors among the arguments of `forward`, then `results` and, if there are any, `saved`: the tensors
    that `forward` left for `backward`. The result is a tensor for one result and a tuple for several.
    rule: calls the user's `backward`.  run: the call on arrays, which records a node of the tape.
    """

    run: Callable[..., Any] = field(kw_only=True)


def function_op(name: str, inputs: int, saved: int, rule: GradRule, run: Callable[..., Any]) -> FunctionOp:
    """The operator of a call with `inputs` tensors among its arguments and `saved` tensors that are kept."""
    lists = [Arg("results", TensorList), *([Arg("saved", TensorList)] if saved else [])]
    schema = Schema(name, *(Arg(f"x{i}", Tensor) for i in range(inputs)), *lists)

    def declare(*types: Any) -> Type:
        results: tuple[Type, ...] = types[inputs]
        return results[0] if len(results) == 1 else TupleType(results)

    return FunctionOp(
        f"{NAMESPACE}::{name}", "function", schema, declare, "A call of an autograd.Function.", amp="keep", rule=rule,
        run=run,
    )  # fmt: skip


def forward_results(call: Call) -> Sequence[Atom]:
    """The results of `forward` in the call of a FunctionOp."""
    return call.args[call.op.schema.index["results"]]  # type: ignore[union-attr]  # operators have schemas
