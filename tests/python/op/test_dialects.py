"""Every dialect that accepts a call returns the same values as the reference."""

from meta.testing.dialects import check_dialects
from meta.testing.samples import OTHER_DTYPES, Sample
from tests.python.op.samples import cases


@cases(others=OTHER_DTYPES)
def test_dialects(sample: Sample, dtype: str) -> None:
    check_dialects(sample, dtype)
