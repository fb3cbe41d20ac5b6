"""First derivatives: by finite differences in float64, and against torch's autograd of the reference.

Finite differences test the formulas, which are the same in every dialect. NumPy computes them, for kernels take longer
to compile than to run; TVM's are compared with torch."""

import pytest

from meta.op.dispatch import with_dialect
from meta.testing.derivatives import check_finite_differences, check_gradient, is_differentiable
from meta.testing.samples import Sample
from tests.python.op.samples import cases, samples

DIFFERENTIABLE = [row for row in samples() if is_differentiable(row) and row.is_floating]


@cases(DIFFERENTIABLE)
def test_against_torch(sample: Sample, dtype: str) -> None:
    check_gradient(sample, dtype)


@pytest.mark.parametrize("sample", [row for row in DIFFERENTIABLE if "float64" in row.run_dtypes()], ids=repr)
@with_dialect(["reference", "tvm"])
def test_by_finite_differences(sample: Sample) -> None:
    check_finite_differences(sample)
