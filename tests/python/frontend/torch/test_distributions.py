"""Programs that draw from torch's distributions: numbers of the same distribution, and their gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import distributions, nn

import meta
from meta.frontend.torch import from_exported

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
