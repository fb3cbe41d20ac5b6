"""Gradients at NaN, infinities, zeros and denormals: equal to torch's in float64 where that is right."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

import meta

INF, NAN = math.inf, math.nan


@pytest.fixture(params=["tvm", "reference"])
def dialect(request: pytest.FixtureRequest) -> Iterator[str]:
    with meta.with_dialect([request.param, "reference"]):
        yield request.param


def _gradients(f: Callable[..., Any], *rows: Any, dtype: str = "float32") -> list[Any]:
    xs = [meta.array(row, dtype, requires_grad=True) for row in rows]
    y = f(*xs)
    return [g.numpy() for g in meta.autograd.grad(y, xs, meta.ones_like(y)) if g is not None]


@pytest.mark.usefixtures("dialect")
@pytest.mark.parametrize("bounds", [(-1.0, 1.0), (-1.0, None), (None, 1.0)])
def test_clip_at_nan(bounds: tuple[float | None, float | None]) -> None:
    (dx,) = _gradients(lambda x: meta.clip(x, *bounds), [NAN, 0.5, 1.0, -1.0])
    assert dx.tolist() == [0.0, 1.0, 1.0, 1.0]


@pytest.mark.usefixtures("dialect")
@pytest.mark.parametrize("exponent", [0.5, 1.5, -0.5])
def test_power_of_negative_infinity_and_zero_is_as_in_c(exponent: float) -> None:
    """torch agrees where the exponent is a tensor; the number 0.5 it takes for a square root."""
    bases = [-INF, -0.0, INF, 0.0]
    expected = torch.pow(torch.tensor(bases), torch.tensor(exponent)).numpy()
    for power in (exponent, meta.array(exponent)):
        actual = meta.power(meta.array(bases), power).numpy()
        np.testing.assert_equal(actual, expected)
        np.testing.assert_equal(np.signbit(actual), np.signbit(expected))


def test_power_with_exponent_zero() -> None:
    bases = [1e-42, -1e-42, 0.0, NAN, INF, 2.0]
    dx1, _ = _gradients(meta.power, bases, [0.0] * len(bases))
    assert dx1.tolist() == [0.0] * len(bases)


@pytest.mark.usefixtures("dialect")
def test_heaviside_is_its_second_operand_at_zero() -> None:
    """torch has no gradient of it."""
    dx1, dx2 = _gradients(meta.heaviside, [-1.0, 0.0, -0.0, 2.0, NAN], [0.5, 0.25, 7.0, NAN, 1.0])
    assert dx1.tolist() == [0.0] * 5
    assert dx2.tolist() == [0.0, 1.0, 1.0, 0.0, 0.0]


def test_power_with_exponent_zero_in_second_order() -> None:
    """d2 x1**x2 / dx1 dx2 is 1 / x1 at x2 = 0."""
    x1 = meta.array([0.5, 4.0], "float64", requires_grad=True)
    x2 = meta.array([0.0, 0.0], "float64", requires_grad=True)
    (dx1,) = meta.autograd.grad(meta.power(x1, x2), x1, meta.ones_like(x1), create_graph=True)
    assert dx1 is not None
    (mixed,) = meta.autograd.grad(dx1, x2, meta.ones_like(dx1))
    assert mixed is not None
    assert mixed.tolist() == [2.0, 0.25]


def test_atan2_whose_squares_leave_the_range() -> None:
    x1, x2 = [0.0, 0.0, 1e-30, 1e-30, 1e30, 3.0], [0.0, 1.0, 1e-30, 0.0, 1e30, -4.0]
    wide = [torch.tensor(row, dtype=torch.float64, requires_grad=True) for row in (x1, x2)]
    expected = torch.autograd.grad(torch.atan2(*wide).sum(), wide)
    for ours, theirs in zip(_gradients(meta.atan2, x1, x2), expected, strict=True):
        np.testing.assert_allclose(ours, theirs.numpy(), rtol=1e-5)


def test_atan2_at_the_origin_in_second_order() -> None:
    xs = [meta.zeros((1,), "float64"), meta.zeros((1,), "float64")]
    for x in xs:
        x.requires_grad = True
    first = meta.autograd.grad(meta.atan2(*xs), xs, create_graph=True)
    total = first[0] * 2.0 + first[1] * 3.0  # type: ignore[operator]
    assert [g.tolist() for g in meta.autograd.grad(total, xs) if g is not None] == [[0.0], [0.0]]


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    "row", [[0.0, 2.0, 0.0, 3.0], [0.0, 0.0, 2.0, 3.0], [1.0, 2.0, 0.0, 0.0], [2.0, 0.0, 3.0, 0.5]]
)
def test_cumprod_of_zeros_in_second_order(row: list[float], exclusive: bool, reverse: bool) -> None:
    def product(x: Any) -> Any:
        if reverse:
            x = x.flip(0)
        shifted = torch.cat([torch.ones(1, dtype=x.dtype), x[:-1]]) if exclusive else x
        y = torch.cumprod(shifted, 0)
        return y.flip(0) if reverse else y

    dy, ddx = [1.0, 2.0, 3.0, 4.0], [1.0, -2.0, 0.5, 3.0]
    x = meta.array(row, "float64", requires_grad=True)
    y = meta.cumprod(x, 0, exclusive, reverse)
    (first,) = meta.autograd.grad(y, x, meta.array(dy, "float64"), create_graph=True)
    assert first is not None
    (second,) = meta.autograd.grad(first, x, meta.array(ddx, "float64"))
    t = torch.tensor(row, dtype=torch.float64, requires_grad=True)
    (expected,) = torch.autograd.grad(product(t), t, torch.tensor(dy, dtype=torch.float64), create_graph=True)
    (other,) = torch.autograd.grad(expected, t, torch.tensor(ddx, dtype=torch.float64))
    assert second is not None
    np.testing.assert_allclose(first.detach().numpy(), expected.detach().numpy())
    np.testing.assert_allclose(second.numpy(), other.numpy())
