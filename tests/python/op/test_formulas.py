"""Kernels of elementwise operators by the formulas of their decompositions."""

from __future__ import annotations

import numpy as np
import pytest

import meta
from meta.backend.tvm.adapter import te, tirx
from meta.backend.tvm.numbers import NeedsValueError, NumberSpec, Parameters
from meta.op.decomposition import all_decompositions
from meta.op.dispatch import implementation
from meta.op.formulas import HeldNumber, formula
from meta.op.registry import get
from scripts.fuzz_formulas import check, derived, random_call

ELEMENTWISE = sorted(name for name in all_decompositions() if get(name).pattern in ("elemwise", "broadcast"))


@pytest.fixture
def number() -> HeldNumber:
    spec = NumberSpec(is_float=True, excluded=(0.0,))
    return HeldNumber(Parameters("float32").argument(0, spec))


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_every_elementwise_decomposition_has_a_kernel(name: str) -> None:
    assert implementation(get(name), "tvm") is not None


def test_a_value_with_two_uses_is_computed_once_in_float64() -> None:
    x = te.var("x", "float64")
    assert isinstance(formula("silu_dx")(x, x), tirx.Let)
    assert "exp" in str(formula("mish")(x))
    assert str(formula("mish")(x)).count("exp") == 1


def test_bools_and_numbers_take_the_dtype_of_operands() -> None:
    x = te.var("x", "int32")
    chosen = formula("heaviside")(x, te.var("y", "int32"))
    assert str(chosen.ty) == "int32"


def test_numbers_of_a_call_keep_their_formula(number: HeldNumber) -> None:
    half = 1 - number / 2
    assert isinstance(half, HeldNumber)
    assert half.number._expression == ("sub", 1, ("div", ("arg", 0), 2))
    assert number.log().number._expression == ("log", ("arg", 0))
    assert bool(number)
    assert number != 0


@pytest.mark.parametrize("use", [float, int, lambda x: x < 1, lambda x: 2**x, lambda x: x == 3.0])
def test_the_value_of_a_number_is_unknown(number: HeldNumber, use) -> None:
    with pytest.raises(NeedsValueError):
        use(number)


def test_numbers_of_a_call_are_truncated_for_integers() -> None:
    """`threshold` truncates its numbers for integers."""
    x = np.array([-2, 0, 1, 4], "int32")
    with meta.with_dialect("tvm"):
        for least in (0.5, 1.5, 2.5):
            expected = np.where(x <= int(least), 7, x)
            np.testing.assert_array_equal(meta.threshold(meta.array(x), least, 7.9).numpy(), expected)


def test_products_with_numbers_of_a_call_wrap_around_like_integers() -> None:
    x, x1, x2 = (meta.array(value, dtype="int32") for value in (-11, 1115758855, -13))
    with meta.with_dialect("tvm"):
        assert [meta.addcmul(x, x1, x2, value).item() for value in (2, 3)] == [1055040831, -564922396]


def test_random_calls_are_determined_and_cover_every_derived_operator() -> None:
    calls = [random_call(1, index) for index in range(len(derived()))]
    assert [sample.op for sample, _ in calls] == derived()
    assert [repr(sample) for sample, _ in calls] == [repr(random_call(1, i)[0]) for i in range(len(calls))]
    assert {"bfloat16", "float16", "float32", "float64"} < {dtype for _, dtype in calls}


@pytest.mark.parametrize("index", range(0, 60, 5))
def test_random_calls_agree_with_their_references(index: int) -> None:
    sample, dtype = random_call(2, index)
    assert check(sample, dtype) == ""
