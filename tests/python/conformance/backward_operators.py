"""ATen's backward operators by themselves: the calls that torch's autograd makes while it differentiates samples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map_only

from meta.frontend.torch import aten
from tests.python.conformance.adapter import ADAPTER
from tests.python.conformance.case import Case
from tests.python.conformance.checks import limited, said
from tests.python.conformance.compare import GRADIENT, differences
from tests.python.conformance.opinfos import database, samples

Call = tuple[str, Any, Any, Any]
"""The name of a backward operator, its arguments, keyword arguments and results."""

NOT_DENSE = frozenset({"_segment_reduce_backward", "_sparse_mm_reduce_impl_backward"})
"""Backward operators of entries out of scope."""


class _Recorder(TorchDispatchMode):
    """Keeps the calls of backward operators, with copies of their tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.removeprefix("aten::")
        if "backward" not in name:
            return func(*args, **(kwargs or {}))
        before = _copied((args, kwargs or {}))
        result = func(*args, **(kwargs or {}))
        self.calls.append((name, *before, _copied(result)))
        return result


def _copied(tree: Any) -> Any:
    return tree_map_only(torch.Tensor, lambda t: t.detach().clone(), tree)


def calls(limit: int, count: int = 8, entries: Any = None) -> Iterator[Call]:
    """At most `limit` calls of each backward operator, in float32, from `count` samples of each entry."""
    seen: Counter[str] = Counter()
    for name, op in database().items():
        if (entries is not None and name not in entries) or torch.float32 not in op.backward_dtypes:
            continue
        if not op.supports_autograd or torch.float32 not in op.dtypes:
            continue
        for sample in samples(op, torch.float32, count, requires_grad=True):
            for call in _recorded(Case(op, sample)):
                if seen[call[0]] < limit and call[0] not in NOT_DENSE:
                    seen[call[0]] += 1
                    yield call


def _recorded(case: Case) -> list[Call]:
    recorder = _Recorder()
    try:
        cotangents = case.cotangents()
        with recorder:
            case.gradients(cotangents)
    except Exception:  # noqa: BLE001  # torch refuses the sample
        return []
    return recorder.calls


def check(call: Call) -> str:
    """How meta's result of a call differs from torch's; "" if it does not."""
    name, args, kwargs, expected = call
    row = aten.find(name)
    if row is None:
        return "not implemented"
    try:
        with limited():
            ours, theirs = (
                tree_map_only(torch.Tensor, lambda t: ADAPTER.from_torch(t, False), x) for x in (args, kwargs)
            )
            flat = tree_flatten(row(*ours, **theirs))[0]
            expected_flat = tree_flatten(expected)[0]
            actual = [ADAPTER.to_torch(y) for y in flat]
        return differences(actual, expected_flat, torch.float32, GRADIENT)
    except Exception as error:  # noqa: BLE001
        return said(error)


def check_all(limit: int) -> tuple[dict[str, Counter[str]], list[str]]:
    """Counts by operator, and a line for each kind of failure."""
    counts: dict[str, Counter[str]] = {}
    notes: Counter[str] = Counter()
    for call in calls(limit):
        problem = check(call)
        counts.setdefault(call[0], Counter())["failed" if problem else "passed"] += 1
        if problem:
            notes[f"{call[0]} failed: {' '.join(problem.split())[:200]}"] += 1
    return counts, [f"{note} ({count}x)" for note, count in notes.items()]
