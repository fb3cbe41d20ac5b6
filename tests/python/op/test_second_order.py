"""Second derivatives, by finite differences of the first ones in float64, which NumPy computes (see test_gradients)."""

import pytest

from meta.op.dispatch import with_dialect
from meta.testing.derivatives import check_second_order, is_differentiable
from meta.testing.samples import Sample
from tests.python.op.samples import samples

ROWS = [row for row in samples() if is_differentiable(row) and "float64" in row.run_dtypes() and row.is_floating]


@pytest.mark.parametrize("sample", ROWS, ids=repr)
@with_dialect(["reference", "tvm"])
def test_second_order(sample: Sample) -> None:
    check_second_order(sample)
