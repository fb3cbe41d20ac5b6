"""Programs that draw from torch's distributions: numbers of the same distribution, and their gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import distributions, nn

import meta
from meta.frontend.torch import aten, from_exported

N = 40_000


class Draws(nn.Module):
    def forward(self, alpha: torch.Tensor, rate: torch.Tensor) -> Any:
        gamma = distributions.Gamma(alpha, rate, validate_args=False).rsample()
        beta = distributions.Beta(alpha, rate, validate_args=False).rsample()
        return gamma, torch.poisson(rate), beta, distributions.Chi2(alpha, validate_args=False).rsample()


@pytest.fixture(name="parameters")
def _parameters() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return tuple(0.5 + 4 * torch.rand(N, generator=generator) for _ in range(2))  # type: ignore[return-value]


def test_exported_programs_draw_from_torchs_distributions(parameters: tuple[torch.Tensor, torch.Tensor]) -> None:
    alpha, rate = parameters
    program = from_exported(torch.export.export(Draws(), parameters))
    meta.random.seed(1)
    results = [y.numpy().astype(np.float64) for y in program(*(meta.array(x.numpy()) for x in parameters))]
    total = alpha + rate
    means = alpha / rate, rate, alpha / total, alpha
    variances = alpha / rate**2, rate, alpha * rate / (total**2 * (total + 1)), 2 * alpha
    for result, mean, variance in zip(results, means, variances, strict=True):
        z = (result - mean.numpy()) / variance.sqrt().numpy()
        assert abs(z.mean()) < 5 / np.sqrt(N)
        assert abs(z.var() - 1) < 0.2


def test_compiled_functions_draw_torchs_numbers(parameters: tuple[torch.Tensor, torch.Tensor]) -> None:
    """The gradient is exact here; torch computes it by approximations."""

    def draw(alpha: torch.Tensor, rate: torch.Tensor) -> Any:
        return distributions.Gamma(alpha, rate, validate_args=False).rsample(), torch.poisson(rate)

    def run(function: Any) -> tuple[torch.Tensor, ...]:
        torch.manual_seed(3)
        alpha = parameters[0].clone().requires_grad_()
        gamma, counts = function(alpha, parameters[1])
        return gamma, counts, *torch.autograd.grad(gamma.sum(), alpha)

    gamma, counts, slope = run(torch.compile(draw, backend="meta"))
    expected = run(draw)
    assert torch.equal(gamma, expected[0])
    assert torch.equal(counts, expected[1])
    torch.testing.assert_close(slope, expected[2], rtol=2e-3, atol=0)


class Fills(nn.Module):
    def __init__(self, fill: Any) -> None:
        super().__init__()
        self.fill = fill

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fill(x.clone()) * 1.0


FILLS: dict[str, Any] = {
    "bernoulli": (lambda x: x.bernoulli_(), 0.5),
    "bernoulli p": (lambda x: x.bernoulli_(0.2), 0.2),
    "bernoulli of a tensor": (lambda x: x.bernoulli_(x / 10), 0.5),
    "normal": (lambda x: x.normal_(), 0.0),
    "normal std": (lambda x: x.normal_(std=2.0), 0.0),
    "normal mean": (lambda x: x.normal_(-3.0), -3.0),
    "normal both": (lambda x: x.normal_(7.0, 0.1), 7.0),
    "uniform": (lambda x: x.uniform_(), 0.5),
    "exponential": (lambda x: x.exponential_(), 1.0),
    "random to": (lambda x: x.random_(11), 5.0),
    "random": (lambda x: x.random_() / 2**24, 0.5),
}


@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # torch calls its own deprecated function
@pytest.mark.parametrize("decomposed", [False, True])
@pytest.mark.parametrize("name", FILLS)
def test_writes_of_random_numbers_ignore_the_values_before(name: str, decomposed: bool) -> None:
    """`x.normal_()` has no argument but x, which is the mean of `torch.normal(x)`."""
    fill, mean = FILLS[name]
    x = torch.full((N,), 5.0)
    program = torch.export.export(Fills(fill), (x,))
    meta.random.seed(1)
    result = from_exported(program.run_decompositions() if decomposed else program)(meta.array(x.numpy())).numpy()
    assert abs(result.mean() - mean) < 5 * result.std() / np.sqrt(N)
    assert result.std() > 0


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8", "bool"])
def test_random_integers_have_torchs_ranges(dtype: str) -> None:
    row = aten.find("random")
    assert row is not None
    meta.random.seed(1)
    x = meta.zeros((N,), dtype)
    for args in (), (2,), (0, None):
        result = row(x, *args)
        assert result.dtype == dtype
        expected = torch.zeros(N, dtype=getattr(torch, dtype)).random_(*args).double()
        values = torch.from_numpy(result.numpy().astype(np.float64))
        assert values.min() >= 0
        assert abs(values.mean() / expected.mean() - 1) < 0.03
    if dtype != "bool":
        assert set(np.unique(row(x, 3, 6).numpy().astype(int))) == {3, 4, 5}
        assert set(np.unique(row(x, **{"from": 3, "to": 6}).numpy().astype(int))) == {3, 4, 5}
