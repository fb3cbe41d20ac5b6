"""torch's samples through `torch.ops`, against meta's own results: `python -m tests.python.conformance.torch_opinfos`.

Each sample of torch's database of operators is a call of a function of meta. It runs on meta's arrays, and on torch's
tensors, where every operator that the function calls is one of `torch.ops.meta`. Results have to be equal, and so have
gradients, results of vmap over two rows, and results under autocast."""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch

import meta
from meta.amp.autocast import _Policy
from meta.errors import MetaError, NotSupportedError
from meta.frontend.torch.operators.registration import ensure
from meta.frontend.torch.operators.sizes import Symbols
from meta.frontend.torch.operators.traced import TorchTensor, calling_torch, unwrapped
from meta.modes import scoped
from meta.op.registry import Op
from meta.random import default_generator
from tests.python.conformance.adapter import ADAPTER
from tests.python.conformance.case import Case
from tests.python.conformance.opinfos import UNDEFINED, database, samples

REFUSED = (MetaError, TypeError, AttributeError)
"""What a function raises that reads values on the host, writes its argument, or calls an operator that torch cannot:
torch may trace every call."""


class ComposedPolicy(_Policy):
    """Mixed precision of composed functions alone: torch casts the operands of operators."""

    def __call__(self, op: Op, args: tuple[Any, ...]) -> tuple[Any, ...]:
        return args


def through_torch(case: Case, function: Callable[..., Any], tensors: Sequence[torch.Tensor]) -> list[Any]:
    """The results of a sample, by operators of torch."""
    symbols = Symbols()
    policy = ComposedPolicy("bfloat16", {}) if torch.is_autocast_enabled("cpu") else None
    with calling_torch(symbols, ensure), scoped(autocast=policy):
        return [unwrapped(y) for y in case.call(function, [TorchTensor(t, symbols) for t in tensors])]


def check(name: str, count: int) -> tuple[Counter[str], list[str]]:
    """The checks of an entry that passed, with the samples that were "refused" or "random", and a line for each that
    failed. count: of samples, 0 for all."""
    op = database()[name]
    function = ADAPTER.lookup(op.name, op.variant_test_name)
    passed, failed = Counter[str](), list[str]()
    if function is None or name in UNDEFINED or torch.float32 not in op.supported_dtypes("cpu"):
        return passed, failed
    for i, sample in enumerate(samples(op, torch.float32, count, requires_grad=op.supports_autograd)):
        case = Case(op, sample)
        if not case.dense or any(t.requires_grad and not t.is_floating_point() for t in case.tensors):
            continue
        for kind, problem in _problems(case, function):
            passed[kind] += not problem
            if problem:
                failed.append(f"{name}, sample {i}, {kind}: {problem}"[:400])
    return passed, failed


def _problems(case: Case, function: Callable[..., Any]) -> list[tuple[str, str]]:
    """Each check of a sample and what it found. None where meta refuses the sample, or torch cannot trace its call."""
    before = default_generator.state
    try:
        arrays = case.arrays()
        expected = case.call(function, arrays)
    except Exception:  # noqa: BLE001  # which test_op_db.py reports
        return []
    if default_generator.state != before:
        return [("random", "")]
    tensors = [t.detach().clone().requires_grad_(t.requires_grad) for t in case.tensors]
    try:
        results = through_torch(case, function, tensors)
    except REFUSED:
        return [("refused", "")]
    found = [("forward", _compare(results, expected))]
    pairs = [(y, z) for y, z in zip(results, expected, strict=True) if getattr(y, "requires_grad", False)]
    if pairs and case.leaves and not found[0][1]:
        found.append(("backward", _gradients(case, pairs, tensors, arrays)))
    plain = [t.detach() for t in tensors]
    if plain:
        found.append(("vmap", _batched(case, function, plain, results)))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        low = _or_error(lambda: through_torch(case, function, plain))
    with meta.amp.autocast("bfloat16"):
        known = _or_error(lambda: case.call(function, [x.detach() for x in arrays]))
    if isinstance(low, str) or isinstance(known, str):
        same = isinstance(low, str) and isinstance(known, str)
        found.append(("autocast", "" if same else f"torch: {low!r:.150}, meta: {known!r:.150}"))
    else:
        found.append(("autocast", _compare(low, known)))
    return found


def _or_error(call: Callable[[], list[Any]]) -> list[Any] | str:
    try:
        return call()
    except MetaError as error:
        return error.problem


def _gradients(case: Case, pairs: Any, tensors: Sequence[torch.Tensor], arrays: Sequence[Any]) -> str:
    seeds = [torch.sin(torch.arange(float(y.numel()))).reshape(y.shape).to(y.dtype) for y, _ in pairs]
    known = ADAPTER.grad([z for _, z in pairs], [arrays[i] for i in case.leaves], [meta.from_dlpack(s) for s in seeds])
    ours = torch.autograd.grad([y for y, _ in pairs], [tensors[i] for i in case.leaves], seeds, allow_unused=True)
    return _compare(ours, known, rtol=1e-5, atol=1e-6)  # sums of several gradients are in another order


def _batched(case: Case, function: Callable[..., Any], tensors: Sequence[torch.Tensor], once: Sequence[Any]) -> str:
    def run(*rows: torch.Tensor) -> Any:
        return tuple(y for y in through_torch(case, function, rows) if isinstance(y, torch.Tensor))

    try:
        twice = torch.vmap(run)(*[torch.stack([t, t]) for t in tensors])
    except NotSupportedError as error:
        return "" if "the shape of its result depends on values" in error.problem else str(error)
    once = [y for y in once if isinstance(y, torch.Tensor)]
    close = [torch.allclose(y[1], z, rtol=1e-4, atol=1e-5, equal_nan=True) for y, z in zip(twice, once, strict=True)]
    return "" if all(close) else f"results {[i for i, c in enumerate(close) if not c]}"


def _compare(ours: Sequence[Any], known: Sequence[Any], **tolerance: float) -> str:
    converted = [ADAPTER.to_torch(z) if isinstance(z, meta.NDArray) else z for z in known]
    wrong = [i for i, (y, z) in enumerate(zip(ours, converted, strict=True)) if _differs(y, z, **tolerance)]
    return f"results {wrong} differ" if wrong else ""


def _differs(y: Any, z: Any, rtol: float = 0.0, atol: float = 0.0) -> bool:
    if not (isinstance(y, torch.Tensor) and isinstance(z, torch.Tensor)):
        return type(y) is not type(z) or (y is not None and y != z)
    if y.dtype != z.dtype or y.shape != z.shape:
        return True
    return not torch.allclose(y.detach(), z.detach(), rtol=rtol, atol=atol, equal_nan=True)


def main(names: Sequence[str]) -> int:
    """Check every sample of the entries, all of them without names, and print what fails. Returns 1 if any does."""
    warnings.simplefilter("ignore")
    meta.torch.register()
    passed, failed = Counter[str](), list[str]()
    for name in names or database():
        counts, problems = check(name, 0)
        passed += counts
        failed += problems
        for line in problems:
            print(line, flush=True)  # noqa: T201  # a command
    print(f"{dict(passed)} passed, {len(failed)} failed")  # noqa: T201  # a command
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
