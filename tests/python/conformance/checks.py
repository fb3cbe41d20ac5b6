"""Checks of an entry: its results, gradients, second gradients and refusals are torch's, eagerly and compiled."""

from __future__ import annotations

import contextlib
import re
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

import meta
from meta import tracing, vm
from tests.python.conformance.adapter import ADAPTER
from tests.python.conformance.case import Case, weight
from tests.python.conformance.compare import GRADIENT, differences
from tests.python.conformance.opinfos import UNDEFINED, samples, spread
from tests.python.conformance.ties import tie_order

SECONDS = 60
"""Limit of one step of one sample."""

REJECTIONS = (TypeError, ValueError, RuntimeError, IndexError)
"""Errors that refuse bad input, beside the type that torch raises."""

Gradients = list[Any]


@dataclass(slots=True)
class Result:
    """What became of an entry's samples.

    counts: (check, mode, dtype) -> passed, failed and skipped samples.  notes: a line for each failed or skipped."""

    entry: str
    counts: dict[tuple[str, str, str], Counter[str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, check: str, mode: str, dtype: torch.dtype | None, problem: str, skipped: str = "") -> None:
        kind = str(dtype).removeprefix("torch.") if dtype else ""
        outcome = "failed" if problem else "skipped" if skipped else "passed"
        self.counts.setdefault((check, mode, kind), Counter())[outcome] += 1
        if problem or skipped:
            words = " ".join(filter(None, (check, mode, kind)))
            self.notes.append(f"{words} {outcome}: {' '.join((problem or skipped).split())[:200]}")

    def total(self, check: str = "") -> Counter[str]:
        """The counts of a check, of all if it is empty."""
        return sum((c for key, c in self.counts.items() if check in ("", key[0])), Counter[str]())


class TimeLimitError(Exception):
    """A step that took too long."""


@contextlib.contextmanager
def limited(seconds: float = SECONDS) -> Iterator[None]:
    """Raise TimeLimitError in this block after so many seconds."""

    def expire(*_: Any) -> None:
        raise TimeLimitError(f"no result after {seconds} s")

    before = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def message(error: BaseException) -> str:
    text = re.sub(r" \(at [^)]*\)?$", "", str(error))  # where in this package the operator was called
    return f"{type(error).__name__}: {text}"


@dataclass(slots=True)
class Expected:
    """torch's side of a sample: results, inputs afterwards, and which of them can be compared."""

    case: Case
    results: list[Any]
    inputs: list[torch.Tensor]
    random: bool
    cotangents: dict[int, torch.Tensor] = field(default_factory=dict)

    def unwritten(self, values: Sequence[Any]) -> list[Any]:
        """Arguments for one more call in a program: copies of those that the operator writes to."""
        pairs = zip(self.case.tensors, self.inputs, strict=True)
        written = [not x.requires_grad and bool(differences([now], [x], x.dtype)) for x, now in pairs]
        return [meta.copy(v) if w else v for v, w in zip(values, written, strict=True)]


def expectation(case: Case, dtype: torch.dtype, gradients: bool) -> Expected | str:
    """torch's results; why the sample cannot be compared otherwise."""
    if not case.dense:
        return "a tensor is sparse"
    try:
        results, inputs = case.expected()
        again, _ = case.expected(seed=1)
    except Exception as error:  # noqa: BLE001
        return f"torch refuses it: {error}"
    if any(isinstance(r, torch.Tensor) and r.layout != torch.strided for r in results):
        return "the result is sparse"
    random = getattr(case.op, "has_nondeterministic_output", False) or case.op.full_name in UNDEFINED
    random = random or bool(differences(again, results, dtype))
    expected = Expected(case, results, inputs, random)
    if gradients and case.leaves and not random:
        try:
            expected.cotangents = case.cotangents()
        except Exception:  # noqa: BLE001
            expected.cotangents = {}
    return expected


def check_forward(expected: Expected, actual: Sequence[Any], arrays: Sequence[Any], dtype: torch.dtype) -> str:
    """How meta's results differ from torch's. Of random ones, shapes and dtypes are compared."""
    ours = [_to_torch(y) for y in actual]
    theirs: list[Any] = expected.results
    if expected.random:
        ours, theirs = [_blank(y) for y in ours], [_blank(y) for y in theirs]
    problem = differences(ours, theirs, dtype, truth=expected.case.exact)
    if problem and not expected.random:
        problem = tie_order(expected.case, ours, theirs, problem)
    if problem or expected.random:
        return problem
    states = [ADAPTER.to_torch(x) for x in arrays]
    changed = differences(states, expected.inputs, dtype, truth=expected.case.exact_inputs)
    return f"an input was changed: {changed}" if changed else ""


def check_gradients(expected: Expected, actual: Sequence[Any], dtype: torch.dtype, second: bool = False) -> str:
    """How gradients differ from torch's."""
    case, cotangents = expected.case, expected.cotangents
    theirs = case.gradients(cotangents, second)
    ours = [torch.zeros_like(e) if g is None else ADAPTER.to_torch(g) for g, e in zip(actual, theirs, strict=True)]
    factor = GRADIENT * (GRADIENT if second else 1)
    return differences(ours, theirs, dtype, factor, lambda: case.exact_gradients(cotangents, second))


def _refused_by_torch(expected: Expected, second: bool) -> str:
    """Why torch has no gradients of the sample, "" if it has."""
    try:
        expected.case.gradients(expected.cotangents, second)
    except Exception as error:  # noqa: BLE001
        return f"torch refuses it: {error}"
    return ""


def gradients_of(
    case: Case, outputs: Sequence[Any], arrays: Sequence[Any], cotangents: dict[int, Any], second: bool = False
) -> Gradients:
    """meta's gradients of the sample's leaves: on arrays, and on symbols while tracing."""
    leaves = [arrays[i] for i in case.leaves]
    first = ADAPTER.grad([outputs[i] for i in cotangents], leaves, list(cotangents.values()), create_graph=second)
    if not second:
        return first
    paths = [g for g in first if g is not None and g.requires_grad]
    if not paths:
        return [None] * len(leaves)
    weights = [ADAPTER.from_torch(weight(torch.empty(g.shape, dtype=getattr(torch, g.dtype))), False) for g in paths]
    return ADAPTER.grad(paths, leaves, weights)


def check_derivatives(expected: Expected, actual: Sequence[Any], dtype: torch.dtype) -> str:
    """How derivatives of forward mode differ from torch's; where those are NaN, from torch's gradients."""
    case, places = expected.case, list(expected.cotangents)
    ours = [ADAPTER.to_torch(t) for t in actual]
    theirs = case.derivatives(places)
    problem = differences(ours, theirs, dtype, GRADIENT, lambda: case.exact_derivatives(places))
    if problem and any(t.isnan().any() for t in theirs) and not any(t.isnan().any() for t in ours):
        return differences(*case.adjoint(expected.cotangents, ours), dtype, GRADIENT)
    return problem


def derivatives_of(
    case: Case, function: Callable[..., Any], arrays: Sequence[Any], tangents: Sequence[Any], places: Sequence[int]
) -> Gradients:
    """meta's derivatives of the results at `places` along the leaves' tangents: on arrays, and while tracing."""

    def of_leaves(*leaves: Any) -> list[Any]:
        values = list(arrays)
        for i, x in zip(case.leaves, leaves, strict=True):
            values[i] = x
        outputs = case.call(function, values)
        return [outputs[i] for i in places]

    leaves = tuple(arrays[i] for i in case.leaves)
    return list(meta.autograd.jvp(of_leaves, leaves, tuple(tangents))[1])


def _forward_mode(expected: Expected) -> bool:
    """Whether forward mode of the sample can be compared."""
    return bool(expected.cotangents) and expected.case.op.supports_forward_ad


def check_eager(
    result: Result, function: Callable[..., Any], expected: Expected, dtype: torch.dtype, orders: int, mode: str
) -> None:
    """The results of one sample, and gradients up to an order, on arrays."""
    try:
        with limited():
            arrays = expected.case.arrays()
            outputs = expected.case.call(function, arrays)
            problem = check_forward(expected, outputs, arrays, dtype)
    except Exception as error:  # noqa: BLE001
        problem = message(error)
    result.add("forward", mode, dtype, problem)
    if problem or not expected.cotangents:
        return
    for order, check in ((1, "backward"), (2, "second"))[:orders]:
        if order == 2 and not expected.case.op.supports_gradgrad:
            continue
        refusal = _refused_by_torch(expected, order == 2)
        if refusal:
            result.add(check, mode, dtype, "", skipped=refusal)
            continue
        try:
            with limited():
                dys = {i: ADAPTER.from_torch(c, False) for i, c in expected.cotangents.items()}
                arrays = expected.case.arrays()
                outputs = expected.case.call(function, arrays)
                ours = gradients_of(expected.case, outputs, arrays, dys, order == 2)
                problem = check_gradients(expected, ours, dtype, order == 2)
        except Exception as error:  # noqa: BLE001
            problem = message(error)
        result.add(check, mode, dtype, problem)
        if problem:
            break
    if orders and _forward_mode(expected):
        try:
            with limited():
                moves = [ADAPTER.from_torch(t, False) for t in expected.case.tangents()]
                arrays = [ADAPTER.from_torch(t, False) for t in expected.case.tensors]
                ours = derivatives_of(expected.case, function, arrays, moves, list(expected.cotangents))
                problem = check_derivatives(expected, ours, dtype)
        except Exception as error:  # noqa: BLE001
            problem = message(error)
        result.add("jvp", mode, dtype, problem)


def check_compiled(
    result: Result, function: Callable[..., Any], expected: Sequence[Expected], dtype: torch.dtype, orders: int
) -> None:
    """The same of several samples, compiled together, or one by one if that fails."""
    try:
        with limited(SECONDS * 4):
            runs = _compiled(function, expected, orders)
    except Exception as error:  # noqa: BLE001
        if len(expected) > 1:
            for one in expected:
                check_compiled(result, function, [one], dtype, orders)
        else:
            reason = value_dependent(result.entry, error)
            result.add("forward", "compiled", dtype, "" if reason else message(error), reason)
        return
    for one, (arrays, rows) in zip(expected, runs, strict=True):
        wrong = check_forward(one, rows["forward"], arrays, dtype)
        result.add("forward", "compiled", dtype, wrong)
        for check in rows if not wrong else ():
            if check in ("backward", "second"):
                refusal = _refused_by_torch(one, check == "second")
                problem = "" if refusal else check_gradients(one, rows[check], dtype, check == "second")
                result.add(check, "compiled", dtype, problem, skipped=refusal)
            elif check == "jvp":
                result.add(check, "compiled", dtype, check_derivatives(one, rows[check], dtype))


def _compiled(
    function: Callable[..., Any], expected: Sequence[Expected], orders: int
) -> list[tuple[list[Any], dict[str, list[Any]]]]:
    """For each sample its inputs afterwards, and results, gradients, second gradients and derivatives of forward mode,
    by one program."""
    arrays = [one.case.arrays() for one in expected]
    seeds = [[ADAPTER.from_torch(c, False) for c in one.cotangents.values()] for one in expected]
    moves = [
        [ADAPTER.from_torch(t, False) for t in one.case.tangents()] if orders and _forward_mode(one) else []
        for one in expected
    ]
    absent: list[dict[str, list[bool]]] = []

    @tracing.trace
    def program(lists: list[list[Any]], dys: list[list[Any]], tangents: list[list[Any]]) -> list[Any]:
        absent.clear()
        results: list[Any] = []
        for one, values, seed, along in zip(expected, lists, dys, tangents, strict=True):
            rows = _rows(one, function, values, seed, along, orders)
            absent.append({check: [y is None for y in row] for check, row in rows.items()})
            results.append([[y for y in row if y is not None] for row in rows.values()])
        return results

    values = vm.compile(program)(arrays, seeds, moves)
    out: list[tuple[list[Any], dict[str, list[Any]]]] = []
    for each, results, kinds in zip(arrays, values, absent, strict=True):
        rows: dict[str, list[Any]] = {}
        for (check, gone), row in zip(kinds.items(), results, strict=True):
            left = iter(row)
            rows[check] = [None if none else next(left) for none in gone]
        out.append((each, rows))
    return out


def _rows(
    one: Expected, function: Callable[..., Any], values: list[Any], seed: list[Any], along: list[Any], orders: int
) -> dict[str, list[Any]]:
    """What a program computes of one sample, by check."""
    case, cotangents = one.case, dict(zip(one.cotangents, seed, strict=True))
    again, twice, moved = (one.unwritten(values) for _ in range(3))
    rows = {"forward": case.call(function, values)}
    if orders >= 1 and seed:
        rows["backward"] = gradients_of(case, case.call(function, again), again, cotangents)
    if orders >= 2 and seed and case.op.supports_gradgrad:
        rows["second"] = gradients_of(case, case.call(function, twice), twice, cotangents, second=True)
    if along:
        rows["jvp"] = derivatives_of(case, function, moved, along, list(one.cotangents))
    return rows


_SHAPES = ("nonzero", "argwhere", "masked_select", "unique", "unique_consecutive")
_VALUES = {
    **dict.fromkeys(_SHAPES, "the shape of the result depends on values"),
    "item": "the result is a Python number", **dict.fromkeys(("equal", "allclose"), "the result is a Python bool"),
}  # fmt: skip


def value_dependent(entry: str, error: BaseException) -> str:
    """Why a sample has no program, "" if it should have one."""
    documented = _VALUES.get(entry, "")
    return documented or ("a value of a tensor decides" if isinstance(error, meta.errors.TraceError) else "")


def check_errors(result: Result, op: Any, function: Callable[..., Any]) -> None:
    """Bad input that torch refuses on the CPU is refused."""
    if not op.error_inputs_func or not result.total("forward")["passed"]:
        return
    for bad in op.error_inputs("cpu"):
        case = Case(op, bad.sample_input)
        if "out" in bad.sample_input.kwargs:
            continue
        try:
            case.call(op, case.tensors)
            continue  # torch accepts it on the CPU
        except Exception as error:  # noqa: BLE001
            allowed = (*REJECTIONS, type(error))
        try:
            with limited():
                case.call(function, case.arrays())
            problem = f"accepted: {bad.error_regex}"
        except allowed:
            problem = ""
        except Exception as error:  # noqa: BLE001
            problem = message(error)
        result.add("errors", "", None, problem)


def check_entry(
    op: Any, dtypes: Sequence[torch.dtype], differentiable: Sequence[torch.dtype], count: int, orders: int = 2,
    compiled: int = 0, strided: bool = False, errors: bool = True,
) -> Result:  # fmt: skip
    """All checks of an entry.

    count: samples of each dtype.  differentiable: dtypes whose gradients are checked, up to `orders`.  compiled: how
    many of the samples are compiled too."""
    result = Result(op.full_name)
    function = ADAPTER.lookup(op.name, op.variant_test_name)
    if function is None:
        result.add("forward", "eager", None, "not implemented")
        return result
    for dtype in dtypes:
        if dtype not in op.dtypes:
            continue
        gradients = op.supports_autograd and dtype in differentiable and dtype in op.backward_dtypes
        for mode, apart in (("eager", False), ("strided", True))[: 2 if strided else 1]:
            usable: list[Expected] = []
            for sample in samples(op, dtype, count, gradients, apart):
                expected = expectation(Case(op, sample), dtype, gradients)
                if isinstance(expected, str):
                    result.add("forward", mode, dtype, "", expected)
                    continue
                usable.append(expected)
                check_eager(result, function, expected, dtype, orders if gradients else 0, mode)
            chosen = spread(usable, compiled) if compiled and not apart else []
            if chosen:
                check_compiled(result, function, chosen, dtype, orders if gradients else 0)
    if errors:
        check_errors(result, op, function)
    return result


def _to_torch(value: Any) -> Any:
    tensor = ADAPTER.to_torch(value)
    return value if tensor is None else tensor


def _blank(value: Any) -> Any:
    return torch.zeros_like(value) if isinstance(value, torch.Tensor) else value
