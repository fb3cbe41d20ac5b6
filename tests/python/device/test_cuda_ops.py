"""Every operator on CUDA: each dialect that accepts a sample agrees with the reference on the CPU.

Samples and dtypes are those of the other operator tests. Without a GPU, one test is skipped in place of all samples.
"""

from contextlib import AbstractContextManager, nullcontext

import pytest

from meta.errors import DispatchError
from meta.testing import get_testable_devices
from meta.testing.dialects import check_device
from meta.testing.layouts import check_empty, empty_variants
from meta.testing.samples import OTHER_DTYPES, Sample
from tests.python.op.samples import cases, samples

HAS_CUDA = "cuda" in get_testable_devices()
PACKED_FOR_CPUS = ("conv2d_int8", "dense_int8")
"""Operators whose weights are packed for the registers of CPUs, by a pass that makes them there alone."""


def _expected(sample: Sample) -> AbstractContextManager[object]:
    is_packed = sample.op in PACKED_FOR_CPUS
    return pytest.raises(DispatchError, match="register tiles on CPUs") if is_packed else nullcontext()


if HAS_CUDA:

    @cases(others=OTHER_DTYPES)
    def test_matches_the_reference_on_cuda(sample: Sample, dtype: str) -> None:
        with _expected(sample):
            check_device(sample, dtype, "cuda")

    @pytest.mark.parametrize("sample", [e for row in samples() for e in empty_variants(row)[:1]], ids=repr)
    def test_matches_the_reference_on_empty_operands(sample: Sample) -> None:
        with _expected(sample):
            check_empty(sample, "cuda")

else:

    @pytest.mark.skip(reason="this machine has no CUDA device")
    def test_matches_the_reference_on_cuda() -> None:
        """Skipped in place of the tests of all samples."""
