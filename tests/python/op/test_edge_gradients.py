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


def _derivative(f: Callable[[Any], Any], x: float, order: int, dtype: str) -> float:
    """The derivative of that order, by the tape."""
    v = meta.array([x], dtype, requires_grad=True)
    y = f(v)
    for _ in range(order):
        (g,) = meta.autograd.grad(y, v, meta.ones_like(y), create_graph=True)
        assert g is not None
        y = g
    return float(y.detach().numpy()[0])


SINGULAR: dict[str, tuple[Callable[[Any], Any], str, float, int, float]] = {
    "xlogy": (lambda x: meta.xlogy(x, 2.0), "float32", 0.0, 1, math.log(2)),
    "xlog1py": (lambda x: meta.xlog1py(x, 2.0), "float32", 0.0, 1, math.log(3)),
    "sinc": (meta.sinc, "float32", 1e-4, 1, -(math.pi**2) / 3 * 1e-4),
    "sinc-at-0": (meta.sinc, "float32", 0.0, 2, -(math.pi**2) / 3),
    "sinc-near-0": (meta.sinc, "float32", 1e-30, 2, -(math.pi**2) / 3),
    "i1e": (meta.i1e, "float32", 1e-45, 1, 0.5),
    "i0": (meta.i0, "float32", 1e-45, 2, 0.5),
    "i0e-far": (meta.i0e, "float64", 1e6, 1, -1.99471215002464e-10),
    "softsign": (meta.softsign, "float16", 300.0, 1, 1 / 301**2),
    "erfcx": (meta.erfcx, "float16", 40.0, 1, -0.00035228),
    "erfcx-curvature": (meta.erfcx, "float64", 100.0, 2, 1.12804078022883e-6),
    "gelu": (lambda x: meta.gelu(x, "tanh"), "float32", 1e10, 2, 0.0),
    "gelu-slope": (lambda x: meta.gelu(x, "tanh"), "float32", 1e30, 1, 1.0),
    "softplus": (meta.softplus, "float32", 20.0, 2, 2.0611536e-9),
    "logsigmoid": (meta.logsigmoid, "float32", -20.0, 2, -2.0611536e-9),
    "logaddexp": (lambda x: meta.logaddexp(x, 0.0), "float32", 20.0, 2, 2.0611536e-9),
    "silu": (meta.silu, "float32", 20.0, 2, -3.7100761e-8),
    "loss": (
        lambda x: meta.binary_cross_entropy_with_logits(x, x.detach() * 0, None, None, "none"),
        "float32",
        -17.0,
        1,
        4.1399374e-8,
    ),
    "asin": (meta.asin, "float64", 1 - 2**-53, 1, 2**26),
    "acos": (meta.acos, "float32", 1 - 2**-24, 1, -2896.3093),
    "atanh": (meta.atanh, "float32", 1 - 2**-24, 1, 2**23 * (1 + 2**-25)),
    "celu": (lambda x: meta.celu(x, 0.5), "float32", 0.0, 2, 0.0),
    "elu": (meta.elu, "float32", 0.0, 2, 0.0),
    "hardtanh": (meta.hardtanh, "float32", NAN, 1, 0.0),
    "hardshrink": (meta.hardshrink, "float32", NAN, 1, 0.0),
    "hardswish": (meta.hardswish, "float32", NAN, 1, NAN),
    "polygamma": (lambda x: meta.polygamma(2, x), "float32", -3.0, 0, -INF),
    "log_ndtr": (meta.log_ndtr, "float32", 12.0, 1, 2.1463837e-32),
    "hypot": (lambda x: meta.hypot(x, 2.0), "float32", 128.0, 2, 1.9066504e-6),
}


@pytest.mark.parametrize("name", SINGULAR)
def test_singular_and_removable_points(name: str) -> None:
    f, dtype, x, order, expected = SINGULAR[name]
    rtol = {"float16": 2e-3, "float32": 3e-6, "float64": 1e-11}[dtype]
    np.testing.assert_allclose(_derivative(f, x, order, dtype), expected, rtol=rtol)


