"""opcheck passes correct operators, and each of its checks finds operators that are wrong in its way."""

from __future__ import annotations

import ctypes
import pickle
import re
from fractions import Fraction
from itertools import count
from typing import Any

import numpy as np
import pytest

import meta
from meta.errors import ArgumentError
from meta.op import rules
from meta.op.dialect.tvm import Registrar
from meta.schema import Arg, Float, Schema, Tensor
from meta.schema._dsl import ArgType
from meta.testing import OpCheckError, OpCheckReport, Sample, T, opcheck
from meta.testing.operators import CHECKS
from tests.python.op.samples import samples

_numbers = count()
SCALE = Schema("scale", Arg("x", Tensor, doc="Input."), Arg("by", Float, 2.0, doc="Factor."))

pytestmark = pytest.mark.usefixtures("remove_operators")


def type_of_x(x: Any, by: Any) -> Any:
    """x * by."""
    rules.require_float("x", x)
    return x


def te_scale(x: Any, by: float) -> Any:
    from tvm import te, tirx

    return te.compute(x.shape, lambda *i: x(*i) * tirx.const(by, x.dtype))


def scale(declare: Any = type_of_x, schema: Schema = SCALE, **changes: Any) -> Any:
    """Define the operator x * by, with some of its parts replaced; of its name, as dialects keep implementations."""
    facts: dict[str, Any] = {
        "gradient": {"x": lambda dy, by: dy * by},
        "tvm": te_scale,
        "reference": lambda x, by: x * np.asarray(by, x.dtype),
        "pattern": "elemwise",
    }
    return meta.define(f"scale{next(_numbers)}_of_opcheck", schema, **(facts | changes))(declare)


def check(op: Any, *calls: Any, **options: Any) -> OpCheckReport:
    return opcheck(op, *(calls or ((T(2, 3), 3.0),)), raise_on_failure=False, **options)


def all_but(*names: str) -> list[str]:
    return [name for name in ("docs", *CHECKS) if name not in names]


def failed(report: OpCheckReport) -> dict[str, str]:
    return {f.check: f.text for f in report.failures}


def test_passes_a_correct_operator() -> None:
    report = opcheck(scale(), (T(2, 3), 3.0), {"x": meta.array([1.0, -2.0]), "by": -1.0})
    assert report.ok
    assert [f.check for f in report.findings if f.sample == 1] == [name for name in CHECKS if name != "values"]
    assert {f.check for f in report.skipped} == {"autocast"}


# --- a wrong operator for each check ---------------------------------------------------------------------------------


def incremented(value: Any) -> Any:
    return int(value) + 1


def result_of_other_shape(x: Any, by: float) -> Any:
    """x * by."""
    return x.with_shape((*x.shape, 1))


def writes_its_input(x: Any, by: float) -> Any:
    out = x * np.asarray(by, x.dtype)
    ctypes.memset(x.ctypes.data, 0, x.nbytes)  # the array is read-only
    return out


def doubles_halves(x: Any, by: float) -> Any:
    return x * np.asarray(by * (2 if x.dtype.itemsize == 2 else 1), x.dtype)


def depends_on_alignment(x: Any, by: float) -> Any:
    return x * np.asarray(by + (x.ctypes.data % 16 != 0), x.dtype)


def fails_without_elements(x: Any, by: float) -> Any:
    return x * np.asarray(by, x.dtype) + 0 * x.max()


def adds_to_symbolic_sizes(x: Any, by: float) -> Any:
    """x * by."""
    return x.with_shape(tuple(d if isinstance(d, int) else d + 1 for d in x.shape))


def of_another_device_type(x: Any, by: float) -> Any:
    """x * by."""
    return x if all(isinstance(d, int) for d in x.shape) else x.with_dtype("float64")


def wrong_in_programs(x: Any, by: float) -> Any:
    """Programs have static sizes here, eager kernels symbolic ones."""
    from tvm import tirx

    return te_scale(x, by + isinstance(x.shape[0], tirx.IntImm))


