"""Building blocks of functions of scalar expressions, and the dtypes that they are computed in."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from meta import dtype as dtypes
from meta.backend.tvm.adapter import te, tirx
from meta.backend.tvm.intrinsic import Expr, Tensor, binding, dtype_of
from meta.backend.tvm.numbers import Number, number_in
from meta.backend.tvm.workarounds.exact import constant, opaque
from meta.ir.type import operand_dtype, tensor_type

if TYPE_CHECKING:
    Operand = Tensor | Number | float
else:
    Operand = Any
"""An operand of elementwise arithmetic: a tensor, or a number, compiled in or taken at run time."""


def accumulation_dtype(dtype: Any) -> str:
    """`meta.dtype.accumulation_dtype` of a TVM dtype: halves are summed in float32."""
    return dtypes.accumulation_dtype(str(dtype))


def widen(value: Expr) -> Expr:
    """An element in its accumulation dtype."""
    dtype = dtype_of(value)
    return value.astype(accumulation_dtype(dtype)) if dtype in dtypes.HALVES else value


def narrow(x: Tensor, dtype: str, name: str = "narrow") -> Any:
    """A tensor cast to `dtype`; the tensor itself if it has that dtype."""
    return x if x.dtype == dtype else te.compute(x.shape, lambda *i: x(*i).astype(dtype), name)


def rounded_numbers(operands: list[Any]) -> list[Any]:
    """The operands with numbers rounded to the dtype of the tensors, though halves are computed in float32: 0.1 equals
    0.1 in a tensor."""
    dtype = _common_dtype(operands)
    return [number_in(x, dtype) if dtype in dtypes.FLOATS and is_number(x) else x for x in operands]


def _common_dtype(operands: list[Any]) -> str:
    present = [x for x in operands if x is not None]
    return operand_dtype(*[x if is_number(x) else tensor_type((), str(x.dtype)) for x in present])


def compute_dtype(operands: list[Any], result: str) -> str:
    """The dtype in which a function of these operands is computed."""
    return wide_dtype(_common_dtype(operands), result)


def wide_dtype(operands: str, result: str) -> str:
    """The dtype in which a function of operands of one dtype is computed."""
    dtype = accumulation_dtype(operands)
    return accumulation_dtype(result) if dtypes.is_float(result) and not dtypes.is_float(dtype) else dtype


def of_float64(function: Callable[..., Expr]) -> Callable[..., Expr]:
    """`function` of operands cast to float64 and bound to variables; attributes follow."""
    return lambda *args: bound(function, *(a if isinstance(a, (int, float)) else a.astype("float64") for a in args))


def bound(function: Callable[..., Expr], *args: Any) -> Expr:
    """`function` of variables bound to the expressions among `args`."""

    def bind_rest(done: tuple[Any, ...], rest: tuple[Any, ...]) -> Expr:
        if not rest:
            return function(*done)
        if isinstance(rest[0], (int, float)):
            return bind_rest((*done, rest[0]), rest[1:])
        return let(rest[0], lambda var: bind_rest((*done, var), rest[1:]))

    return bind_rest((), args)


def is_number(x: Any) -> bool:
    """Whether an argument is a number, compiled in or taken at run time."""
    return isinstance(x, (bool, int, float, Number))


def element(x: Operand, index: tuple[Any, ...], dtype: str) -> Expr:
    """The operand's element that broadcasting reads at `index`, or the number, in `dtype`."""
    if isinstance(x, (bool, int, float, Number)):
        return constant(x, dtype)
    own_index = index[len(index) - len(x.shape) :]
    return cast(x(*(0 if is_one(d) else i for d, i in zip(x.shape, own_index, strict=True))), dtype)


def is_one(extent: Any) -> bool:
    """Whether an extent is known to be 1 (sizes of 1 stay numbers in generic kernels)."""
    return getattr(extent, "value", extent) == 1 if isinstance(extent, (int, tirx.IntImm)) else False


def cast(x: Expr, dtype: str) -> Expr:
    """`x` as `dtype`; as a bool, `x != 0`."""
    kind = dtype_of(x)
    if kind == dtype:
        return x
    return unequal(x, tirx.const(0, kind)) if dtype == "bool" else x.astype(dtype)


def as_int64(position: Expr) -> Expr:
    """A position as int64; one of uint64 beyond it as the largest, which is outside of every axis."""
    if dtype_of(position) == "uint64":
        position = tirx.min(position, tirx.const(dtypes.int_range("int64")[1], "uint64"))
    return position.astype("int64")


def unequal(a: Expr, b: Expr) -> Expr:
    """Whether two expressions differ, true for NaN: the comparison that TVM emits for LLVM is false for it.

    The selection vectorises, which `tirx.isnan` does not: LLVM took four seconds to vectorise `any` of float16."""
    if not is_float(a):
        return tirx.NE(a, b)
    return select(tirx.EQ(a, b), tirx.const(False, "bool"), tirx.const(True, "bool"))


def const(x: Expr, value: float | Number) -> Expr:
    """`value` in the dtype of `x`."""
    return constant(value, dtype_of(x))


def let(value: Expr, body: Callable[[Expr], Expr]) -> Expr:
    """`body` of a variable bound to `value`, see `let_binding`."""
    var, within = let_binding(value)
    return within(body(var))


def let_binding(value: Expr) -> tuple[Expr, Callable[[Expr], Expr]]:
    """`meta.backend.tvm.intrinsic.binding` of `value`.

    A float32 value, which most often loads halves where it loads bfloat16, is repeated instead, and LLVM merges the
    copies; `meta.backend.tvm.workarounds.bfloat16` says why."""
    return (value, lambda body: body) if dtype_of(value) == "float32" else binding(value)


def is_float(x: Expr) -> bool:
    return dtype_of(x) in dtypes.FLOATS


def is_nan(x: Expr) -> Expr:
    return tirx.isnan(cast(x, accumulation_dtype(dtype_of(x)))) if is_float(x) else tirx.const(False, "bool")


def bits_of(x: Expr) -> Expr:
    """The bits of a float32 or float64 as a signed integer of its width."""
    return tirx.reinterpret("int32" if dtype_of(x) == "float32" else "int64", x)


def is_negative(x: Expr) -> Expr:
    """Whether the sign bit of a float32 or float64 is set."""
    return let(bits_of(x), lambda bits: bits < const(bits, 0))


def safe_divisor(number: Expr) -> Expr:
    """A divisor of floats that may be 0: TVM rejects the literal 0 as a divisor."""
    is_zero = isinstance(number, tirx.FloatImm) and float(number.value) == 0
    return opaque(number) if is_zero else number


def select(condition: Expr, x: Expr, y: Expr) -> Expr:
    """A selection that computes both sides and so vectorises; it cannot guard a load that is out of bounds."""
    return tirx.Select(condition, x, y)


def clamp(x: Expr, low: float, high: float) -> Expr:
    """min(max(x, low), high), for low <= high. NaN stays NaN: comparisons with it are false."""
    below, above = const(x, low), const(x, high)
    return select(x < below, below, select(x > above, above, x))


def libm(name: str) -> Callable[..., Expr]:
    """A function of the C library, on CUDA the function of the same name in its device library."""

    def call(*x: Expr) -> Expr:
        dtype = dtype_of(x[0])
        return tirx.call_pure_extern(dtype, name + "f" if dtype == "float32" else name, *x)

    return call
