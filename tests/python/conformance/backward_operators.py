"""ATen's backward operators by themselves: the calls that torch's autograd makes while it differentiates samples.

    python -m tests.python.conformance.backward_operators FILE [CALLS]

writes what became of at most 20 calls of each operator (or CALLS, 0: all) to a file, a line of JSON for an operator."""

from __future__ import annotations

import json
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map_only

from meta.frontend.torch import aten
from tests.python.conformance.adapter import ADAPTER
from tests.python.conformance.case import Case
from tests.python.conformance.checks import Result, limited, message
from tests.python.conformance.compare import GRADIENT, differences
from tests.python.conformance.opinfos import database, samples
from tests.python.conformance.results import kept


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a backward operator.

    exact: computes the results that the operator has where the whole sample is in float64."""

    name: str
    args: Any
    kwargs: Any
    results: Any
    exact: Callable[[], Any] = lambda: None


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
        arguments, options = _copied((args, kwargs or {}))
        result = func(*args, **(kwargs or {}))
        self.calls.append(Call(name, arguments, options, _copied(result)))
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
                if seen[call.name] < limit and call.name not in NOT_DENSE:
                    seen[call.name] += 1
                    yield call


def _recorded(case: Case) -> list[Call]:
    try:
        cotangents = case.cotangents()
        recorded = _calls(case.gradients, cotangents)
    except Exception:  # noqa: BLE001  # torch refuses the sample
        return []
    return [replace(c, exact=partial(_exact, case, cotangents, i)) for i, c in enumerate(recorded)]


def _calls(gradients: Callable[[Any], Any], cotangents: Any) -> list[Call]:
    recorder = _Recorder()
    with recorder:
        gradients(cotangents)
    return recorder.calls


def _exact(case: Case, cotangents: Any, index: int) -> Any:
    return _calls(case.exact_gradients, cotangents)[index].results


def check(call: Call) -> str:
    """How meta's result of a call differs from torch's; "" if it does not."""
    row = aten.find(call.name)
    if row is None:
        return "not implemented"
    try:
        with limited():
            args, kwargs = tree_map_only(torch.Tensor, lambda t: ADAPTER.from_torch(t, False), (call.args, call.kwargs))
            actual = [ADAPTER.to_torch(y) for y in tree_flatten(row(*args, **kwargs))[0]]
        expected = tree_flatten(call.results)[0]
        return differences(actual, expected, torch.float32, GRADIENT, lambda: tree_flatten(call.exact())[0])
    except Exception as error:  # noqa: BLE001
        return message(error)


def check_all(limit: int, path: Path | None = None) -> list[Result]:
    """The results of at most `limit` calls of each operator (0: all). path: a file to write them to, every 50 calls."""
    results: dict[str, Result] = {}
    for number, call in enumerate(calls(limit or sys.maxsize), 1):
        results.setdefault(call.name, Result(call.name)).add("backward_ops", "eager", torch.float32, check(call))
        if path and number % 50 == 0:
            _write(path, limit, results.values())
    if path:
        _write(path, limit, results.values())
    return list(results.values())


def _write(path: Path, limit: int, results: Iterable[Result]) -> None:
    rows = [json.dumps(kept(result, "float32", {"calls": limit})) for result in results]
    path.write_text("\n".join(rows) + "\n")


def main(path: str, limit: str = "20") -> None:
    """Write the results of all operators to a file."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    check_all(int(limit), Path(path))


if __name__ == "__main__":
    main(*sys.argv[1:])
