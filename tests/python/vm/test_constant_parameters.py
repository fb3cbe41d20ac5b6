"""`compile(..., constants=True)`: parameters with the values that they had when the program was compiled."""

from __future__ import annotations

from typing import Any

import numpy as np

import meta


def _network() -> meta.Model:
    meta.random.seed(0)
    return meta.nn.Sequential(
        meta.nn.Conv2d(3, 8, 3, bias=False), meta.nn.BatchNorm2d(8), meta.nn.ReLU(), meta.nn.Flatten(),
        meta.nn.Linear(8 * 36, 4),
    )  # fmt: skip


def _images() -> Any:
    return meta.array(np.random.default_rng(0).standard_normal((2, 3, 8, 8)).astype(np.float32))


def test_arrays_that_are_only_read_are_constants() -> None:
    model, x = _network().infer_mode(), _images()
    executor = meta.vm.compile(model, constants=True)
    expected = model(x).numpy()
    np.testing.assert_allclose(executor(x).numpy(), expected, rtol=1e-5, atol=1e-6)
    assert executor.program(x).record.state == ()
    assert len(meta.vm.compile(model).program(x).record.state) == 7
    assert "batch_norm_infer" not in executor.ir(x)  # folded into the convolution
    with meta.no_grad():
        for parameter in model.parameters():
            parameter.update(parameter * 2.0)
    np.testing.assert_allclose(executor(x).numpy(), expected, rtol=1e-5, atol=1e-6)
    assert np.abs(model(x).numpy() - expected).max() > 0.1


def test_arrays_that_are_written_stay_state() -> None:
    model, x = _network(), _images()
    executor = meta.vm.compile(model, constants=True)
    names = [name for name, _ in executor.program(x).record.state]
    assert names == ["layers.1.running_mean", "layers.1.running_var"]
    twin = _network()
    for _ in range(2):
        np.testing.assert_allclose(executor(x).numpy(), twin(x).detach().numpy(), rtol=1e-4, atol=1e-5)
    state, expected = model.state_dict(), twin.state_dict()
    for name in names:
        np.testing.assert_allclose(state[name].numpy(), expected[name].numpy(), rtol=1e-5, atol=1e-6)


def test_functions_and_random_numbers() -> None:
    scale = meta.array([2.0, 3.0])
    executor = meta.vm.compile(lambda x: x * scale + 0 * meta.random.normal((2,)), constants=True)
    assert executor(meta.array([1.0, 1.0])).tolist() == [2.0, 3.0]
    scale.update(scale * 5.0)
    assert executor(meta.array([1.0, 1.0])).tolist() == [2.0, 3.0]
