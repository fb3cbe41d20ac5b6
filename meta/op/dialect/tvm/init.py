"""TE computes of operators that create tensors."""

from __future__ import annotations

from typing import Any

from meta import dtype as dtypes
from meta.backend.tvm.adapter import te, tirx
from meta.backend.tvm.compute import separate_extents
from meta.backend.tvm.intrinsic import Expr, Tensor
from meta.backend.tvm.numbers import at_least, is_float
from meta.backend.tvm.spec import Outs, TensorSpec
from meta.backend.tvm.te.elementwise import (
    Operand,
    accumulation_dtype,
    as_int64,
    cast,
    element,
    is_number,
    is_one,
    select,
)
from meta.backend.tvm.workarounds.exact import constant, fill
from meta.op.dialect.tvm import Registrar

compute = Registrar(__file__).compute


def _fill_constant(value: float, out: TensorSpec, name: str) -> Any:
    return te.compute(out.shape, lambda *i: fill(value, out.dtype), name)


@compute("zeros", sizes=("shape",))
def zeros(shape: tuple[int, ...], dtype: str, device: Any, *, out: Outs) -> Any:
    return _fill_constant(0, out[0], "zeros")


@compute("ones", sizes=("shape",))
def ones(shape: tuple[int, ...], dtype: str, device: Any, *, out: Outs) -> Any:
    return _fill_constant(1, out[0], "ones")


@compute("zeros_like")
def zeros_like(x: Any, dtype: str | None, *, out: Outs) -> Any:
    return _fill_constant(0, out[0], "zeros_like")


@compute("ones_like")
def ones_like(x: Any, dtype: str | None, *, out: Outs) -> Any:
    return _fill_constant(1, out[0], "ones_like")


def _fill(value: Any, out: TensorSpec, name: str) -> Any:
    """A tensor like `out` of one value: a number, or a 0-d tensor or a size that the kernel reads at run time."""
    if is_number(value):
        return _fill_constant(value, out, name)
    if isinstance(value, tirx.Var):
        return te.compute(out.shape, lambda *i: cast(value, out.dtype), name)
    return te.compute(out.shape, lambda *i: element(value, i, out.dtype), name)


@compute("full", sizes=("shape",), lift=("fill_value",))
def full(shape: tuple[int, ...], fill_value: Operand, dtype: str, device: Any, *, out: Outs) -> Any:
    return _fill(fill_value, out[0], "full")


@compute("full_like", lift=("fill_value",))
def full_like(x: Any, fill_value: Operand, dtype: str | None, *, out: Outs) -> Any:
    return _fill(fill_value, out[0], "full_like")


@compute("arange", vectors=separate_extents, lift=("start",))
def arange(start: float, stop: float | None, step: float, dtype: str | None, device: Any, *, out: Outs) -> Any:
    first = 0 if stop is None else start
    value_dtype = _arange_dtype(out[0].dtype, first, step)
    # Numbers that the kernel takes at run time have 64 bits.
    if out[0].dtype == "uint64" and any(isinstance(v, int) and v >= 1 << 63 for v in (first, stop)):
        value_dtype = "uint64"
    first, step = _wrapped(first, value_dtype), _wrapped(step, value_dtype)
    begin = first.astype(value_dtype) if isinstance(first, tirx.Var) else constant(first, value_dtype)
    return te.compute(
        out[0].shape,
        lambda i: cast(begin + i.astype(value_dtype) * constant(step, value_dtype), out[0].dtype),
        "arange",
    )


def _wrapped(value: Any, dtype: str) -> Any:
    """An int with the bits that it has in a 64-bit integer `dtype`: of an empty range, or a range of one value, the
    start or the step may lie outside."""
    if dtype == "float64" or not isinstance(value, int):
        return value
    low, _ = dtypes.int_range(dtype)
    return (value - low) % (1 << 64) + low


def _arange_dtype(dtype: str, *values: Any) -> str:
    """The dtype that values are computed in: int64 if all are integers, else float64, rounded once."""
    return "float64" if "float" in dtype or any(map(is_float, values)) else "int64"


@compute("linspace", vectors=separate_extents, lift=("num",))
def linspace(start: float, stop: float, num: int, dtype: str, device: Any, *, out: Outs) -> Any:
    intervals = at_least(num - 1, 1)
    last = constant(intervals, "int64") if is_number(intervals) else intervals
    if is_number(intervals):
        step = constant((stop - start) / intervals, "float64")
    else:
        step = constant(stop - start, "float64") / intervals.astype("float64")

    def value(i: Expr) -> Expr:
        # Computed from the nearer end: both ends are exact.
        position = i.astype("int64")
        lower = constant(start, "float64") + position.astype("float64") * step
        upper = constant(stop, "float64") - (last - position).astype("float64") * step
        return cast(select(position + position < last + 1, lower, upper), out[0].dtype)

    return te.compute(out[0].shape, value, "linspace")


@compute("eye", vectors=separate_extents, sizes=("n", "m"))
def eye(n: int, m: int | None, dtype: str, device: Any, *, out: Outs) -> Any:
    one, zero = tirx.const(1, out[0].dtype), tirx.const(0, out[0].dtype)
    return te.compute(out[0].shape, lambda i, j: select(tirx.EQ(i, j), one, zero), "eye")


@compute("one_hot", vectors=separate_extents, sizes=("depth",))
def one_hot(indices: Tensor, depth: int, dtype: str, axis: int, *, out: Outs) -> Any:
    axis = axis % (len(indices.shape) + 1)
    one, zero = tirx.const(1, accumulation_dtype(out[0].dtype)), tirx.const(0, accumulation_dtype(out[0].dtype))

    def value(*i: Expr) -> Expr:
        index = as_int64(indices(*i[:axis], *i[axis + 1 :]))
        # TVM puts an int32 for the position along an axis of size 1, also where positions are int64.
        position = tirx.const(0, "int64") if is_one(out[0].shape[axis]) else i[axis].astype("int64")
        return cast(select(tirx.EQ(index, position), one, zero), out[0].dtype)

    return te.compute(out[0].shape, value, "one_hot")
