"""Quotients and remainders in indices, in the form that TVM's flattening of buffers leaves alone.

On GPUs it simplifies the sum that an index of several axes becomes, and takes (i + 2) % 6 with i in [0, 6) for i: the
offset of a floored quotient or remainder is lost. Truncated ones are equal where the dividend is not negative, and TVM
does not look into them. Symbolic divisors need no change: TVM does not simplify those either, and takes
seconds to simplify their truncated forms.
"""

from __future__ import annotations

from typing import Any, Final

from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.adapter import tirx
from meta.backend.tvm.intrinsic import dtype_of

_LARGEST_SIZE: Final = (1 << 31) - 1
"""Of symbolic extents, of 32 bits too, for bounds of products of them."""


def truncate_offset_floors(func: tvm.PrimFunc) -> Any:
    """`func` with truncated quotients and remainders in the indices of loads and stores, where the dividend is more
    than a sum of loop variables."""
    ranges = _ranges(func)
    analyzers: list[Any] = []

    def least(dividend: Any) -> int:
        """A lower bound of a dividend."""
        if not analyzers:
            analyzers.append(tvm.Analyzer())
            for var, extent in ranges.items():
                analyzers[0].bind(var, extent)
            for size in _sizes(func):
                analyzers[0].bind(size, tvm.Range(0, tirx.const(_LARGEST_SIZE, dtype_of(size))))
        return int(analyzers[0].const_int_bound(dividend).min_value)

    def truncated(node: tvm.Object) -> Any:
        is_fixed = isinstance(node.b, tvm.IntImm) and int(node.b) > 0
        is_offset = is_fixed and not _is_sum(node.a, ranges) and _moves(node.a, ranges)
        return _truncated(node, least(node.a)) if is_offset else node

    def index(i: tvm.Expr) -> Any:
        return tvm.structural_map(i, ((tirx.FloorDiv, tirx.FloorMod), truncated))

    def load(node: tvm.Object) -> Any:
        indices = [index(i) for i in node.indices]
        return node if _same(indices, node.indices) else tirx.BufferLoad(node.source, indices)

    def store(node: tvm.Object) -> Any:
        indices = [index(i) for i in node.indices]
        return node if _same(indices, node.indices) else tvm.BufferStore(node.buffer, node.value, indices)

    return tvm.structural_map(func, [(tvm.TensorLoad, load), (tvm.BufferStore, store)])


def _same(indices: list[Any], before: Any) -> bool:
    return all(a.same_as(b) for a, b in zip(indices, before, strict=True))


def _ranges(func: tvm.PrimFunc) -> dict[Any, Any]:
    """The range of each variable of loops and blocks."""
    ranges: dict[Any, Any] = {}

    def loop(node: tvm.Object) -> None:
        ranges[node.loop_var] = tvm.Range.from_min_extent(node.min, node.extent)

    def block(node: tvm.Object) -> None:
        ranges.update({each.var: each.dom for each in node.iter_vars})

    tvm.structural_walk(func, [(tvm.For, loop), (tvm.SBlock, block)])
    return ranges


def _sizes(func: tvm.PrimFunc) -> set[Any]:
    """The symbolic extents of operands and results. Indices exist where they are positive."""
    shapes = [param.ty.shape for param in func.params if isinstance(param.ty, tvm.BufferType)]
    return {extent for shape in shapes for extent in shape if isinstance(extent, tvm.Var)}


def _is_sum(x: tvm.Expr, variables: dict[Any, Any]) -> bool:
    """Whether x adds loop variables, multiples of them, and floored quotients and remainders of such sums."""
    if isinstance(x, tirx.Add):
        return _is_sum(x.a, variables) and _is_sum(x.b, variables)
    if isinstance(x, tirx.Mul):
        return _is_sum(x.a, variables) and isinstance(x.b, tvm.IntImm) and int(x.b) > 0
    if isinstance(x, (tirx.FloorDiv, tirx.FloorMod)):
        return _is_sum(x.a, variables)
    return isinstance(x, tvm.Var) and x in variables


def _moves(x: tvm.Expr, variables: dict[Any, Any]) -> bool:
    """Whether x depends on loop variables. What is computed of sizes alone has no range that TVM could use."""
    read: list[Any] = []
    tvm.structural_walk(x, (tvm.Var, read.append))
    return any(var in variables for var in read)


def _truncated(node: tvm.Object, least: int) -> Any:
    """A floored quotient or remainder of a positive constant, by a truncated one. least: of the dividend."""
    a, divisor = node.a, int(node.b)
    is_quotient, dtype = isinstance(node, tirx.FloorDiv), dtype_of(a)
    if least < -(_LARGEST_SIZE // 2):
        remainder = tirx.truncmod(a, node.b)
        is_less = remainder < tirx.const(0, dtype)
        if not is_quotient:
            return tirx.Select(is_less, remainder + node.b, remainder)
        quotient = tirx.truncdiv(a, node.b)
        return tirx.Select(is_less, quotient - tirx.const(1, dtype), quotient)
    turns = max(-(least // divisor), 0)  # a + turns * divisor is not negative
    a = a + tirx.const(turns * divisor, dtype) if turns else a
    if not is_quotient:
        return tirx.truncmod(a, node.b)
    quotient = tirx.truncdiv(a, node.b)
    return quotient - tirx.const(turns, dtype) if turns else quotient
