"""Positions of equal elements: torch leaves their order open where it does not sort stably."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from tests.python.conformance.case import Case

_AXIS = {"argsort": 0, "kthvalue": 1, "sort": 0, "topk": 1}
"""Entries whose last result are positions along an axis, and the place of that axis among the arguments."""


def tie_order(case: Case, ours: Sequence[Any], theirs: Sequence[Any], problem: str) -> str:
    """ "" if results differ only in positions of equal elements, of an operator that leaves those open; `problem`
    otherwise."""
    place = _AXIS.get(case.op.name)
    if place is None or len(ours) != len(theirs):
        return problem
    args, options = _arguments(case)
    if options.get("stable"):
        return problem
    axis = options.get("dim", args[place] if len(args) > place else -1)
    for a, b in zip(ours[:-1], theirs[:-1], strict=True):
        if not torch.equal(a, b):
            return problem
    x: Any = case.tensors[0].detach()
    a, b = ours[-1], theirs[-1]
    if x.ndim == 0 or (a.shape, a.dtype) != (b.shape, b.dtype) or not _in_range(a, x.shape[axis]):
        return problem
    kept = a.ndim == x.ndim
    places = [p if kept else p.unsqueeze(axis) for p in (a, b)]
    same = torch.equal(*(x.gather(axis, p) for p in places))
    return "" if same and _distinct(places[0], axis) else problem


def _arguments(case: Case) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Those after the first."""
    captured: list[Any] = []

    def capture(_: Any, *args: Any, **options: Any) -> None:
        captured.extend((args, options))

    case.call(capture, case.tensors)
    return captured[0], captured[1]


def _in_range(positions: torch.Tensor, size: int) -> bool:
    return bool(((positions >= 0) & (positions < size)).all())


def _distinct(positions: torch.Tensor, axis: int) -> bool:
    return bool((positions.sort(axis).values.diff(dim=axis) > 0).all())