def another_kernel_each_time(x: Any, by: float) -> Any:
    return te_scale(x, by + 1e-9 * next(_numbers))


def float32_only(x: Any, by: float) -> Any:
    """x * by."""
    rules.require(x.dtype in ("float32", "float64"), f"'x' has dtype {x.dtype}", "float32 or float64")
    return x


def doubles_halves_in_te(x: Any, by: float) -> Any:
    return te_scale(x, by * (2 if "16" in str(x.dtype) else 1))


def without_docs() -> Any:
    return scale(schema=Schema("scale", Arg("x", Tensor), Arg("by", Float, 2.0, doc="Factor.")))


def another_normal_form() -> Any:
    up = ArgType("Up", "int", "attr", "an int", incremented)
    return scale(schema=Schema("scale", Arg("x", Tensor, doc="Input."), Arg("by", up, 2, doc="Factor.")))


def unprintable_argument() -> Any:
    class Shown(Fraction):
        def __repr__(self) -> str:
            return "a fraction"

    fraction = ArgType("Fraction", "Fraction", "attr", "a fraction", Shown)
    schema = Schema("scale", Arg("x", Tensor, doc="Input."), Arg("by", fraction, 2, doc="Factor."))
    return scale(
        schema=schema,
        tvm=lambda x, by: te_scale(x, float(by)),
        reference=lambda x, by: x * np.asarray(float(by), x.dtype),
        gradient={"x": lambda dy, by: dy * float(by)},
    )


def kernel_key_of_another_file() -> Any:
    op = scale(tvm=None)
    Registrar(rules.__file__).compute(op.__name__)(te_scale)
    return op


def te_rotated(x: Any, table: Any) -> Any:
    from tvm import te

    return te.compute(x.shape, lambda i, j: x(i, j) * table(i, j))


def rotation(declare: Any, tvm: Any = te_rotated) -> Any:
    """x times a table of factors by position; the type function checks too little of the table, or enough."""
    schema = Schema("rotate", Arg("x", Tensor, doc="Rows."), Arg("table", Tensor, doc="A row for each position."))
    facts: dict[str, Any] = {"gradient": "non_differentiable", "tvm": tvm, "pattern": "broadcast"}
    return meta.define(f"rotate{next(_numbers)}_of_opcheck", schema, **facts)(declare)


def type_of_rows(x: Any, table: Any) -> Any:
    """x * table."""
    rules.require(x.shape[1] == table.shape[1], "the rows differ", "equal rows")
    return x


def type_of_equal_shapes(x: Any, table: Any) -> Any:
    """x * table."""
    rules.require_same_shape(x=x, table=table)
    return x


def te_next(x: Any, table: Any) -> Any:
    from tvm import te

    return te.compute(x.shape, lambda i, j: x(i, j) * table(i, j + 1))


