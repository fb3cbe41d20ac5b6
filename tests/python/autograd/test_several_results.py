"""Gradients of operators with several results: constants among them, results without a gradient, retained graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import meta
from meta.errors import GradientError
from meta.ir.type import TupleType
from meta.schema import Arg, Schema, Tensor
from meta.testing import check


def leaf(*shape: int) -> meta.NDArray:
    return meta.array(
        np.random.default_rng(0).permutation(np.prod(shape)).reshape(shape) / 8.0, "float32", requires_grad=True
    )


VALUES_AND_INDICES: dict[str, tuple[tuple[int, ...], Callable[[Any], Any], Callable[[Any], Any]]] = {
    "max_pool2d": (
        (1, 2, 4, 4),
        lambda x: meta.max_pool2d_with_indices(x, 2),
        lambda t: torch.nn.functional.max_pool2d(t, 2, return_indices=True),
    ),
    "adaptive_max_pool1d": (
        (2, 1, 6),
        lambda x: meta.adaptive_max_pool1d_with_indices(x, 4),
        lambda t: torch.nn.functional.adaptive_max_pool1d(t, 4, return_indices=True),
    ),
    "topk": ((3, 5), lambda x: meta.topk(x, 2), lambda t: torch.topk(t, 2)),
}
"""Name -> shape of x, the call, the same of torch."""


@pytest.fixture(params=VALUES_AND_INDICES)
def case(request: pytest.FixtureRequest) -> tuple[meta.NDArray, torch.Tensor, Any, Any]:
    """x, its copy in torch, the results, those of torch."""
    shape, function, reference = VALUES_AND_INDICES[request.param]
    x = leaf(*shape)
    t = torch.tensor(x.detach().numpy(), requires_grad=True)
    return x, t, function(x), reference(t)


def test_indices_are_constants(case: Any) -> None:
    x, _, (values, indices), _ = case
    assert values.requires_grad
    assert not indices.requires_grad
    assert indices.is_leaf
    with pytest.raises(GradientError, match="the tensor does not require grad"):
        indices.backward(meta.ones(indices.shape, dtype=indices.dtype))
    (dx,) = meta.autograd.grad(values.sum(), x, create_graph=True)
    assert not dx.requires_grad  # depends on the indices only


def test_gradient_of_a_retained_graph(case: Any) -> None:
    x, t, (values, _), (expected, _) = case
    dy = np.random.default_rng(1).standard_normal(values.shape).astype("float32")
    for retain in True, False:
        values.backward(meta.array(dy), retain_graph=retain)
        expected.backward(torch.tensor(dy), retain_graph=retain)
        check(x.grad, t.grad)
    with pytest.raises(GradientError, match="the graph was freed"):
        values.backward(meta.array(dy))


def test_second_order(case: Any) -> None:
    x, t, (values, _), (expected, _) = case
    (dx,) = meta.autograd.grad((values**3).sum(), x, create_graph=True)
    (dt,) = torch.autograd.grad((expected**3).sum(), t, create_graph=True)
    check(dx.detach(), dt.detach(), rtol=1e-5)
    (ddx,) = meta.autograd.grad((dx * dx).sum(), x)
    (ddt,) = torch.autograd.grad((dt * dt).sum(), t)
    check(ddx, ddt, rtol=1e-5, atol=1e-5)


def test_indices_written_before_backward(case: Any) -> None:
    _, _, (values, indices), _ = case
    indices += 1
    with pytest.raises(GradientError, match="that its gradient needs was modified in place"):
        values.sum().backward()


def test_softmax_written_before_backward() -> None:
    y = meta.softmax(leaf(2, 3))
    with meta.no_grad():
        y += 1
    with pytest.raises(GradientError, match=r"modified in place \(version 1, saved at 0\)"):
        y.sum().backward()


@pytest.mark.usefixtures("remove_operators")
def test_a_constant_result_passes_no_gradient_on() -> None:
    """y = x * scale, where the operator returns the scale, too, and declares that no gradient flows from it."""

    @meta.define(
        "scaled",
        Schema("scaled", Arg("x", Tensor)),
        gradient={"x": "dy.0 * y.1", "output_differentiability": [True, False]},
        outputs=("y", "scale"),
        reference=lambda x: (x * 3.0, np.full_like(x, 3.0)),
    )
    def scaled(x: Any) -> Any:
        return TupleType((x, x))

    x = leaf(3)
    y, scale = scaled(x)
    assert not scale.requires_grad
    (dx,) = meta.autograd.grad(y.sum(), x, create_graph=True)
    check(dx, np.full(3, 3.0))
    assert not dx.requires_grad
    (dx,) = meta.autograd.grad((y * y).sum(), x, create_graph=True)
    (ddx,) = meta.autograd.grad(dx.sum(), x)
    check(ddx, np.full(3, 18.0))


@pytest.mark.parametrize("used", [(0,), (1,), (2,), (0, 2), (0, 1, 2)])
def test_results_of_split_without_a_gradient(used: tuple[int, ...]) -> None:
    x = leaf(2, 6)
    parts = meta.split(x, 3, axis=1)
    meta.autograd.backward([parts[i] for i in used], [meta.full((2, 2), float(i + 1)) for i in used])
    expected = np.zeros((2, 6))
    for i in used:
        expected[:, 2 * i : 2 * i + 2] = i + 1
    check(x.grad, expected)


@pytest.mark.parametrize("used", [(0,), (3,), (0, 3), (3, 4), (0, 3, 4)])
def test_results_of_batch_norm_without_a_gradient(used: tuple[int, ...]) -> None:
    """The results y, mean and 1 / standard deviation of a batch have gradients, the new statistics have not."""
    x = leaf(3, 2, 2, 2)
    w, b = (meta.array(v, "float32") for v in ([1.5, 0.5], [0.25, -1.0]))
    results = meta.batch_norm_train(x, meta.zeros((2,)), meta.ones((2,)), w, b)
    assert [y.requires_grad for y in results] == [True, False, False, True, True]
    t = torch.tensor(x.detach().numpy(), dtype=torch.float64, requires_grad=True)
    mean = t.mean((0, 2, 3))
    invstd = (t.var((0, 2, 3), correction=0) + 1e-5).rsqrt()
    y = (t - mean.reshape(2, 1, 1)) * (invstd * torch.tensor([1.5, 0.5])).reshape(2, 1, 1)
    expected = {0: y, 3: mean, 4: invstd}
    dys = {i: np.random.default_rng(i).standard_normal(results[i].shape).astype("float32") for i in used}
    meta.autograd.backward([results[i] for i in used], [meta.array(dys[i]) for i in used])
    torch.autograd.backward([expected[i] for i in used], [torch.tensor(dys[i], dtype=torch.float64) for i in used])
    check(x.grad, t.grad, rtol=1e-4, atol=1e-5)
