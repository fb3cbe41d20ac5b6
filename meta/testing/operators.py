"""opcheck: every generic check on one call of an operator of one's own."""

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
from meta.testing.derivatives import wanted
from meta.testing.dialects import accepting
from meta.testing.generic import check_types
from meta.testing.programs import traced
from meta.testing.tolerance import FORWARD, compare


@dataclass(frozen=True, slots=True)
class Finding:
    """One check: its name, and what went wrong ("" if nothing) or why it did not apply."""

    check: str
    problem: str = ""
    skipped: str = ""

    def __str__(self) -> str:
        return f"{self.check:<14} {self.problem or (f'not applicable: {self.skipped}' if self.skipped else 'passed')}"


class OpCheckError(AssertionError):
    """Some checks failed; the message is the whole report."""


class _Skip(Exception):
    """The check does not apply to this operator."""


def opcheck(op: Op | str | Callable[..., Any], *args: Any, **kwargs: Any) -> list[Finding]:
    """Run every generic check on `op(*args, **kwargs)` and return the report, a line a check.

    op: an operator, its name, or its public function.  args, kwargs: as for the call, with meta arrays; derivatives are
    taken at these values in float64, so keep them small and away from kinks.
    Checks: the schema's normal form is stable; the results have the inferred types; inputs stay as they are; all
    dialects that accept the call agree; gradients and their gradients agree with finite differences; interpreter and
    virtual machine agree with eager execution. Raises OpCheckError with the report when any of them fails."""
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
    # A checker reports whatever the operator's own code raises.
    except Exception as error:  # noqa: BLE001
        return Finding(name, f"{type(error).__name__}: {error}")
    return Finding(name)


def _schema(call: Call) -> None:
    bound = call.bound()
    again = call.op.schema.bind(call.op.name, bound, {})
    same = all(a is b or a == b for a, b in zip(_plain(bound), _plain(again), strict=True))
    assert same, f"normalising twice gives {again!r}, once {bound!r}"
    named = dict(zip(call.op.schema.names, bound, strict=True))
    assert _plain(call.op.schema.bind(call.op.name, (), named)) == _plain(bound), "keywords give other values"


def _plain(values: tuple[Any, ...]) -> list[Any]:
    """Arguments in comparable form: arrays by identity."""
    return [id(v) if isinstance(v, NDArray) else [id(i) for i in v] if _is_list(v) else v for v in values]


def _is_list(value: Any) -> bool:
    return isinstance(value, tuple) and any(isinstance(i, NDArray) for i in as_tuple(value))


def _types(call: Call) -> None:
    fresh = _fresh(call)
    check_types(fresh, fresh.run())


def _inputs(call: Call) -> None:
    if call.op.inplace:
        raise _Skip("it writes in place")
    fresh = _fresh(call)
    before = [to_numpy(a).copy() for a in fresh.arrays()]
    fresh.run()
    for i, (a, b) in enumerate(zip(fresh.arrays(), before, strict=True)):
        compare(f"input {i} after the call", to_numpy(a), b, tolerance=(0.0, 0.0))


def _dialects(call: Call) -> None:
    found = accepting(_fresh(call))
    if len(found) < 2:
        raise _Skip(f"only {found[0].dialect.name} accepts it" if found else "it runs no kernel")
    results = {}
    for implementation in found:
        name = implementation.dialect.name
        with with_dialect(name):
            results[name] = flat_results(_fresh(call).run())
    (first, expected), *others = results.items()
    for name, actual in others:
        for i, (a, b) in enumerate(zip(actual, expected, strict=True)):
            compare(f"{name} against {first}, result {i}", to_numpy(a), to_numpy(b), tolerance=_between(a.dtype))


def _between(dtype: str) -> tuple[float, float]:
    """Two implementations may each be off by the tolerance."""
    rtol, atol = FORWARD.get(dtype, (0.0, 0.0))
    return 2 * rtol, 2 * atol


def _gradient(call: Call) -> None:
    fresh = _differentiable(call)
    gradcheck(lambda *arrays: fresh.with_arrays(arrays).run(), fresh.arrays())


def _second_order(call: Call) -> None:
    fresh = _differentiable(call)
    gradgradcheck(lambda *arrays: fresh.with_arrays(arrays).run(), fresh.arrays())


def _differentiable(call: Call) -> Call:
    if call.op.name not in gradient_rules():
        raise _Skip("it has no gradient")
    at = wanted(call)
    if not at:
        raise _Skip("no argument with a gradient is floating")
    arrays = [a.detach().cast("float64") if dtypes.is_float(a.dtype) else a.detach() for a in call.arrays()]
    for i in at:
        arrays[i].requires_grad = True
    return call.with_arrays(arrays)


def _interpreter(call: Call) -> None:
    from meta.interpreter.run import run

    record = traced(_fresh(call)).record(_fresh(call).arrays())
    _agree(call, run(record.module, *_fresh(call).arrays()), (0.0, 0.0))


def _machine(call: Call) -> None:
    from meta.vm import compile as compile_program

    result = compile_program(traced(_fresh(call)))(_fresh(call).arrays())
    _agree(call, result, None)


def _agree(call: Call, actual: Any, tolerance: tuple[float, float] | None) -> None:
    expected = flat_results(_fresh(call).run())
    for i, (a, b) in enumerate(zip(flat_results(actual), expected, strict=False)):
        if isinstance(b, NDArray):
            compare(f"result {i}", to_numpy(a), to_numpy(b), tolerance=tolerance or _between(b.dtype))


def _fresh(call: Call) -> Call:
    """The call on copies of its arrays, without history."""
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
