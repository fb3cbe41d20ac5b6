"""Quantised models of other systems: what readers make of their scales and zero points, and what they refuse."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest
import torch

import meta
from meta.errors import ArgumentError, MetaError
from meta.frontend.quantized import spread
from meta.frontend.torch import from_exported

importlib.import_module("torch.ao.quantization.fx._decomposed")  # defines torch.ops.quantized_decomposed
QD: Any = torch.ops.quantized_decomposed


class Rounded(torch.nn.Module):
    """A convolution and a linear layer of integers, as PT2E writes them."""

    def __init__(self, zero_point: int = 3, scale: float = 0.01) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.zero_point = zero_point
        for name, shape in (("w", (8, 3, 3, 3)), ("v", (5, 8))):
            self.register_buffer(name, torch.randint(-127, 128, shape, dtype=torch.int8, generator=generator))
        self.register_buffer("scales", torch.linspace(0.01, 0.02, 8) * (scale / 0.01))
        self.register_buffer("zeros", torch.zeros(8, dtype=torch.int64))
        self.bias = torch.nn.Parameter(torch.rand(8, generator=generator))

    def rounded(self, x: torch.Tensor, scale: float, low: int = -128) -> torch.Tensor:
        q = QD.quantize_per_tensor(x, scale, self.zero_point, low, 127, torch.int8)
        return QD.dequantize_per_tensor(q, scale, self.zero_point, low, 127, torch.int8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        w = QD.dequantize_per_channel(self.w, self.scales, self.zeros, 0, -127, 127, torch.int8)
        y = torch.relu(torch.conv2d(self.rounded(x, 0.02), w, self.bias, padding=1)).mean((2, 3))
        return torch.nn.functional.linear(
            self.rounded(y, 0.03, -100), QD.dequantize_per_tensor(self.v, 0.01, 0, -127, 127, torch.int8)
        )


def _exported(module: torch.nn.Module) -> tuple[Any, torch.Tensor]:
    x = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    return torch.export.export(module, (x,)), x


def test_exported_programs_of_torch() -> None:
    module = Rounded()
    program, x = _exported(module)
    model = from_exported(program)
    expected = module(x).detach().numpy()
    np.testing.assert_allclose(model(meta.array(x.numpy())).numpy(), expected, rtol=1e-5, atol=1e-5)
    executor = meta.vm.compile(model, constants=True)
    np.testing.assert_allclose(executor(meta.array(x.numpy())).numpy(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")  # torchao's own
def test_programs_that_torchao_quantised() -> None:
    pt2e = pytest.importorskip("torchao.quantization.pt2e.quantize_pt2e")
    x86 = importlib.import_module("torchao.quantization.pt2e.quantizer.x86_inductor_quantizer")
    layers = (torch.nn.Conv2d(3, 16, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(16 * 36, 4))
    program, x = _exported(torch.nn.Sequential(*layers).eval())
    quantizer = x86.X86InductorQuantizer().set_global(x86.get_default_x86_inductor_quantization_config())
    prepared = pt2e.prepare_pt2e(program.module(), quantizer)
    prepared(x)
    small = pt2e.convert_pt2e(prepared)
    model = from_exported(torch.export.export(small, (x,)))
    expected = small(x).detach().numpy()
    np.testing.assert_allclose(model(meta.array(x.numpy())).numpy(), expected, rtol=1e-4, atol=1e-5)


def test_numbers_that_torch_does_not_check() -> None:
    x = meta.ones((2, 3, 8, 8))
    with pytest.raises(MetaError, match=r"quantize_per_tensor.* zero_point is 200; expected -128 to 127"):
        from_exported(_exported(Rounded(200))[0])(x)
    with pytest.raises(MetaError, match=r"'scale' has the scale -0\.00999.*; expected positive finite scales"):
        from_exported(_exported(Rounded(scale=-0.01))[0])(x)


@pytest.mark.parametrize("scale", [0.0, -0.5, float("nan"), float("inf")])
@pytest.mark.parametrize("kind", ["QuantizeLinear", "DequantizeLinear"])
def test_scales_of_onnx(scale: float, kind: str) -> None:
    onnx = pytest.importorskip("onnx")
    from meta.frontend.onnx import from_onnx

    types = ("float", "uint8") if kind == "QuantizeLinear" else ("uint8", "float")
    model = onnx.parser.parse_model(f"""<ir_version: 9, opset_import: ["" : 19]>
        net ({types[0]}[4, 2] x) => ({types[1]}[4, 2] y) <float[2] s = {{1, 1}}, uint8[2] z = {{1, 2}}> {{
            y = {kind} <axis = 1> (x, s, z)
        }}""")
    model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(np.array([1, scale], np.float32), "s"))
    with pytest.raises(MetaError, match=rf"{kind}.* 'scale' has the scale {scale}; expected positive finite scales"):
        from_onnx(model)


def test_scales_and_zero_points_of_relay() -> None:
    from meta.frontend.relay import from_relay

    def module(call: str) -> str:
        return f'#[version = "0.0.5"]\ndef @main(%x: Tensor[(2, 3), int8]) {{ {call} }}'

    with pytest.raises(MetaError, match=r"'scale' has the scale 0\.0; expected positive finite scales"):
        from_relay(module("qnn.dequantize(%x, 0f, 3)"))
    with pytest.raises(MetaError, match="zero_point is 300; expected an integer from 0 to 255"):
        from_relay(module('qnn.quantize(cast(%x, dtype="float32"), 0.1f, 300, out_dtype="uint8")'))


def test_shapes_of_scales() -> None:
    x = meta.zeros((2, 3, 4), "int8")
    assert spread(0.5, x, 1) == 0.5
    assert spread(meta.ones((3,)), x, 1).shape == (1, 3, 1)
    assert spread(meta.ones((1,)), x, 1).shape == ()
    assert spread(meta.ones((2, 1, 4)), x, 1).shape == (2, 1, 4)
    with pytest.raises(MetaError, match=r"a scale or zero point of shape \(2, 3\)"):
        spread(meta.ones((2, 3)), x, 1)
    with pytest.raises(ArgumentError, match="positive finite scales"):
        meta.frontend.quantized.check_scale("reader", -1.0)
