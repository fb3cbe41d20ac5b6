"""Modules that Relax's own importers make, and its modules of layers, against the systems that they come from."""

from __future__ import annotations

import numpy as np
import pytest

import meta
from meta.backend.tvm import adapter as tvm
from meta.frontend.relax import from_relax, load

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")  # of the importers


@pytest.fixture(scope="module", autouse=True)
def relax():
    tvm.load()
    return tvm.relax


def test_a_module_of_layers():
    from tvm.relax.frontend import nn

    class Layers(nn.Module):
        def __init__(self):
            self.up = nn.Linear(6, 8)
            self.norm = nn.RMSNorm(8, axes=-1, bias=False)
            self.down = nn.Linear(8, 3, bias=False)

        def forward(self, x: nn.Tensor):
            return nn.op.softmax(self.down(self.norm(nn.op.silu(self.up(x)))), axis=-1)

    module, specs = Layers().export_tvm({"forward": {"x": nn.spec.Tensor(["batch", 6], "float32")}})
    rng = np.random.RandomState(0)
    params = {name: rng.randn(*map(int, p.shape)).astype("float32") for name, p in specs}
    network = load(module, params)
    assert set(network.state_dict()) == {name for name, _ in specs}
    x = rng.randn(4, 6).astype("float32")
    h = x @ params["up.weight"].T + params["up.bias"]
    h = h / (1 + np.exp(-h))
    h = h / np.sqrt((h**2).mean(-1, keepdims=True) + 1e-5) * params["norm.weight"]
    e = np.exp(h @ params["down.weight"].T)
    np.testing.assert_allclose(
        network(meta.array(x)).detach().numpy(), e / e.sum(-1, keepdims=True), rtol=1e-4, atol=1e-6
    )
    network(meta.array(x))[:, 0].sum().backward()
    assert dict(network.named_state())["up.weight"].grad is not None


def test_a_model_of_torch_through_relax():
    torch = pytest.importorskip("torch")
    from tvm.relax.frontend.torch import from_exported_program

    class Network(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = torch.nn.Conv2d(3, 4, 3, padding=1)
            self.norm = torch.nn.BatchNorm2d(4)
            self.attend = torch.nn.MultiheadAttention(4, 2, batch_first=True)
            self.head = torch.nn.Linear(4, 5)

        def forward(self, x):
            y = torch.nn.functional.max_pool2d(torch.relu(self.norm(self.conv(x))), 2)
            y = y.flatten(2).transpose(1, 2)
            return self.head(torch.nn.functional.gelu(self.attend(y, y, y)[0] + y).mean(1))

    torch.manual_seed(0)
    model = Network().eval()
    x = torch.randn(2, 3, 8, 8)
    with torch.no_grad():
        expected = model(x).numpy()
        module = from_exported_program(torch.export.export(model, (x,)), keep_params_as_input=True)
    network = load(module).infer_mode()
    assert len(network.state_dict()) > 6
    result = network(meta.from_dlpack(x))
    result = result[0] if isinstance(result, tuple) else result
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-4, atol=1e-5)


def test_a_model_in_onnx_through_relax():
    onnx = pytest.importorskip("onnx")
    from onnx.reference import ReferenceEvaluator
    from tvm.relax.frontend.onnx import from_onnx

    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 18]>
        net (float[batch, 3, 6] x) => (float[batch, a] y)
        <float[2, 6] w = {1, 0, 0, 1, 1, 1, 2, -1, 0, 0, 3, 1}, float[2] b = {0, -3}, int64[1] axes = {1}> {
            s = Softmax <axis = 2> (x)
            m = ReduceMean <keepdims = 0> (s, axes)
            g = Gemm <transB = 1> (m, w, b)
            r = Round (g)
            t = Tanh (g)
            y = Concat <axis = 1> (r, t)
        }
    """)
    x = np.random.RandomState(0).randn(4, 3, 6).astype("float32")
    (expected,) = ReferenceEvaluator(model).run(None, {"x": x})
    program = from_relax(from_onnx(model))
    np.testing.assert_allclose(meta.vm.compile(program)(x).numpy(), expected, rtol=1e-5, atol=1e-6)
