"""Special functions over their whole domain, in float64 and rounded to float32, as in torch."""

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

REALS = [0.0, -0.0, 1e-300, 1e-9, -1e-9, 0.01, 0.3, -0.3, 0.75, 0.9, 1.0, -1.0, 1.4616, 2.0, -2.0, 2.5, -2.5, 3.7, 5.5,
         7.99, 8.0, 9.99, 10.0, 12.5, -12.3, 26.0, 30.0, 100.0, 700.5, -700.5, 1e5, 1e15, math.inf, -math.inf,
         math.nan]  # fmt: skip
PROBABILITIES = [0.0, 5e-324, 1e-300, 1e-30, 1e-5, 0.1, 0.125, 0.3, 0.5, 0.6, 0.875, 0.9, 1 - 1e-9, 1.0, -0.1]
SIGNED = [0.0, 1e-300, -0.3, 0.5, 0.75, -0.7500001, 0.9, -0.999, 1 - 1e-12, 1.0, -1.0, 1.5, math.nan]
FUNCTIONS: dict[str, tuple[Callable[..., Any], list[float]]] = {
    "digamma": (torch.digamma, [x for x in REALS if x != -math.inf]),
    "entr": (torch.special.entr, [x for x in REALS if x != math.inf]),
    "erfcx": (torch.special.erfcx, REALS),
    "erfinv": (torch.erfinv, SIGNED),
    "i0": (torch.i0, [x for x in REALS if abs(x) != math.inf]),
    "i0e": (torch.special.i0e, REALS),
    "i1": (torch.special.i1, [x for x in REALS if abs(x) != math.inf]),
    "i1e": (torch.special.i1e, REALS),
    "lgamma": (torch.lgamma, REALS),
    "log_ndtr": (torch.special.log_ndtr, REALS),
    "ndtr": (torch.special.ndtr, REALS),
    "ndtri": (torch.special.ndtri, PROBABILITIES),
}


def _compare(ours: Any, expected: np.ndarray[Any, Any], rtol: float, atol: float = 0.0) -> None:
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(ours.numpy(), expected.astype(ours.dtype), rtol=rtol, atol=atol)


