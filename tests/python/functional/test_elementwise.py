"""Elementwise functions made of operators, and elementwise operators at special values, as in torch."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import meta
from meta.errors import ArgumentError
from meta.testing.arrays import check

X = np.random.default_rng(5).uniform(-4, 4, (2, 3)).astype(np.float32)
INTS = np.array([[-3, 0, 2], [1, 5, -1]], np.int32)


def _array(a: Any) -> Any:
    return meta.array(a) if isinstance(a, np.ndarray) else a


def _torch(a: Any) -> Any:
    return torch.from_numpy(a) if isinstance(a, np.ndarray) else a


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("positive", (X,)),
        ("float_power", (X, 2)),
        ("float_power", (np.abs(X), X)),
        ("float_power", (2, INTS)),
        ("ldexp", (X, INTS)),
        ("ldexp", (INTS, X)),
        ("ldexp", (X.astype(np.float64), INTS + 300)),
        ("fill", (X, 2)),
    ],
)
def test_functions(name: str, args: tuple[Any, ...]) -> None:
    expected = getattr(torch, name)(*map(_torch, args))
    result = getattr(meta, name)(*map(_array, args))
    assert result.dtype == str(expected.dtype).removeprefix("torch.")
    check(result, expected.numpy())


def test_the_gradient_of_fill_reaches_the_value() -> None:
    x = meta.array(X)
    value = meta.array(2.0, requires_grad=True)
    meta.fill(x, value).sum().backward()
    assert value.grad.tolist() == X.size


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: meta.positive(meta.array([True])), "'x' has dtype bool; expected numbers"),
        (lambda: meta.fill(meta.ones(2), meta.ones(2)), "'value' has 1 axes; expected a number or a 0-d tensor"),
        (lambda: meta.fill(meta.ones(2, "int32"), 0.5), "value is 0.5, x is int32; expected an integer"),
    ],
)
def test_errors(call: Callable[[], Any], match: str) -> None:
    with pytest.raises(ArgumentError) as error:
        call()
    assert match in str(error.value)


VALUES = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 1e-30, -1e30, 3e38, math.inf, -math.inf, math.nan]
UNARY = [
    "deg2rad",
    "erfc",
    "frac",
    "isneginf",
    "isposinf",
    "isreal",
    "logit",
    "nan_to_num",
    "rad2deg",
    "sinc",
    "signbit",
]
BINARY = ["copysign", "fmax", "fmin", "heaviside", "logaddexp", "logaddexp2", "nextafter", "xlogy"]


def _assert_same(result: Any, expected: torch.Tensor, rtol: float, signed: bool = True) -> None:
    assert result.dtype == str(expected.dtype).removeprefix("torch.")
    ours, theirs = result.numpy(), expected.numpy()
    np.testing.assert_allclose(
        ours.astype(np.float64), theirs.astype(np.float64), rtol=rtol, atol=2e-8 if rtol > 1e-9 else 1e-16
    )
    zero = (ours == 0) & (theirs == 0) & signed
    np.testing.assert_array_equal(np.signbit(ours[zero].astype(float)), np.signbit(theirs[zero].astype(float)))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", UNARY)
def test_special_values(name: str, dtype: str) -> None:
    x = torch.tensor(VALUES, dtype=getattr(torch, dtype))
    # torch's sinc of float32 loses the digits of large numbers, and has NaN where their product with pi overflows.
    expected = torch.sinc(x.double()).to(x.dtype) if name == "sinc" else getattr(torch, name)(x)
    _assert_same(getattr(meta, name)(meta.array(x.numpy())), expected, 1e-6 if dtype == "float32" else 1e-13)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", BINARY)
def test_special_pairs(name: str, dtype: str) -> None:
    a, b = torch.tensor(list(itertools.product(VALUES, VALUES)), dtype=getattr(torch, dtype)).T.contiguous()
    result = getattr(meta, name)(meta.array(a.numpy()), meta.array(b.numpy()))
    expected = getattr(torch, name)(a, b)
    # fmax and fmin return either of two equal zeros.
    _assert_same(result, expected, 1e-6 if dtype == "float32" else 1e-13, name not in ("fmax", "fmin"))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_neighbours_of_every_kind_of_half(dtype: str) -> None:
    """From the least denormal over powers of two to the largest number, up and down."""
    bits = torch.arange(0, 2**15, 37, dtype=torch.int16)
    x = torch.cat([bits, torch.tensor([0, 1, 0x3FF, 0x400, 0x401, 0x7BFF, 0x7F7F, 0x80], dtype=torch.int16)])
    x = x.view(getattr(torch, dtype))
    x = x[x.isfinite()]
    for start, toward in itertools.product((x, -x), (math.inf, -math.inf, 0.0)):
        whole = start.view(torch.int16)
        ours = meta.nextafter(meta.from_dlpack(start), meta.full((), toward, dtype))
        stepped = torch.from_dlpack(ours.detach()).view(torch.int16)
        grows = (start > 0) == (start < toward) if toward else torch.zeros_like(start, dtype=torch.bool)
        expected = torch.where(grows, whole + 1, whole - 1)
        nonzero = start != 0
        assert torch.equal(stepped[nonzero], expected[nonzero])
        if toward:
            least = torch.from_dlpack(ours.detach())[~nonzero].double()
            assert (
                least == math.copysign(torch.finfo(start.dtype).smallest_normal * torch.finfo(start.dtype).eps, toward)
            ).all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_neighbours_of_infinities(dtype: str) -> None:
    largest = torch.finfo(getattr(torch, dtype)).max
    result = meta.nextafter(meta.array([math.inf, -math.inf, largest], dtype), meta.array([0.0, 0.0, math.inf], dtype))
    assert result.cast("float64").tolist() == [largest, -largest, math.inf]


@pytest.mark.parametrize("dtype", ["int8", "int64", "uint8"])
def test_divisors_at_the_limits(dtype: str) -> None:
    low, high = torch.iinfo(getattr(torch, dtype)).min, torch.iinfo(getattr(torch, dtype)).max
    values = [low, low + 1, high, 0, 1, 2, 96, 36] + ([-1, -36] if low else [])
    a, b = torch.tensor(list(itertools.product(values, values)), dtype=getattr(torch, dtype)).T.contiguous()
    for name in ("gcd", "lcm"):
        expected = getattr(np, name)(a.numpy(), b.numpy())
        comparable = (a != low) & (b != low) if low and name == "lcm" else torch.ones_like(a, dtype=torch.bool)
        ours = getattr(meta, name)(meta.array(a.numpy()), meta.array(b.numpy())).numpy()
        np.testing.assert_array_equal(ours[comparable.numpy()], expected[comparable.numpy()])


@pytest.mark.parametrize("dialect", ["tvm", "reference"])
def test_largest_numbers_replace_infinities_in_every_dtype(dialect: str) -> None:
    for dtype in ("float16", "bfloat16", "float32", "float64"):
        x = torch.tensor([math.inf, -math.inf, math.nan, 1.0], dtype=getattr(torch, dtype))
        with meta.with_dialect(dialect):
            ours = meta.nan_to_num(meta.from_dlpack(x))
            replaced = meta.nan_to_num(meta.from_dlpack(x), 1.5, 2.5, -3.5)
        assert torch.equal(torch.from_dlpack(ours), torch.nan_to_num(x))
        assert torch.equal(torch.from_dlpack(replaced), torch.nan_to_num(x, 1.5, 2.5, -3.5))


@pytest.mark.parametrize("dialect", ["tvm", "reference"])
def test_numbers_outside_of_an_integer_dtype_are_compared_as_they_are(dialect: str) -> None:
    """Only a result of that dtype must hold them."""
    x = np.array([0, 1, 200], np.uint8)
    with meta.with_dialect(dialect):
        for number in (-1, 300, 2**40):
            for name in ("less", "greater_equal", "equal", "not_equal", "logical_and", "divide", "atan2"):
                expected = getattr(np, {"atan2": "arctan2"}.get(name, name))(x.astype(np.int64), number)
                result = getattr(meta, name)(meta.array(x), number)
                np.testing.assert_allclose(result.numpy(), expected, rtol=1e-6)
                swapped = getattr(meta, name)(number, meta.array(x))
                assert swapped.dtype == result.dtype


@pytest.mark.parametrize("name", ["greater", "less", "not_equal", "logical_and", "divide"])
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int32", "int64"])
def test_fractions_are_compared_as_fractions(name: str, dtype: str) -> None:
    x = torch.tensor([0, 1, 1], dtype=getattr(torch, dtype))
    theirs = {"greater": torch.gt, "less": torch.lt, "not_equal": torch.ne, "divide": torch.div}
    expected = theirs.get(name, lambda a, b: torch.logical_and(a, torch.tensor(b)))(x, 0.25)
    _assert_same(getattr(meta, name)(meta.from_dlpack(x), 0.25), expected, 1e-6)


def test_booleans_are_cast_to_booleans() -> None:
    x = meta.array([True, False])
    assert meta.cast(x, "bool").tolist() == [True, False]
    assert meta.vm.compile(meta.trace(lambda x: meta.cast(meta.logical_not(x), "bool")))(x).tolist() == [False, True]


@pytest.mark.parametrize("dialect", ["tvm", "reference"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_mantissa_and_exponent_of_special_values(dtype: str, dialect: str) -> None:
    info = torch.finfo(getattr(torch, dtype))
    least = info.smallest_normal * info.eps
    values = [0.0, -0.0, 1.0, -0.75, info.max, -info.smallest_normal, least, -3 * least, math.inf, -math.inf, math.nan]
    x = torch.tensor(values, dtype=torch.float64).to(getattr(torch, dtype))
    with meta.with_dialect(dialect):
        mantissa, exponent = meta.frexp(meta.from_dlpack(x))
    expected = np.frexp(x.double().numpy())
    finite = np.isfinite(x.double().numpy())
    np.testing.assert_array_equal(torch.from_dlpack(mantissa).double().numpy(), expected[0])
    assert mantissa.dtype == dtype
    assert exponent.dtype == "int32"
    np.testing.assert_array_equal(exponent.numpy()[finite], expected[1][finite])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_ldexp_is_in_range_where_the_power_is_not(dtype: str) -> None:
    x, n = np.array([0.5, 1.0, 2**-140, 1e30, 0.0]).astype(dtype), np.array([128, -149, 260, -230, 5])
    expected = np.ldexp(x, n)
    np.testing.assert_array_equal(meta.ldexp(meta.array(x), meta.array(n)).numpy(), expected)
    for i in range(len(n)):
        assert meta.ldexp(meta.array(x), int(n[i])).numpy()[i] == expected[i]
