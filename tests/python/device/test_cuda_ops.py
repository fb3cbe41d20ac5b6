"""Every operator on CUDA: each dialect that accepts a sample agrees with the reference on the CPU.

Samples and dtypes are those of the other operator tests. Without a GPU, one test is skipped in place of all samples.
"""

import pytest

from meta.testing import get_testable_devices
from meta.testing.dialects import check_device
from meta.testing.layouts import check_empty, empty_variants
from meta.testing.samples import OTHER_DTYPES, Sample
from tests.python.op.samples import cases, samples

HAS_CUDA = "cuda" in get_testable_devices()

if HAS_CUDA:

    @cases(others=OTHER_DTYPES)
    def test_matches_the_reference_on_cuda(sample: Sample, dtype: str) -> None:
        check_device(sample, dtype, "cuda")

    @pytest.mark.parametrize("sample", [e for row in samples() for e in empty_variants(row)[:1]], ids=repr)
    def test_matches_the_reference_on_empty_operands(sample: Sample) -> None:
        check_empty(sample, "cuda")

else:

    @pytest.mark.skip(reason="this machine has no CUDA device")
    def test_matches_the_reference_on_cuda() -> None:
        """Skipped in place of the tests of all samples."""
