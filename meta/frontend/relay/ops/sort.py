"""Sorting and distinct elements."""

from __future__ import annotations

from typing import Any

import meta
from meta.frontend.relay.convert.call import OpCall, converter
from meta.frontend.relay.convert.type_mapping import dtype_of
from meta.functional._checks import as_dtype


@converter("sort")
def sort(call: OpCall) -> Any:
    (x,) = call.tensors(1)
    call.text("dtype")  # of the positions, which sort does not return
    return meta.sort(x, call.int("axis", -1), not call.flag("is_ascend", True))


@converter("argsort")
def argsort(call: OpCall) -> Any:
    (x,) = call.tensors(1)
    order = meta.argsort(x, call.int("axis", -1), not call.flag("is_ascend", True))
    return as_dtype(order, _index_dtype(call))


@converter("topk")
def topk(call: OpCall) -> Any:
    (x,) = call.tensors(1)
    axis, k = call.int("axis", -1), call.int("k", 1)
    k = k if k >= 1 else int(x.shape[axis])
    results = call.only("ret_type", "both", "values", "indices")
    values, indices = meta.topk(x, k, axis, not call.flag("is_ascend"))
    indices = as_dtype(indices, _index_dtype(call))
    return {"both": (values, indices), "values": values, "indices": indices}[results]


@converter("unique")
def unique(call: OpCall) -> Any:
    """The distinct elements, in ascending order or in the order of their first occurrences; the index of each first
    occurrence; for each element of x the index of its value among them; their number; and their counts."""
    (x,) = call.tensors(1)
    order = meta.argsort(x, 0)
    ordered = meta.take(x, order, 0)
    size = int(x.shape[0])
    changes = meta.not_equal(meta.strided_slice(ordered, (1,), (size,)), meta.strided_slice(ordered, (0,), (size - 1,)))
    new = meta.pad(meta.cast(changes, "int32"), (1, 0), 1)
    group = meta.subtract(meta.cumsum(new, 0), 1)
    inverse = meta.scatter_elements(meta.zeros_like(group), 0, order, group)
    starts = meta.squeeze(meta.argwhere(new), (1,))
    first, number = meta.take(order, starts, 0), meta.sum(new, (0,), True)
    if not call.flag("sorted", True):
        rank = meta.argsort(first, 0)
        starts, first = meta.take(starts, rank, 0), meta.take(first, rank, 0)
        inverse = meta.take(meta.argsort(rank, 0), inverse, 0)
    results = [meta.take(ordered, starts, 0), *(meta.cast(v, "int32") for v in (first, inverse, number))]
    if call.flag("return_counts"):
        same = meta.equal(meta.expand_dims(results[0], 1), meta.expand_dims(x, 0))
        results.append(meta.cast(meta.sum(meta.cast(same, "int32"), (1,)), "int32"))
    return tuple(results)


def _index_dtype(call: OpCall) -> str:
    return dtype_of(call.text("dtype") or "int32", call.place)
