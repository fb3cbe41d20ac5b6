"""Every operator gives what its reference gives, in every dtype it takes, with the types it announced."""

from meta.testing.generic import check_forward
from meta.testing.samples import OTHER_DTYPES, Sample
from tests.python.op.samples import cases


@cases(others=OTHER_DTYPES)
def test_forward(sample: Sample, dtype: str) -> None:
    check_forward(sample, dtype)
