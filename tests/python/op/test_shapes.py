"""Operands without elements, and strided ones."""

import pytest

from meta.testing.layouts import check_empty, check_strided, empty_variants
from meta.testing.samples import Sample
from tests.python.op.samples import first_rows, samples

FIRST = [row for row in samples() if row in first_rows()]


@pytest.mark.parametrize("sample", [variant for row in FIRST for variant in empty_variants(row)], ids=repr)
def test_no_elements(sample: Sample) -> None:
    check_empty(sample)


@pytest.mark.parametrize("sample", [row for row in FIRST if row.ref is not None and row.is_floating], ids=repr)
def test_strided(sample: Sample) -> None:
    check_strided(sample)
