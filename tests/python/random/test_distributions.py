"""Statistical tests of the distributions. A correct generator fails with a probability below 1e-6; seeds are fixed."""

from __future__ import annotations

import math

import numpy as np
import pytest

import meta
from meta.dtype import FLOATS
from meta.errors import ArgumentError, TypeInferenceError

N = 100_000


@pytest.fixture(autouse=True)
def seed() -> None:
    meta.random.seed(20)


def chi_square(observed: np.ndarray, expected: float) -> float:
    """The chi-square statistic in standard deviations from its mean."""
    degrees = observed.size - 1
    return (((observed - expected) ** 2 / expected).sum() - degrees) / math.sqrt(2 * degrees)


def kolmogorov(sample: np.ndarray, distribution: np.ndarray) -> float:
    """The Kolmogorov-Smirnov statistic sqrt(n) * D of sorted values, given their cumulative probabilities."""
    n = sample.size
    steps = np.arange(n)
    return math.sqrt(n) * max((distribution - steps / n).max(), ((steps + 1) / n - distribution).max())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_uniform(dtype: str) -> None:
    u = np.sort(meta.random.uniform((N,), -2.0, 3.0, dtype).numpy().astype(np.float64))
    assert u[0] >= -2
    assert u[-1] < 3
    assert kolmogorov(u, (u + 2) / 5) < 2.7


@pytest.mark.parametrize("dtype", FLOATS)
def test_uniform_excludes_its_upper_bound(dtype: str) -> None:
    u = meta.random.uniform((N,), 0.0, 1.0, dtype).numpy().astype(np.float64)
    assert u.min() >= 0
    assert u.max() < 1
    v = meta.random.uniform((N,), 1000.0, 1000.5, dtype).numpy().astype(np.float64)
    assert v.max() < 1000.5


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_normal(dtype: str) -> None:
    z = np.sort(meta.random.normal((N,), 1.0, 2.0, dtype).numpy().astype(np.float64))
    cumulative = np.array([0.5 * (1 + math.erf((v - 1) / (2 * math.sqrt(2)))) for v in z])
    assert kolmogorov(z, cumulative) < 2.7
    standard = (z - 1) / 2
    assert abs(standard.mean()) < 5 / math.sqrt(N)
    assert abs((standard**4).mean() - 3) < 5 * math.sqrt(96 / N)
    assert np.isfinite(z).all()


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8"])
def test_randint(dtype: str) -> None:
    r = meta.random.randint((N,), 3, 20, dtype).numpy()
    counts = np.bincount(r, minlength=20)
    assert counts[:3].sum() == 0
    assert counts.size == 20
    assert abs(chi_square(counts[3:], N / 17)) < 6


@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 1.0])
def test_bernoulli(p: float) -> None:
    share = meta.random.bernoulli((N,), p, "bool").numpy().mean()
    assert abs(share - p) <= 5 * math.sqrt(p * (1 - p) / N)


def test_neighbouring_elements_and_draws_are_independent() -> None:
    draws = [meta.random.uniform((N,)).numpy().astype(np.float64) for _ in range(2)]
    bound = 5 / math.sqrt(N)
    assert abs(np.corrcoef(*draws)[0, 1]) < bound
    for lag in (1, 2, 4, 256):
        assert abs(np.corrcoef(draws[0][:-lag], draws[0][lag:])[0, 1]) < bound
    cells = np.histogram2d(draws[0][:-1], draws[0][1:], bins=16, range=[[0, 1], [0, 1]])[0].ravel()
    assert abs(chi_square(cells, (N - 1) / 256)) < 6


def test_seeds_are_independent() -> None:
    a, b = (meta.random.seed(s) and meta.random.uniform((N,)).numpy() for s in (0, 1))
    assert abs(np.corrcoef(a, b)[0, 1]) < 5 / math.sqrt(N)


def test_permutation() -> None:
    first, second = meta.random.permutation(1000).numpy(), meta.random.permutation(1000).numpy()
    assert sorted(first) == list(range(1000))
    assert (first != second).any()
    fixed = [np.sum(meta.random.permutation(50).numpy() == np.arange(50)) for _ in range(200)]
    assert abs(np.mean(fixed) - 1) < 5 / math.sqrt(200)
    assert meta.random.permutation(0).shape == (0,)


def test_rejects_invalid_arguments() -> None:
    with pytest.raises(TypeInferenceError, match="dtype is int32"):
        meta.random.uniform((2,), dtype="int32")
    with pytest.raises(ArgumentError, match="n is -1"):
        meta.random.permutation(-1)


def test_exponential() -> None:
    x = np.sort(meta.random.exponential((N,), 2.0).numpy().astype(np.float64))
    assert x[0] >= 0
    assert kolmogorov(x, 1 - np.exp(-2 * x)) < 2.7
    assert meta.random.exponential((3,), dtype="bfloat16").dtype == "bfloat16"


def test_bernoulli_of_tensors() -> None:
    chances = meta.array([0.0, 0.25, 1.0])
    share = meta.random.bernoulli((N, 3), chances).numpy().mean(0)
    assert (share[0], share[2]) == (0, 1)
    assert abs(share[1] - 0.25) < 5 * math.sqrt(0.25 * 0.75 / N)


@pytest.mark.parametrize("replacement", [False, True])
def test_multinomial(replacement: bool) -> None:
    weights = np.array([1.0, 0.0, 2.0, 5.0])
    rows = meta.broadcast_to(meta.array(weights.astype(np.float32)), (N, 4))
    indices = meta.random.multinomial(rows, 2, replacement).numpy()
    counts = np.bincount(indices[:, 0], minlength=4)
    assert counts[1] == 0
    assert chi_square(counts[weights > 0], N * weights[weights > 0] / 8) < 5
    equal = (indices[:, 0] == indices[:, 1]).mean()
    assert abs(equal - ((weights / 8) ** 2).sum()) < 5 / math.sqrt(N) if replacement else equal == 0


def test_weights_and_rates_that_are_refused() -> None:
    weights = meta.array([0.0, 1.0, 2.0])
    with pytest.raises(TypeInferenceError, match=r"\[exponential\] rate is 0; expected more than 0"):
        meta.random.exponential((2,), 0)
    with pytest.raises(TypeInferenceError, match=r"\[bernoulli\] 'p' has values outside \[0, 1\]"):
        meta.random.bernoulli((3,), weights)
    with pytest.raises(TypeInferenceError, match=r"\[multinomial\] count is 4 for rows of 3; expected 1 to 3"):
        meta.random.multinomial(weights, 4)
    with pytest.raises(TypeInferenceError, match="a row has fewer than 3 positive weights"):
        meta.random.multinomial(weights, 3)
    with pytest.raises(TypeInferenceError, match="'weights' has negative values, infinities or NaN"):
        meta.random.multinomial(-weights, 1)
    with pytest.raises(TypeInferenceError, match="a row of 'weights' adds up to 0"):
        meta.random.multinomial(meta.zeros((2, 3)), 1)
