"""Forward mode and batches of every differentiable operator, on its first sample: against differences, and against the
calls one by one. NumPy computes them: what is tested are the rules, and kernels for batches take long to build."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import meta
from meta.testing.derivatives import check_batched, check_forward_mode, is_differentiable
from meta.testing.samples import Sample
from tests.python.op.samples import first_rows, samples

ROWS = [
    row
    for row in samples()
    if row in first_rows() and is_differentiable(row) and "float64" in row.run_dtypes() and row.is_floating
]


@pytest.fixture(scope="module", autouse=True)
def in_numpy() -> Iterator[None]:
    with meta.with_dialect(["reference", "tvm"]):
        yield


@pytest.mark.parametrize("sample", ROWS, ids=repr)
def test_forward_mode(sample: Sample) -> None:
    check_forward_mode(sample)


@pytest.mark.parametrize("sample", [row for row in ROWS if not row.operator.inplace], ids=repr)
def test_batched(sample: Sample) -> None:
    check_batched(sample)
