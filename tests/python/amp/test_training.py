"""Losses of training in mixed precision: 200 compiled steps against float32, with gradients too small for float16."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import meta

STEPS = 200
WEIGHT = 1e-5
"""Of the loss, as of one term among others. Gradients of 1e-8 are 0 in float16."""


@pytest.fixture(autouse=True)
def reference_dialect() -> None:
    """Unlike the other tests of this folder, these compile."""


def trained(dtype: str, scaler: Any = None) -> list[float]:
    """The losses, without their weight, of a regression on noisy results of another network."""
    meta.random.seed(0)
    generator = np.random.default_rng(0)
    w1, w2 = generator.standard_normal((16, 32)) / 4, generator.standard_normal((32, 32)) / 6
    inputs = generator.standard_normal((64, 16))
    results = np.tanh(inputs @ w1) @ w2 + 0.5 * generator.standard_normal((64, 32))
    x, target = (meta.array(part.astype(np.float32)) for part in (inputs, results))
    model = meta.nn.Sequential(meta.nn.Linear(16, 32), meta.tanh, meta.nn.Linear(32, 32))
    optimizer = meta.optim.SGD(model, 0.02 / WEIGHT, 0.9)

    def loss_of(x: Any, target: Any) -> Any:
        return meta.mse_loss(model(x).cast("float32"), target) * WEIGHT

    @meta.trace
    def step(x: Any, target: Any) -> Any:
        optimizer.zero_grad()
        if dtype == "float32":
            loss = loss_of(x, target)
        else:
            with meta.amp.autocast(dtype):
                loss = loss_of(x, target)
        (loss if scaler is None else scaler.scale(loss)).backward()
        if scaler is None:
            optimizer.step()
        else:
            scaler.step(optimizer)
        return loss

    run = meta.vm.compile(step)
    return [run(x, target).item() / WEIGHT for _ in range(STEPS)]


@pytest.fixture(scope="module")
def exact() -> list[float]:
    losses = trained("float32")
    assert losses[-1] < 0.6 * losses[0]
    return losses


def test_bfloat16_ends_within_2_percent_of_float32(exact: list[float]) -> None:
    assert trained("bfloat16")[-1] == pytest.approx(exact[-1], rel=0.02)


def test_float16_without_scaling_does_not_learn(exact: list[float]) -> None:
    losses = trained("float16")
    assert losses[-1] > 0.9 * losses[0] > 1.5 * exact[-1]


def test_float16_with_scaling_ends_within_2_percent_of_float32(exact: list[float]) -> None:
    scaler = meta.amp.GradScaler()
    assert trained("float16", scaler)[-1] == pytest.approx(exact[-1], rel=0.02)
    assert scaler.factor > 1.0


@pytest.mark.parametrize("compiled", [False, True])
def test_bfloat16_losses_follow_torch_autocast_for_100_steps(compiled: bool) -> None:
    """With float32 parameters and AdamW: both round products to bfloat16, at slightly different places."""
    torch.manual_seed(0)
    theirs: Any = torch.nn.Sequential(torch.nn.Linear(6, 12), torch.nn.Tanh(), torch.nn.Linear(12, 3))
    model = meta.nn.Sequential(meta.nn.Linear(6, 12), meta.nn.Tanh(), meta.nn.Linear(12, 3))
    model.load_torch_state_dict(theirs.state_dict())
    optimizer = meta.optim.AdamW(model, 0.01)
    reference: Any = torch.optim.AdamW(theirs.parameters(), 0.01)

    def step(x: Any, target: Any) -> Any:
        optimizer.zero_grad()
        with meta.amp.autocast("bfloat16"):
            loss = meta.cross_entropy(model(x), target)
        loss.backward()
        optimizer.step()
        return loss

    run = meta.vm.compile(meta.trace(step)) if compiled else step
    generator = np.random.default_rng(0)
    for _ in range(100):
        x = generator.standard_normal((8, 6)).astype(np.float32)
        target = (x[:, 0] > 0).astype(np.int64)
        reference.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            expected = torch.nn.functional.cross_entropy(theirs(torch.from_numpy(x)), torch.from_numpy(target))
        expected.backward()
        reference.step()
        assert run(meta.array(x), meta.array(target)).item() == pytest.approx(expected.item(), abs=0.01)
    assert {x.dtype for x in model.parameters()} == {"float32"}
