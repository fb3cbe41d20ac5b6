"""Kernels that fail for positions out of range before they compute: a pass over the tensor of positions sets a flag
that one assertion tests, so that LLVM can use vectors in the pass."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.spec import KernelSpec, TensorSpec
from meta.backend.tvm.te.elementwise import as_int64
from meta.backend.tvm.te.loops import registers

if TYPE_CHECKING:
    from meta.backend.tvm.numbers import Parameter


class _Operand:
    """An operand as a rule of positions sees it: its buffer, with its shape in TVM's expressions."""

    def __init__(self, buffer: tvm.Buffer) -> None:
        self.buffer = buffer
        self.shape = tuple(buffer.shape)
        self.ndim = len(self.shape)


def with_position_check(func: tvm.PrimFunc, spec: KernelSpec, parameters: Sequence[Parameter]) -> Any:
    """`func`, the scheduled function of a spec with a rule of positions: it raises IndexError if some are out of range.

    Tuples of operands do not occur in operators that take positions."""
    numbers = {p.expression: number for p, number in zip(parameters, func.params, strict=False)}
    operands = iter(map(_Operand, func.params[len(parameters) :]))
    args = [
        next(operands) if isinstance(arg, TensorSpec) else numbers.get(("arg", i), arg)
        for i, arg in enumerate(spec.args)
    ]
    assert spec.positions is not None
    accepted = spec.positions(*args, out=next(operands))
    if accepted is None:
        return func
    root = func.body.block
    body = tvm.SeqStmt([_check(args[accepted.argument], accepted), root.body])
    block = tvm.SBlock(
        root.iter_vars, root.reads, root.writes, root.name_hint, body, root.init, root.alloc_buffers,
        root.match_buffers, root.annotations,
    )  # fmt: skip
    return func.with_body(tvm.SBlockRealize(func.body.iter_values, func.body.predicate, block))


def _check(positions: _Operand, accepted: Any) -> Any:
    """The statement that asserts that all positions are accepted."""
    with tvm.IRBuilder() as builder, tvm.script_tirx.serial(0, 1):  # a builder holds one statement
        values = tvm.script_tirx.buffer_proxy(positions.buffer)
        wrong = registers(1, "int32")
        wrong[0] = tvm.tirx.const(0, "int32")
        several = len(accepted.sizes) > 1
        for n, size in enumerate(accepted.sizes):
            with ExitStack() as nest:
                shape = positions.shape[1:] if several else positions.shape
                i = tuple(nest.enter_context(tvm.script_tirx.serial(0, d)) for d in shape)
                value = as_int64(values[(n, *i) if several else i or 0])
                is_wrong = _is_wrong(value, size, accepted)
                wrong[0] = tvm.tirx.bitwise_or(wrong[0], is_wrong.astype("int32"))
        with tvm.script_tirx.Assert(tvm.tirx.EQ(wrong[0], 0), "a position is out of range", "IndexError"):
            tvm.script_tirx.evaluate(0)
    return builder.get()


def _is_wrong(value: Any, size: Any, accepted: Any) -> Any:
    size, first = _int64(size), tvm.tirx.const(accepted.first, "int64")
    wrong = tvm.tirx.any(value < (-size if accepted.from_end else first), value >= first + size)
    if accepted.ignored is None:
        return wrong
    return tvm.tirx.all(wrong, tvm.tirx.NE(value, _int64(accepted.ignored)))


def _int64(value: Any) -> Any:
    return tvm.tirx.const(value, "int64") if isinstance(value, int) else value.astype("int64")
