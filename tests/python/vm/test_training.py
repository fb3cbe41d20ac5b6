"""Models and training steps: compiled steps agree with eager ones and update the same arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meta
from meta._generated import limits
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


class _Doubled(meta.Function):
    """x * 2, whose gradient is written by hand."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2.0

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        return dy * 2.0


def test_scaled_steps_with_functions_and_accumulated_gradients_never_wait_for_the_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two calls accumulate into `.grad`, the third updates; the second batch of the last round overflows."""

    class Training:
        def __init__(self) -> None:
            meta.random.seed(2)
            self.model = meta.nn.Linear(3, 2)
            self.optimizer = meta.optim.SGD(self.model, learning_rate=0.1)
            self.scaler = meta.amp.GradScaler(scale=8.0, interval=2)

        def accumulate(self, x: Any) -> Any:
            loss = _Doubled.apply(meta.tanh(self.model(x))).sum()
            self.scaler.scale(loss).backward()
            return loss

        def update(self) -> Any:
            return self.scaler.step(self.optimizer)

    eager, compiled = Training(), Training()
    accumulate, step = meta.vm.compile(meta.trace(compiled.accumulate)), None

    @meta.trace
    def whole(x: Any) -> Any:
        compiled.optimizer.zero_grad()
        loss = compiled.accumulate(x)
        return loss, compiled.update()

    step = meta.vm.compile(whole)
    batches = [randoms((4, 3), seed=seed)[0] for seed in range(4)]
    batches[3] = batches[3] * meta.array([1.0, np.inf, 1.0])
    accumulate.program(batches[0])
    step.program(batches[0])
    for training in (eager, compiled):
        training.optimizer.zero_grad()
    for x in batches[:2]:
        eager.accumulate(x)
    sums = [p.grad.numpy().copy() for p in eager.optimizer.parameters]
    updated = []
    for x in batches[2:]:
        eager.optimizer.zero_grad()
        eager.accumulate(x)
        updated.append(bool(eager.update()))
    with monkeypatch.context() as patch:
        for name in ("item", "numpy", "tolist", "__bool__", "__float__", "__int__"):
            patch.setattr(meta.NDArray, name, lambda *_: pytest.fail("the host waited"))
        for x in batches[:2]:
            accumulate(x)
        gradients = [p.grad for p in compiled.optimizer.parameters]
        flags = [step(x)[1] for x in batches[2:]]
    for a, b in zip(gradients, sums, strict=True):
        np.testing.assert_allclose(a.numpy(), b, rtol=1e-5)
    assert [bool(f) for f in flags] == updated == [True, False]
    for program in (accumulate.program(batches[0]), step.program(batches[0])):
        assert program.source.static
        assert not program.source.calls_python
    assert compiled.scaler.factor == eager.scaler.factor == 4.0
    for a, b in zip(compiled.model.state_dict().values(), eager.model.state_dict().values(), strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-5)


def test_large_programs_run_as_bytecode(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:

    monkeypatch.setattr(limits, "COMPILED_BINDINGS", 0)
    monkeypatch.setenv("META_CACHE_DIR", str(tmp_path))
    weight = meta.array([[1.5, -2.0], [0.5, 3.0]])

    @meta.trace
    def step(x: Any) -> Any:
        y = meta.softmax(x @ weight, axis=0)
        weight.update(weight * 0.5 + 0.125)
        return y.sum(axis=1), y

    x, before = meta.array([[1.0, 2.0], [3.0, -1.0]]), weight.numpy().copy()
    results = meta.vm.compile(step)(x)
    expected = np.exp(x.numpy() @ before)
    expected /= expected.sum(axis=0)
    np.testing.assert_allclose(results[1].numpy(), expected, rtol=1e-5)
    np.testing.assert_allclose(results[0].numpy(), expected.sum(axis=1), rtol=1e-5)
    np.testing.assert_allclose(weight.numpy(), before * 0.5 + 0.125)


@pytest.mark.parametrize("fuse", [True, False])
def test_loops_run_as_bytecode(fuse: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """A loop runs a function of the machine in the middle of a call, to whose register that function returns."""

    monkeypatch.setattr(limits, "COMPILED_BINDINGS", 0)
    monkeypatch.setenv("META_CACHE_DIR", str(tmp_path))

    def power(x: Any) -> Any:
        return meta.scan(lambda c, _: (meta.tanh(c @ x), ()), x, length=3)[0] + 1.0

    x = meta.array([[0.5, -0.25], [1.0, 0.75]])
    np.testing.assert_allclose(meta.vm.compile(power, fuse=fuse)(x).numpy(), power(x).numpy(), rtol=1e-6)
