"""Forward mode of every differentiable operator, on its first sample: against differences. NumPy computes them: what is
tested are the rules."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

import meta
from meta.testing.derivatives import check_forward_mode, is_differentiable
from meta.testing.samples import Sample
from tests.python.op.samples import first_rows, samples

ROWS = [
    row
    for row in samples()
    if row in first_rows() and is_differentiable(row) and "float64" in row.run_dtypes() and row.is_floating
]


@pytest.fixture(scope="module", autouse=True)
def in_numpy() -> Iterator[None]:
    with meta.with_dialect(["reference", "tvm"]):
        yield


@pytest.mark.parametrize("sample", ROWS, ids=repr)
def test_forward_mode(sample: Sample) -> None:
    check_forward_mode(sample)


RNG = np.random.default_rng(0)


def assert_tangent_as_in_torch(ours: Callable[..., Any], theirs: Callable[..., Any], *arrays: Any) -> None:
    """The tangents in float32 agree with torch's in float64."""
    tangents = [RNG.normal(size=x.shape) for x in arrays]
    single = [tuple(meta.array(x.astype("float32")) for x in side) for side in (arrays, tangents)]
    double = [tuple(torch.tensor(x.numpy()).double() for x in side) for side in single]
    with warnings.catch_warnings():  # torch compiles functions for its first tangents, which it calls deprecated
        warnings.simplefilter("ignore", DeprecationWarning)
        expected = torch.func.jvp(theirs, *double)[1]
    np.testing.assert_allclose(meta.autograd.jvp(ours, *single)[1].numpy(), expected.numpy(), rtol=1e-4, atol=1e-6)


def test_tangents_of_values_for_one_position() -> None:
    """The result has the tangent of the value that it keeps; a sum and equal extrema, those of all values."""
    x, values = np.ones((3, 2)), RNG.integers(1, 3, (4, 2)).astype("float64")
    places = np.array([[0, 0], [0, 1], [2, 1], [2, 0]])
    for ours, theirs in {"add": "sum", "max": "amax", "min": "amin"}.items():
        assert_tangent_as_in_torch(
            lambda x, v, name=ours: meta.scatter_elements(x, 0, meta.array(places), v, name),
            lambda x, v, name=theirs: x.scatter_reduce(0, torch.tensor(places), v, name),
            x, values,
        )  # fmt: skip
    pooled = np.array([[[[4.0, 4.0], [7.0, 7.0]]]])
    indices = np.array([[[[5, 5], [9, 9]]]])
    assert_tangent_as_in_torch(
        lambda x: meta.max_unpool2d(x, meta.array(indices), 3, 1),
        lambda x: torch.nn.functional.max_unpool2d(x, torch.tensor(indices), 3, 1),
        pooled,
    )


@pytest.mark.parametrize("name", ["scatter_elements", "scatter_nd"])
def test_tangents_of_products_at_one_position(name: str) -> None:
    """torch has none: the derivative of x a b at position 0, where a is 0, and of x at position 1."""
    x, values = (meta.array(np.array(v)) for v in ([2.0, 3.0], [0.0, 5.0]))
    dx, dv = (meta.array(np.array(v)) for v in ([0.5, 7.0], [0.25, 1.0]))

    def product(x: Any, v: Any) -> Any:
        if name == "scatter_nd":
            return meta.scatter_nd(x, meta.array([[0, 0]]), v, "mul")
        return meta.scatter_elements(x, 0, meta.array([0, 0]), v, "mul")

    assert meta.autograd.jvp(product, (x, values), (dx, dv))[1].tolist() == [2.0 * 5.0 * 0.25, 7.0]


@pytest.mark.parametrize("upper", [False, True])
def test_tangents_of_a_factor_along_other_than_symmetric_matrices(upper: bool) -> None:
    a = RNG.normal(size=(2, 4, 4))
    assert_tangent_as_in_torch(
        lambda x: meta.cholesky_ex(x, upper)[0],
        lambda x: torch.linalg.cholesky(x, upper=upper),
        a @ a.swapaxes(-1, -2) + np.eye(4),
    )


@pytest.mark.parametrize("highest", [1.0, 1e4])
def test_tangents_of_logarithms_of_sums(highest: float) -> None:
    x = RNG.normal(size=(2, 5))
    x[0] = highest
    assert_tangent_as_in_torch(lambda x: meta.logcumsumexp(x, 1), lambda x: torch.logcumsumexp(x, 1), x)
    empty = meta.autograd.jvp(lambda x: meta.logcumsumexp(x, 1, True), meta.array(x), meta.ones_like(meta.array(x)))[1]
    np.testing.assert_allclose(empty.numpy(), np.array([[0.0, 1, 1, 1, 1]] * 2), rtol=1e-12)
