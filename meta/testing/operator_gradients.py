"""The checks of `opcheck` on gradients and programs. They take a Case, like the checks of
meta.testing.operator_checks."""

from __future__ import annotations

import math
from typing import Any

from meta import dtype as dtypes
from meta.autograd.finite_differences import gradcheck, gradgradcheck
from meta.eager.engine import grad
from meta.eager.ndarray import NDArray, array
from meta.interpreter.run import run
from meta.ir.parser import parse
from meta.ir.printer import to_text
from meta.op.grad.rule import gradient_rule
from meta.testing.arrays import to_numpy
from meta.testing.call import OperatorCall, flat_results
from meta.testing.derivatives import gradient_inputs, pure_function
from meta.testing.generic import to_float64
from meta.testing.operator_case import Case, Skip, compare_results
from meta.testing.programs import program_gradients, trace_call

MAX_ELEMENTS = 1000
"""Finite differences take two calls for each element."""


def gradient(case: Case) -> None:
    """Gradients agree with central differences in float64 and have the types of the arguments."""
    call = _float64_leaves(case)
    gradcheck(pure_function(call), call.arrays())
    _check_gradient_types(case)


def second_order(case: Case) -> None:
    """Gradients of gradients agree with central differences in float64."""
    call = _float64_leaves(case)
    gradgradcheck(pure_function(call), call.arrays())


def traced_gradient(case: Case) -> None:
    """The gradient of a traced program equals the tape's."""
    positions = _differentiable_inputs(case)
    _check_finite(case)
    dys, ours = _tape_gradients(case)
    theirs = program_gradients(case.fresh(), positions, dys)
    expected = [b * 0 if a is None else a for a, b in zip(ours, theirs, strict=True)]
    compare_results("the gradient of the traced program", theirs, expected)


def _differentiable_inputs(case: Case) -> list[int]:
    """Positions among the arrays of those that have a gradient; raises Skip if there is none."""
    rule = gradient_rule(case.op.name)
    if rule is None:
        raise Skip("it is declared non_differentiable")
    positions = gradient_inputs(case.call)
    if positions:
        return positions
    if rule.unavailable:
        raise Skip(f"its gradient is not implemented: {next(iter(rule.unavailable.values()))}")
    raise Skip("no argument with a gradient is floating")


def _float64_leaves(case: Case) -> OperatorCall:
    """The call in float64; its differentiable arrays require gradients."""
    positions = _differentiable_inputs(case)
    elements = sum(math.prod(case.call.arrays()[i].shape) for i in positions)
    if elements > MAX_ELEMENTS:
        raise Skip(f"{elements} elements are too many for finite differences: pass a sample of up to {MAX_ELEMENTS}")
    exact = case.variant(to_float64)
    problem = exact.refusal()
    if problem is not None:
        raise Skip(f"finite differences need float64, which its type function refuses: {problem}")
    _check_finite(exact)
    call = exact.fresh()
    for i in positions:
        call.arrays()[i].requires_grad = True
    return call


def _check_finite(case: Case) -> None:
    """Raise Skip unless there are floating results, and all of them are finite."""
    import numpy as np

    rule = gradient_rule(case.op.name)
    assert rule is not None
    results = case.run()
    flows = [results[i] for i in rule.flowing(results)]
    if not any(isinstance(r, NDArray) and dtypes.is_float(r.dtype) for r in flows):
        raise Skip("no result with a gradient is floating")
    if not all(np.isfinite(to_numpy(r)).all() for r in flows):
        raise Skip("the results are not finite: pass a sample inside the operator's domain")


def _tape_gradients(case: Case) -> tuple[list[Any], list[NDArray | None]]:
    """A direction for each floating result, and the gradients of the arguments by the tape."""
    import numpy as np

    call, positions = case.fresh(), _differentiable_inputs(case)
    arrays = call.arrays()
    for i in positions:
        arrays[i].requires_grad = True
    results = flat_results(call.run())
    rng = np.random.default_rng(0)
    dys = [
        array(rng.uniform(0.5, 1.5, r.shape), dtype=r.dtype, device=case.device)
        if isinstance(r, NDArray) and dtypes.is_float(r.dtype)
        else None
        for r in results
    ]
    used = [i for i, r in enumerate(results) if dys[i] is not None and r.requires_grad]
    assert used, "no result depends on the arguments that have gradients: its gradient is cut off"
    inputs = [arrays[i] for i in positions]
    gradients = grad([results[i] for i in used], inputs, [dys[i] for i in used], allow_unused=True)
    return [(dy, i in used) for i, dy in enumerate(dys) if dy is not None], list(gradients)


def _check_gradient_types(case: Case) -> None:
    _, gradients = _tape_gradients(case)
    arrays = case.fresh().arrays()
    for i, g in zip(_differentiable_inputs(case), gradients, strict=True):
        expected = arrays[i].type
        assert g is None or g.type is expected, f"the gradient of array {i} is {g.type!r}, the array {expected!r}"


# --- programs --------------------------------------------------------------------------------------------------------


def interpreter(case: Case) -> None:
    """The traced program prints and parses, and the interpreter gives the bits of the eager call."""
    expected = _eager(case)
    module = trace_call(case.fresh()).record(case.fresh().arrays()).module
    text = to_text(module)
    assert to_text(parse(text)) == text, f"parsing the printed program gives another one: {text}"
    _compare_types("interpreted", results := flat_results(run(module, *case.fresh().arrays())), expected)
    compare_results("interpreted", results[: len(expected)], expected, exact=True)


def vm(case: Case) -> None:
    """The compiled program gives the results of the eager call."""
    from meta.vm import compile as compile_program

    expected = _eager(case)
    results = flat_results(compile_program(trace_call(case.fresh()), device=case.device)(case.fresh().arrays()))
    _compare_types("compiled", results, expected)
    compare_results("compiled", results[: len(expected)], expected)


def _eager(case: Case) -> list[Any]:
    results = case.run()
    if not any(isinstance(r, NDArray) for r in results):
        raise Skip("it returns no tensor")
    return results


def _compare_types(what: str, actual: list[Any], expected: list[Any]) -> None:
    for i, (a, b) in enumerate(zip(actual, expected, strict=False)):
        text = f"{what} result {i} is {getattr(a, 'type', a)!r}, eager {getattr(b, 'type', b)!r}"
        assert not isinstance(b, NDArray) or (isinstance(a, NDArray) and a.type is b.type), text
