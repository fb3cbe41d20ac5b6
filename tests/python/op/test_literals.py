"""Python numbers as operands: beyond the range of a dtype they are infinities in floating dtypes and refused in integer
ones, eagerly as on the VM; a bool beside complex numbers is the number one."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import meta
from meta import dtype as dtypes
from meta.errors import MetaError
from meta.op.registry import all_ops, get

HALVES_TO_DOUBLE = ["float16", "bfloat16", "float32", "float64"]


def _torch(number: float, like: torch.Tensor) -> torch.Tensor:
    return torch.tensor([number], dtype=torch.float64).to(like.dtype)


FLOATS: dict[str, tuple[Callable[[Any, float], Any], Callable[[torch.Tensor, float], torch.Tensor]]] = {
    "where": (lambda x, n: meta.where(x > 0, x, n), lambda x, n: torch.where(x > 0, x, _torch(n, x))),
    "multiply": (lambda x, n: x * n, lambda x, n: x * n),
    "less": (lambda x, n: x < n, lambda x, n: x < n),
    "full": (lambda x, n: meta.full((2,), n, dtype=x.dtype), lambda x, n: _torch(n, x).expand(2)),
    "full_like": (lambda x, n: meta.full_like(x, n), lambda x, n: _torch(n, x).expand(2)),
    "clip": (lambda x, n: meta.clip(x, -abs(n), abs(n)), lambda x, n: x),
    "layer_norm": (lambda x, n: meta.layer_norm(x, None, None, axis=0, eps=abs(n)), lambda x, n: x * 0),
    "pad": (lambda x, n: meta.pad(x, ((1, 0),), n), lambda x, n: torch.cat([_torch(n, x), x])),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("dtype", HALVES_TO_DOUBLE)
def test_floats(name: str, dtype: str):
    function, reference = FLOATS[name]
    numbers = (1e39, -1e9, sys.float_info.max) if name != "layer_norm" else (1e39,)
    if name == "layer_norm" and dtype == "float64":
        return
    x = meta.array([1.0, -2.0], dtype=dtype)
    host = torch.tensor([1.0, -2.0], dtype=getattr(torch, dtype))
    eager = [function(x, number) for number in numbers]
    compiled = meta.vm.compile(meta.trace(lambda x: [function(x, number) for number in numbers]))(x)
    for number, *results in zip(numbers, eager, compiled, strict=True):
        expected = reference(host, number).double().numpy()
        for result in results:
            np.testing.assert_array_equal(result.cast("float64").numpy(), expected, f"{number}")


ROUNDED_UP = 1.00048828125 + 1e-12
"""The number between two of float16 that rounds up, and down by way of float32."""
OPERATORS = {
    op.name: [i for i, arg in enumerate(op.schema.args) if arg.type.role == "scalar"]
    for op in all_ops()
    if op.family in ("binary", "gamma") and any(arg.type.role == "scalar" for arg in op.schema.args)
    if not op.name.startswith("bitwise") and op.name not in ("gcd", "lcm", "left_shift", "right_shift")
}
"""Operators of floats beside numbers, and the positions of the numbers."""


def _with_numbers(x: Any, name: str, number: Callable[[float], Any]) -> list[Any]:
    """An operator beside two numbers, in place of each operand that may be one."""
    op, out = get(name), list[Any]()
    for position in OPERATORS[name]:
        args = [x > 1 if arg.name == "condition" else x for arg in op.schema.args if arg.name != "value"]
        for value in (0.3, ROUNDED_UP):
            args[position] = number(value)
            out.append(getattr(meta, name)(*args))
    return out


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
@pytest.mark.parametrize("name", OPERATORS)
def test_a_number_is_rounded_to_the_dtype_of_its_operator(name: str, dtype: str) -> None:
    x = meta.array([0.3, 1.0, ROUNDED_UP, 0.7], dtype=dtype)
    expected = _with_numbers(x, name, lambda n: meta.array(n, dtype))
    _assert_equal(_with_numbers(x, name, lambda n: n), expected)


def test_programs_round_a_number_to_the_dtype_of_its_operator() -> None:
    names = ("add", "equal", "igamma", "lerp", "mod", "nextafter", "power", "where", "zeta")  # one of each compute

    def compare(x: Any) -> Any:
        tensors = [_with_numbers(x, name, lambda n: meta.full((), n, x.dtype)) for name in names]
        return tensors, [_with_numbers(x, name, lambda n: n) for name in names]

    x = meta.array([0.3, 1.0, ROUNDED_UP, 0.7], dtype="float16")
    for name, tensors, numbers in zip(names, *meta.vm.compile(meta.trace(compare))(x), strict=True):
        _assert_equal(numbers, tensors, name)


def _assert_equal(actual: list[Any], expected: list[Any], name: str = "") -> None:
    for x, y in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(x.cast("float64").numpy(), y.cast("float64").numpy(), name)


def test_bounds_are_rounded_to_the_dtype() -> None:
    x = meta.array([0.3, 0.2998, ROUNDED_UP], dtype="float16", requires_grad=True)
    for bound in (0.3, ROUNDED_UP):
        expected = np.clip(x.detach().numpy(), None, np.float16(bound)).tolist()
        assert meta.clip(x, None, bound).tolist() == expected
        assert meta.vm.compile(meta.trace(lambda x: meta.clip(x, None, bound)))(x.detach()).tolist() == expected  # noqa: B023
    (meta.clip(x, None, 0.3) + meta.hardshrink(x, 0.3)).sum().backward()
    assert meta.hardshrink(x, 0.3).tolist() == [0, 0, float(np.float16(ROUNDED_UP))]
    assert x.grad is not None
    assert x.grad.tolist() == [1, 1, 1]


def test_step_sizes_beside_halves_are_not_rounded() -> None:
    def step(x: Any) -> Any:
        return meta.sgd(x * 1, x * 3e4, x * 0, 1e-8)[0]

    x = meta.array([1.0], dtype="float16")
    assert step(x).tolist() == meta.vm.compile(meta.trace(step))(x).tolist() == [float(np.float16(1 - 3e-4))]


INTS: dict[str, Callable[[Any, Any], Any]] = {
    "multiply": lambda x, n: x * n,
    "where": lambda x, n: meta.where(x > 0, x, n),
    "full": lambda x, n: meta.full((2,), n, dtype=x.dtype),
    "pad": lambda x, n: meta.pad(x, ((1, 0),), n),
    "clip": lambda x, n: meta.clip(x, 0, n),
    "arange": lambda x, n: meta.arange(n, n + 2, 1, dtype=x.dtype),
}


@pytest.mark.parametrize("number", [300, 2**31, 2**63, 10**60_000], ids=["300", "2**31", "2**63", "digits"])
@pytest.mark.parametrize("name", INTS)
def test_ints(name: str, number: int):
    function = INTS[name]
    for dtype in ("int8", "uint8", "int32", "int64"):
        x = meta.array([1, 0], dtype=dtype)
        low, high = dtypes.int_range(dtype)
        for call in (function, meta.vm.compile(meta.trace(lambda x: function(x, number)))):
            args = (x, number) if call is function else (x,)
            if low <= number < high - 2:
                assert call(*args).dtype == dtype
                continue
            with pytest.raises(MetaError) as info:
                call(*args)
            assert type(info.value).__name__ in ("TypeInferenceError", "ArgumentError")
            assert len(str(info.value)) < 500


def test_the_lowest_integer():
    x = meta.array([1, 0, -1, 2**63 - 1, -(2**63)], dtype="int64")
    lowest = -(2**63)
    functions: list[Callable[[Any], Any]] = [
        lambda x: x * lowest, lambda x: x + lowest, lambda x: x - lowest, lambda x: x == lowest, lambda x: x > lowest,
    ]  # fmt: skip
    for function in functions:
        expected = function(x.numpy())
        np.testing.assert_array_equal(function(x).numpy(), expected)
        np.testing.assert_array_equal(meta.vm.compile(meta.trace(function))(x).numpy(), expected)
    flags = meta.array([True, False])
    assert meta.vm.compile(meta.trace(lambda x: x == lowest))(flags).tolist() == [False, False]


def test_bools_of_numbers():
    for number in (300, -1, 0.5, 1e39, math.nan):
        compiled = meta.vm.compile(meta.trace(lambda x, n=number: meta.full((2,), n, dtype="bool") | x))
        assert compiled(meta.zeros((2,), dtype="bool")).tolist() == [True, True]


def test_plain_numbers():
    with pytest.raises(MetaError, match=r"\[power\] power of the numbers 0.0 and -1: .*; expected at least one tensor"):
        meta.power(0.0, -1)
    with pytest.raises(MetaError, match=r"\[divide\] divide of the numbers 1 and 0: division by zero"):
        meta.divide(1, 0)
    with pytest.raises(MetaError, match="the result is too large"):
        meta.power(2, 10**9)
    with pytest.raises(MetaError, match=r"\[left_shift\] .* numbers 1 and 1000000000000: the result is too large"):
        meta.left_shift(1, 10**12)
    with pytest.raises(MetaError, match="an integer of 199316 bits"):
        meta.power(10**60_000, 2)
    assert meta.ldexp(0.5, 10**6) == meta.ldexp(meta.ones((1,)), 5000).item() == math.inf


def test_ranges_of_floats():
    with pytest.raises(MetaError, match=r"\[arange\] the number 1e\+39 does not fit into float32; expected up to 3.4"):
        meta.arange(1e39, 3e39, 1e39)
    with pytest.raises(
        MetaError, match=r"\[linspace\] the number -1e\+39 does not fit into float32; expected up to 3.4"
    ):
        meta.linspace(-1e39, 1e39, 3)
    with pytest.raises(MetaError, match=r"\[linspace\] the number 300 does not fit into int8; expected -128 to 127"):
        meta.linspace(0, 300, 3, dtype="int8")


def test_integers_refuse_numbers_that_they_do_not_hold():
    x = meta.array([1, 2, 3], dtype="int32")
    calls: list[Callable[[Any, float], Any]] = [
        lambda x, n: meta.threshold(x, n, 0), lambda x, n: meta.threshold(x, 0, n), lambda x, n: meta.full_like(x, n),
    ]  # fmt: skip
    for call in calls:
        for number in (2**31, math.nan, math.inf):
            with pytest.raises(MetaError, match=r"\] the number \S+ does not fit into int32; expected -2147483648 to"):
                call(x, number)
    with pytest.raises(MetaError, match=r"\[addcmul\] the number 2147483648 does not fit into int32"):
        meta.addcmul(x, x, x, 2**31)
    with pytest.raises(MetaError, match=r"\[sgd\] an integer of 1329 bits does not fit into float32"):
        meta.sgd(meta.ones((2,)), meta.ones((2,)), meta.zeros((2,)), 10**400)


def test_thresholds_of_integers_are_truncated():
    x = np.arange(-2, 3)
    for dialect in ("tvm", "reference"):
        with meta.with_dialect(dialect):
            for threshold, value in ((-0.5, 9.7), (0.5, -9.7), (-1.5, 3.0)):
                expected = torch.threshold(torch.from_numpy(x), threshold, value).tolist()
                assert meta.threshold(meta.array(x), threshold, value).tolist() == expected


@pytest.mark.parametrize("dialect", ["tvm", "reference"])
def test_rounding_to_decimals_beyond_the_dtype(dialect: str):
    """A number has no decimals where its product with the power overflows, and is 0 of powers beyond the dtype."""
    values = np.array([1e38, -5e7, 1.25, 0.0, math.inf, math.nan], "float32")
    with meta.with_dialect(dialect):
        for decimals in (3, 38, 39, 309, 10**6):
            expected = [*values[:2], 1.25, *values[3:]]
            np.testing.assert_array_equal(meta.round(meta.array(values), decimals).numpy(), np.float32(expected))
            expected = [0.0, -0.0, 0.0, 0.0, math.inf, math.nan]
            lost = meta.round(meta.array(values), -max(decimals, 39)).numpy()
            np.testing.assert_array_equal(lost, np.float32(expected))


def test_ranges_without_a_finite_number_of_values():
    with pytest.raises(MetaError, match=r"\[arange\] start=0.0, stop=1.0, step=5e-324: inf values; expected a finite"):
        meta.arange(0.0, 1.0, 5e-324)
    assert meta.arange(2**63, 5).shape == (0,)
    assert meta.arange(0, 5, 2**63).tolist() == [0]
    assert meta.arange(0, 2**64 - 1, 2**63, dtype="uint64").tolist() == [0, 2**63]


@pytest.mark.parametrize(
    "name", ["add", "subtract", "multiply", "divide", "power", "equal", "not_equal", "logical_and"]
)
def test_a_bool_beside_complex_numbers_is_the_number_one(name: str) -> None:
    x, function = meta.array([1 + 2j, 1]), getattr(meta, name)
    np.testing.assert_array_equal(function(x, True).numpy(), function(x, 1).numpy())
    np.testing.assert_array_equal(function(True, x).numpy(), function(1, x).numpy())


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize(
    "function",
    [
        lambda x: x**-111.999, lambda x: x % 1.0001, lambda x: x >= 1.0001, lambda x: 1.0001**x,
    ],
)  # fmt: skip
def test_numbers_beside_halves_are_rounded_as_in_torch(function: Callable[[Any], Any], dtype: str):
    """In programs as eagerly: the exponent -111.999 is -112, for which negative bases have powers."""
    values = [-1.0, 1.0, 2.0, 1.01, *np.linspace(0.5, 300, 500).tolist()]
    x, like = meta.array(values).cast(dtype), torch.tensor(values).to(getattr(torch, dtype))
    expected = function(like).to(torch.float64).numpy()
    for result in (function(x), meta.vm.compile(meta.trace(function))(x)):
        np.testing.assert_array_equal(result.cast("float64").numpy(), expected)
