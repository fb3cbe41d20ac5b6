"""Sparse matrices in compressed rows: `indptr[r]` to `indptr[r + 1]` are the elements of row r, `indices` their
columns. With data of rank 3, elements are blocks."""

from __future__ import annotations

from typing import Any

import meta
from meta._generated.methods import Tensor
from meta.frontend.relay.convert.call import OpCall, converter
from meta.frontend.relay.convert.tensor_layout import permuted
from meta.frontend.relay.ops.conv import product
from meta.frontend.relay.ops.indexing import row_major_strides


def _rows(indptr: Any, count: int) -> Any:
    """The row of each of `count` elements, int64."""
    position = meta.expand_dims(meta.arange(0, count, 1, "int64"), 0)
    ends = meta.expand_dims(meta.cast(meta.strided_slice(indptr, (1,), indptr.shape), "int64"), 1)
    return meta.sum(meta.cast(meta.less_equal(ends, position), "int64"), (0,))


def _dense(call: OpCall, data: Tensor, indices: Tensor, indptr: Any, columns: int) -> Any:
    """The matrix as a dense tensor."""
    if data.ndim not in (1, 3):
        call.refuse(f"elements of shape {data.shape}", "shape (n,), or (n, rows, columns) for blocks")
    rows = indptr.shape[0] - 1
    block = data.shape[1:]
    if block and columns % block[1]:
        call.refuse(f"blocks {block} in rows of {columns}", "a block width that divides the row")
    coordinates = meta.stack([_rows(indptr, data.shape[0]), meta.cast(indices, "int64")], 0)
    if not block:
        return meta.scatter_nd(meta.zeros((rows, columns), data.dtype), coordinates, data, "add")
    blank = meta.zeros((rows, columns // block[1], *block), data.dtype)
    blocks = meta.scatter_nd(blank, coordinates, data, "add")
    return meta.reshape(meta.transpose(blocks, (0, 2, 1, 3)), (rows * block[0], columns))


@converter("nn.sparse_dense")
def sparse_dense(call: OpCall) -> Any:
    """x times the transposed matrix; with sparse_lhs the matrix times the transposed x."""
    x, data, indices, indptr = call.tensors(4)
    matrix = _dense(call, data, indices, indptr, x.shape[-1])
    return product(matrix, x, transpose_b=True) if call.flag("sparse_lhs") else product(x, matrix, transpose_b=True)


@converter("nn.sparse_conv2d")
def sparse_conv2d(call: OpCall) -> Any:
    """A convolution whose kernel is a sparse matrix: a row for each output channel; columns are the input channels, or
    for kernels of 3 x 3 (with padding 1) the elements of a window: of (3, 3, in) for NHWC, of (in, 3, 3) for NCHW."""
    x, data, indices, indptr = call.tensors(4)
    layout = call.only("layout", "NHWC", "NCHW")
    height, width = call.sizes("kernel_size", (1, 1))
    if (height, width) not in ((1, 1), (3, 3)):
        call.refuse(f"kernel_size is {(height, width)}", "(1, 1) or (3, 3)")
    channels = x.shape[layout.index("C")]
    matrix = _dense(call, data, indices, indptr, channels * height * width)
    if layout == "NHWC":
        kernel = permuted(meta.reshape(matrix, (-1, height, width, channels)), "OHWI", "OIHW")
    else:
        kernel = meta.reshape(matrix, (-1, channels, height, width))
    y = meta.conv2d(permuted(x, layout, "NCHW"), kernel, (1, 1), (height // 2, width // 2), (1, 1), 1)
    return permuted(y, "NCHW", layout)


@converter("sparse_fill_empty_rows")
def sparse_fill_empty_rows(call: OpCall) -> Any:
    """Coordinates (n, rank) and values of elements, with a default value in the first column of each row without one;
    and which rows those are. The number of elements depends on values."""
    indices, values, shape, default = call.tensors(4)
    count = call.ints(shape, "dense_shape")[0]
    call.check_size(count)
    rows = meta.arange(0, count, 1, indices.dtype)
    row = meta.squeeze(meta.strided_slice(indices, (0, 0), (indices.shape[0], 1)), (1,))
    hits = meta.equal(meta.expand_dims(rows, 1), meta.expand_dims(row, 0))
    empty = meta.logical_not(meta.any(hits, (1,)))
    other = meta.zeros((count, indices.shape[1] - 1), indices.dtype)
    added = meta.concatenate([meta.expand_dims(rows, 1), other], 1)
    every = meta.concatenate([indices, added], 0)
    filled = meta.broadcast_to(meta.cast(meta.reshape(default, (1,)), values.dtype), (count,))
    is_present = meta.concatenate([meta.ones_like(row, "bool"), empty], 0)
    order = meta.argsort(meta.concatenate([row, rows], 0), 0)
    selected = meta.squeeze(meta.argwhere(meta.take(is_present, order, 0)), (1,))
    position = meta.take(order, selected, 0)
    return meta.take(every, position, 0), meta.take(meta.concatenate([values, filled], 0), position, 0), empty


@converter("nn.sparse_add")
def sparse_add(call: OpCall) -> Any:
    x, data, indices, indptr = call.tensors(4)
    return meta.add(x, _dense(call, data, indices, indptr, x.shape[1]))


@converter("nn.sparse_transpose")
def sparse_transpose(call: OpCall) -> Any:
    """The transpose of a square matrix: data, indices, indptr."""
    data, indices, indptr = call.tensors(3)
    if data.ndim != 1:
        call.refuse(f"elements of shape {data.shape}", "shape (n,)")
    size, count = indptr.shape[0] - 1, data.shape[0]
    order = meta.argsort(indices, 0)
    rows = meta.take(_rows(indptr, count), order, 0)
    columns = meta.expand_dims(meta.arange(0, size + 1, 1, indices.dtype), 1)
    starts = meta.sum(meta.cast(meta.less(meta.expand_dims(indices, 0), columns), "int64"), (1,))
    return meta.take(data, order, 0), meta.cast(rows, indices.dtype), meta.cast(starts, indptr.dtype)


@converter("sparse_reshape")
def sparse_reshape(call: OpCall) -> Any:
    """The coordinates (n, rank) of elements in another shape, in which one size may be -1, and that shape."""
    indices, old, new = call.tensors(3)
    product_of_others = meta.prod(meta.where(meta.equal(new, -1), meta.ones_like(new), new))
    inferred = meta.floor_divide(meta.prod(meta.cast(old, "int64")), meta.cast(product_of_others, "int64"))
    shape = meta.where(meta.equal(new, -1), meta.cast(inferred, new.dtype), new)
    flat = meta.sum(meta.multiply(indices, row_major_strides(meta.cast(old, indices.dtype))), (1,), True)
    wide = meta.cast(shape, indices.dtype)
    coordinates = meta.mod(meta.floor_divide(meta.cast(flat, indices.dtype), row_major_strides(wide)), wide)
    return coordinates, shape
