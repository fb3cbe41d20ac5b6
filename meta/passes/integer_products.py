"""Products of quantised numbers as products of bytes, on CPUs with an instruction for dot products of bytes.

    x = dequantize_linear(a, s, z); w = dequantize_linear(b, t)
    y = conv2d(x, w)          =>      y = cast(conv2d_int8(a, packed b, fill=z) - z * sums of b) * (s * t)

    y = conv2d(cast(a) - z, cast(b))          in int32, as models of integers have it, likewise without scales

The weights b are constants in 8 bits, and z is a number. Readers of models, and layers of meta.quantize, write products
in either form; elementwise operators behind them, such as the next rounding, run in the kernel of the product. Sums are
exact, where floats round. The CPU's instruction takes x signed or unsigned, and integers of the other kind are moved by
128, together with z.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from meta.backend.tvm.te.dots import operand_dtype
from meta.backend.tvm.te.tiles import lanes
from meta.dtype import int_range
from meta.ir.expr import Atom, Binding, Call, Constant, Expr, is_atom
from meta.ir.printer import to_array
from meta.ir.type import TensorType, tensor_type
from meta.passes.rewriting import Scope, by_op, emit, plain_call, rewrite_pass
from meta.records import record

_BYTES: Final = ("int8", "uint8")
_VIEWS: Final = ("cast", "reshape", "squeeze", "expand_dims")


@record
class _Quantized:
    """An operand (integers - zero) * scale; without a scale, the product is one of integers."""

    integers: Atom
    zero: Any
    scale: Any


def _operand(scope: Scope, atom: Any) -> _Quantized | None:
    kind = getattr(atom, "type", None)
    if not isinstance(kind, TensorType) or not kind.is_static or kind.device.kind != "cpu":
        return None
    if kind.dtype == "int32":
        if isinstance(atom, Constant):
            return _Quantized(atom, 0, None)
        shifted = plain_call(scope.definition(atom), "subtract")
        wide, zero = (atom, 0) if shifted is None else shifted.args
        cast = plain_call(scope.definition(wide), "cast")
        source: Any = None if cast is None else cast.args[0]
        return _Quantized(source, zero, None) if source is not None and source.type.dtype in _BYTES else None
    call = plain_call(scope.definition(atom), "dequantize_linear")
    if call is None or kind.dtype != "float32":
        return None
    integers, scale, zero = call.args
    return _Quantized(integers, zero, scale) if integers.type.dtype in _BYTES else None


def _known(scope: Scope, value: Any) -> Any:
    """The value of a number or constant, also of one that is cast or reshaped; None for others."""
    if isinstance(value, (int, float)):
        return np.asarray(value)
    if isinstance(value, Constant):
        return np.asarray(to_array(value.value))
    call = plain_call(scope.definition(value), *_VIEWS)
    kind: Any = None if call is None else call.type
    source: Any = None if call is None or not kind.is_static else _known(scope, call.args[0])
    return None if source is None else np.reshape(source, kind.shape)


def _weights(scope: Scope, w: _Quantized) -> npt.NDArray[Any] | None:
    """Constant weights without a zero point; None if they are not known, or need more than 8 bits."""
    zero = _known(scope, w.zero)
    if zero is None or not isinstance(w.integers, Constant) or (zero.size > 1 and zero.ndim != w.integers.type.ndim):
        return None
    value = np.asarray(to_array(w.integers.value)).astype(np.int32) - zero.astype(np.int32)
    return value.astype(np.int8) if value.size and value.min() >= -128 and value.max() <= 127 else None


def _packed(weights: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Weights (columns, *window, terms) in panels: four terms of each of a panel's columns are adjacent."""
    register = lanes("int32") // 2
    width = register if len(weights) <= register else 2 * register
    rest = [(0, 0)] * (weights.ndim - 2)
    wide: Any = np.pad(weights, [(0, -len(weights) % width), *rest, (0, -weights.shape[-1] % 4)])
    panels = wide.reshape(-1, width, *wide.shape[1:-1], wide.shape[-1] // 4, 4)
    return np.ascontiguousarray(np.moveaxis(panels, 1, -2))


def _constant(value: npt.NDArray[Any], like: TensorType) -> Constant:
    return Constant(value, tensor_type(value.shape, str(value.dtype), like.device))


def _in_kind(scope: Scope, x: _Quantized, zero: int) -> tuple[Atom, int] | None:
    """Integers and their zero point, in the dtype that the CPU's instruction takes; None for a zero point outside of
    it, and for a CPU without such an instruction."""
    dtype = operand_dtype()
    if not dtype:
        return None
    kind: Any = x.integers.type
    step = 0 if kind.dtype == dtype else 128 if dtype == "uint8" else -128
    low, high = int_range(dtype)
    if not low <= zero + step <= high:
        return None
    if not step:
        return x.integers, zero
    made = plain_call(scope.definition(x.integers), "quantize_linear")
    offset = None if made is None else _known(scope, made.args[2])
    if made is not None and offset is not None and offset.size == 1:
        return emit(scope, "quantize_linear", *made.args[:2], int(offset.item()) + step, dtype), zero + step
    wide = emit(scope, "add", emit(scope, "cast", x.integers, "int32"), step)
    return emit(scope, "cast", wide, dtype), zero + step


def _product(scope: Scope, call: Call, order: tuple[int, ...], columns_at: int) -> Atom | None:
    """The product in bytes. order: the axes of w in the order columns, window, terms.  columns_at: the axis of columns
    of the result."""
    left, right = _operand(scope, call.args[0]), _operand(scope, call.args[1])
    if left is None or right is None or (left.scale is None) != (right.scale is None):
        return None
    zeros, weights = _known(scope, left.zero), _weights(scope, right)
    if zeros is None or weights is None or zeros.size != 1 or isinstance(left.integers, Constant):
        return None
    moved = _in_kind(scope, left, int(zeros.item()))
    if moved is None or not _varies_along(right.scale, weights.ndim, order[0]):
        return None
    (integers, zero), columns = moved, np.transpose(weights, order)
    kind: Any = call.type
    row = tuple(len(columns) if i == columns_at else 1 for i in range(kind.ndim))
    packed = _constant(_packed(columns), kind)
    if call.op_name == "conv2d":
        y = emit(scope, "conv2d_int8", integers, packed, len(columns), zero, *call.args[2:5])
    else:
        y = emit(scope, "dense_int8", integers, packed, len(columns))
    sums: npt.NDArray[Any] = np.asarray(
        np.sum(columns, tuple(range(1, columns.ndim)), dtype=np.int64) * -zero, np.int32
    )
    if sums.any():
        y = emit(scope, "add", y, _constant(np.reshape(sums, row), kind))
    if left.scale is None:
        return y
    return emit(
        scope, "multiply", emit(scope, "cast", y, "float32"), _factor(scope, left.scale, right.scale, row, kind)
    )


def _varies_along(scale: Any, ndim: int, axis: int) -> bool:
    """Whether a scale of weights is one number, or varies along the axis of columns alone."""
    shape: Any = getattr(getattr(scale, "type", None), "shape", ())
    return all(size == 1 or i == axis - ndim + len(shape) for i, size in enumerate(shape))


def _factor(scope: Scope, first: Any, second: Any, row: tuple[int, ...], kind: TensorType) -> Atom:
    """The product of two scales as a row of the result; a constant if both are known."""
    known = [_known(scope, scale) for scale in (first, second)]
    if known[0] is not None and known[1] is not None:
        value: Any = np.asarray(known[0].astype(np.float32) * known[1].astype(np.float32))
        return _constant(value.reshape(row if value.size > 1 else (1,) * len(row)), kind)
    rows = [s if isinstance(s, (int, float)) else emit(scope, "reshape", s, row if s.type.size > 1 else (1,) * len(row))
            for s in (first, second)]  # fmt: skip
    return emit(scope, "multiply", *(rows if is_atom(rows[0]) else rows[::-1]))


def _convolution(binding: Binding, scope: Scope) -> Expr | Atom | None:
    call = plain_call(binding.value)
    groups, channels_last = (1, True) if call is None else call.args[5:]
    return _product(scope, call, (0, 2, 3, 1), 1) if call is not None and groups == 1 and not channels_last else None


def _dense(binding: Binding, scope: Scope) -> Expr | Atom | None:
    call = plain_call(binding.value)
    kind: Any = None if call is None else call.type
    y = None if call is None or kind.ndim < 2 else _product(scope, call, (0, 1), kind.ndim - 1)
    return y if y is None or call is None or call.args[2] is None else emit(scope, "add", y, call.args[2])


def _matmul(binding: Binding, scope: Scope) -> Expr | Atom | None:
    call = plain_call(binding.value)
    if call is None:
        return None
    x, w, transpose_x, transpose_w = call.args
    if transpose_x or w.type.ndim != 2 or x.type.ndim < 2:
        return None
    return _product(scope, call, (0, 1) if transpose_w else (1, 0), x.type.ndim - 1)


_TABLE: Final = {"conv2d": _convolution, "dense": _dense, "matmul": _matmul}

integer_products = rewrite_pass(
    "integer_products",
    "Compute products of quantised numbers with constant weights on CPUs from their bytes.",
    by_op(_TABLE),
    looks_for=("dequantize_linear", "cast"),
    device="cpu",
)
