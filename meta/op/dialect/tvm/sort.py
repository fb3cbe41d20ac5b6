"""TE computes of sorting."""

from __future__ import annotations

from typing import Any

from meta.backend.tvm import adapter as tvm
from meta.backend.tvm.adapter import te
from meta.backend.tvm.compute import separate_extents
from meta.backend.tvm.intrinsic import Tensor
from meta.backend.tvm.spec import Outs
from meta.backend.tvm.te.scan import replace_index
from meta.backend.tvm.te.selection import rank_positions as positions_of_ranks
from meta.backend.tvm.te.sort import argsort as argsorted
from meta.backend.tvm.te.sort import move_last, search_rows, sort_positions, sort_rows, sorts_in_blocks
from meta.op.dialect.tvm import Registrar

compute = Registrar(__file__).compute


@compute("argsort")
def argsort(x: Tensor, axis: int, descending: bool, *, kind: str) -> Any:
    return argsorted(x, axis, descending, kind)


@compute("sort")
def sort(x: Tensor, axis: int, descending: bool, *, kind: str) -> Any:
    if sorts_in_blocks(kind, x, axis):
        return sort_rows(x, axis % len(x.shape), descending, None, positions=False)
    positions, axis = sort_positions(x, axis, descending)
    return te.compute(x.shape, lambda *i: x(*replace_index(i, axis, positions(*move_last(i, axis)))), "sort")


@compute("rank_positions", vectors=separate_extents)
def rank_positions(x: Tensor, ranks: Tensor, axis: int, *, kind: str) -> Any:
    if not x.shape:
        return te.compute((), lambda: tvm.tirx.const(0, "int64"), "rank_positions")
    axis = axis % len(x.shape)
    if kind == "cpu":
        return positions_of_ranks(x, ranks, axis)
    order, last = argsorted(x, axis, False, kind), x.shape[axis] - 1

    def element(*i: Any) -> Any:
        return order(*replace_index(i, axis, tvm.tirx.max(tvm.tirx.min(ranks(*i), last), 0)))

    return te.compute(ranks.shape, element, "rank_positions")


@compute("topk", vectors=separate_extents, sizes=("k",))
def topk(x: Tensor, k: int, axis: int, largest: bool, *, out: Outs, kind: str) -> Any:
    if sorts_in_blocks(kind, x, axis) and sorts_in_blocks(kind, out[0], axis):
        return sort_rows(x, axis % len(x.shape), largest, out[0].shape[axis])
    positions, axis = sort_positions(x, axis, largest, out[0].shape[axis] if x.shape else None)
    indices = te.compute(out[1].shape, lambda *i: positions(*move_last(i, axis)), "topk_indices")
    return te.compute(out[0].shape, lambda *i: x(*replace_index(i, axis, indices(*i))), "topk_values"), indices


@compute("binary_search")
def binary_search(sequence: Tensor, values: Tensor, right: bool, *, kind: str) -> Any:
    return search_rows(sequence, values, right, kind)
