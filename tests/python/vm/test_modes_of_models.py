"""Programs are kept for each mode of the models that they were traced through."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meta
from meta import nn
from meta.vm import executor as executors


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of executors, one for each program that is traced or compiled."""
    seen: list[str] = []
    for method in ("_trace", "_compile"):
        original = getattr(executors.Executor, method)

        def noted(self: Any, *args: Any, method: str = method, original: Any = original, **options: Any) -> Any:
            seen.append(method)
            return original(self, *args, **options)

        monkeypatch.setattr(executors.Executor, method, noted)
    return seen


class Net(meta.Model):
    def build(self) -> None:
        self.first, self.norm, self.drop = nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5)

    def forward(self, x: Any) -> Any:
        return self.drop(self.norm(self.first(x)))


def test_training_and_evaluation_take_turns(compilations: list[str]) -> None:
    meta.random.seed(0)
    model, other = Net(), nn.Dropout(0.5)
    step = meta.vm.compile(meta.optim.TrainStep(model, meta.optim.SGD(model, 0.1), meta.mse_loss))
    evaluate = meta.vm.compile(model)
    x, target = meta.random.normal((3, 4)), meta.zeros((3, 4))
    step(x, target)
    evaluate(x)  # in train mode
    model.infer_mode()
    evaluate(x)
    compiled = len(compilations)
    for _ in range(2):
        model.train_mode()
        other.infer_mode()
        before = model.first.w.detach().numpy().copy()
        step(x, target)
        assert np.abs(model.first.w.detach().numpy() - before).max() > 0
        other.train_mode()
        model.infer_mode()
        expected = model(x)
        np.testing.assert_allclose(evaluate(x).numpy(), expected.numpy(), rtol=1e-5, atol=1e-6)
    assert len(compilations) == compiled


@pytest.mark.parametrize("read", ["called", "asked", "assigned", "attribute"])
def test_modes_decide_what_runs(read: str, compilations: list[str]) -> None:
    model = nn.Dropout(1.0)

    def function(x: Any) -> Any:
        if read == "attribute":
            return model.training, x * 1.0
        return model(x) if read == "called" else x * (0.0 if model.training else 1.0)

    def switch(training: bool) -> None:
        if read == "assigned":
            model.training = training
        else:
            model._set_mode(training, True)

    run = meta.vm.compile(meta.trace(function))
    for training in (True, False, True, False):
        switch(training)
        result = run(meta.ones((2,)))
        if read == "attribute":
            assert result[0] is training
        else:
            assert result.tolist() == ([0.0, 0.0] if training else [1.0, 1.0])
    assert compilations.count("_trace") == compilations.count("_compile") == 2


def test_frozen_parameters_count_as_a_mode() -> None:
    """A step that was traced before does not go on training a model in inference mode."""
    model = nn.Linear(2, 1)
    step = meta.vm.compile(meta.optim.TrainStep(lambda x: model(x).sum(), meta.optim.SGD(model, 0.1)))
    step(meta.ones((1, 2)))
    model.infer_mode()
    with pytest.raises(meta.errors.GradientError):
        step(meta.ones((1, 2)))
    model.train_mode()
    step(meta.ones((1, 2)))
    model.b.requires_grad = False
    model.infer_mode()
    model.train_mode()
    before = model.b.tolist()
    step(meta.ones((1, 2)))
    assert model.b.tolist() == before


def test_a_changed_model_is_traced_again(compilations: list[str]) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5))
    run = meta.vm.compile(model.infer_mode())
    run(meta.ones((1, 2)))
    model.train_mode()
    model.layers[0] = nn.Linear(2, 2)
    model.infer_mode()
    np.testing.assert_allclose(run(meta.ones((1, 2))).numpy(), model(meta.ones((1, 2))).numpy(), rtol=1e-6)
    assert compilations.count("_trace") == 2
