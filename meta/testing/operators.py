"""opcheck: runs every generic check on one call of an operator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from meta import dtype as dtypes
from meta.autograd.finite_differences import gradcheck, gradgradcheck
from meta.eager.ndarray import NDArray
from meta.errors import MetaError
from meta.op.dispatch import with_dialect
from meta.op.grad.rule import as_tuple, gradient_rules
from meta.op.registry import Op, get
from meta.testing.arrays import to_numpy
from meta.testing.call import Call, flat_results
from meta.testing.derivatives import gradient_inputs
from meta.testing.dialects import accepting_implementations
from meta.testing.generic import check_types
from meta.testing.programs import trace_call
from meta.testing.tolerance import FORWARD, compare


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of one check: its name, the problem ("" if it passed), or the reason why it does not apply."""

    check: str
    problem: str = ""
    skipped: str = ""

    def __str__(self) -> str:
        return f"{self.check:<14} {self.problem or (f'not applicable: {self.skipped}' if self.skipped else 'passed')}"


class OpCheckError(AssertionError):
    """Raised when checks fail; the message is the whole report."""


class _Skip(Exception):
    """The check does not apply to this operator."""


def opcheck(op: Op | str | Callable[..., Any], *args: Any, **kwargs: Any) -> list[Finding]:
    """Run every generic check on `op(*args, **kwargs)` and return the report, one finding per check.

    op: an operator, its name, or its public function.  args, kwargs: arguments of the call, with meta arrays. Gradients
    are checked at these values in float64, so keep the arrays small and their values away from kinks.
    Checks: normalising arguments twice changes nothing; results have the inferred types; inputs are unchanged; all
    dialects that accept the call agree; first- and second-order gradients agree with finite differences; interpreter
    and virtual machine agree with eager execution. Raises OpCheckError with the report if a check fails."""
    operator = op if isinstance(op, Op) else get(op if isinstance(op, str) else op.__name__)
    call = Call(operator, args, kwargs)
    report = [_run(name, check, call) for name, check in _CHECKS.items()]
    if any(finding.problem for finding in report):
        lines = "\n".join(f"  {finding}" for finding in report)
        raise OpCheckError(f"[opcheck] {operator.name}\n{lines}")
    return report


def _run(name: str, check: Callable[[Call], None], call: Call) -> Finding:
    try:
        check(call)
    except _Skip as reason:
        return Finding(name, skipped=str(reason))
    except (MetaError, AssertionError) as error:
        return Finding(name, str(error) or type(error).__name__)
    # The operator's code may raise anything; the report contains it.
    except Exception as error:  # noqa: BLE001
        return Finding(name, f"{type(error).__name__}: {error}")
    return Finding(name)


def _schema(call: Call) -> None:
    bound = call.bound_arguments()
    again = call.op.schema.bind(call.op.name, bound, {})
    same = all(a is b or a == b for a, b in zip(_comparable(bound), _comparable(again), strict=True))
    assert same, f"normalising once gives {bound!r}, twice {again!r}"
    named = dict(zip(call.op.schema.names, bound, strict=True))
    keywords = call.op.schema.bind(call.op.name, (), named)
    assert _comparable(keywords) == _comparable(bound), "keyword arguments give other values than positional ones"


def _comparable(values: tuple[Any, ...]) -> list[Any]:
    """Arguments in comparable form: arrays by identity."""
    return [id(v) if isinstance(v, NDArray) else [id(i) for i in v] if _is_list(v) else v for v in values]


def _is_list(value: Any) -> bool:
    return isinstance(value, tuple) and any(isinstance(i, NDArray) for i in as_tuple(value))


def _types(call: Call) -> None:
    copy = _copy(call)
    check_types(copy, copy.run())


def _inputs(call: Call) -> None:
    if call.op.inplace:
        raise _Skip("it writes in place")
    copy = _copy(call)
    before = [to_numpy(a).copy() for a in copy.arrays()]
    copy.run()
    for i, (a, b) in enumerate(zip(copy.arrays(), before, strict=True)):
        compare(f"input {i} after the call", to_numpy(a), b, tolerance=(0.0, 0.0))


def _dialects(call: Call) -> None:
    accepting = accepting_implementations(_copy(call))
    if len(accepting) < 2:
        raise _Skip(f"only {accepting[0].dialect.name} accepts it" if accepting else "it runs no kernel")
    results = {}
    for implementation in accepting:
        name = implementation.dialect.name
        with with_dialect(name):
            results[name] = flat_results(_copy(call).run())
    (first, expected), *others = results.items()
    for name, actual in others:
        for i, (a, b) in enumerate(zip(actual, expected, strict=True)):
            compare(
                f"{name} against {first}, result {i}", to_numpy(a), to_numpy(b), tolerance=_doubled_tolerance(a.dtype)
            )


def _doubled_tolerance(dtype: str) -> tuple[float, float]:
    """Twice the tolerance of a dtype, because each of two implementations may deviate by it."""
    rtol, atol = FORWARD.get(dtype, (0.0, 0.0))
    return 2 * rtol, 2 * atol


def _gradient(call: Call) -> None:
    leaves = _float64_leaves(call)
    gradcheck(lambda *arrays: leaves.with_arrays(arrays).run(), leaves.arrays())


def _second_order(call: Call) -> None:
    leaves = _float64_leaves(call)
    gradgradcheck(lambda *arrays: leaves.with_arrays(arrays).run(), leaves.arrays())


def _float64_leaves(call: Call) -> Call:
    """The call in float64; its differentiable arrays require gradients."""
    if call.op.name not in gradient_rules():
        raise _Skip("it has no gradient")
    inputs = gradient_inputs(call)
    if not inputs:
        raise _Skip("no argument with a gradient is floating")
    arrays = [a.detach().cast("float64") if dtypes.is_float(a.dtype) else a.detach() for a in call.arrays()]
    for i in inputs:
        arrays[i].requires_grad = True
    return call.with_arrays(arrays)


def _interpreter(call: Call) -> None:
    from meta.interpreter.run import run

    record = trace_call(_copy(call)).record(_copy(call).arrays())
    _compare_with_eager(call, run(record.module, *_copy(call).arrays()), (0.0, 0.0))


def _machine(call: Call) -> None:
    from meta.vm import compile as compile_program

    result = compile_program(trace_call(_copy(call)))(_copy(call).arrays())
    _compare_with_eager(call, result, None)


def _compare_with_eager(call: Call, actual: Any, tolerance: tuple[float, float] | None) -> None:
    expected = flat_results(_copy(call).run())
    for i, (a, b) in enumerate(zip(flat_results(actual), expected, strict=False)):
        if isinstance(b, NDArray):
            compare(f"result {i}", to_numpy(a), to_numpy(b), tolerance=tolerance or _doubled_tolerance(b.dtype))


def _copy(call: Call) -> Call:
    """The call on copies of its arrays, which have no autograd history."""
    return call.to_meta()


_CHECKS: dict[str, Callable[[Call], None]] = {
    "schema": _schema,
    "types": _types,
    "inputs": _inputs,
    "dialects": _dialects,
    "gradient": _gradient,
    "second order": _second_order,
    "interpreter": _interpreter,
    "vm": _machine,
}
