"""The operator of calls of a foreign library in one program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any

from meta.ir.type import Type
from meta.modes import modes
from meta.op.grad.rule import ProgramOp
from meta.op.implementation import Implementation
from meta.records import record
from meta.schema._dsl import Arg, Schema, Str, TensorList


@record(eq=False)
class ForeignOp(ProgramOp):
    """A function of a library on tensors, for one program.

    implementation: its only one. It has no gradient, and the text of a program with it cannot be parsed."""

    implementation: Implementation = field(kw_only=True)


def emit_foreign_call(
    implementation: Implementation, doc: str, facts: str, tensors: Sequence[Any], result: Type
) -> Any:
    """Emit a call into the current trace; the result, a symbol or a tuple of them.

    implementation: the kernel, by the name that the program calls it by.  facts: a text of everything besides the types
    of its tensors that decides what it computes: equal names, types and texts mean equal kernels.
    result: a TensorType, or a TupleType of them."""
    schema = Schema(implementation.op, Arg("xs", TensorList), Arg("facts", Str))
    op = ForeignOp(
        implementation.op,
        "library",
        schema,
        lambda *_: result,
        doc,
        amp="keep",
        complex="as_is",
        rule=None,
        implementation=implementation,
    )
    assert modes.emit is not None, "calls are emitted into traces"
    return modes.emit(op, (tuple(tensors), facts))
