"""Models in 8-bit integers: gradients of the rounding, calibration, training, conversion, ONNX, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import meta
from meta.errors import ArgumentError
from meta.frontend.onnx import from_onnx, to_onnx
from meta.quantize import FakeQuantized, QuantizedLayer, Range


def _network(seed: int = 0) -> meta.Model:
    meta.random.seed(seed)
    return meta.nn.Sequential(
        meta.nn.Conv2d(2, 6, 3, padding=1), meta.nn.BatchNorm2d(6), meta.nn.ReLU(), meta.nn.MaxPool2d(2),
        meta.nn.Conv2d(6, 8, 3, stride=2, groups=2, bias=False), meta.nn.ReLU(), meta.nn.Flatten(),
        meta.nn.Linear(32, 5),
    )  # fmt: skip


def _images(count: int = 8, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal((count, 2, 10, 10)).astype(np.float32)


@pytest.mark.parametrize(("shape", "zero_point"), [((), 3), ((4, 1), 0)])
def test_gradients_are_as_in_torch(shape: tuple[int, ...], zero_point: int) -> None:
    """Straight through the rounding, 0 outside, and the learned scale's."""
    generator = np.random.default_rng(1)
    x = generator.uniform(-3, 3, (4, 50)).astype(np.float32)
    scale = generator.uniform(0.1, 0.2, shape).astype(np.float32)
    dy = generator.standard_normal(x.shape).astype(np.float32)
    ours, step = meta.array(x), meta.array(scale)
    ours.requires_grad = step.requires_grad = True
    y = meta.fake_quantize(ours, step, zero_point, -8, 7)
    y.backward(meta.array(dy))
    theirs, steps = torch.tensor(x, requires_grad=True), torch.tensor(scale.ravel(), requires_grad=True)
    zeros = torch.full((steps.numel(),), float(zero_point))
    if shape:
        expected = torch._fake_quantize_learnable_per_channel_affine(theirs, steps, zeros, 0, -8, 7, 1.0)
    else:
        expected = torch._fake_quantize_learnable_per_tensor_affine(theirs, steps, zeros, -8, 7, 1.0)
    expected.backward(torch.tensor(dy))
    np.testing.assert_allclose(y.detach().numpy(), expected.detach().numpy(), rtol=1e-6)
    assert theirs.grad is not None
    assert steps.grad is not None
    np.testing.assert_array_equal(ours.grad.numpy(), theirs.grad.numpy())
    np.testing.assert_allclose(step.grad.numpy().ravel(), steps.grad.numpy(), rtol=1e-4)


def test_ptq_rounds_by_the_ranges_of_the_batches() -> None:
    model, x = _network().infer_mode(), meta.array(_images())
    expected = model(x).numpy()
    small = meta.quantize.ptq(model, [x[:4], (x[4:],)])
    assert small is model
    layers = [part for _, part in small.models() if isinstance(part, QuantizedLayer)]
    assert [layer.layer.w.dtype for layer in layers] == ["int8"] * 3
    assert not any(parameter.requires_grad for layer in layers for parameter in layer.parameters())
    first = layers[0]
    low, high = x.numpy().min(), x.numpy().max()
    np.testing.assert_allclose(first.scale.item(), (high - low) / 255, rtol=1e-6)
    assert first.zero_point.item() == round(-low / first.scale.item())
    error = np.abs(small(x).numpy() - expected).max()
    assert 0 < error < 0.02 * np.abs(expected).max()
    compiled = meta.vm.compile(small)
    np.testing.assert_allclose(compiled(x).numpy(), small(x).numpy(), atol=1e-5)


def test_percentiles_leave_out_rare_values() -> None:
    values = np.ones((1, 1000), np.float32)
    values[0, 0] = 1000.0
    model = meta.nn.Sequential(meta.nn.Linear(1000, 2)).infer_mode()
    exact = meta.quantize.ptq(model, [meta.array(values)])
    assert exact[0].scale.item() == pytest.approx(1000 / 255)
    model = meta.nn.Sequential(meta.nn.Linear(1000, 2)).infer_mode()
    batches = [meta.array(values), meta.array(values * 3)]
    assert meta.quantize.ptq(model, batches, percentile=99.0)[0].scale.item() == pytest.approx(2 / 255)


@pytest.mark.parametrize("compiled", [False, True])
def test_qat_trains_and_converts(compiled: bool) -> None:
    model = meta.quantize.qat(_network())
    assert all(part.training for _, part in model.models())
    step = meta.optim.TrainStep(model, meta.optim.SGD(model, lr=0.05), meta.cross_entropy)
    step = meta.vm.compile(step) if compiled else step
    x, labels = meta.array(_images()), meta.array(np.arange(8) % 5)
    losses = [step(x, labels).item() for _ in range(30)]
    assert losses[-1] < 0.5 * losses[0]
    assert model[0].range.batches.item() == 30
    rounded = model.infer_mode()(x).numpy()
    assert model[0].range.batches.item() == 30
    integers = meta.quantize.convert(model)
    np.testing.assert_allclose(integers(x).numpy(), rounded, rtol=1e-4, atol=1e-5)


