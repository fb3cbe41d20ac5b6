"""Every operator returns the values of its reference and the declared types, in every dtype it accepts."""

from meta.testing.generic import check_forward
from meta.testing.samples import OTHER_DTYPES, Sample
from tests.python.op.samples import cases


@cases(others=OTHER_DTYPES)
def test_forward(sample: Sample, dtype: str) -> None:
    check_forward(sample, dtype)
