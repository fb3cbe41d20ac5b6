"""opcheck: every generic check of an operator in one call."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from typing import Any

import meta
from meta.backend.cudnn.settings import without_tf32
from meta.errors import ArgumentError, MetaError, did_you_mean, line_of_error
from meta.op.registry import Op, find
from meta.schema._dsl import Arg
from meta.testing import operator_checks as checks
from meta.testing import operator_gradients as gradients
from meta.testing.arrays import to_numpy
from meta.testing.call import OperatorCall, is_array, is_mapping, is_sequence
from meta.testing.operator_bounds import bounds
from meta.testing.operator_case import Case, Skip
from meta.testing.report import Finding, OpCheckError, OpCheckReport
from meta.testing.samples import Sample, T

CHECKS: dict[str, Callable[[Case], None]] = {
    "schema": checks.schema,
    "types": checks.types,
    "inputs": checks.inputs,
    "deterministic": checks.deterministic,
    "values": checks.values,
    "dialects": checks.dialects,
    "dtypes": checks.floating_dtypes,
    "strided": checks.strided,
    "bounds": bounds,
    "zero_size": checks.zero_size,
    "symbolic": checks.symbolic,
    "gradient": gradients.gradient,
    "second_order": gradients.second_order,
    "traced_gradient": gradients.traced_gradient,
    "interpreter": gradients.interpreter,
    "vm": gradients.vm,
    "autocast": checks.autocast,
    "cache": checks.cache,
}
"""The checks of each sample by name; "docs" checks the operator itself."""

_SHAPES = ((2, 3), (2, 3, 4), (3, 3), (4,), (2, 3, 5, 5))
"""Shapes that samples from a schema are tried with."""
_RANGES: tuple[dict[str, Any], ...] = ({"avoid": (0.0,)}, {"low": 0.2, "high": 0.9}, {"low": 1.1, "high": 2.0})
"""Ranges of their values; the first one in which all results are finite is taken."""
_VALUES: dict[str, Any] = {"Int": 1, "Float": 0.5, "Number": 0.5, "NumberOrSize": 0.5, "Bool": False,
                           "DType": "float32", "Device": "cpu"}  # fmt: skip
"""Values of attributes without defaults, by the type of the argument."""


def opcheck(
    op: Op | str | Callable[..., Any],
    *samples: Sequence[Any] | Mapping[str, Any] | Sample,
    skip: Sequence[str] | Mapping[str, str] = (),
    device: str = "cpu",
    raise_on_failure: bool = True,
) -> OpCheckReport:
    """Run every generic check of an operator on each sample and return the report, which prints as a table.

        def test_swish():
            opcheck(meta.swish, (meta.array([-1.0, 0.5]),), {"x": T(2, 3), "beta": 2.0})

    op: an operator, its name, or its public function.
    samples: calls: a tuple of positional arguments, a dict of keyword arguments, or a Sample. Arrays are meta's,
        NumPy's, torch's or random ones (`T`). Keep them small and away from kinks: gradients are compared with finite
        differences in float64. Without samples, some are derived from the schema.
    skip: names of checks to leave out, or their names with reasons.
    device: where the checks run.

    Checks: docs (operator and arguments have documentation); schema (defaults, positions and names bind alike); types
    (results have the inferred types); inputs (none is changed); deterministic; values (agree with the `ref` of a
    Sample); dialects (each agrees with the reference implementation, within twice the tolerance of the dtype); dtypes
    (each dialect in the other floating dtypes is close to float64); strided (memory of stepped, transposed and
    unaligned arrays); bounds (kernels read and write inside of their arguments, on the CPU, also on sizes that
    differ by one and that the type function accepts); zero_size (refused by the type function, or run); symbolic (the
    type function agrees on symbolic sizes); gradient, second_order (finite differences); traced_gradient (of the
    program); interpreter, vm (results of the program); autocast (runs in the dtype of the mixed-precision rule); cache
    (results without cached runners, keys of kernels on disk).

    Raises OpCheckError with the report if a check fails, unless `raise_on_failure` is False; ArgumentError for an
    unknown check, for samples that are not calls, and if no sample can be derived."""
    operator = op if isinstance(op, Op) else find(op)
    skipped = _skipped(skip)
    cases = cases_of(operator, samples, device)
    with _without_tf32(device):
        findings = [_operator_finding(operator, skipped)]
        usable = [_call_problem(case) for case in cases]
        for name in CHECKS:
            if name == "values" and not any(case.sample for case in cases):
                continue
            findings += [_finding(name, i, case, skipped, usable[i]) for i, case in enumerate(cases)]
    report = OpCheckReport(operator.name, tuple(map(_describe, cases)), tuple(findings))
    if raise_on_failure and not report.ok:
        raise OpCheckError(report)
    return report


@contextmanager
def _without_tf32(device: str) -> Generator[None, None, None]:
    """On a GPU, float32 convolutions of every library multiply in float32 inside the block, so that dialects agree."""
    with ExitStack() as settings:
        if device.startswith("cuda"):
            settings.enter_context(without_tf32())
            if find_spec("torch") is not None:
                import torch

                settings.enter_context(torch.backends.cudnn.flags(enabled=True, allow_tf32=False))
        yield


def _skipped(skip: Any) -> dict[str, str]:
    """The reason of each check to leave out."""
    listed = dict(skip) if is_mapping(skip) else dict.fromkeys((skip,) if isinstance(skip, str) else skip, "")
    names = ("docs", *CHECKS)
    for name in listed:
        if name not in names:
            hint = did_you_mean(str(name), names)
            raise ArgumentError("opcheck", f"skip names the check {name!r}", f"some of {', '.join(names)}", hint)
    return {name: f"left out by skip: {reason}".removesuffix(": ") for name, reason in listed.items()}


# --- running a check -------------------------------------------------------------------------------------------------


def _operator_finding(op: Op, skipped: Mapping[str, str]) -> Finding:
    if "docs" in skipped:
        return Finding("docs", None, "skipped", skipped["docs"])
    try:
        checks.docs(op)
    except AssertionError as error:
        return Finding("docs", None, "failed", str(error))
    return Finding("docs", None, "passed")


def _call_problem(case: Case) -> str:
    """Why a plain call fails, "" if it runs; the checks that need its results are then left out."""
    try:
        case.fresh().run()
    # The operator's code may raise anything; the report contains it.
    except Exception as error:  # noqa: BLE001
        return _text(error)
    return ""


def _finding(name: str, index: int, case: Case, skipped: Mapping[str, str], call_problem: str) -> Finding:
    if name in skipped:
        return Finding(name, index, "skipped", skipped[name])
    if call_problem and name != "schema":
        failed = name == "types"
        return Finding(name, index, "failed" if failed else "skipped", call_problem if failed else "the call fails")
    try:
        CHECKS[name](case)
    except Skip as reason:
        return Finding(name, index, "skipped", str(reason))
    except Exception as error:  # noqa: BLE001
        return Finding(name, index, "failed", _text(error))
    return Finding(name, index, "passed")


def _text(error: Exception) -> str:
    """An exception as a finding: one of meta names its class and place itself, others get both here."""
    if isinstance(error, AssertionError) and str(error):
        return str(error)
    if isinstance(error, MetaError):
        return str(error)
    line = line_of_error(error)
    return f"{type(error).__name__}: {error}" + (f" (at {line})" if line else "")


# --- samples ---------------------------------------------------------------------------------------------------------


def cases_of(op: Op, samples: Sequence[Any], device: str) -> list[Case]:
    """The cases of samples; without any, of samples that follow from the schema."""
    return [_case(op, i, each, device) for i, each in enumerate(samples)] or _derived(op, device)


def _case(op: Op, index: int, sample: object, device: str) -> Case:
    """A sample as a case, its arrays as NumPy arrays."""
    if isinstance(sample, Sample):
        if sample.op != op.name:
            raise ArgumentError("opcheck", f"sample {index} is of {sample.op}", f"samples of {op.name}")
        args, kwargs = sample.numpy()
        return Case(OperatorCall(op, args, kwargs), device, sample)
    if is_mapping(sample):
        args, kwargs = (), {str(name): _drawn(value, str(name)) for name, value in sample.items()}
    elif is_sequence(sample):
        args, kwargs = tuple(_drawn(value, str(i)) for i, value in enumerate(sample)), {}
    else:
        wrong = f"sample {index} is of class {type(sample).__name__}"
        expected = "a tuple of arguments, a dict of them by name, or a Sample"
        raise ArgumentError("opcheck", wrong, expected, f"write opcheck({op.name}, (x,))")
    call = OperatorCall(op, args, kwargs)
    op.schema.bind(op.name, call.to_meta(device).args, call.to_meta(device).kwargs)
    return Case(call.map(to_numpy), device)


def _drawn(value: object, path: str) -> Any:
    """An argument with arrays in place of each T."""
    if isinstance(value, T):
        return value.values("", path)
    if is_sequence(value) and any(isinstance(v, T) for v in value):
        return [_drawn(v, f"{path}.{i}") for i, v in enumerate(value)]
    return value


def _derived(op: Op, device: str) -> list[Case]:
    """Up to two cases whose required arguments have values by their types. Raises ArgumentError if there is none."""
    required = [arg for arg in op.schema.args if arg.required]
    unknown = [arg for arg in required if not arg.is_tensor and arg.type.name not in _VALUES]
    remedy = f"pass samples: opcheck({op.name}, (meta.ones((2, 3)), ...))"
    if unknown:
        problem = f"no sample follows from {op.schema!r}: '{unknown[0].name}' is {unknown[0].type} without a default"
        raise ArgumentError("opcheck", problem, "defaults, tensors and numbers", remedy)
    cases: list[Case] = []
    for dtype in ("float32", "int64", "bool"):
        for shape in _SHAPES:
            case = _case_of_shape(op, required, shape, dtype, device)
            if case is not None:
                cases.append(case)
            if len(cases) == 2:
                return cases
        if cases:
            return cases
    tried = f"its type function refuses tensors of shapes {', '.join(map(str, _SHAPES))} in float32, int64 and bool"
    raise ArgumentError("opcheck", f"no sample follows from {op.schema!r}: {tried}", "samples", remedy)


def _case_of_shape(op: Op, required: Sequence[Arg], shape: tuple[int, ...], dtype: str, device: str) -> Case | None:
    """A case whose tensors have one shape and finite results if possible, None if the type function refuses it."""
    last: Case | None = None
    for values in _RANGES if dtype == "float32" else _RANGES[:1]:
        tensor = T(*shape, dtype=dtype, **values)
        sample = {a.name: _value(a, tensor) for a in required}
        case = _case(op, 0, sample, device)
        if case.refusal() is not None:
            return None
        last = last or case
        if _is_finite(case):
            return case
    return last


def _value(arg: Arg, tensor: T) -> Any:
    if not arg.is_tensor:
        return _VALUES[arg.type.name]
    return [tensor, tensor] if arg.type.role == "tensors" else tensor


def _is_finite(case: Case) -> bool:
    """Whether the call runs and all its floating results are finite."""
    import numpy as np

    if _call_problem(case):
        return False
    results = [to_numpy(r) for r in case.run() if isinstance(r, meta.NDArray)]
    return all(np.isfinite(r.astype("float64")).all() for r in results)


def _describe(case: Case) -> str:
    """The arguments of a case, arrays by their types."""
    call = case.fresh()
    arguments = dict(zip(call.op.schema.names, call.args, strict=False)) | call.kwargs
    return ", ".join(f"{name}={_shown(value)}" for name, value in arguments.items()) or "no arguments"


def _shown(value: Any) -> str:
    if is_array(value):
        return repr(value.type)
    if is_sequence(value) and any(map(is_array, value)):
        return f"[{', '.join(map(_shown, value))}]"
    return repr(value)
