"""Large weights: read apart from protobuf, and memory that programs, models and their users share or not."""

from __future__ import annotations

import io
import random
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir
import pytest
from google.protobuf.message import DecodeError
from onnx import numpy_helper

import meta
from meta.errors import MetaError
from meta.frontend.onnx import OnnxError, from_onnx, load
from meta.frontend.onnx.weights import read_model
from scripts.fuzzing import mutate_bytes
from tests.python.frontend.onnx.models import parsed

BODY = "g (float[2, 200] x) => (float[2, 200] y, float[200, 200] z) { y = MatMul(x, w)  z = Identity(w) }"
W = np.arange(40_000, dtype="float32").reshape(200, 200)
X = np.ones((2, 200), "float32")


@pytest.fixture
def model() -> Any:
    model = parsed(BODY)
    model.graph.initializer.append(numpy_helper.from_array(W, "w"))
    return model


def _split(data: bytes) -> tuple[bytes, dict[str, npt.NDArray[Any]]]:
    return read_model(io.BytesIO(data), len(data))


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "uint64"])
def test_large_weights_are_read_apart(dtype: str) -> None:
    model = parsed(BODY)
    arrays = {"w": W.astype(dtype).repeat(4, 0), "small": np.ones(3, dtype)}
    model.graph.initializer.extend(numpy_helper.from_array(a, name) for name, a in arrays.items())
    rest, weights = _split(model.SerializeToString())
    assert list(weights) == ["w"]
    assert weights["w"].dtype == dtype
    assert (weights["w"] == arrays["w"]).all()
    assert len(rest) < 1000
    model.graph.initializer[0].ClearField("raw_data")
    assert onnx.ModelProto.FromString(rest) == model


def test_other_forms_are_left_to_protobuf(model: Any) -> None:
    weight = model.graph.initializer[0]
    values = onnx.TensorProto(name="v", data_type=1, dims=W.shape, float_data=W.ravel())
    flags = numpy_helper.from_array(np.ones(100_000, bool), "flags")
    outside = onnx.TensorProto(name="o", data_type=1, dims=W.shape, raw_data=W.tobytes(), data_location=1)
    for tensor in (values, flags, outside):
        weight.CopyFrom(tensor)
        data = model.SerializeToString()
        rest, weights = _split(data)
        assert weights == {}
        assert onnx.ModelProto.FromString(rest) == model


def test_contradictory_weights(model: Any, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    weight = model.graph.initializer[0]
    weight.dims[0] = 201
    path.write_bytes(model.SerializeToString())
    with pytest.raises(OnnxError, match=r"the data of initializer 'w', of shape .* cannot be read"):
        from_onnx(path)
    weight.dims[0] = 200
    model.graph.initializer.append(numpy_helper.from_array(W[:1], "w"))
    path.write_bytes(model.SerializeToString())
    with pytest.raises(OnnxError, match=r"model.onnx has two initializers 'w'; expected a distinct name for each"):
        from_onnx(path)


def test_mutated_models_are_read_as_protobuf_reads_them(model: Any) -> None:
    """Where protobuf reads the rest, it has what it reads of the whole, but for the weights."""
    small = parsed(BODY)
    small.graph.initializer.append(numpy_helper.from_array(np.zeros(1 << 14, "float32"), "w"))
    data, rng = small.SerializeToString(), random.Random(5)
    whole_models = 0
    for _ in range(300):
        changed = mutate_bytes(data, rng)
        rest, weights = _split(changed)
        try:
            whole = onnx.ModelProto.FromString(changed)
        except DecodeError:
            continue
        result = onnx.ModelProto.FromString(rest)
        for tensor in result.graph.initializer:
            if tensor.name in weights and not tensor.HasField("raw_data"):
                tensor.raw_data = weights[tensor.name].tobytes()
        assert result == whole
        whole_models += bool(weights)
    assert whole_models > 20


@pytest.mark.parametrize("kind", ["path", "proto", "ir"])
def test_no_memory_is_shared_with_the_source_or_results(kind: str, model: Any, tmp_path: Path) -> None:
    onnx.save(model, tmp_path / "model.onnx")
    mine = W.copy()
    source: Any = {"path": tmp_path / "model.onnx", "proto": model, "ir": onnx_ir.serde.deserialize_model(model)}[kind]
    if kind == "ir":
        source.graph.initializers["w"].const_value = onnx_ir.Tensor(mine, name="w")
    program, network, other = from_onnx(source), load(source), load(source)
    mine[:] = 0
    with meta.no_grad():
        network.w[:] = 0.0
    assert (other.w.detach().numpy() == W).all()
    program.interpret(X)[1][:] = 0.0
    for y, z in (program(X), program.interpret(X)):
        assert np.allclose(y.numpy(), X @ W)
        assert (z.numpy() == W).all()


def test_constants_are_copied(model: Any) -> None:
    mine = W.copy()
    program = from_onnx(model, {"w": mine})
    mine[:] = 0
    assert np.allclose(program(X)[0].numpy(), X @ W)


def test_products_read_transposed_weights_as_they_are() -> None:
    model = parsed("g (float[2, 3, 200] x) => (float[2, 3, 200] y) { t = Transpose<perm=[1, 0]>(w)  y = MatMul(x, t) }")
    model.graph.initializer.append(numpy_helper.from_array(W / 1000, "w"))
    program = from_onnx(model)
    assert "transpose(" not in str(program.module)
    x = np.ones((2, 3, 200), "float32")
    assert np.allclose(program(x).numpy(), x @ W.T / 1000, rtol=1e-5)
    assert np.allclose(program.interpret(x).numpy(), x @ W.T / 1000, rtol=1e-5)


def test_a_cut_file_is_an_error(model: Any, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString()[:-1000])
    with pytest.raises(MetaError, match=r"\[onnx\] model.onnx cannot be parsed"):
        from_onnx(path)
