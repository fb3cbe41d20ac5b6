"""Matrix products by ATen: MKL and oneDNN on the CPU, cuBLAS on CUDA; on the CPU by the BLAS itself, if possible."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import torch

from meta import dtype as dtypes
from meta.backend.torch.bridge import Native, Specialised
from meta.backend.torch.products import matrix_product
from meta.dtype import itemsize
from meta.ir.expr import CallInfo
from meta.ir.layout import StridedLayout
from meta.ir.type import TensorType
from meta.op.dialect.torch import DIALECT


def _unsupported(call: CallInfo) -> str | None:
    dtype = call.outputs()[0].dtype
    if dtypes.is_unsigned(dtype) and dtype != "uint8":
        return f"ATen has no product of {dtype}"
    return f"cuBLAS has no {dtype}" if call.device.kind != "cpu" and not dtypes.is_inexact(dtype) else None


def _matmul(call: CallInfo) -> Callable[..., Any]:
    x1, x2, transpose_a, transpose_b = call.args
    if x1.ndim == 1 or x2.ndim == 1:
        return _matmul_vector(call)
    multiply = torch.mm if x1.ndim == x2.ndim == 2 else torch.matmul
    if transpose_a and transpose_b:
        return lambda a, b, out: multiply(a.mT, b.mT, out=out)
    if transpose_a:
        return lambda a, b, out: multiply(a.mT, b, out=out)
    if transpose_b:
        return lambda a, b, out: multiply(a, b.mT, out=out)
    return lambda a, b, out: multiply(a, b, out=out)


def _matmul_vector(call: CallInfo) -> Callable[..., Any]:
    """A product with a vector: as a row (on the left) or a column (on the right), into a view of the result with that
    axis."""
    x1, x2, transpose_a, transpose_b = call.args
    row, column = x1.ndim == 1, x2.ndim == 1
    shape = list(call.outputs()[0].shape)
    if column:
        shape.append(1)
    if row:
        shape.insert(len(shape) - 1, 1)

    def product(a: Any, b: Any, out: Any) -> None:
        left = a.unsqueeze(0) if row else a.mT if transpose_a else a
        right = b.unsqueeze(1) if column else b.mT if transpose_b else b
        torch.matmul(left, right, out=out.view(shape))

    return product


def _dense(call: CallInfo) -> Callable[..., Any]:
    x, w, bias = call.args
    k, n = w.shape[1], w.shape[0]
    rows = prod(x.shape[:-1]) if x.is_static else -1  # torch cannot infer -1 in tensors without elements

    def product(a: Any, b: Any, out: Any) -> None:
        torch.mm(a.reshape(rows, k), b.mT, out=out.view(rows, n))

    def biased(a: Any, b: Any, c: Any, out: Any) -> None:
        torch.addmm(c, a.reshape(rows, k), b.mT, out=out.view(rows, n))

    def product_2d(a: Any, b: Any, out: Any) -> None:
        torch.mm(a, b.mT, out=out)

    def biased_2d(a: Any, b: Any, c: Any, out: Any) -> None:
        torch.addmm(c, a, b.mT, out=out)

    if x.ndim == 2:
        return product_2d if bias is None else biased_2d
    return product if bias is None else biased


_ALIGNMENT = 16
"""Bytes that cuBLAS loads at a time."""


def _strided_matmul(call: CallInfo) -> bool:
    """Whether the library reads the operands of a product where they are."""
    x1, x2, *_ = call.args
    if call.device.kind == "cpu":
        return all(map(_is_matrix, call.layouts))
    alike = x1.ndim == x2.ndim >= 2
    return alike and all(map(_has_rows, call.layouts, call.tensors()))


def _strided_dense(call: CallInfo) -> bool:
    if call.device.kind == "cpu":
        return all(map(_is_matrix, call.layouts[:2])) and not any(call.layouts[2:])
    layouts = [each and each.reshaped((prod(each.shape[:-1]), each.shape[-1])) for each in call.layouts[:2]]
    views = all(new is not None for new, old in zip(layouts, call.layouts, strict=False) if old is not None)
    return views and not any(call.layouts[2:]) and all(map(_has_rows, layouts, call.tensors()))


def _has_rows(layout: StridedLayout | None, kind: TensorType) -> bool:
    """Whether the last two axes of an operand are the rows of a matrix or of a transposed one, and the batch axes have
    one stride."""
    if layout is None:
        return True
    matrix = layout.reshaped((prod(layout.shape[:-2]), *layout.shape[-2:]))
    if matrix is None:
        return False
    (_, *sizes), (batch, *strides) = matrix.shape, matrix.strides
    if strides[0] == 1:
        sizes, strides = sizes[::-1], strides[::-1]
    aligned = all(n * itemsize(kind.dtype) % _ALIGNMENT == 0 for n in (batch, strides[0], matrix.offset))
    return aligned and strides[1] == 1 and strides[0] >= sizes[1]


def _is_matrix(layout: StridedLayout | None) -> bool:
    """Whether an operand is row-major, or the transpose of a row-major matrix."""
    if layout is None:
        return True
    return len(layout.source) == 2 and layout == StridedLayout.row_major(layout.source).transposed((1, 0))


def _native_matmul(call: CallInfo) -> Callable[..., Any] | None:
    _, _, transpose_a, transpose_b = call.args
    return _native_product(call, transpose_a, transpose_b)


def _native_dense(call: CallInfo) -> Callable[..., Any] | None:
    return _native_product(call, False, True, has_bias=call.args[2] is not None)


def _native_product(call: CallInfo, *transposes: bool, has_bias: bool = False) -> Callable[..., Any] | None:
    if not all(map(_is_matrix, call.layouts)):
        return None
    stored = [t != (layout is not None) for t, layout in zip(transposes, call.layouts or (None, None), strict=False)]
    return matrix_product(call, transposed_a=stored[0], transposed_b=stored[1], has_bias=has_bias)


DIALECT.implement("matmul", Native(_native_matmul, Specialised(_matmul)), accepts=_unsupported, slow_start=True,
                  strided=_strided_matmul)  # fmt: skip
DIALECT.implement("dense", Native(_native_dense, Specialised(_dense)), accepts=_unsupported, slow_start=True,
                  strided=_strided_dense)  # fmt: skip
