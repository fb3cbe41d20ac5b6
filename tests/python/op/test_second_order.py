"""Second derivatives, by finite differences of the first ones in float64."""

import pytest

from meta.testing.derivatives import check_second_order, is_differentiable
from meta.testing.samples import Sample
from tests.python.op.samples import samples

ROWS = [row for row in samples() if is_differentiable(row) and "float64" in row.run_dtypes() and row.is_floating]


@pytest.mark.parametrize("sample", ROWS, ids=repr)
def test_second_order(sample: Sample) -> None:
    check_second_order(sample)