@pytest.mark.usefixtures("dialect")
@pytest.mark.parametrize("extremum", [meta.max, meta.min])
def test_extrema_that_are_nan_have_the_gradient_at_the_nan(extremum: Callable[..., Any]) -> None:
    (dx,) = _gradients(lambda x: extremum(x, 1), [[1.0, NAN, 3.0], [NAN, 2.0, NAN], [2.0, 1.0, 2.0]])
    third = [0.5, 0.0, 0.5] if extremum is meta.max else [0.0, 1.0, 0.0]
    assert dx.tolist() == [[0.0, 1.0, 0.0], [0.5, 0.0, 0.5], third]


@pytest.mark.usefixtures("dialect")
@pytest.mark.parametrize("extremum", [meta.fmax, meta.fmin])
def test_extrema_of_numbers_beside_nan(extremum: Callable[..., Any]) -> None:
    dx1, dx2 = _gradients(extremum, [NAN, NAN, 1.0, 1.0], [NAN, 1.0, NAN, 1.0])
    assert dx1.tolist() == [1.0, 0.0, 1.0, 1.0]
    assert dx2.tolist() == [0.0, 1.0, 0.0, 0.0]


@pytest.mark.usefixtures("dialect")
@pytest.mark.parametrize("scale", [1e-45, 1e-30, 1.0, 1e30])
def test_atan2_of_any_size(scale: float) -> None:
    x1, x2 = [0.0, scale, scale, INF], [scale, 0.0, scale, scale]
    dx1, dx2 = _gradients(meta.atan2, x1, x2)
    scale = float(np.float32(scale))
    with np.errstate(over="ignore"):
        size = float(np.float32(1 / scale))
    np.testing.assert_allclose(dx1, [size, 0.0, size / 2 if scale > 1e-40 else size, 0.0], rtol=1e-6)
    np.testing.assert_allclose(dx2, [0.0, -size, -size / 2 if scale > 1e-40 else -size, -0.0], rtol=1e-6)


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("rank", [0, 1, 2, 3])
def test_determinants_of_singular_matrices_in_second_order(rank: int, dtype: str, recorded: bool) -> None:
    """The derivative of the cofactors, which are polynomials."""
    rng = np.random.default_rng(rank)
    left, right, w = (rng.standard_normal(shape).astype(dtype) for shape in ((3, rank), (rank, 3), (3, 3)))
    a = left @ right
    x = meta.array(a, requires_grad=True)
    y = meta.det(x)
    (first,) = meta.autograd.grad(y, x, meta.ones_like(y), create_graph=True)
    assert first is not None
    (second,) = meta.autograd.grad(first, x, meta.array(w), create_graph=recorded)
    assert second is not None

    def cofactors(m: Any) -> Any:
        return np.array([[np.linalg.det(np.roll(m, (-i, -j), (0, 1))[1:, 1:]) for j in range(3)] for i in range(3)])

    expected = (cofactors(a + w) - cofactors(a - w)) / 2  # cofactors of 3 x 3 matrices are quadratic
    np.testing.assert_allclose(second.detach().numpy(), expected, atol=1e-12)


def test_zeta_of_negative_numbers() -> None:
    """Integer exponents have real terms there."""
    q = np.array([-1.5, -0.25, -7.9, -1e6 - 0.5])
    expected = torch.special.zeta(torch.tensor([2.0, 3.0, 4.0, 2.0], dtype=torch.float64), torch.tensor(q)).numpy()
    s = meta.array([2.0, 3.0, 4.0, 2.0], "float64")
    for name in ("tvm", "reference"):
        with meta.with_dialect([name]):
            np.testing.assert_allclose(meta.zeta(s, meta.array(q)).numpy(), expected, rtol=1e-9)
            assert np.isnan(meta.zeta(meta.array([2.5]), meta.array([-1.5])).numpy()).all()
