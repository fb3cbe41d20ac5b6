"""First derivatives: by finite differences in float64, and against torch's autograd of the reference."""

import pytest

from meta.testing.derivatives import check_finite_differences, check_gradient, is_differentiable
from meta.testing.samples import Sample
from tests.python.op.samples import cases, first_rows, samples

DIFFERENTIABLE = [row for row in samples() if is_differentiable(row) and row.is_floating]


@cases(DIFFERENTIABLE, ("float32", "float64"))
def test_against_torch(sample: Sample, dtype: str) -> None:
    check_gradient(sample, dtype)


@cases([row for row in DIFFERENTIABLE if row in first_rows()], ("float16", "bfloat16"))
def test_half_precision_against_torch(sample: Sample, dtype: str) -> None:
    check_gradient(sample, dtype)


@pytest.mark.parametrize("sample", [row for row in DIFFERENTIABLE if "float64" in row.run_dtypes()], ids=repr)
def test_by_finite_differences(sample: Sample) -> None:
    check_finite_differences(sample)
