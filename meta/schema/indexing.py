"""Schemas of operators that pick elements by position, and put them there."""

from meta.schema._dsl import Arg, Schema
from meta.schema._types import Choice, Int, IntTuple, Optional, Tensor

_x = Arg("x", Tensor, doc="Input.")
_dy = Arg("dy", Tensor, doc="Gradient of the result.")
_shape = Arg("shape", IntTuple, doc="Shape of the forward input.")
_indices = Arg("indices", Tensor, doc="Positions, of an integer dtype.")
_axis = Arg("axis", Int, doc="The axis that positions count along.")
_along = Arg("axis", Optional(Int), None, doc="The axis that positions count along; None for the flattened input.")
_mode = Arg("mode", Choice("clip", "wrap"), "clip", doc="Positions outside: to the nearest inside, or modulo the size.")
_slice = (
    Arg("begin", IntTuple, doc="First index of each axis; negative ones count from the end."),
    Arg("end", IntTuple, doc="Index past the last of each axis; clipped to the size."),
    Arg("strides", IntTuple, (), doc="Step of each axis, not zero; () for all ones."),
)

argwhere = Schema(
    "argwhere",
    _x,
    Arg("size", Optional(IntTuple), None,
        doc="Number of rows of the result; missing ones are -1. None for as many as there are."),
)  # fmt: skip
strided_slice = Schema("strided_slice", _x, *_slice)
strided_slice_dx = Schema("strided_slice_dx", _dy, _shape, *_slice)
strided_set = Schema("strided_set", _x, Arg("v", Tensor, doc="What to put there; broadcasts to the slice."), *_slice)
take = Schema("take", _x, _indices, _along, _mode)
take_dx = Schema("take_dx", _dy, _indices, _shape, _along, _mode)
index_select = Schema("index_select", _x, _axis, _indices)
gather = Schema("gather", _x, _axis, _indices)
gather_dx = Schema("gather_dx", _dy, _axis, _indices, _shape)
_coordinates = Arg("indices", Tensor, doc="(m, ...): m coordinates for each element or slice; integers.")
_batch = Arg("batch_dims", Int, 0, doc="How many leading axes of x the positions share; they are not indexed.")
_reduction = Arg("reduction", Choice("update", "add", "mul", "min", "max"), "update",
                 doc="What stays: the new element, the sum, the product, or the smaller or larger one.")  # fmt: skip
gather_nd = Schema("gather_nd", _x, _coordinates, _batch)
gather_nd_dx = Schema("gather_nd_dx", _dy, _indices, _shape, _batch)
scatter_elements = Schema(
    "scatter_elements", _x, _axis, _indices, Arg("src", Tensor, doc="What is put; its shape is that of indices."),
    _reduction,
)  # fmt: skip
scatter_nd = Schema(
    "scatter_nd", _x, _coordinates,
    Arg("src", Tensor, doc="What is put: elements or slices of x, of shape indices.shape[1:] + x.shape[m:]."),
    _reduction,
)  # fmt: skip
scatter_add = Schema(
    "scatter_add",
    _x,
    _axis,
    _indices,
    Arg("src", Tensor, doc="What is added; its shape is that of indices."),
)
embedding = Schema("embedding", Arg("weight", Tensor, doc="(n, ...): the table of n rows."), _indices)
embedding_dx = Schema(
    "embedding_dx", _dy, _indices, Arg("num_weight", Int, doc="Number of rows of the forward operator's table.")
)
