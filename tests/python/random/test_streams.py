"""Random numbers that take a varying number of words: Poisson and gamma distributions. A correct generator fails a
statistical test with a probability below 1e-6; keys are fixed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
import torch

import meta
from meta.dtype import FLOATS, smallest_normal
from meta.errors import GradientError, TypeInferenceError
from tests.python.random.test_distributions import chi_square, kolmogorov

N = 300_000
KEY = np.array([5, 3])
DRAWS: dict[str, Callable[[Any, Any], Any]] = {"poisson": meta.poisson, "standard_gamma": meta.standard_gamma}
PARAMETERS = np.array([0.0, 0.02, 0.4, 1.0, 3.5, 9.99, 10.0, 17.0, 60.0, 1e3, 3e4])


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", DRAWS)
def test_numbers_are_the_same_everywhere(name: str, dtype: str) -> None:
    key, x = meta.array(KEY), meta.array(np.repeat(PARAMETERS, 50), dtype=dtype)
    draw = DRAWS[name]
    numbers = draw(key, x).numpy()
    traced = meta.trace(lambda key, x: draw(key, x))
    sizes = {"x": {0: "n"}}
    for others in (traced(key, x), meta.vm.compile(traced)(key, x), meta.vm.compile(traced, dynamic=sizes)(key, x)):
        assert np.array_equal(others.numpy(), numbers)
    with meta.with_dialect("reference"):
        reference = draw(key, x).numpy()
    # Logarithms may differ in their last bit.
    np.testing.assert_allclose(
        numbers.astype(np.float64), reference.astype(np.float64), rtol=1e-13 if dtype == "float64" else 0
    )


@pytest.mark.parametrize("name", DRAWS)
def test_numbers_depend_on_position_and_not_on_shape_or_other_elements(name: str) -> None:
    key, draw = meta.array(KEY), DRAWS[name]
    x = np.resize(PARAMETERS, 60_000).astype(np.float32)
    numbers = draw(key, meta.array(x)).numpy()
    assert np.array_equal(draw(key, meta.array(x.reshape(100, 20, 30))).numpy().ravel(), numbers)
    assert np.array_equal(draw(key, meta.array(x[:777])).numpy(), numbers[:777])
    x[::2] = 2.0
    assert np.array_equal(draw(key, meta.array(x)).numpy()[1::2], numbers[1::2])
    other = draw(meta.array(KEY + np.array([0, 1])), meta.array(x)).numpy()
    assert abs(np.corrcoef(other[::2], draw(key, meta.array(x)).numpy()[::2])[0, 1]) < 5 / math.sqrt(x.size / 2)


@pytest.mark.parametrize("rate", [0.01, 0.7, 4.0, 9.9, 10.0, 15.5, 40.0, 800.0])
def test_poisson(rate: float) -> None:
    numbers = meta.poisson(meta.array(KEY), meta.full((N,), rate, "float64")).numpy()
    assert abs(numbers.mean() - rate) < 5 * math.sqrt(rate / N)
    assert abs(numbers.var() / rate - 1) < 5 * math.sqrt((2 + 1 / rate) / N)
    k = np.arange(max(0, int(rate - 9 * math.sqrt(rate))), int(rate + 9 * math.sqrt(rate) + 9))
    expected = N * np.array([math.exp(i * math.log(rate) - rate - math.lgamma(i + 1)) for i in k])
    observed = np.array([np.sum(numbers == i) for i in k])
    assert observed.sum() == N
    frequent = expected > 10
    assert chi_square(observed[frequent], expected[frequent]) < 6


@pytest.mark.parametrize("rate", [1e6, 1e12])
def test_poisson_of_large_rates_is_normal(rate: float) -> None:
    numbers = meta.poisson(meta.array(KEY), meta.full((N,), rate, "float64")).numpy()
    assert np.array_equal(numbers, np.floor(numbers))
    z = np.sort((numbers - rate) / math.sqrt(rate))
    assert kolmogorov(z, np.array([0.5 * (1 + math.erf(v / math.sqrt(2))) for v in z])) < 2.7


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("alpha", [0.2, 0.9, 1.0, 2.5, 30.0, 2e4])
def test_standard_gamma(alpha: float, dtype: str) -> None:
    numbers = meta.standard_gamma(meta.array(KEY), meta.full((N,), alpha, dtype)).numpy().astype(np.float64)
    assert abs(numbers.mean() - alpha) < 5 * math.sqrt(alpha / N)
    assert abs(numbers.var() / alpha - 1) < 5 * math.sqrt((2 + 6 / alpha) / N)
    x = torch.from_numpy(np.sort(numbers))
    assert kolmogorov(x.numpy(), torch.special.gammainc(torch.full_like(x, alpha), x).numpy()) < 2.7


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("reference", [False, True])
def test_parameters_at_limits(dtype: str, reference: bool) -> None:
    """Of rates from 2**63 on, torch's numbers overflow, and its gamma numbers of negative parameters do not return."""
    least, inf, nan = smallest_normal(dtype), math.inf, math.nan
    x = meta.array(np.array([0.0, -0.0, least / 2, inf, -1.0, nan, -inf, -least]), dtype=dtype)
    with meta.with_dialect("reference" if reference else "tvm"):
        rates, alphas = (draw(meta.array(KEY), x).numpy().astype(np.float64) for draw in DRAWS.values())
    np.testing.assert_array_equal(rates, [0, 0, 0, inf, nan, nan, nan, nan])
    np.testing.assert_array_equal(alphas, [least, least, least, inf, nan, nan, nan, nan])


