"""Numbers at the limits of dtypes as attributes: a result, or an error of the operator that names the number, and
never an error of Python or of a compute."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator

import pytest

import meta
from meta.backend.eviction import report_eviction
from meta.backend.tvm import kernel, shape_generic
from meta.backend.tvm.compute import TEImplementation
from meta.backend.tvm.kernel import Compiled
from meta.backend.tvm.spec import KernelSpec
from meta.eager.call import invoke, state
from meta.errors import KernelError, MetaError
from meta.schema import Arg
from meta.testing.generic import make_call
from meta.testing.samples import Sample
from tests.python.kernels_in_memory import forget_kernels
from tests.python.op.samples import first_rows, samples

WHOLE = (0, -1, 400, -400, 2**31, -(2**63), 2**63, 10**400)
FLOATS = (0.0, 5e-324, 1e39, sys.float_info.max, -math.inf, math.nan, 0, 2**31, 2**63, 10**400)
NUMBERS = ("Float", "Number", "NumberOrSize", "FillValue", "Scalar")


def _values(arg: Arg) -> tuple[float, ...]:
    name = arg.type.name.removesuffix("?").removeprefix("Optional")
    return WHOLE if name == "Int" else FLOATS if name in NUMBERS else ()


ROWS = [row for row in samples() if row in first_rows() and any(_values(a) for a in row.operator.schema.args)]


@pytest.fixture(autouse=True)
def _no_compiler(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Kernels whose computes run, but that are not compiled and write nothing."""

    def uncompiled(spec: KernelSpec) -> Compiled:
        return Compiled(lambda *_: None, kernel.unscheduled(spec).parameters)

    monkeypatch.setattr(kernel, "_load_or_build", uncompiled)
    forget_kernels()
    report_eviction()
    with meta.with_dialect("tvm"):
        yield
    forget_kernels()
    report_eviction()


@pytest.mark.parametrize("row", ROWS, ids=repr)
def test_extreme_numbers_are_taken_or_refused(row: Sample, monkeypatch: pytest.MonkeyPatch) -> None:
    """One such number does not make other values of the attribute need kernels either."""
    compile_in = shape_generic._compile_in

    def checked(payload: TEImplementation, name: str, constant: float | None) -> None:
        assert constant is not None, f"each value of {name} needs a kernel from now on"
        compile_in(payload, name, constant)

    monkeypatch.setattr(shape_generic, "_compile_in", checked)
    op = row.operator
    for dtype in dict.fromkeys((*row.run_dtypes(())[:1], *row.run_dtypes(("int32",))[-1:])):
        arguments = make_call(row, dtype).to_meta().bound_arguments()
        for i, arg in enumerate(op.schema.args):
            for value in _values(arg):
                try:
                    invoke(state(op), *arguments[:i], value, *arguments[i + 1 :])
                except KernelError as error:
                    pytest.fail(f"{arg.name}={value!r:.30}, {dtype}: {error}")
                except MetaError:
                    pass
