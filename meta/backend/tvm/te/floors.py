"""Quotients and remainders in indices, in the form that TVM's flattening of buffers leaves alone.

On GPUs it simplifies the sum that an index of several axes becomes, and takes (i + 2) % 6 with i in [0, 6) for i: the
offset of a floored quotient or remainder is lost. Truncated ones are equal where the dividend is not negative, and TVM
does not look into them.
"""

from __future__ import annotations

from typing import Any

from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.adapter import tirx
from meta.backend.tvm.te.intrinsic import dtype_of


def truncate_offset_floors(func: Any) -> Any:
    """`func` with truncated quotients and remainders in the indices of loads and stores, where the dividend is more
    than a sum of loop variables."""
    ranges = _ranges(func)

    analyzers: list[Any] = []

    def is_negative_possible(dividend: Any) -> bool:
        if not analyzers:
            analyzers.append(tvm.Analyzer())
            for var, extent in ranges.items():
                analyzers[0].bind(var, extent)
        return not analyzers[0].can_prove(dividend >= tirx.const(0, dtype_of(dividend)))

    def truncated(node: Any) -> Any:
        return node if _is_sum(node.a, ranges) else _truncated(node, is_negative_possible(node.a))

    def index(i: Any) -> Any:
        return tvm.structural_map(i, ((tirx.FloorDiv, tirx.FloorMod), truncated))

    def load(node: Any) -> Any:
        indices = [index(i) for i in node.indices]
        return node if _same(indices, node.indices) else tirx.BufferLoad(node.source, indices)

    def store(node: Any) -> Any:
        indices = [index(i) for i in node.indices]
        return node if _same(indices, node.indices) else tvm.BufferStore(node.buffer, node.value, indices)

    return tvm.structural_map(func, [(tvm.TensorLoad, load), (tvm.BufferStore, store)])


def _same(indices: list[Any], before: Any) -> bool:
    return all(a.same_as(b) for a, b in zip(indices, before, strict=True))


def _ranges(func: Any) -> dict[Any, Any]:
    """The range of each variable of loops and blocks."""
    ranges: dict[Any, Any] = {}

    def loop(node: Any) -> None:
        ranges[node.loop_var] = tvm.Range.from_min_extent(node.min, node.extent)

    def block(node: Any) -> None:
        ranges.update({each.var: each.dom for each in node.iter_vars})

    tvm.structural_walk(func, [(tvm.For, loop), (tvm.SBlock, block)])
    return ranges


def _is_sum(x: Any, variables: dict[Any, Any]) -> bool:
    """Whether x adds loop variables, multiples of them, and floored quotients and remainders of such sums."""
    if isinstance(x, tirx.Add):
        return _is_sum(x.a, variables) and _is_sum(x.b, variables)
    if isinstance(x, tirx.Mul):
        return _is_sum(x.a, variables) and isinstance(x.b, tvm.IntImm) and int(x.b) > 0
    if isinstance(x, (tirx.FloorDiv, tirx.FloorMod)):
        return _is_sum(x.a, variables)
    return isinstance(x, tvm.Var) and x in variables


def _truncated(node: Any, is_negative_possible: bool) -> Any:
    """A floored quotient or remainder, by a truncated one if the divisor may be positive."""
    a, b = node.a, node.b
    if isinstance(b, tvm.IntImm) and int(b) <= 0:
        return node
    zero, one = tirx.const(0, dtype_of(a)), tirx.const(1, dtype_of(a))
    remainder = tirx.truncmod(a, b)
    if isinstance(node, tirx.FloorMod):
        return tirx.Select(remainder < zero, remainder + b, remainder) if is_negative_possible else remainder
    quotient = tirx.truncdiv(a, b)
    return tirx.Select(remainder < zero, quotient - one, quotient) if is_negative_possible else quotient