@pytest.mark.parametrize("dialect", ["tvm", "reference"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_one_number(name: str, dialect: str) -> None:
    function, values = FUNCTIONS[name]
    wide = np.array(values)
    narrow, least = wide.astype(np.float32), 1e-30 if dialect == "tvm" else 1e-15
    with meta.with_dialect(dialect):
        _compare(getattr(meta, name)(meta.array(wide)), function(torch.from_numpy(wide)).numpy(), 1e-11, 1e-14)
        expected = function(torch.from_numpy(narrow.astype(np.float64))).numpy()
        _compare(getattr(meta, name)(meta.array(narrow)), expected, 3e-7, least)


@pytest.mark.parametrize("dialect", ["tvm", "reference"])
def test_lgamma_is_infinite_where_its_dtype_ends(dialect: str) -> None:
    x = meta.array([2.5e305, 2.6e305, 1.7e308], dtype="float64")
    with meta.with_dialect(dialect):
        assert np.isinf(meta.lgamma(x).numpy()).tolist() == [False, True, True]


POSITIVE = [1e-5, 0.1, 0.5, 1.0, 1.5, 3.0, 9.5, 10.0, 30.0, 200.0]


@pytest.mark.parametrize("dialect", ["tvm", "reference"])
def test_polygamma_and_zeta(dialect: str) -> None:
    x = np.array([*POSITIVE, 0.0, -1.0])
    s, q = np.array(list(itertools.product([1.0, 1.1, 2.0, 7.5, 30.0, 0.5], POSITIVE))).T.copy()
    with meta.with_dialect(dialect):
        for n in range(5):
            points = x if n == 0 else x[x >= 0]  # at negative poles torch differs from its own limit
            expected = torch.polygamma(n, torch.from_numpy(points)).numpy()
            _compare(meta.polygamma(n, meta.array(points)), expected, 1e-8 if n == 1 else 1e-11, 1e-14)  # torch: 5e-10
        ours = meta.polygamma(1, meta.array(np.array([1.0, 0.5, -0.5]))).numpy()
        np.testing.assert_allclose(ours, [math.pi**2 / 6, math.pi**2 / 2, math.pi**2 / 2 + 4], rtol=1e-14)
        expected = torch.special.zeta(torch.from_numpy(s), torch.from_numpy(q)).numpy()
        _compare(meta.zeta(meta.array(s), meta.array(q)), expected, 1e-12)
        poles = meta.zeta(meta.array([2.0, 2.0, 2.5]), meta.array([0.0, -3.0, -0.5]))
        np.testing.assert_array_equal(poles.numpy(), [math.inf, math.inf, math.nan])


@pytest.mark.parametrize("dialect", ["tvm", "reference"])
def test_polygamma_and_zeta_of_the_largest_numbers(dialect: str) -> None:
    """Far from 0, zeta(s, q) is q**(1 - s) / (s - 1), and polygamma(n, x) is (-1)**(n + 1) (n - 1)! / x**n."""
    with meta.with_dialect(dialect):
        for n, x in ((1, 1e300), (1, 1e160), (2, 1e150), (3, 1e107)):
            expected = (-1.0) ** (n + 1) * math.factorial(n - 1) * x**-n
            assert meta.polygamma(n, meta.array([x], dtype="float64")).item() == pytest.approx(expected, rel=1e-12)
        q = [1e300, 1e160, 1e110]
        zeta = meta.zeta(1.5, meta.array(q, dtype="float64")).numpy()
        np.testing.assert_allclose(zeta, [2 * v**-0.5 for v in q], rtol=1e-12)
        ends = [meta.polygamma(n, meta.array([math.inf, -math.inf], dtype="float32")).tolist() for n in (1, 2)]
        np.testing.assert_array_equal(ends, [[0.0, math.nan]] * 2)
        limits = meta.zeta(math.inf, meta.array([0.5, 1.0, 2.0, math.inf], dtype="float64"))
        np.testing.assert_array_equal(limits.numpy(), [math.inf, 1.0, 0.0, 0.0])
        assert meta.zeta(2.0, meta.array([math.inf])).tolist() == [0.0]


@pytest.mark.parametrize("dialect", ["tvm", "reference"])
@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_polygamma_below_zero_follows_the_recurrence(n: int, dialect: str) -> None:
    """psi(n, x + 1) - psi(n, x) = (-1)**n n! / x**(n + 1) (Abramowitz and Stegun, 6.4.6)."""
    x = np.array([-0.3, -1.5, -2.75, -7.1])
    with meta.with_dialect(dialect):
        before, after = (meta.polygamma(n, meta.array(v)).numpy() for v in (x, x + 1))
    error = np.abs(after - before - (-1.0) ** n * math.factorial(n) / x ** (n + 1))
    assert (error <= 1e-12 * np.maximum(np.abs(before), 1)).all(), error


@pytest.mark.parametrize("dialect", ["tvm", "reference"])
def test_bessel_functions_grow_to_infinity(dialect: str) -> None:
    x = meta.array([math.inf, -math.inf])
    with meta.with_dialect(dialect):
        assert meta.i0(x).tolist() == [math.inf, math.inf]
        assert meta.i1(x).tolist() == [math.inf, -math.inf]


@pytest.mark.parametrize("dialect", ["tvm", "reference"])
@pytest.mark.parametrize("name", ["igamma", "igammac"])
def test_incomplete_gamma(name: str, dialect: str) -> None:
    values = [1e-3, 0.5, 1.0, 2.5, 15.0, 19.0, 25.0, 150.0, 1000.0]
    edges = [0.0, math.inf, -1.0, 3.0]
    pairs = [*itertools.product(values, values), *itertools.product(edges, edges), (1000.0, 1001.5), (150.0, 140.0)]
    a, x = np.array(pairs).T.copy()
    expected = getattr(torch, name)(torch.from_numpy(a), torch.from_numpy(x)).numpy()
    with meta.with_dialect(dialect):
        _compare(getattr(meta, name)(meta.array(a), meta.array(x)), expected, 1e-8, 1e-12)  # torch: 2e-9


@pytest.mark.parametrize("p", [1, 3])
def test_mvlgamma(p: int) -> None:
    x = np.array([1.5, 2.5, 9.0])
    _compare(meta.mvlgamma(meta.array(x), p), torch.mvlgamma(torch.from_numpy(x), p).numpy(), 1e-13)
    with pytest.raises(ArgumentError, match="p is 0; expected an int of at least 1"):
        meta.mvlgamma(meta.array(x), 0)


def test_the_module_has_the_names_of_torch() -> None:
    x = torch.tensor([0.3, 0.7], dtype=torch.float64)
    for name in ("expit", "psi", "gammaln", "erfc", "xlogy", "gammainc", "zeta", "multigammaln"):
        other = {"xlogy": (x,), "gammainc": (x,), "zeta": (x,), "multigammaln": (1,)}.get(name, ())
        ours = getattr(meta.special, name)(meta.from_dlpack(x), *(meta.from_dlpack(o) if o is x else o for o in other))
        _compare(ours, getattr(torch.special, name)(x, *other).numpy(), 1e-12)
    assert set(dir(meta.special)) <= set(dir(torch.special))
    with pytest.raises(AttributeError, match="no attribute 'airy'"):
        meta.special.airy  # noqa: B018
