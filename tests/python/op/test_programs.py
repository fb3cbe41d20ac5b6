"""Every sample as a program: the interpreter and the virtual machine agree with eager execution, gradients too."""

import pytest

from meta.op.dispatch import implementations
from meta.testing.derivatives import is_differentiable
from meta.testing.programs import check_compiled, check_fused, check_interpreted, check_program_gradients
from meta.testing.samples import Sample
from tests.python.op.samples import first_rows, samples


def dtype_of(sample: Sample) -> str:
    """float32, or the first dtype of the row."""
    return sample.run_dtypes()[0]


@pytest.mark.parametrize("sample", samples(), ids=repr)
def test_interpreted(sample: Sample) -> None:
    check_interpreted(sample, dtype_of(sample))


def groups(size: int = 8) -> list[tuple[Sample, ...]]:
    """The rows, in programs of several calls."""
    rows = samples()
    return [rows[i : i + size] for i in range(0, len(rows), size)]


@pytest.mark.parametrize("rows", groups(), ids=lambda rows: f"{rows[0]!r}...")
def test_compiled(rows: tuple[Sample, ...]) -> None:
    check_compiled([(row, dtype_of(row)) for row in rows])


def runs_on_torch(sample: Sample) -> bool:
    """Whether programs run the operator by the torch dialect if torch is installed, and fuse it without torch."""
    operator = sample.operator
    return not operator.no_compute and any(i.dialect.name == "torch" for i in implementations(operator))


@pytest.mark.parametrize("sample", [row for row in samples() if row in first_rows() and runs_on_torch(row)], ids=repr)
def test_fused(sample: Sample) -> None:
    check_fused(sample, dtype_of(sample))


@pytest.mark.parametrize("sample", [r for r in samples() if is_differentiable(r) and r.is_floating], ids=repr)
def test_program_gradients(sample: Sample) -> None:
    check_program_gradients(sample, dtype_of(sample))
