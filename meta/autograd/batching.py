"""How operators take one more axis in front: rules by name, for the level of `vmap`.

A rule takes a Batch and returns the arguments of one call of the same operator on the stacked tensors, or the result of
a decomposition, or None if it does not fit the call: then the calls run one by one. What a rule returns as arguments is
used only if the type function gives the single calls' results with the axis in front. Elementwise operators and
reductions need no rule.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import meta
from meta.autograd.batched_calls import Batch, Rule, behind, spread
from meta.autograd.batching_networks import RULES as OF_NETWORKS
from meta.autograd.batching_networks import first_only
from meta.dim import WHOLE, product
from meta.ir.type import TensorType
from meta.tree import leaves_of


def reduction(b: Batch) -> Any:
    """A reduction of its first argument along `axis`, None for all axes."""
    x: TensorType = b.types[0]
    axis = b["axis"]
    if not x.ndim:
        return b.with_(axis=()) if _takes_axes(b) and axis in (None, ()) else None
    if axis is None:
        if not _takes_axes(b):  # the position in the flat tensor
            return None if b["keepdims"] else (meta.reshape(b.values[0], (b.size, -1)), *b.kept(axis=1)[1:])
        return b.with_(axis=tuple(range(1, x.ndim + 1)))
    return b.with_(axis=behind(axis, x.ndim))


def _takes_axes(b: Batch) -> bool:
    """Whether `axis` may be a tuple."""
    return "IntTuple" in repr(b.op.schema.args[b.op.schema.index["axis"]].type)


def _along(b: Batch) -> Any:
    """Along `axis` of the first argument, or of the items of a list; every tensor has the other axes too."""
    ndim = next(leaves_of(b.types[0])).ndim
    axis = b["axis"]
    if axis is None or not ndim:
        return None
    return b.with_(axis=behind(axis, ndim))


def _flip(b: Batch) -> Any:
    ndim = b.kind("x").ndim
    axis = b["axis"]
    return b.with_(axis=tuple(range(1, ndim + 1)) if axis is None else behind(axis, ndim))


def _new_axis(b: Batch) -> Any:
    """Axes of the result."""
    return b.with_(axis=behind(b["axis"], b.out.ndim))


def stacked_operands(b: Batch) -> Any:
    """Every tensor with the axis in front: elementwise operators, and those for which leading axes are a batch."""
    return b.with_()


def aligned_operands(b: Batch) -> Any:
    """Operands that broadcast."""
    return tuple(b.aligned(i, b.out.ndim) for i in range(len(b.values)))


def _reshape(b: Batch) -> Any:
    return b.with_(shape=(b.size, *b.out.shape))


def _reshape_like(b: Batch) -> Any:
    return (
        meta.reshape(b["x"], (b.size, *b.out.shape))
        if b.is_batched("x")
        else spread(meta.reshape(b["x"], b.out.shape), b.size)
    )


def _broadcast_to(b: Batch) -> Any:
    return meta.broadcast_to(b.aligned(0, b.out.ndim) if b.is_batched("x") else b["x"], (b.size, *b.out.shape))


def _sum_to(b: Batch) -> Any:
    shape = b.out.shape
    added = b.kind("x").ndim - len(shape)
    total = meta.sum_to(b["x"], (b.size, *(1,) * added, *shape))
    return meta.reshape(total, (b.size, *shape)) if added else total


def _cast_like(b: Batch) -> Any:
    return meta.cast(b.stacked(0), b.kind("like").dtype)


def _transpose(b: Batch) -> Any:
    ndim = b.kind("x").ndim
    axes = b["axes"]
    order = tuple(reversed(range(ndim))) if axes is None else axes
    return b.with_(axes=(0, *behind(order, ndim))) if ndim else b.with_()


def _tile(b: Batch) -> Any:
    ndim, reps = b.kind("x").ndim, b["reps"]
    if len(reps) > ndim:
        x = meta.reshape(b["x"], (b.size, *(1,) * (len(reps) - ndim), *b.kind("x").shape))
        return meta.tile(x, (1, *reps))
    return b.with_(reps=(*(1,) * (ndim + 1 - len(reps)), *reps))


def _repeat(b: Batch) -> Any:
    if b["axis"] is None:
        return meta.repeat(meta.reshape(b["x"], (b.size, -1)), b["repeats"], 1)
    return _along(b)


def _slice(b: Batch) -> Any:
    strides = b["strides"]
    attributes: dict[str, Any] = {
        "begin": (0, *b["begin"]),
        "end": (WHOLE, *b["end"]),
        "strides": (1, *strides) if strides else (),
    }
    if "shape" in b.op.schema.index:
        attributes["shape"] = (b.size, *b["shape"])
    return b.with_(**attributes)


def _strided_set(b: Batch) -> Any:
    """The new values broadcast to the slice."""
    attributes = _slice(b)
    index = b.op.schema.index["v"]
    return (*attributes[:index], b.aligned(index, b.out.ndim), *attributes[index + 1 :])


def _pad(b: Batch) -> Any:
    return b.with_(pad_width=(0, 0, *b["pad_width"]))


def _gather_dx(b: Batch) -> Any:
    return b.with_(axis=behind(b["axis"], b.kind("dy").ndim), shape=(b.size, *b["shape"]))


def _gather_nd(b: Batch) -> Any:
    """Axis 0 of the indices has the coordinates; the batch is behind it."""
    indices = meta.moveaxis(b.stacked(b.op.schema.index["indices"]), 0, 1)
    attributes: dict[str, Any] = {"indices": indices, "batch_dims": b["batch_dims"] + 1}
    if "shape" in b.op.schema.index:
        attributes["shape"] = (b.size, *b["shape"])
    return b.with_(**attributes)


def _take(b: Batch) -> Any:
    x, indices, axis, mode = b.values
    ndim = b.kind("x").ndim
    if axis is None or not b.only("x", "indices"):
        return None
    axis = axis % ndim
    if not b.is_batched("indices"):
        return b.kept(axis=axis + 1)
    if not b.is_batched("x"):
        return meta.moveaxis(meta.take(x, indices, axis, mode), axis, 0)
    return None


def _embedding(b: Batch) -> Any:
    if b.only("indices"):
        return b.values
    return meta.take(b["weight"], b["indices"], 1, "raise") if b.only("weight") else None


def _matmul(b: Batch) -> Any:
    """Vectors become matrices, and the axes in front of the matrices are aligned."""
    (x1, x2), ranks = b.values[:2], [t.ndim for t in b.types[:2]]
    if b.only("x1") and ranks[1] == 2 and not b["transpose_a"]:  # one product of matrices
        rows = meta.reshape(x1, (product(x1.shape[:-1]), x1.shape[-1])) if ranks[0] > 1 else x1
        return meta.reshape(meta.matmul(rows, *b.values[1:]), (b.size, *b.out.shape))
    if b.only("x2") and ranks == [2, 1] and not b["transpose_a"]:
        return meta.matmul(x2, x1, False, True)
    if 1 in ranks and (b["transpose_a"] or b["transpose_b"]):
        return None
    if ranks[0] == 1:
        x1 = meta.expand_dims(x1, -2)
    if ranks[1] == 1:
        x2 = meta.expand_dims(x2, -1)
    rank = max(2, *ranks)
    x1, x2 = (
        _padded(b, x, max(n, 2), rank) if flag is True else x
        for x, n, flag in zip((x1, x2), ranks, b.batched, strict=False)
    )
    return meta.reshape(meta.matmul(x1, x2, *b.values[2:]), (b.size, *b.out.shape))


def _padded(b: Batch, x: Any, ndim: int, rank: int) -> Any:
    """Stacked tensors of `ndim` axes with axes of size 1 behind the first, up to `rank` axes."""
    return x if ndim == rank else meta.reshape(x, (b.size, *(1,) * (rank - ndim), *x.shape[1:]))


def _swap_axis(b: Batch) -> Any:
    ndim = b.kind("x").ndim
    return b.with_(axis1=behind(b["axis1"], ndim), axis2=behind(b["axis2"], ndim))


def _moveaxis(b: Batch) -> Any:
    ndim = b.kind("x").ndim
    return b.with_(source=behind(b["source"], ndim), destination=behind(b["destination"], ndim))


def _one_hot(b: Batch) -> Any:
    return b.with_(axis=behind(b["axis"], b.out.ndim))


RULES: Mapping[str, Rule] = {
    **OF_NETWORKS,
    **dict.fromkeys(
        ("softmax", "log_softmax", "softmax_dx", "log_softmax_dx", "cumsum", "cumprod", "sort", "argsort", "topk",
         "rank_positions", "gather", "scatter_add", "scatter_elements", "concatenate", "split", "roll"),
        _along,
    ),
    **dict.fromkeys(("tril", "triu", "scaled_dot_product_attention", "scaled_dot_product_attention_dx",
                     "stop_gradient", "straight_through", "device_copy", "dropout_dx"), stacked_operands),
    **dict.fromkeys(("expand_dims", "stack"), _new_axis),
    **dict.fromkeys(("reshape_like", "squeeze"), _reshape_like),
    **dict.fromkeys(("broadcast_to", "broadcast_to_like"), _broadcast_to),
    **dict.fromkeys(("strided_slice", "strided_slice_dx"), _slice),
    **dict.fromkeys(("gather_nd", "gather_nd_dx"), _gather_nd),
    "cast_like": _cast_like,
    "embedding": _embedding,
    "flip": _flip,
    "gather_dx": _gather_dx,
    "index_select": first_only("axis"),
    "matmul": _matmul,
    "moveaxis": _moveaxis,
    "one_hot": _one_hot,
    "pad": _pad,
    "repeat": _repeat,
    "reshape": _reshape,
    "strided_set": _strided_set,
    "sum_to": _sum_to,
    "swap_axis": _swap_axis,
    "take": _take,
    "tile": _tile,
    "transpose": _transpose,
}  # fmt: skip
