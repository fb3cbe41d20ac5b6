"""Networks from ONNX as models: parameters under the initializers' names, inputs by name, open sizes, training."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import numpy_helper

import meta
from meta.errors import ArgumentError
from meta.frontend.onnx import UndecidedError, from_onnx, load
from tests.python.frontend.onnx.models import check, expected, parsed

RNG = np.random.default_rng(0)


def network() -> Any:
    model = parsed("""g (float[batch, 2, 3, 3] x) => (float[batch, 4] y, float[batch, 2, 3, 3] h) {
        c = Conv<pads=[1, 1, 1, 1]>(x, kernel)  h = BatchNormalization(c, scale, shift, mean, var)  r = Relu(h)
        s = Shape(r)  n = Gather(s, zero)  rest = Constant<value_int=-1>()  a = Unsqueeze(n, axes)
        b = Unsqueeze(rest, axes)  shape = Concat<axis=0>(a, b)  f = Reshape(r, shape)
        y = Gemm<transB=1, alpha=0.5>(f, fc_weight, fc_bias)
    }""")
    arrays = {
        "kernel": RNG.standard_normal((2, 2, 3, 3)), "scale": RNG.standard_normal(2), "shift": RNG.standard_normal(2),
        "mean": RNG.standard_normal(2), "var": RNG.random(2) + 0.5, "fc_weight": RNG.standard_normal((4, 18)),
        "fc_bias": RNG.standard_normal(4),
    }  # fmt: skip
    model.graph.initializer.extend(numpy_helper.from_array(a.astype(np.float32), n) for n, a in arrays.items())
    model.graph.initializer.append(numpy_helper.from_array(np.array(0), "zero"))
    model.graph.initializer.append(numpy_helper.from_array(np.array([0]), "axes"))
    return model


@pytest.fixture(scope="module")
def model() -> Any:
    return network()


def test_open_sizes_are_symbolic_and_one_program_serves_them(model: Any) -> None:
    program = from_onnx(model)
    assert str(program.module.main.body.results[0].type) == 'Tensor[(batch, 4), "float32"]'
    for batch in (1, 3):
        check(program, model, RNG.standard_normal((batch, 2, 3, 3)).astype(np.float32))


def test_inputs_by_name_shapes_and_constants(model: Any) -> None:
    program = from_onnx(model, {"fc_bias": np.zeros(4, np.float32)}, shapes={"x": (2, 2, 3, 3)})
    assert program.module.main.params[0].type.shape == (2, 2, 3, 3)
    x = RNG.standard_normal((2, 2, 3, 3)).astype(np.float32)
    bias = numpy_helper.to_array(next(i for i in model.graph.initializer if i.name == "fc_bias"))
    np.testing.assert_allclose(program.interpret(x=x)[0].numpy() + bias, expected(model, x)[0], rtol=1e-4, atol=1e-5)
    with pytest.raises(ArgumentError, match=r"\[onnx\] there is no input 'z'; expected x"):
        program(z=x)
    with pytest.raises(ArgumentError, match=r"\[onnx\] input 'x' is missing; expected values for x"):
        program()
    with pytest.raises(ArgumentError, match=r"constants has 'fc_bia', which the model does not have; .*did you mean"):
        from_onnx(model, {"fc_bia": 0})


def test_a_network_trains(model: Any) -> None:
    net = load(model)
    names = {"kernel", "scale", "shift", "mean", "var", "fc_weight", "fc_bias"}
    assert set(net.state_dict()) == names
    assert {name for name, _ in net.named_parameters()} == names - {"mean", "var"}
    x = RNG.standard_normal((3, 2, 3, 3)).astype(np.float32)
    net.infer_mode()
    np.testing.assert_allclose(net(meta.array(x))[0].numpy(), expected(model, x)[0], rtol=1e-4, atol=1e-5)
    net.train_mode()
    before = net.state_dict()["mean"].numpy().copy()
    y, _ = net(meta.array(x))
    y.square().mean().backward()
    assert all(p.grad is not None for _, p in net.named_parameters())
    assert not np.allclose(before, net.state_dict()["mean"].numpy())


def test_a_shape_given_by_a_value_runs_node_by_node_unless_it_is_a_constant() -> None:
    model = parsed("g (float[2, 3] x, int64[n] shape) => (float[a, b] y) { y = Reshape(x, shape) }")
    program = from_onnx(model)
    assert "the Reshape that computes 'y': shape depends on the values of the model's inputs" in str(program.undecided)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    check(program, model, x, np.array([3, 2]))
    fixed = from_onnx(model, {"shape": np.array([6, -1])})
    assert fixed.inputs == ("x",)
    assert fixed.module.main.body.results[0].type.shape == (6, 1)
    with pytest.raises(UndecidedError):
        load(model)