WRONG: dict[str, tuple[Any, str, str]] = {
    "documentation": (without_docs, "docs", "arguments without documentation: x; write Arg"),
    "normal form": (another_normal_form, "schema", r"normalising once gives (.|\n)*, 4\), twice (.|\n)*, 5\)"),
    "type function": (lambda: scale(result_of_other_shape), "types", "the declaration says|its declaration says"),
    "written input": (
        lambda: scale(reference=writes_its_input), "inputs", "argument 'x' after the call on reference: .* elements dif"
    ),
    "random": (
        lambda: scale(tvm=None, reference=lambda x, by: x + np.random.random()), "deterministic", "a second call: 6 of"
    ),
    "reference": (lambda: scale(reference=lambda x, by: x + by), "dialects", "tvm against reference: 6 of 6 elements"),
    "halves": (lambda: scale(reference=doubles_halves), "dtypes", "reference in float16, result 0: 6 of 6"),
    "no kernel in halves": (
        lambda: scale(tvm=None, reference=lambda x, by: x * by if x.itemsize > 2 else None), "dtypes", "returned None"
    ),
    "alignment": (lambda: scale(reference=depends_on_alignment), "strided", "unaligned memory on reference: "),
    "no elements": (lambda: scale(reference=fails_without_elements), "zero_size", "ValueError: zero-size array to red"),
    "symbolic shape": (
        lambda: scale(adds_to_symbolic_sizes), "symbolic", r"with n2 = 2, n3 = 3 its type .*numbers Tensor\[\(2, 3\)"
    ),
    "symbolic dtype": (lambda: scale(of_another_device_type), "symbolic", 'its type function gives .*"float64"'),
    "gradient": (lambda: scale(gradient={"x": "dy"}), "gradient", r"gradient of input 0 at .* is 1.*, by finite diff"),
    "gradient cut off": (lambda: scale(gradient={"x": "stop_gradient(dy)"}), "second_order", "gradgradcheck"),
    "second order": (
        lambda: scale(gradient={"x": lambda dy, by: dy.detach() * by}), "second_order", "gradient of input 1 at"
    ),
    "traced gradient": (
        lambda: scale(gradient={"x": lambda dy, by: dy * by if isinstance(dy, meta.NDArray) else dy}),
        "traced_gradient", "the gradient of the traced program: 6 of 6 elements differ",
    ),
    "printed program": (unprintable_argument, "interpreter", "fraction|Shown"),
    "compiled program": (lambda: scale(tvm=wrong_in_programs), "vm", "compiled: 6 of 6 elements differ"),
    "mixed precision": (
        lambda: scale(float32_only, amp="always"), "autocast",
        "its mixed-precision rule 'always' casts to float16, which its type function refuses: .*expected float32 or",
    ),
    "values in mixed precision": (
        lambda: scale(amp="always", tvm=doubles_halves_in_te), "autocast", r"under autocast\('float16'\), result 0: 6"
    ),
    "another kernel": (lambda: scale(tvm=another_kernel_each_time), "cache", "builds another kernel at each call"),
    "key of a kernel": (kernel_key_of_another_file, "cache", "identified by the contents of .*rules.py, but .*opcheck"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_finds_what_is_wrong(case: str) -> None:
    define, name, text = WRONG[case]
    report = check(define(), skip=all_but(name))
    assert list(failed(report)) == [name], str(report)
    assert re.search(text, failed(report)[name]), failed(report)[name]


@pytest.mark.parametrize(
    ("declare", "compute", "problem"),
    [
        (type_of_rows, te_rotated, r"reads outside of its arguments where 'x' has shape \(6, 4\) in place of \(5, 4\)"),
        (
            type_of_equal_shapes,
            te_next,
            "the tvm kernel reads outside of its arguments, which the type function accepts",
        ),
        (type_of_equal_shapes, te_rotated, ""),
    ],
)
def test_kernels_read_inside_of_their_arguments(declare: Any, compute: Any, problem: str) -> None:
    report = check(rotation(declare, compute), (T(5, 4), T(5, 4)), skip=all_but("bounds"))
    assert report.ok == (not problem)
    assert re.search(problem, failed(report).get("bounds", "")), str(report)


def test_compares_with_the_reference_of_a_sample() -> None:
    pytest.importorskip("torch", reason="references of samples take torch tensors")
    op = scale()
    right = Sample(op.__name__, T(3), 3.0, ref=lambda x, by: x * by)
    wrong = Sample(op.__name__, T(3), 3.0, ref=lambda x, by: x + by)
    report = check(op, right, wrong)
    assert [(f.check, f.sample) for f in report.failures] == [("values", 1)]
    assert "3 of 3 elements differ" in report.failures[0].text


def test_a_call_that_fails_is_one_failure() -> None:
    report = check(scale(), (T(2, dtype="int64"),))
    assert list(failed(report)) == ["types"]
    assert "'x' has dtype int64" in failed(report)["types"]
    assert {f.text for f in report.skipped} == {"the call fails"}


# --- which checks apply ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gradient", "reason"),
    [
        ("non_differentiable", "it is declared non_differentiable"),
        ("not_implemented: later", "its gradient is not implemented: later"),
        (None, "its gradient is not implemented: meta.define got none"),
    ],
)
def test_respects_declarations_of_no_gradient(gradient: Any, reason: str) -> None:
    report = check(scale(gradient=gradient))
    assert report.ok
    skipped = {f.check: f.text for f in report.skipped}
    assert [skipped[name] for name in ("gradient", "second_order", "traced_gradient")] == [reason] * 3


def test_says_why_finite_differences_do_not_apply() -> None:
    def declare(x: Any, by: float) -> Any:
        """x * by."""
        rules.require(x.dtype == "float32", f"'x' has dtype {x.dtype}", "float32")
        return x

    report = check(scale(declare), (T(2, 3),), (T(2000),))
    text = {(f.check, f.sample): f.text for f in report.skipped}
    assert "finite differences need float64, which its type function refuses: " in text["gradient", 0]
    assert text["gradient", 1] == "2000 elements are too many for finite differences: pass a sample of up to 1000"


def test_leaves_out_checks() -> None:
    op = scale(gradient={"x": "dy"})
    assert set(failed(check(op))) >= {"gradient"}
    report = opcheck(op, (T(2),), skip={"gradient": "a straight-through estimator", "second_order": "", "docs": ""})
    assert "gradient, sample 0: left out by skip: a straight-through estimator" in map(str, report.skipped)
    assert "docs: left out by skip" in map(str, report.skipped)
    assert opcheck(op, (T(2),), skip=("gradient",)).ok
    with pytest.raises(ArgumentError, match=r"skip names the check 'gradiant'; expected .*; did you mean 'gradient'"):
        opcheck(op, (T(2),), skip="gradiant")


# --- the report ------------------------------------------------------------------------------------------------------


def test_the_report_is_a_table() -> None:
    report = check(scale(gradient={"x": "dy"}), (T(2), 3.0), (T(3), 1.0), skip=("vm", "cache"))
    lines = str(report).splitlines()
    assert lines[0] == f"{report.op}: {report.summary}"
    assert lines[1:3] == [
        '  sample 0: x=Tensor[(2,), "float32"], by=3.0',
        '  sample 1: x=Tensor[(3,), "float32"], by=1.0',
    ]
    assert "  gradient         FAILED     passed" in lines
    assert "  docs             passed" in lines
    assert any(line.startswith("  gradient, sample 0: [gradcheck] gradient of input 0") for line in lines)
    assert "  vm, samples 0, 1: left out by skip" in lines
    assert not report.ok


def test_raises_the_report() -> None:
    with pytest.raises(
        OpCheckError, match=r"^\[scale\d+_of_opcheck\] \d of \d+ checks failed, \d skipped: grad"
    ) as caught:
        opcheck(scale(gradient={"x": "dy"}), (T(2), 3.0))
    report = caught.value.report
    assert str(report) in str(caught.value)
    assert caught.value.location.startswith(__file__)
    assert isinstance(caught.value, meta.errors.MetaError)
    assert isinstance(caught.value, AssertionError)
    assert pickle.loads(pickle.dumps(caught.value)).report == report


# --- operators of the package ----------------------------------------------------------------------------------------

BUILT_IN = ["softmax", "split", "where", "shape", "argwhere", "prod_dx", "max_dx", "reshape", "zeros", "layer_norm"]


@pytest.mark.parametrize("name", BUILT_IN)
def test_passes_operators_of_the_package(name: str) -> None:
    row = next(row for row in samples() if row.op == name)
    report = opcheck(name, row)
    assert {f.check for f in report.findings} == {"docs", *CHECKS}
