"""Samples of operators that put the elements along an axis in order."""

from __future__ import annotations

from typing import Any

import torch

from meta.errors import TypeInferenceError
from meta.testing.samples import ErrorCase, Sample, T


def _argsort(x: Any, axis: int = -1, descending: bool = False) -> Any:
    return torch.sort(x, dim=axis, descending=descending, stable=True).indices


def _sort(x: Any, axis: int = -1, descending: bool = False) -> Any:
    return torch.sort(x, dim=axis, descending=descending, stable=True).values


def _binary_search(sequence: Any, values: Any, right: bool = False) -> Any:
    rows = torch.sort(sequence.expand(*values.shape[:-1], -1), stable=True).values
    return (rows[..., None, :] <= values[..., None] if right else rows[..., None, :] < values[..., None]).sum(-1)


def _rank_positions(x: Any, ranks: Any, axis: int = -1) -> Any:
    if not x.shape[axis]:
        return torch.zeros_like(ranks)
    return _argsort(x, axis).gather(axis, ranks.clamp(0, x.shape[axis] - 1))


def _ranks(*shape: int, size: int) -> T:
    return T(*shape, dtype="int64", low=-1, high=size + 1)


def _topk(x: Any, k: int, axis: int = -1, largest: bool = True) -> Any:
    ordered = torch.sort(x, dim=axis, descending=largest, stable=True)
    return ordered.values.narrow(axis, 0, k), ordered.indices.narrow(axis, 0, k)


SAMPLES = [
    Sample("argsort", T(3, 5, distinct=True), ref=_argsort),
    Sample("argsort", T(9, 3, dtype="int32", low=-2, high=2), 0, True, ref=_argsort, id="ties"),
    Sample("argsort", T(), ref=_argsort),
    Sample("binary_search", T(3, 1), T(3, 4), ref=_binary_search),  # rows of one element are sorted
    Sample(
        "binary_search",
        T(1, dtype="int32", low=0, high=1),
        T(9, dtype="int32", low=-2, high=2),
        True,
        ref=_binary_search,
    ),
    Sample("rank_positions", T(3, 5), _ranks(3, 4, size=5), ref=_rank_positions),
    Sample("rank_positions", T(4, 40, 3, distinct=True), _ranks(4, 1, 3, size=40), 1, ref=_rank_positions),
    Sample("rank_positions", T(70, 2, dtype="int32", low=-2, high=3), _ranks(9, 2, size=70), 0, ref=_rank_positions),
    Sample("rank_positions", T(2, 33, dtype="uint8", high=256), _ranks(2, 5, size=33), ref=_rank_positions),
    Sample("rank_positions", T(300, dtype="bool"), _ranks(20, size=300), ref=_rank_positions),
    Sample("rank_positions", T(), T(dtype="int64", low=0, high=1), ref=lambda x, ranks: ranks * 0),
    Sample("rank_positions", T(0, 5), T(0, 2, dtype="int64"), ref=_rank_positions),
    Sample("sort", T(3, 5, distinct=True), ref=_sort),
    Sample("sort", T(2, 7, 2, distinct=True), 1, True, ref=_sort),
    Sample("sort", T(70, 65, distinct=True), 0, ref=_sort, grad=False),
    Sample("sort", T(6, dtype="bool"), ref=_sort),
    Sample("topk", T(3, 5, distinct=True), 2, ref=_topk),
    Sample("topk", T(), 1, ref=lambda x, k: tuple(torch.topk(x, k))),
    Sample("topk", T(6, 2, distinct=True), 3, 0, False, ref=_topk),
    Sample("topk", T(9, dtype="uint8", high=3), 9, ref=_topk, id="ties"),
    Sample("topk", T(5, 1000, dtype="int64", low=0, high=9), 3, ref=_topk, id="many-ties"),
]

ERRORS = [
    ErrorCase("argsort", T(3), 1, error=TypeInferenceError, match="axis 1 is out of range"),
    ErrorCase("binary_search", T(3, 4), T(2, 4), error=TypeInferenceError, match="equal sizes but for the last axis"),
    ErrorCase("binary_search", T(), T(2), error=TypeInferenceError, match="'sequence' is 0-d"),
    ErrorCase("rank_positions", T(3, 4), T(2, 1, dtype="int64"), error=TypeInferenceError, match="but for axis 1"),
    ErrorCase("rank_positions", T(3), T(1, dtype="int32"), error=TypeInferenceError, match="'ranks' is int32"),
    ErrorCase("sort", T(3, 4), -3, error=TypeInferenceError, match="axis -3 is out of range"),
    ErrorCase("topk", T(3), 4, error=TypeInferenceError, match="k is 4, axis 0 of x has size 3"),
    ErrorCase("topk", T(), 0, error=TypeInferenceError, match="k is 0 for a 0-d tensor"),
]
