"""Passes keep the results of random programs."""

import pytest

import meta
from meta import passes
from meta.ir.visitor import walk
from tests.python.passes.programs import check_same_results, random_module

EXACT = {
    "inline_calls": passes.inline_calls,
    "fold_const": passes.fold_const,
    "cse": passes.cse,
    "dce": passes.dce,
    "simplify": passes.simplify,
    "drop_stop_gradient": passes.drop_stop_gradient,
    "standard": passes.standard(),
}


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("seed", range(12))
def test_passes_keep_results(name: str, seed: int) -> None:
    before = random_module(seed)
    with meta.with_dialect("reference"):
        after = check_same_results(before, EXACT[name](before), rtol=1e-4, seeds=1)
        check_same_results(before, EXACT[name](after), rtol=1e-4, seeds=1)


@pytest.mark.parametrize("seed", range(12))
def test_mixed_precision_keeps_results_approximately(seed: int) -> None:
    before = random_module(seed)
    never = dict.fromkeys(["matmul"], "never")
    check_same_results(before, passes.auto_cast("bfloat16", never)(before), rtol=1e-4, seeds=1)
    with passes.PassContext(verify=True):
        passes.standard()(passes.auto_cast("bfloat16")(before))


@pytest.mark.parametrize("seed", range(12))
def test_optimisation_keeps_gradients(seed: int) -> None:
    program = random_module(seed)
    with passes.PassContext(verify=True):
        adjoint = passes.auto_diff()(program)
        check_same_results(adjoint, passes.standard()(adjoint), rtol=1e-3, seeds=1)


def test_standard_makes_programs_smaller() -> None:
    before = [random_module(seed) for seed in range(12)]
    after = list(map(passes.standard(), before))
    count = [sum(1 for m in ms for f in m.functions.values() for _ in walk(f)) for ms in (before, after)]
    assert count[1] < 0.8 * count[0]
