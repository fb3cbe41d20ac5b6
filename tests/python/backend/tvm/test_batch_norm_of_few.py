"""Batch norm over few numbers, whose gradient is a difference of nearly equal numbers."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import meta


def by_torch(tensors: list[torch.Tensor], dtype: torch.dtype) -> list[torch.Tensor]:
    x, w, b, dy = (t.to(dtype).requires_grad_() for t in tensors)
    y = torch.nn.functional.batch_norm(x, None, None, w, b, True)
    return [y.detach(), *torch.autograd.grad(y, (x, w, b), dy)]


def step(x: Any, w: Any, b: Any, dy: Any, mean: Any, variance: Any) -> Any:
    y, _, _, m, s = meta.batch_norm_train(x, mean, variance, w, b)
    return y, *meta.batch_norm_train_dxwb(dy, x, w, m, s)


@pytest.mark.parametrize(("shape", "mean"), [((2, 96, 1, 1), 0.0), ((2, 96, 1, 1), 5.0), ((3, 16, 4, 5), 5.0)])
def test_errors_are_at_most_twice_as_large_as_in_torch(shape: tuple[int, ...], mean: float) -> None:
    draw = torch.Generator().manual_seed(0)
    x, dy = (torch.randn(shape, generator=draw) for _ in range(2))
    w, b = (torch.randn(shape[1], generator=draw) for _ in range(2))
    tensors = [x + mean, w, b, dy]
    arguments = [*map(meta.from_dlpack, tensors), meta.zeros((shape[1],)), meta.ones((shape[1],))]
    actual = meta.vm.compile(meta.trace(step))(*arguments)
    exact, eager = by_torch(tensors, torch.float64), by_torch(tensors, torch.float32)
    for ours, theirs, truth in zip(actual, eager, exact, strict=True):
        own = (theirs - truth).square().mean().sqrt()
        assert (torch.from_dlpack(ours) - truth).square().mean().sqrt() <= 2 * own + 1e-9


def test_gradients_of_two_numbers_are_opposite() -> None:
    """The result depends on their difference only."""
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(1, 96, generator=draw)
    dy, w = torch.randn(2, 96, generator=draw) * 1e6, torch.randn(96, generator=draw)
    arguments = [*map(meta.from_dlpack, (torch.cat([x, -x]), w, w, dy)), meta.zeros((96,)), meta.ones((96,))]
    dx = meta.vm.compile(meta.trace(step))(*arguments)[1]
    assert (torch.from_dlpack(dx).sum(0) == 0).all()
