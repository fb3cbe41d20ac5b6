"""Sorting, and operators whose results depend on the order of elements."""

from __future__ import annotations

from typing import Any

from meta._generated import functions as F
from meta.frontend.relay.call import OpCall
from meta.frontend.relay.table import converter
from meta.frontend.relay.types import dtype_of


@converter("sort")
def sort(call: OpCall) -> Any:
    (x,) = call.tensors(1)
    call.text("dtype")  # of the positions, which are not asked for
    return F.sort(x, call.int("axis", -1), not call.flag("is_ascend", True))


@converter("argsort")
def argsort(call: OpCall) -> Any:
    (x,) = call.tensors(1)
    found = F.argsort(x, call.int("axis", -1), not call.flag("is_ascend", True))
    return _cast(call, found, "int32")


@converter("topk", "dyn.topk")
def topk(call: OpCall) -> Any:
    given = call.tensors(1, 2)
    x, axis = given[0], call.int("axis", -1)
    k = int(call.number(given[1], "k")) if len(given) == 2 else call.int("k", 1)
    k = k if k >= 1 else int(x.shape[axis])
    wanted = call.only("ret_type", "both", "values", "indices")
    values, indices = F.topk(x, k, axis, not call.flag("is_ascend"))
    indices = _cast(call, indices, "int32")
    return {"both": (values, indices), "values": values, "indices": indices}[wanted]


def _cast(call: OpCall, x: Any, default: str) -> Any:
    dtype = dtype_of(call.text("dtype", default) or default, call.place)
    return x if x.dtype == dtype else F.cast(x, dtype)