def test_state_is_saved_and_loaded(tmp_path: Any) -> None:
    x = meta.array(_images())
    model = meta.quantize.ptq(_network(), [x])
    meta.save(tmp_path / "small.safetensors", model.state_dict())
    other = meta.quantize.ptq(_network(1), [x * 2])
    other.load_state_dict(meta.load(tmp_path / "small.safetensors"))
    np.testing.assert_array_equal(other(x).numpy(), model(x).numpy())
    trained = meta.quantize.qat(_network())
    assert {"0.weight", "7.bias"} <= trained.torch_state_dict().keys()


def test_onnx_has_qdq_nodes_that_onnxruntime_runs() -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    x = meta.array(_images())
    model = meta.quantize.ptq(_network(), [x])
    expected = model(x).numpy()
    written = to_onnx(model, x)
    kinds = [node.op_type for node in written.graph.node]
    assert kinds.count("QuantizeLinear") == 3
    assert kinds.count("DequantizeLinear") == 6
    stored = {t.name: t.data_type for t in written.graph.initializer}
    assert stored["layers.0.layer.w"] == 3  # int8
    session = onnxruntime.InferenceSession(written.SerializeToString(), providers=["CPUExecutionProvider"])
    (theirs,) = session.run(None, {"x": x.numpy()})
    step = float(np.abs(expected).max()) / 255  # engines may round a half the other way
    assert np.abs(theirs - expected).max() < step
    assert np.abs(from_onnx(written)(x).numpy() - expected).max() < step


def test_calibration_that_fails_changes_nothing() -> None:
    model, x = _network(), _images()
    expected = model.infer_mode()(meta.array(x)).numpy()
    model.train_mode()
    x[0, 0, 0, 0] = np.nan
    with pytest.raises(ArgumentError, match=r"\[ptq\] there are no batches; expected inputs of the model"):
        meta.quantize.ptq(model, [])
    with pytest.raises(ArgumentError, match=r"inputs of 'layers\.0' range from nan to nan; expected finite values"):
        meta.quantize.ptq(model, [meta.array(x)])
    with pytest.raises(ArgumentError, match=r"skip has 'head'; expected names of .*: layers\.0, layers\.4, layers\.7"):
        meta.quantize.ptq(model, [meta.array(x)], skip=("head",))
    with pytest.raises(ArgumentError, match="percentile is 10"):
        meta.quantize.ptq(model, [meta.array(x)], percentile=10)
    assert all(part.training for _, part in model.models())
    assert type(model[0]) is meta.nn.Conv2d
    np.testing.assert_array_equal(model.infer_mode()(meta.array(_images())).numpy(), expected)


def test_models_that_cannot_be_rounded_are_refused() -> None:
    with pytest.raises(ArgumentError, match=r"\[qat\] there is no layer to round"):
        meta.quantize.qat(meta.nn.ReLU())
    model = meta.quantize.qat(_network(), skip=("layers.7",))
    assert isinstance(model[0], FakeQuantized)
    assert type(model[7]) is meta.nn.Linear
    with pytest.raises(ArgumentError, match=r"\[convert\] no linear layer or convolution has seen data"):
        meta.quantize.convert(model)
    with pytest.raises(ArgumentError, match="all layers are rounded already"):
        meta.quantize.qat(model, skip=("layers.7",))
    linear = meta.nn.Linear(2, 2)
    with meta.no_grad():
        linear.w.update(linear.w * float("inf"))
    with pytest.raises(ArgumentError, match="'' has NaN or infinite weights"):
        meta.quantize.ptq(linear, [meta.ones((1, 2))])


def test_layers_that_no_batch_reaches_stay_floats() -> None:
    class Branches(meta.Model):
        def build(self) -> None:
            self.used, self.unused = meta.nn.Linear(2, 2), [meta.nn.Linear(2, 2)]

        def forward(self, x: Any) -> Any:
            return self.used(x)

    model = meta.quantize.ptq(Branches(), [meta.ones((1, 2))])
    assert isinstance(model.used, QuantizedLayer)
    assert type(model.unused[0]) is meta.nn.Linear


def test_ranges_are_unions_or_means() -> None:
    union, mean, recent = Range(), Range(rate=0.0), Range(rate=0.5)
    for value in (1.0, -2.0, 6.0, 3.0):
        for each in (union, mean, recent):
            each(meta.array([value]))
    assert (union.low.item(), union.high.item()) == (-2.0, 6.0)
    assert (mean.low.item(), mean.high.item()) == pytest.approx((-0.5, 2.5))
    assert recent.high.item() == pytest.approx(((0.5 * 1 + 0) * 0.5 + 3) * 0.5 + 1.5)
    assert [x.item() for x in Range().step()] == [1.0, 0.0]
