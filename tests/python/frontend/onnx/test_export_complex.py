"""Complex values as real tensors with their parts along a last axis, and Fourier transforms as DFT."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import meta
from meta.frontend.onnx import UnsupportedError, from_onnx, to_onnx
from tests.python.frontend.onnx.test_export import kinds, run

WEIGHT = np.random.default_rng(1).normal(size=(2, 6, 5, 2)).astype("float32").view("complex64")[..., 0]
PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "mixing of tokens": lambda x: meta.real(meta.fft.fftn(x, axes=(1, 2))),
    "a filter in frequencies": lambda x: meta.fft.irfft2(meta.fft.rfft2(x, norm="ortho") * meta.array(WEIGHT),
                                                         (6, 8), norm="ortho"),
    "odd sizes": lambda x: meta.fft.irfft(meta.fft.rfft(x[:, :, :7]), 7),
    "one point": lambda x: meta.fft.irfft(meta.fft.rfft(x[:, :1], axis=1), 1, axis=1),
    "an axis in the middle": lambda x: meta.fft.irfft(meta.fft.rfft(x, axis=1), 6, axis=1),
    "numbers and conjugates": lambda x: abs(meta.conj(meta.fft.ifft((meta.fft.fft(x) + 2.0) * (1 + 2j) - 3j))),
    "real by complex": lambda x: meta.imag(-x * (x + 1j) * 2.0 - x),
    "changes of shape": lambda x: meta.view_as_real(
        meta.broadcast_to(meta.transpose(meta.reshape(meta.polar(x, x), (2, 3, 16)), (2, 0, 1)), (2, 16, 2, 3))),
    "casts": lambda x: meta.real(meta.cast(meta.cast(meta.complex(x, 2 * x), "complex128"), "complex64")),
    "real operands": lambda x: meta.conj(meta.real(x)),
}  # fmt: skip


@pytest.mark.parametrize("opset", [18, 23])
@pytest.mark.parametrize("name", PROGRAMS)
def test_results_agree(name: str, opset: int) -> None:
    x = np.random.default_rng(0).normal(size=(2, 6, 8)).astype("float32")
    program = meta.trace(PROGRAMS[name])
    model = to_onnx(program, x, opset=opset)
    expected = program(meta.array(x)).numpy()
    np.testing.assert_allclose(run(model, x)[0], expected, rtol=1e-5, atol=2e-5)
    np.testing.assert_allclose(from_onnx(model).interpret(x).numpy(), expected, rtol=1e-5, atol=2e-5)


class Filter(meta.Model):
    def __init__(self) -> None:
        super().__init__()
        self.weight = meta.array(WEIGHT)

    @meta.trace
    def forward(self, x: Any) -> Any:
        return meta.fft.irfft2(meta.fft.rfft2(x) * self.weight, (6, 8))


def test_complex_parameters_are_initializers() -> None:
    x, model = np.ones((2, 6, 8), "float32"), Filter().infer_mode()
    written = to_onnx(model, x)
    assert {t.name: list(t.dims) for t in written.graph.initializer}["weight"] == [2, 6, 5, 2]
    np.testing.assert_allclose(run(written, x)[0], model(meta.array(x)).numpy(), atol=1e-5)


def test_branches_with_complex_results() -> None:
    @meta.trace
    def program(flag: Any, x: Any) -> Any:
        spectrum = meta.fft.fft(x)
        return meta.real(meta.cond(flag, lambda s: s * 2.0, lambda s: meta.conj(s) - 1.0, spectrum))

    x = np.arange(4, dtype="float32")
    model = to_onnx(program, np.array(True), x)
    assert "If" in kinds(model)
    for flag in (True, False):
        expected = program(meta.array(flag), meta.array(x)).numpy()
        np.testing.assert_allclose(run(model, np.array(flag), x)[0], expected, atol=1e-5)


def test_refusals_of_complex_calls() -> None:
    x = np.ones((2, 6), "float32")
    for function in (lambda x: meta.real(meta.exp(meta.fft.fft(x))), lambda x: meta.angle(meta.fft.fft(x))):
        with pytest.raises(UnsupportedError, match=r"has no expression in ONNX's opset 23: (exp|angle)"):
            to_onnx(meta.trace(function), x)
    with pytest.raises(UnsupportedError, match="fft_r2c"):
        to_onnx(meta.trace(lambda x: abs(meta.fft.rfft(x))), x, dynamic={"x": {1: "n"}})
