"""TE computes of sorting."""

from __future__ import annotations

from typing import Any

from meta.backend.tvm.adapter import te
from meta.backend.tvm.compute import separate_extents
from meta.backend.tvm.te.scan import Index
from meta.backend.tvm.te.sort import move_last, sort_positions
from meta.op.dialect.tvm import Registrar

compute = Registrar(__file__).compute


@compute("argsort")
def argsort(x: Any, axis: int, descending: bool) -> Any:
    positions, axis = sort_positions(x, axis, descending)
    return te.compute(x.shape, lambda *i: positions(*move_last(i, axis)), "argsort")


@compute("sort")
def sort(x: Any, axis: int, descending: bool) -> Any:
    positions, axis = sort_positions(x, axis, descending)
    return te.compute(x.shape, lambda *i: x(*_replace_index(i, axis, positions(*move_last(i, axis)))), "sort")


@compute("topk", vectors=separate_extents, sizes=("k",))
def topk(x: Any, k: int, axis: int, largest: bool, *, out: Any) -> Any:
    positions, axis = sort_positions(x, axis, largest)
    indices = te.compute(out[1].shape, lambda *i: positions(*move_last(i, axis)), "topk_indices")
    return te.compute(out[0].shape, lambda *i: x(*_replace_index(i, axis, indices(*i))), "topk_values"), indices


def _replace_index(index: Index, axis: int, position: Any) -> Index:
    """An index with the entry of `axis` replaced."""
    return (*index[:axis], position, *index[axis + 1 :]) if index else index
