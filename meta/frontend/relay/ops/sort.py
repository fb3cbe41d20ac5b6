"""Sorting and distinct elements."""

from __future__ import annotations

from typing import Any

from meta._generated import functions as F
from meta.frontend.relay.convert.call import OpCall
from meta.frontend.relay.convert.table import converter
from meta.frontend.relay.convert.type_mapping import dtype_of
from meta.frontend.relay.ops.unary import as_dtype


@converter("sort")
def sort(call: OpCall) -> Any:
    (x,) = call.tensors(1)
    call.text("dtype")  # of the positions, which sort does not return
    return F.sort(x, call.int("axis", -1), not call.flag("is_ascend", True))


@converter("argsort")
def argsort(call: OpCall) -> Any:
    (x,) = call.tensors(1)
    order = F.argsort(x, call.int("axis", -1), not call.flag("is_ascend", True))
    return as_dtype(order, _index_dtype(call))


@converter("topk", "dyn.topk")
def topk(call: OpCall) -> Any:
    x, *rest = call.tensors(1, 2)
    axis = call.int("axis", -1)
    k = int(call.number(rest[0], "k")) if rest else call.int("k", 1)
    k = k if k >= 1 else int(x.shape[axis])
    results = call.only("ret_type", "both", "values", "indices")
    values, indices = F.topk(x, k, axis, not call.flag("is_ascend"))
    indices = as_dtype(indices, _index_dtype(call))
    return {"both": (values, indices), "values": values, "indices": indices}[results]


@converter("unique")
def unique(call: OpCall) -> Any:
    """The distinct elements, in ascending order or in that of their first occurrences; the index of each first
    occurrence; for each element of x the index of its value among them; their number; and their counts."""
    (x,) = call.tensors(1)
    order = F.argsort(x, 0)
    ordered = F.take(x, order, 0)
    size = int(x.shape[0])
    changes = F.not_equal(F.strided_slice(ordered, (1,), (size,)), F.strided_slice(ordered, (0,), (size - 1,)))
    new = F.pad(F.cast(changes, "int32"), (1, 0), 1)
    group = F.subtract(F.cumsum(new, 0), 1)
    inverse = F.scatter_elements(F.zeros_like(group), 0, order, group)
    starts = F.squeeze(F.argwhere(new), (1,))
    first, number = F.take(order, starts, 0), F.sum(new, (0,), True)
    if not call.flag("sorted", True):
        rank = F.argsort(first, 0)
        starts, first = F.take(starts, rank, 0), F.take(first, rank, 0)
        inverse = F.take(F.argsort(rank, 0), inverse, 0)
    results = [F.take(ordered, starts, 0), *(F.cast(v, "int32") for v in (first, inverse, number))]
    if call.flag("return_counts"):
        same = F.equal(F.expand_dims(results[0], 1), F.expand_dims(x, 0))
        results.append(F.cast(F.sum(F.cast(same, "int32"), (1,)), "int32"))
    return tuple(results)


def _index_dtype(call: OpCall) -> str:
    return dtype_of(call.text("dtype") or "int32", call.place)
