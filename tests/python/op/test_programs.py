"""Every sample as a program: interpreter and virtual machine agree with eager execution, traced gradients with the tape."""

from meta.testing.derivatives import is_differentiable
from meta.testing.programs import check_program_gradients, check_programs
from meta.testing.samples import Sample
from tests.python.op.samples import cases, samples


@cases(dtypes=("float32",))
def test_programs(sample: Sample, dtype: str) -> None:
    check_programs(sample, dtype)


@cases([row for row in samples() if is_differentiable(row) and row.is_floating], dtypes=("float32",))
def test_program_gradients(sample: Sample, dtype: str) -> None:
    check_program_gradients(sample, dtype)
