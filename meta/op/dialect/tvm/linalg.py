"""TE computes of matrix products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from meta.backend.tvm.adapter import te, tirx
from meta.backend.tvm.intrinsic import Expr, Tensor
from meta.backend.tvm.spec import Outs
from meta.backend.tvm.te.elementwise import accumulation_dtype, is_one, narrow
from meta.backend.tvm.te.product import product, product_of_bytes
from meta.backend.tvm.te.tiles import refuse_bytes
from meta.op.dialect.tvm import Registrar
from meta.op.work import product_fits_tiles

compute = Registrar(__file__).compute


@compute("matmul")
def matmul(x1: Tensor, x2: Tensor, transpose_a: bool, transpose_b: bool, *, out: Outs, kind: str) -> Any:
    if _in_tiles(kind, x1, x2, out[0].shape):
        return product(x1, x2, transpose_a, transpose_b, [int(d) for d in out[0].shape])
    row, column = len(x1.shape) == 1, len(x2.shape) == 1
    k = te.reduce_axis((0, x1.shape[-2 if transpose_a else -1]), "k")
    accumulator = accumulation_dtype(x1.dtype)

    def element(*i: Expr) -> Any:
        batch = list(i[: len(i) - (not row) - (not column)])
        m, n = i[len(batch)] if not row else None, i[-1] if not column else None
        a = x1(k) if row else x1(*_batch_index(x1, batch), *((k, m) if transpose_a else (m, k)))
        b = x2(k) if column else x2(*_batch_index(x2, batch), *((n, k) if transpose_b else (k, n)))
        return te.sum(a.astype(accumulator) * b.astype(accumulator), k)

    return narrow(te.compute(out[0].shape, element, "matmul"), x1.dtype)


@compute("dense")
def dense(x: Tensor, w: Tensor, bias: Tensor | None, *, out: Outs, kind: str) -> Any:
    accumulator = accumulation_dtype(x.dtype)
    if _in_tiles(kind, x, w, out[0].shape):
        y = product(x, w, False, True, [int(d) for d in out[0].shape])
    else:
        k = te.reduce_axis((0, w.shape[1]), "k")

        def element(*i: Expr) -> Any:
            return te.sum(x(*i[:-1], k).astype(accumulator) * w(i[-1], k).astype(accumulator), k)

        y = te.compute(out[0].shape, element, "dense")
    if bias is None:
        return narrow(y, x.dtype)
    return te.compute(out[0].shape, lambda *i: (y(*i) + bias(i[-1]).astype(accumulator)).astype(x.dtype), "dense_bias")


@compute("dense_int8", generic=False, accepts=refuse_bytes)
def dense_int8(x: Tensor, w: Tensor, columns: int) -> Any:
    return product_of_bytes(x, w, columns)


@compute("dequantize_weight", generic=False)
def dequantize_weight(w: Tensor, scale: Tensor, dtype: str, *, out: Outs) -> Any:
    accumulator = accumulation_dtype(dtype)
    size = max(int(w.shape[-1]) // int(scale.shape[-1]), 1)

    def element(*i: Expr) -> Any:
        *row, k = i
        if w.dtype == "int8":
            return (w(*row, k).astype(accumulator) * scale(*row, k // size).astype(accumulator)).astype(dtype)
        group, within = k // (2 * size), k % (2 * size)
        byte = w(*row, group * size + within % size).astype("int32")
        integer = ((byte >> (within // size * 4).astype("int32")) & 15) - 8
        return (integer.astype(accumulator) * scale(*row, group).astype(accumulator)).astype(dtype)

    return te.compute(out[0].shape, element, "dequantized")


@compute("quantized_dense", generic=False)
def quantized_dense(x: Tensor, w: Tensor, scale: Tensor, bias: Tensor | None, *, out: Outs) -> Any:
    accumulator = accumulation_dtype(x.dtype)
    groups = int(scale.shape[1])
    size = int(w.shape[1]) // groups
    group, k = te.reduce_axis((0, groups), "group"), te.reduce_axis((0, size), "k")

    def products(*i: Expr) -> Any:
        """The products of the inputs with the integers of a byte."""
        *row, column = i
        byte = w(column, group * size + k)

        def input_at(place: Expr) -> Any:
            return x(*row, place).astype(accumulator)

        if w.dtype == "int8":
            return input_at(group * size + k) * byte.astype(accumulator)
        low, high = _integers(byte, accumulator)
        first = group * (2 * size) + k
        return input_at(first) * low + input_at(first + size) * high

    def scaled(*i: Expr) -> Any:
        return products(*i) * scale(i[-1], group).astype(accumulator)

    y = te.compute(out[0].shape, lambda *i: te.sum(products(*i) if groups == 1 else scaled(*i), [group, k]), "products")
    if groups > 1 and bias is None:
        return narrow(y, x.dtype)

    def result(*i: Expr) -> Any:
        value = y(*i) if groups > 1 else y(*i) * scale(i[-1], 0).astype(accumulator)
        return (value if bias is None else value + bias(i[-1]).astype(accumulator)).astype(x.dtype)

    return te.compute(out[0].shape, result, "result")


def _integers(byte: Expr, dtype: str) -> tuple[Any, Any]:
    """The two integers of a byte.

    In float32 the bits become digits of a float, whose exponent makes the lowest one of them 1: an `or` and an exact
    subtraction, where a conversion takes a shift, a subtraction and the conversion (1.1 times the products in all)."""
    if dtype != "float32":
        bits = byte.astype("int32")
        return ((bits & 15) - 8).astype(dtype), ((bits >> 4) - 8).astype(dtype)
    place: Callable[..., Any] = tirx.reinterpret
    bits, const = byte.astype("uint32"), tirx.const
    low = place("float32", (bits & const(0x0F, "uint32")) | const(0x4B000000, "uint32"))  # 2**23 + the integer
    high = place("float32", (bits & const(0xF0, "uint32")) | const(0x49000000, "uint32"))  # 2**19 + the integer
    return low - const(2.0**23 + 8, "float32"), high - const(2.0**19 + 8, "float32")


def _in_tiles(kind: str, x: Tensor, w: Tensor, shape: Any) -> bool:
    """Whether a product is computed in register tiles: on a CPU, with sizes that are known."""
    sizes = [*x.shape, *w.shape, *shape]
    if kind != "cpu" or not all(isinstance(d, (int, tirx.IntImm)) for d in sizes) or len(shape) != len(x.shape):
        return False
    return product_fits_tiles(str(x.dtype), *(tuple(map(int, sizes)) for sizes in (x.shape, w.shape, shape)))


def _batch_index(x: Tensor, index: list[Any]) -> list[Any]:
    """The batch part of an index into `x`, whose batch axes broadcast."""
    axes = len(x.shape) - 2
    own_index = index[len(index) - axes :]
    return [0 if is_one(d) else i for d, i in zip(x.shape, own_index, strict=False)]
