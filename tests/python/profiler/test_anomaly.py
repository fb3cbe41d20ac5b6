"""`meta.detect_anomaly`: the first NaN is named with its operator and the line, eagerly, in backward and compiled."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import meta
from meta import nn, optim
from meta.errors import AnomalyError
from tests.python.optim.training import Network, assert_equal_weights, batches


def line_of(function: Any, text: str) -> int:
    """The line of a function's source that contains the text."""
    lines, first = inspect.getsourcelines(function)
    return first + next(i for i, line in enumerate(lines) if text in line)


class Roots(meta.Model):
    def build(self) -> None:
        self.w = meta.array([1.0, 2.0, 3.0])

    def forward(self, x: Any) -> Any:
        y = self.w * x
        root = meta.sqrt(y)
        return meta.exp(root).sum()


def compiled(model: Any) -> Any:
    return meta.vm.compile(model)


@pytest.mark.parametrize("run", [lambda model: model, compiled], ids=["eager", "compiled"])
def test_names_the_operator_and_the_line(run: Any) -> None:
    model = Roots()
    call = run(model)
    good, bad = meta.array([1.0, 1.0, 4.0]), meta.array([1.0, -1.0, 4.0])
    place = rf"test_anomaly.py:{line_of(Roots.forward, 'meta.sqrt')}\)"
    with meta.detect_anomaly():
        assert call(good).item() == pytest.approx(model(good).item())
        with pytest.raises(AnomalyError, match=r"^\[sqrt\] the result has NaN in 1 elements, .*\(3,\).*" + place):
            call(bad)
        with pytest.raises(AnomalyError, match=r"^\[multiply\] argument 'x2' of shape \(3,\) has NaN in 2 elements"):
            call(meta.array([np.nan, 1.0, np.nan], "float32"))
    assert np.isnan(call(bad).item()), "outside of the block nothing is looked at"


@pytest.mark.parametrize("run", [lambda step: step, compiled], ids=["eager", "compiled"])
def test_names_the_operator_of_a_backward_pass(run: Any) -> None:
    """The root of 0 is finite, and its gradient times 0 is not."""
    x = meta.array([0.0, 1.0], requires_grad=True)

    def step() -> Any:
        loss = (meta.sqrt(x * 0.0) * 0.0).sum()
        loss.backward()
        return loss

    with meta.detect_anomaly(), pytest.raises(AnomalyError, match=r"the result has NaN .*test_anomaly.py:\d+\)"):
        run(step)()


@pytest.mark.parametrize("options", [{}, {"accumulate": 2}, {"scaler": 4.0}, {"clip_norm": 0.5}], ids=str)
def test_a_step_without_nan_computes_the_same(options: Any) -> None:
    models: list[Network] = []
    losses: list[list[float]] = []
    for watched in (False, True):
        model = Network()
        options = {**options, "scaler": meta.amp.GradScaler(4.0)} if "scaler" in options else options
        optimizer = optim.AdamW(model, lr=0.05)
        schedule = optim.LambdaLR(optimizer, lambda count: 1.0 if count < 2 else 0.5)
        step = optim.TrainStep(model, optimizer, meta.cross_entropy, schedule=schedule, **options)
        run = meta.vm.compile(step)
        losses.append([])
        for i, (x, y) in enumerate(batches(6)):
            if watched and i % 2:
                with meta.detect_anomaly():
                    losses[-1].append(run(x, y).item())
            else:
                losses[-1].append(run(x, y).item())
        models.append(model)
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-9)
    assert_equal_weights(models[1], [x.detach().numpy() for x in models[0].parameters()], rtol=1e-7)


def test_a_step_that_goes_wrong_is_not_taken() -> None:
    model = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 1))

    def logarithm(out: Any, y: Any) -> Any:
        return meta.log(out * 0.0 - y).mean()

    run = meta.vm.compile(optim.TrainStep(model, optim.Adam(model), logarithm))
    before = {name: x.numpy().copy() for name, x in model.state_dict().items()}
    x = np.ones((3, 2), "float32")
    with meta.detect_anomaly():
        with pytest.raises(AnomalyError, match=rf"\[log\] .*test_anomaly.py:{line_of(logarithm, 'meta.log')}\)"):
            run(x, np.ones((3, 1), "float32"))
        for name, value in model.state_dict().items():
            np.testing.assert_array_equal(value.numpy(), before[name])
        run(x, -np.ones((3, 1), "float32"))
    assert any((value.numpy() != before[name]).any() for name, value in model.state_dict().items())


def test_gradients_flow_through_a_watched_program() -> None:
    model, twin = Roots(), Roots()
    x = meta.array([1.0, 2.0, 4.0])
    with meta.detect_anomaly():
        compiled(model)(x).backward()
    twin(x).backward()
    np.testing.assert_allclose(model.w.grad.numpy(), twin.w.grad.numpy(), rtol=1e-5)
