"""The decomposition of an operator computes what its kernels do, with the same gradients.

Torch's kernels run the operators of a decomposition. TVM's, which test_forward compares, would have to be
compiled, and the reference evaluates decompositions itself."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest

from meta.op.decomposition import all_decompositions, decompositions, families
from meta.op.dialect.reference import Evaluation
from meta.op.dispatch import implementation, with_dialect
from meta.op.grad.rule import gradient_rule
from meta.op.registry import get
from meta.testing.call import OperatorCall, flat_results
from meta.testing.derivatives import check_gradient, is_differentiable
from meta.testing.generic import check_decomposition, make_call, run_decomposition
from meta.testing.samples import OTHER_DTYPES, Sample
from tests.python.op.samples import cases, samples

DECOMPOSED = [row for row in samples() if row.op in decompositions(row.operator.family)]


def is_evaluated(name: str) -> bool:
    """Whether the reference dialect computes an operator by its decomposition."""
    found = implementation(get(name), "reference")
    assert found is not None
    return isinstance(found.payload, Evaluation)


@cases(DECOMPOSED, others=OTHER_DTYPES)
@with_dialect(["torch", "reference"])
def test_values(sample: Sample, dtype: str) -> None:
    if not check_decomposition(sample, dtype):
        assert not is_evaluated(sample.op), "the reference dialect has nothing that computes this call"


@cases([row for row in DECOMPOSED if is_differentiable(row)])
@with_dialect(["torch", "reference"])
def test_gradients(sample: Sample, dtype: str) -> None:
    if repr(sample) == "copysign-number-first":
        return  # the sign of a tensor has no gradient
    rule = gradient_rule(sample.op)
    assert rule is not None

    def results(call: OperatorCall) -> list[Any]:
        """Gradients flow only from the results that the operator has them for."""
        every = flat_results(run_decomposition(call))
        return [y if i in rule.differentiable_outputs else y.detach() for i, y in enumerate(every)]

    if run_decomposition(make_call(sample, dtype).to_meta()) is not None:
        check_gradient(sample, dtype, results)


@pytest.mark.parametrize("family", sorted(families()))
def test_operators_have_the_family_of_the_module(family: str) -> None:
    import_module(f"meta.op.declare.{family}")
    assert {get(name).family for name in decompositions(family)} == {family}


PARTIAL = {
    "copysign", "signbit",  # NaN has a sign
    "trunc_divide",  # integers
    "binary_search",  # rows that are not sorted
}  # fmt: skip
"""Operators whose decomposition does not cover all that they compute: they alone have a NumPy function beside it."""


def test_the_reference_evaluates_decompositions() -> None:
    assert {name for name in all_decompositions() if not is_evaluated(name)} == PARTIAL
