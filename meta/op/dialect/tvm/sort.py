"""TE computes of sorting."""

from __future__ import annotations

from typing import Any

from meta.backend.tvm.adapter import te
from meta.backend.tvm.compute import separate_extents
from meta.backend.tvm.te.scan import replace_index
from meta.backend.tvm.te.sort import move_last, search_rows, sort_positions
from meta.op.dialect.tvm import Registrar

compute = Registrar(__file__).compute


@compute("argsort")
def argsort(x: Any, axis: int, descending: bool) -> Any:
    positions, axis = sort_positions(x, axis, descending)
    return te.compute(x.shape, lambda *i: positions(*move_last(i, axis)), "argsort")


@compute("sort")
def sort(x: Any, axis: int, descending: bool) -> Any:
    positions, axis = sort_positions(x, axis, descending)
    return te.compute(x.shape, lambda *i: x(*replace_index(i, axis, positions(*move_last(i, axis)))), "sort")


@compute("topk", vectors=separate_extents, sizes=("k",))
def topk(x: Any, k: int, axis: int, largest: bool, *, out: Any) -> Any:
    positions, axis = sort_positions(x, axis, largest)
    indices = te.compute(out[1].shape, lambda *i: positions(*move_last(i, axis)), "topk_indices")
    return te.compute(out[0].shape, lambda *i: x(*replace_index(i, axis, indices(*i))), "topk_values"), indices


@compute("binary_search")
def binary_search(sequence: Any, values: Any, right: bool) -> Any:
    return search_rows(sequence, values, right)
