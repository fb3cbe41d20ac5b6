"""Schemas of indexing operators, which read or write elements by position."""

from meta.schema._dsl import Arg, Choice, Int, IntTuple, Optional, Schema, Tensor

_x = Arg("x", Tensor, doc="Input.")
_dy = Arg("dy", Tensor, doc="Gradient of the result.")
_shape = Arg("shape", IntTuple, doc="Shape of the forward input.")
_indices = Arg("indices", Tensor, doc="Positions, of an integer dtype.")
_axis = Arg("axis", Int, doc="The axis to index.")
_along = Arg("axis", Optional(Int), None, doc="The axis to index; None for the flattened input.")
_mode = Arg("mode", Choice("raise", "clip", "wrap"), "raise",
            doc="Positions outside: refused, except that -size to -1 count from the end; clipped to the nearest one "
                "inside; or taken modulo the size.")  # fmt: skip
_slice = (
    Arg("begin", IntTuple, doc="First index of each axis; negative ones count from the end."),
    Arg("end", IntTuple, doc="Index after the last one of each axis; clipped to the size."),
    Arg("strides", IntTuple, (), doc="Step along each axis, not zero; () for ones."),
)

argwhere = Schema(
    "argwhere",
    _x,
    Arg("size", Optional(IntTuple), None,
        doc="Number of rows of the result; surplus rows are -1. None for one row per nonzero element."),
)  # fmt: skip
strided_slice = Schema("strided_slice", _x, *_slice)
strided_slice_dx = Schema("strided_slice_dx", _dy, _shape, *_slice)
strided_set = Schema("strided_set", _x, Arg("v", Tensor, doc="New values; broadcasts to the slice."), *_slice)
take = Schema("take", _x, _indices, _along, _mode)
take_dx = Schema("take_dx", _dy, _indices, _shape, _along, _mode)
index_select = Schema("index_select", _x, _axis, _indices)
gather = Schema("gather", _x, _axis, _indices)
gather_dx = Schema("gather_dx", _dy, _axis, _indices, _shape)
_coordinates = Arg("indices", Tensor, doc="(m, ...): m coordinates for each element or slice; integers.")
_batch = Arg("batch_dims", Int, 0, doc="Number of leading axes that x and the positions share; they are not indexed.")
_reduction = Arg("reduction", Choice("update", "add", "mul", "min", "max"), "update",
                 doc="How src combines with x: replaces it, sum, product, minimum or maximum.")  # fmt: skip
gather_nd = Schema("gather_nd", _x, _coordinates, _batch)
gather_nd_dx = Schema("gather_nd_dx", _dy, _indices, _shape, _batch)
scatter_elements = Schema(
    "scatter_elements", _x, _axis, _indices, Arg("src", Tensor, doc="Values to write, of the shape of indices."),
    _reduction,
)  # fmt: skip
scatter_nd = Schema(
    "scatter_nd", _x, _coordinates,
    Arg("src", Tensor, doc="Values to write: elements or slices of x, of shape indices.shape[1:] + x.shape[m:]."),
    _reduction,
)  # fmt: skip
scatter_add = Schema(
    "scatter_add",
    _x,
    _axis,
    _indices,
    Arg("src", Tensor, doc="Values to add, of the shape of indices."),
)
embedding = Schema("embedding", Arg("weight", Tensor, doc="Table of n rows, (n, ...)."), _indices)
embedding_dx = Schema(
    "embedding_dx", _dy, _indices, Arg("num_weight", Int, doc="Number of rows of the forward operator's table.")
)