def test_largest_parameters() -> None:
    x = meta.array(np.array([1e17, 1e19, 1e30, 1e300, 1.7e308]))
    for draw in DRAWS.values():
        np.testing.assert_allclose(draw(meta.array(KEY), x).numpy(), x.numpy(), rtol=3e-8)


def test_functions_refuse_invalid_parameters() -> None:
    meta.random.seed(3)
    assert meta.random.poisson(meta.array([4.0, 0.0])).shape == (2,)
    assert meta.random.standard_gamma(meta.array([4.0, 0.5], "float64")).dtype == "float64"
    for name, argument in (("poisson", "rate"), ("standard_gamma", "alpha")):
        function = getattr(meta.random, name)
        for value in (-1.0, math.nan):
            with pytest.raises(
                TypeInferenceError, match=rf"\[{name}\] '{argument}' has negative values or NaN; expected 0"
            ):
                function(meta.array([1.0, value]))
        with pytest.raises(TypeInferenceError, match=f"'{argument}' has dtype int64"):
            function(meta.array([1, 2]))


def test_the_gradient_of_poisson_is_zero() -> None:
    rate = meta.array([1.0, 30.0])
    rate.requires_grad = True
    (meta.random.poisson(rate) * rate).sum().backward()
    meta.random.seed(2)
    rate.grad = None
    numbers = meta.random.poisson(rate)
    numbers.sum().backward()
    assert rate.grad.numpy().tolist() == [0.0, 0.0]


def exact_slope(a: float, x: float) -> float:
    """The derivative of a gamma distribution's quantile by its parameter, with 40 digits."""
    with mpmath.workdps(40):
        a, x = mpmath.mpf(a), mpmath.mpf(x)
        sides = (0, x) if x < a else (x, mpmath.inf)
        change = mpmath.diff(lambda t: mpmath.gammainc(t, *sides, regularized=True), a)
        density = mpmath.exp((a - 1) * mpmath.log(x) - x - mpmath.loggamma(a))
        return float(-change / density if x < a else change / density)


@pytest.mark.parametrize("reference", [False, True])
def test_gradients_of_gamma_numbers_are_exact(reference: bool) -> None:
    points = [(a, a * f) for a in (0.01, 0.3, 1.0, 2.0, 7.7, 100.0, 999.0, 1e4) for f in (0.2, 0.9, 1.0, 1.1, 4.0)]
    points += [(1e-3, 1e-30), (1e-8, 50.0), (2.0, 60.0), (20.0, 1e-3), (1e7, 1e7), (1e7, 1.01e7)]
    alpha, x = (meta.array(np.array(values)) for values in zip(*points, strict=True))
    expected = [exact_slope(*point) for point in points if point[0] < 1e6]
    with meta.with_dialect("reference" if reference else "tvm"):
        slopes = meta.standard_gamma_grad(alpha, x).numpy()
        narrow = meta.standard_gamma_grad(meta.cast(alpha, "float32"), meta.cast(x, "float32")).numpy()
    np.testing.assert_allclose(slopes[:-2], expected, rtol=3e-10)
    np.testing.assert_allclose(slopes[-2:], [1 + 1 / 6e7, 1.01 * math.log(1.01) / 0.01], rtol=2e-8)
    np.testing.assert_allclose(narrow, slopes, rtol=2e-5)


def test_gradients_of_gamma_numbers_are_torchs_to_its_accuracy() -> None:
    a, f = torch.meshgrid(torch.logspace(-0.7, 4, 60).double(), torch.linspace(0.3, 2, 40).double(), indexing="ij")
    expected = torch._standard_gamma_grad(a, a * f).numpy()
    np.testing.assert_allclose(meta.standard_gamma_grad(meta.array(a), meta.array(a * f)).numpy(), expected, rtol=5e-3)
    special = torch.tensor([0.0, -1.0, math.inf, math.nan, 1.0])
    values = [meta.array(t) for t in (special, torch.ones(5), special[[4, 4, 4, 4, 0]])]
    assert np.isnan(meta.standard_gamma_grad(values[0], values[1]).numpy()).tolist() == [True] * 4 + [False]
    assert np.isnan(meta.standard_gamma_grad(values[1], values[0]).numpy()).tolist() == [False, True, True, True, False]
    assert meta.standard_gamma_grad(values[1], values[2]).numpy()[4] == 0


def test_gradients_of_means_follow_the_distribution() -> None:
    """The mean of x**2 is alpha (alpha + 1), that of the logarithm digamma(alpha)."""
    alpha = meta.array([0.7, 4.0], "float64")
    alpha.requires_grad = True
    rows = meta.broadcast_to(alpha, (N, 2))
    numbers = meta.standard_gamma(meta.array(KEY), rows)
    (meta.square(numbers) + meta.log(numbers)).mean(0).sum().backward()
    a = alpha.detach().numpy()
    expected = 2 * a + 1 + torch.polygamma(1, torch.tensor(a.tolist())).numpy()
    np.testing.assert_allclose(alpha.grad.numpy(), expected, rtol=0.02)


def test_second_order_is_refused_as_in_torch() -> None:
    alpha = meta.array([0.7, 4.0])
    alpha.requires_grad = True
    y = meta.random.standard_gamma(alpha)
    (slope,) = meta.autograd.grad(y.sum(), [alpha], create_graph=True)
    with pytest.raises(GradientError, match=r"standard_gamma_grad.*no closed form"):
        slope.sum().backward()
