"""Every sample as a program: the interpreter and the virtual machine agree with eager execution, gradients too."""

import pytest

from meta.testing.derivatives import is_differentiable
from meta.testing.programs import check_program_gradients, check_programs
from meta.testing.samples import Sample
from tests.python.op.samples import samples


def dtype_of(sample: Sample) -> str:
    """float32, or what the row says."""
    return sample.run_dtypes()[0]


@pytest.mark.parametrize("sample", samples(), ids=repr)
def test_programs(sample: Sample) -> None:
    check_programs(sample, dtype_of(sample))


@pytest.mark.parametrize("sample", [r for r in samples() if is_differentiable(r) and r.is_floating], ids=repr)
def test_program_gradients(sample: Sample) -> None:
    check_program_gradients(sample, dtype_of(sample))
