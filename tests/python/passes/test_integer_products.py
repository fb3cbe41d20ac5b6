"""Products of quantised numbers become products of bytes with equal results, from each reader and from layers of
meta.quantize; and stay as they are where bytes would not do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meta
from meta.backend.tvm.cpu import parse_target
from meta.backend.tvm.te.dots import operand_dtype
from meta.deploy.objects import kernel_objects
from meta.interpreter.run import run
from meta.modes import scoped
from meta.passes import standard
from meta.quantize import ptq

needs_instruction = pytest.mark.skipif(not operand_dtype(), reason="the CPU has no dot product of bytes")


def _numbers(shape: tuple[int, ...], dtype: str, seed: int = 0) -> Any:
    info = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(info.min, info.max, shape, dtype, endpoint=True)


def _text(function: Any, x: Any) -> str:
    return str(standard()(meta.trace(function).record(x).module))


def _check(function: Any, x: Any, *names: str) -> None:
    """`function`, whose weights are constants, becomes calls of these operators, and computes the same."""
    text, expected = _text(function, x), function(x).numpy()
    assert [name for name in ("conv2d_int8", "dense_int8") if f" = {name}(" in text] == sorted(names), text
    result = meta.vm.compile(meta.trace(function))(x).numpy()
    if expected.dtype.kind == "f":
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())
    else:
        assert np.abs(result.astype(int) - expected.astype(int)).max() <= (expected.dtype != np.int32)


@needs_instruction
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("weights", ["int8", "uint8"])
def test_floats_of_bytes(dtype: str, weights: str) -> None:
    """A scale for each channel, zero points of both operands, padding by the zero point, a bias and a rounding."""
    w = (_numbers((9, 5, 3, 2), "int8") // 2 + (64 if weights == "uint8" else 0)).astype(weights)
    scale = np.linspace(0.01, 0.02, 9, dtype=np.float32).reshape(9, 1, 1, 1)

    def function(x: Any) -> Any:
        kernel = meta.dequantize_linear(meta.array(w), meta.array(scale), 64 if weights == "uint8" else 0)
        y = meta.conv2d(meta.dequantize_linear(x, 0.05, 3), kernel, stride=(2, 1), padding=(1, 0, 2, 1))
        y = meta.relu(y + meta.arange(9, dtype="float32").reshape((9, 1, 1)))
        return meta.quantize_linear(y, 0.3, 7, "uint8")

    _check(function, meta.array(_numbers((2, 5, 8, 7), dtype)), "conv2d_int8")


@needs_instruction
def test_products_with_matrices() -> None:
    w, b = _numbers((20, 7), "int8"), np.arange(20, dtype=np.float32)

    def dense(x: Any) -> Any:
        rounded = meta.quantize_linear(x, 0.01, 4, "int8")
        return meta.dense(
            meta.dequantize_linear(rounded, 0.01, 4), meta.dequantize_linear(meta.array(w), 0.1), meta.array(b)
        )

    def matmul(x: Any) -> Any:
        scale = meta.array(np.linspace(0.01, 0.02, 20, dtype=np.float32))
        rounded = meta.quantize_linear(x, 0.01, 100, "uint8")
        return meta.matmul(meta.dequantize_linear(rounded, 0.01, 100), meta.dequantize_linear(meta.array(w.T), scale))

    x = meta.array(np.random.default_rng(0).standard_normal((2, 3, 7)).astype(np.float32))
    _check(dense, x, "dense_int8")
    _check(matmul, x, "dense_int8")


@needs_instruction
def test_integers_of_bytes() -> None:
    """Products in int32, as models of integers have them."""

    def function(x: Any) -> Any:
        wide = meta.cast(x, "int32") - 7
        return meta.conv2d(wide, meta.cast(meta.array(_numbers((17, 4, 3, 3), "int8")), "int32"), padding=1)

    _check(function, meta.array(_numbers((1, 4, 5, 5), "uint8")), "conv2d_int8")


@needs_instruction
def test_models_of_relay() -> None:
    from meta.frontend.relay import from_relay

    text = """#[version = "0.0.5"]
