"""Models and training steps: compiled steps agree with eager ones and update the same arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meta
from meta.optim.sgd import with_sgd

from .programs import assert_same, randoms


class Net(meta.Model):
    """Convolution, batch norm, pooling, dropout: parameters, buffers and random keys."""

    def build(self) -> None:
        self.conv = meta.nn.Conv2d(1, 4, 3, padding=1)
        self.norm = meta.nn.BatchNorm2d(4)
        self.drop = meta.nn.Dropout(0.3)
        self.last = meta.nn.Linear(4 * 4 * 4, 10)

    def forward(self, x: Any) -> Any:
        h = meta.max_pool2d(meta.relu(self.norm(self.conv(x))), 2)
        return self.last(self.drop(h.reshape((h.shape[0], -1))))


def net() -> Net:
    meta.random.seed(1)
    return Net()


def batch(seed: int = 0) -> tuple[Any, Any]:
    labels = np.random.default_rng(seed).integers(0, 10, 6)
    return randoms((6, 1, 8, 8), seed=seed)[0], meta.array(labels)


def test_training_steps_agree_with_eager_execution() -> None:
    eager_model, vm_model = net(), net()
    eager = with_sgd(0.05, 0.9)(eager_model, loss=meta.cross_entropy)
    step = with_sgd(0.05, 0.9)(vm_model, loss=meta.cross_entropy)
    compiled = meta.vm.compile(step)
    addresses = [x.detach().numpy().ctypes.data for _, x in step.named_state()]
    for seed in range(5):
        losses = []
        for run in (eager, compiled):
            meta.random.seed(seed)
            losses.append(run(*batch(seed)).item())
        assert losses[0] == pytest.approx(losses[1], abs=1e-5)
    for (name, a), (other, b) in zip(eager.named_state(), step.named_state(), strict=True):
        assert name == other
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), atol=1e-4, err_msg=name)
    assert [x.detach().numpy().ctypes.data for _, x in step.named_state()] == addresses


def test_calls_draw_new_random_numbers_and_seeds_repeat_them() -> None:
    executor = meta.vm.compile(meta.trace(lambda x: x + meta.random.normal((3,)) * meta.random.uniform((3,))))
    (x,) = randoms((3,))
    meta.random.seed(5)
    first, second = executor(x).numpy(), executor(x).numpy()
    meta.random.seed(5)
    assert (first != second).any()
    np.testing.assert_array_equal(executor(x).numpy(), first)
    assert executor.profile(x, repeat=1).kernels


def test_recompiles_changed_models() -> None:
    model = net()
    executor = meta.vm.compile(model)
    x, _ = batch()
    model.infer_mode()
    inferred = executor(x)
    assert_same(inferred, model(x).detach(), rtol=1e-4, atol=1e-5)
    model.last.b = meta.array(np.full(10, 3.0, "float32"))
    assert_same(executor(x), model(x).detach(), rtol=1e-4, atol=1e-5)
    model.train_mode()
    assert abs(executor(x).detach().numpy() - inferred.numpy()).max() > 0


def test_does_not_recompile_for_a_new_learning_rate() -> None:
    step = with_sgd(0.5)(net(), loss=meta.cross_entropy)
    executor = meta.vm.compile(step)
    images, labels = batch()
    program = executor.program(images, labels)
    step.optimizer.learning_rate = 0.0
    before = {name: x.detach().numpy().copy() for name, x in step.model.named_parameters()}
    executor(images, labels)
    assert executor.program(images, labels) is program
    for name, x in step.model.named_parameters():
        np.testing.assert_array_equal(x.detach().numpy(), before[name])


def test_nested_arguments_and_results() -> None:
    @meta.trace
    def function(pair: Any, *, scale: float = 2.0) -> Any:
        x, y = pair["x"], pair["y"]
        return {"sum": x + y, "both": (x * scale, [y])}

    executor = meta.vm.compile(function)
    x, y = randoms((2, 3), (2, 3))
    result = executor({"x": x, "y": y}, scale=3.0)
    assert list(result) == ["sum", "both"]
    assert_same(result["sum"], x + y)
    assert_same(result["both"][0], x * 3.0)
    assert isinstance(result["both"][1], list)
    assert_same(executor({"x": x, "y": y})["both"][0], x * 2.0)


def test_compiles_each_shape_once() -> None:
    executor = meta.vm.compile(meta.trace(lambda x: meta.softmax(x) * 2.0))
    for shape in ((2, 3), (4, 5), (2, 3)):
        (x,) = randoms(shape)
        assert_same(executor(x), meta.softmax(x) * 2.0)
    assert len(executor._runs) == 2


def test_memory_of_a_training_step_counts_its_state() -> None:
    step = with_sgd(0.1, 0.9)(net(), loss=meta.cross_entropy)
    report = meta.vm.compile(step).memory(*batch())
    assert report.state == sum(x.nbytes for _, x in step.named_state())
    assert report.outputs == 4
    assert report.intermediates > 0
