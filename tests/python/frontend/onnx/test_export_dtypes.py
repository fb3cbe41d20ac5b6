"""Programs in dtypes that an operator of ONNX does not take: it computes in a wider one, or is refused by name."""

from __future__ import annotations

import numpy as np
import pytest

import meta
from meta.frontend.onnx import UnsupportedError, to_onnx

pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

BYTES = np.array([[1, 200], [7, 255]], "uint8")
SIGNED = np.array([[100, 2], [-3, 100]], "int8")
PLANE = np.array([[[[1, 5, 2**31 - 1, 2**31 - 2], [3, -4, -(2**31), 0]]]], "int32")
LONG = np.array([[[[2**60 + 1, 2**60], [-1, 0]]]])
HALF = np.array([[1.0, np.inf], [-np.inf, np.nan]], "float16")
FLAGS = np.array([[True, False], [True, True]])
NUMBERS = np.array([[0.25, -1.5], [3.0, 0.75]], "float32")


def in_bfloat16(function):
    return lambda x: meta.cast(function(meta.cast(x, "bfloat16")), "float32")


CASES = {
    "relu of bytes": (meta.relu, BYTES, BYTES),
    "negative of bytes": (meta.negative, BYTES, np.array([[255, 56], [249, 1]], "uint8")),
    "matmul of bytes": (lambda x: meta.matmul(x, x), SIGNED, np.array([[10, -112], [-88, 10]], "int8")),
    "sum of bytes": (lambda x: meta.sum_to(x, (1, 2)), SIGNED, np.array([[97, 102]], "int8")),
    "floor_divide of bytes": (lambda x: meta.floor_divide(x, 7), SIGNED, np.array([[14, 0], [-1, 14]], "int8")),
    "mod of bytes": (lambda x: meta.mod(x, 7), SIGNED, np.array([[2, 2], [4, 2]], "int8")),
    "pool of integers": (lambda x: meta.max_pool2d(x, 2), PLANE, np.array([[[[5, 2**31 - 1]]]], "int32")),
    "pool of all": (lambda x: meta.adaptive_max_pool2d(x, 1), LONG, np.array([[[[2**60 + 1]]]])),
    "isinf of halves": (meta.isinf, HALF, np.isinf(HALF)),
    "isfinite of halves": (meta.isfinite, HALF, np.isfinite(HALF)),
    "isfinite of bytes": (meta.isfinite, BYTES, np.ones_like(FLAGS)),
    "log1p of bytes": (meta.log1p, BYTES, np.log1p(BYTES.astype("float32"))),
    "add of flags": (lambda x: x + x.transpose((1, 0)), FLAGS, FLAGS | FLAGS.T),
    "multiply of flags": (lambda x: x * x.transpose((1, 0)), FLAGS, FLAGS & FLAGS.T),
    "minimum of flags": (lambda x: meta.minimum(x, x.transpose((1, 0))), FLAGS, FLAGS & FLAGS.T),
    "max of flags": (lambda x: meta.max(x, 0), FLAGS, np.array([True, True])),
    "min of flags": (lambda x: meta.min(x, 0), FLAGS, np.array([True, False])),
    "sine in bfloat16": (in_bfloat16(meta.sin), NUMBERS, np.sin(NUMBERS)),
    "sort in bfloat16": (in_bfloat16(lambda x: meta.sort(x, 1)), NUMBERS, np.sort(NUMBERS, 1)),
    "hardshrink in bfloat16": (in_bfloat16(meta.hardshrink), NUMBERS, np.where(abs(NUMBERS) > 0.5, NUMBERS, 0)),
}  # fmt: skip


@pytest.mark.parametrize("opset", [18, 21])
def test_dtypes_that_nodes_lack(opset):
    functions, inputs, expected = zip(*CASES.values(), strict=True)
    program = meta.trace(lambda arrays: [f(x) for f, x in zip(functions, arrays, strict=True)])
    model = to_onnx(program, list(inputs), opset=opset)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    results = session.run(None, {i.name: x for i, x in zip(model.graph.input, inputs, strict=True)})
    for name, result, truth in zip(CASES, results, expected, strict=True):
        assert result.dtype == truth.dtype, name
        rtol = 1e-2 if "bfloat16" in name else 1e-6 if result.dtype.kind == "f" else 0
        np.testing.assert_allclose(result, truth, rtol=rtol, err_msg=name)


def test_nodes_take_dtypes_as_they_are():
    """No casts where the operator takes the dtype."""
    model = to_onnx(meta.trace(lambda x: meta.sin(meta.relu(x))), np.ones(3, "float16"), opset=18)
    assert [node.op_type for node in model.graph.node] == ["Relu", "Sin", "Identity"]


@pytest.mark.parametrize("loop", [False, True])
def test_dtypes_in_branches_and_loops(loop):
    """The dtypes of values from outside are known in a body."""

    @meta.trace
    def program(x, y):
        if loop:
            return meta.scan(lambda carry, each: (meta.relu(carry + each), meta.negative(y)), y, x)
        return meta.cond(x.sum() > 0, lambda: meta.negative(y), lambda: meta.relu(y))

    x, y = np.array([[1, 2], [3, 250]], "uint8"), np.array([5, 6], "uint8")
    model = to_onnx(program, x, y)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    results = session.run(None, {"x": x, "y": y})
    expected = (
        [np.array([9, 2], "uint8"), np.array([[251, 250]] * 2, "uint8")] if loop else [np.array([251, 250], "uint8")]
    )
    for result, truth in zip(results, expected, strict=True):
        assert result.dtype == truth.dtype
        assert (result == truth).all()


def test_a_dtype_without_a_wider_one_is_refused():
    x = np.ones((2,), "int64")
    with pytest.raises(UnsupportedError, match=r"(?s)opset 23: power \(1\).*x1=Tensor\[\(2,\), \"int64\"\]"):
        to_onnx(meta.trace(lambda x: meta.power(x, x)), x)


@pytest.mark.parametrize("function", [lambda x: meta.max_pool2d(x, 2), lambda x: meta.adaptive_max_pool2d(x, (2, 3))])
def test_pooling_without_a_node_is_composed(function):
    x = np.arange(20, dtype="int64").reshape((1, 1, 4, 5))
    model = to_onnx(meta.trace(function), x)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], function(meta.array(x)).numpy())