def @main(%x: Tensor[(1, 4, 8, 8), uint8], %w: Tensor[(16, 4, 3, 3), int8], %v: Tensor[(10, 16), int8]) {
  %0 = qnn.conv2d(%x, %w, 12, 0, 0.1f, 0.2f, padding=[1, 1, 1, 1], channels=16, kernel_size=[3, 3], out_dtype="int32");
  %1 = qnn.requantize(%0, 0.02f, 0, 0.5f, 3, out_dtype="uint8");
  %2 = nn.global_avg_pool2d(cast(%1, dtype="int32"));
  %3 = cast(nn.batch_flatten(%2), dtype="uint8");
  qnn.dense(%3, %v, 3, 0, 0.5f, 0.1f, units=10, out_dtype="int32")
}"""
    params = {"w": _numbers((16, 4, 3, 3), "int8"), "v": _numbers((10, 16), "int8", 1)}
    module = from_relay(text, params)
    x = meta.array(_numbers((1, 4, 8, 8), "uint8"))
    executor = meta.vm.compile(module)
    np.testing.assert_array_equal(executor(x).numpy(), run(module, x).numpy())
    assert "conv2d_int8" in executor.explain(x)
    assert "dense_int8" in executor.explain(x)


@needs_instruction
@pytest.mark.parametrize("activations", ["QUInt8", "QInt8"])
def test_models_that_onnxruntime_quantised(tmp_path: Path, activations: str) -> None:
    pytest.importorskip("onnx")
    onnxruntime = pytest.importorskip("onnxruntime")
    from benchmarks.quantize import rounded, written
    from meta.frontend.onnx import from_onnx

    x = np.random.default_rng(1).standard_normal((2, 3, 12, 12)).astype(np.float32)
    written(tmp_path / "plain.onnx", x.shape, [(8, 3, 1), (20, 3, 2), (10, 0, 0)])
    rounded(tmp_path / "small.onnx", tmp_path / "plain.onnx", x, activations)
    session = onnxruntime.InferenceSession(str(tmp_path / "small.onnx"), providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, {"x": x})
    program = from_onnx(tmp_path / "small.onnx")
    step = float(np.abs(expected).max()) / 255
    assert np.abs(program(meta.array(x)).numpy() - expected).max() < 1.5 * step  # a half may be rounded the other way
    text = str(standard()(program.module))
    assert (text.count(" = conv2d_int8("), text.count(" = dense_int8(")) == (2, 1)


@needs_instruction
def test_layers_of_meta_with_constant_parameters() -> None:
    meta.random.seed(0)
    layers = (meta.nn.Conv2d(3, 16, 3), meta.nn.ReLU(), meta.nn.Flatten(), meta.nn.Linear(16 * 36, 4))
    x = meta.random.normal((2, 3, 8, 8))
    model = ptq(meta.nn.Sequential(*layers), [x])
    executor = meta.vm.compile(model, constants=True)
    np.testing.assert_allclose(executor(x).numpy(), model(x).numpy(), atol=1e-5)
    assert "conv2d_int8" in executor.explain(x)
    assert "dense_int8" in executor.explain(x)


def test_what_bytes_would_not_do() -> None:
    """Weights that are not constant or need 9 bits, groups, scales along other axes, inputs of 16 bits."""
    kernel = _numbers((8, 4, 3, 3), "int8")
    wide = np.ones((4, 1, 1), np.float32)

    def with_kernel(w: Any, scale: Any = 0.1, zero: int = 0, groups: int = 1) -> Any:
        return lambda x: meta.conv2d(
            meta.dequantize_linear(x, 0.1, 3), meta.dequantize_linear(meta.array(w), scale, zero), groups=groups
        )

    x = meta.array(_numbers((1, 4, 5, 5), "uint8"))
    assert "int8(" not in _text(with_kernel(kernel, zero=100), x)
    assert "int8(" not in _text(with_kernel(kernel[:, :2], groups=2), x)
    assert "int8(" not in _text(with_kernel(kernel, meta.array(wide)), x)
    assert "int8(" not in _text(with_kernel(kernel), x.cast("int16"))
    assert "int8(" not in _text(
        lambda x: meta.conv2d(meta.dequantize_linear(x, 0.1), meta.dequantize_linear(x, 0.1)), x
    )


@pytest.mark.parametrize(
    ("target", "cpu", "dtype"),
    [
        ("x86_64-linux-gnu", "znver4", "uint8"), ("x86_64-linux-gnu", "alderlake", "uint8"),
        ("x86_64-linux-gnu", "x86-64-v3", ""), ("aarch64-linux-gnu", "cortex-a76", "int8"),
        ("aarch64-linux-gnu", "cortex-a72", ""),
    ],
)  # fmt: skip
def test_cpus_have_instructions(target: str, cpu: str, dtype: str) -> None:
    with scoped(cpu=parse_target(target, cpu)):
        assert operand_dtype() == dtype


@pytest.mark.parametrize(("cpu", "expected"), [("cortex-a76", True), ("cortex-a72", False)])
def test_code_for_arm_has_dot_products(cpu: str, expected: bool) -> None:
    def function(x: Any) -> Any:
        return meta.conv2d_int8(x, meta.array(_numbers((2, 3, 3, 4, 8, 4), "int8")), 16, 3, 1, 1, 1, True)

    executor = meta.vm.compile(meta.trace(function), target="aarch64-linux-gnu", cpu=cpu)
    (code,) = kernel_objects(executor.program(meta.array(_numbers((1, 8, 8, 16), "int8")))).files
    words = np.frombuffer(code[: len(code) // 4 * 4], "<u4")
    by_element, by_vector = (words & 0xBFC0F400) == 0x0F80E000, (words & 0xBFE0FC00) == 0x0E809400
    assert bool(by_element.any() or by_vector.any()) == expected
