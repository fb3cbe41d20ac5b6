"""Sparse matrices in compressed rows: `indptr[r]` to `indptr[r + 1]` are the elements of row r, `indices` their
columns. With data of rank 3, elements are blocks."""

from __future__ import annotations

from typing import Any

from meta._generated import functions as F
from meta.frontend.relay.convert.call import OpCall
from meta.frontend.relay.convert.table import converter
from meta.frontend.relay.ops.conv import product
from meta.frontend.relay.ops.indexing import row_major_strides


def _rows(indptr: Any, count: int) -> Any:
    """The row of each of `count` elements, int64."""
    position = F.expand_dims(F.arange(0, count, 1, "int64"), 0)
    ends = F.expand_dims(F.cast(F.strided_slice(indptr, (1,), indptr.shape), "int64"), 1)
    return F.sum(F.cast(F.less_equal(ends, position), "int64"), (0,))


def _dense(call: OpCall, data: Any, indices: Any, indptr: Any, columns: int) -> Any:
    """The matrix as a dense tensor."""
    if data.ndim not in (1, 3):
        call.refuse(f"elements of shape {data.shape}", "shape (n,), or (n, rows, columns) for blocks")
    rows = indptr.shape[0] - 1
    block = data.shape[1:]
    if block and columns % block[1]:
        call.refuse(f"blocks {block} in rows of {columns}", "a block width that divides the row")
    coordinates = F.stack([_rows(indptr, data.shape[0]), F.cast(indices, "int64")], 0)
    if not block:
        return F.scatter_nd(F.zeros((rows, columns), data.dtype), coordinates, data, "add")
    blank = F.zeros((rows, columns // block[1], *block), data.dtype)
    blocks = F.scatter_nd(blank, coordinates, data, "add")
    return F.reshape(F.transpose(blocks, (0, 2, 1, 3)), (rows * block[0], columns))


@converter("nn.sparse_dense")
def sparse_dense(call: OpCall) -> Any:
    """x times the transposed matrix; with sparse_lhs the matrix times the transposed x."""
    x, data, indices, indptr = call.tensors(4)
    matrix = _dense(call, data, indices, indptr, x.shape[-1])
    return product(matrix, x, transpose_b=True) if call.flag("sparse_lhs") else product(x, matrix, transpose_b=True)


@converter("nn.sparse_add")
def sparse_add(call: OpCall) -> Any:
    x, data, indices, indptr = call.tensors(4)
    return F.add(x, _dense(call, data, indices, indptr, x.shape[1]))


@converter("nn.sparse_transpose")
def sparse_transpose(call: OpCall) -> Any:
    """The transpose of a square matrix: data, indices, indptr."""
    data, indices, indptr = call.tensors(3)
    if data.ndim != 1:
        call.refuse(f"elements of shape {data.shape}", "shape (n,)")
    size, count = indptr.shape[0] - 1, data.shape[0]
    order = F.argsort(indices, 0)
    rows = F.take(_rows(indptr, count), order, 0)
    columns = F.expand_dims(F.arange(0, size + 1, 1, indices.dtype), 1)
    starts = F.sum(F.cast(F.less(F.expand_dims(indices, 0), columns), "int64"), (1,))
    return F.take(data, order, 0), F.cast(rows, indices.dtype), F.cast(starts, indptr.dtype)


@converter("sparse_reshape")
def sparse_reshape(call: OpCall) -> Any:
    """The coordinates (n, rank) of elements in another shape, in which one size may be -1, and that shape."""
    indices, old, new = call.tensors(3)
    product_of_others = F.prod(F.where(F.equal(new, -1), F.ones_like(new), new))
    inferred = F.floor_divide(F.prod(F.cast(old, "int64")), F.cast(product_of_others, "int64"))
    shape = F.where(F.equal(new, -1), F.cast(inferred, new.dtype), new)
    flat = F.sum(F.multiply(indices, row_major_strides(F.cast(old, indices.dtype))), (1,), True)
    wide = F.cast(shape, indices.dtype)
    coordinates = F.mod(F.floor_divide(F.cast(flat, indices.dtype), row_major_strides(wide)), wide)
    return coordinates, shape
