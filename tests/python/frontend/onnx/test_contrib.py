"""Operators that onnxruntime's optimiser writes, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from meta.frontend.onnx import from_onnx

_WIDTH, _HEADS = 16, 4


def _of(*shape: int, dtype: str = "float32") -> np.ndarray[Any, Any]:
    values = np.random.default_rng(sum(shape)).standard_normal(shape)
    return (values * 50).astype(dtype) if "int" in dtype else values.astype(dtype)


_X, _ROW = _of(2, 6, _WIDTH), _of(_WIDTH)
_ATTENTION = (_X, _of(_WIDTH, 3 * _WIDTH) / 4, _of(3 * _WIDTH))
_MASK = np.array([[1] * 6, [1] * 4 + [0] * 2], "int32")
_IDS = np.array([[1, 3, 2, 0, 4, 1], [0, 0, 1, 2, 2, 3]], "int32")
_TABLES = (_of(5, _WIDTH), _of(7, _WIDTH), _of(2, _WIDTH), _ROW, _of(_WIDTH) + 1)
CASES: dict[str, tuple[str, tuple[Any, ...], int, dict[str, Any]]] = {
    "Gelu": ("Gelu", (_X,), 1, {}),
    "BiasGelu": ("BiasGelu", (_X, _ROW), 1, {}),
    "FastGelu": ("FastGelu", (_X,), 1, {}),
    "FastGelu of a bias": ("FastGelu", (_X, _ROW), 1, {}),
    "QuickGelu": ("QuickGelu", (_X,), 1, {"alpha": 1.5}),
    "FusedMatMul": ("FusedMatMul", (_of(2, 3, 4), _of(2, 5, 4)), 1, {"alpha": 0.5, "transB": 1}),
    "FusedMatMul, rows first": ("FusedMatMul", (_of(3, 2, 4), _of(2, 4, 5)), 1, {"transBatchA": 1}),
    "MatMulInteger16": ("MatMulInteger16", (_of(3, 4, dtype="int16"), _of(4, 5, dtype="int16")), 1, {}),
    "SkipLayerNormalization": ("SkipLayerNormalization", (_X, _X[::-1].copy(), _ROW, _ROW + 1, _ROW - 1), 1, {}),
    "the sum as well": ("SkipLayerNormalization", (_X, _X[::-1].copy(), _ROW), 4, {"epsilon": 1e-3}),
    "SkipSimplifiedLayerNormalization": ("SkipSimplifiedLayerNormalization", (_X, _X + 1, _ROW), 4, {"epsilon": 1e-3}),
    "EmbedLayerNormalization": ("EmbedLayerNormalization", (_IDS, _IDS % 2, *_TABLES, _MASK), 2, {"epsilon": 1e-5}),
    "Attention": ("Attention", _ATTENTION, 1, {"num_heads": _HEADS}),
    "Attention, causal": ("Attention", _ATTENTION, 1, {"num_heads": _HEADS, "unidirectional": 1}),
    "Attention with a mask": ("Attention", (*_ATTENTION, _MASK), 1, {"num_heads": _HEADS, "scale": 0.3}),
    "Attention with lengths": ("Attention", (*_ATTENTION, np.array([6, 4], "int32")), 1, {"num_heads": _HEADS}),
    "Attention after others": (
        "Attention", (*_ATTENTION, None, _of(2, 2, _HEADS, 3, 4)), 2, {"num_heads": _HEADS, "unidirectional": 1},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_as_onnxruntime(case: str) -> None:
    name, values, outputs, attributes = CASES[case]
    inputs = {f"x{i}": value for i, value in enumerate(values) if value is not None}
    names = [f"x{i}" if value is not None else "" for i, value in enumerate(values)]
    left_out = name == "SkipSimplifiedLayerNormalization"  # onnxruntime has no kernel for the mean
    results = ["" if left_out and i == 1 else f"y{i}" for i in range(outputs)]
    kinds = [helper.np_dtype_to_tensor_dtype(value.dtype) for value in inputs.values()]
    out = {"MatMulInteger16": onnx.TensorProto.INT32}.get(name, kinds[0] if name != "EmbedLayerNormalization" else 1)
    graph = helper.make_graph(
        [helper.make_node(name, names, results, domain="com.microsoft", **attributes)],
        "g",
        [helper.make_tensor_value_info(n, k, v.shape) for (n, v), k in zip(inputs.items(), kinds, strict=True)],
        [
            helper.make_tensor_value_info(y, onnx.TensorProto.INT32 if y == "y1" and name[0] == "E" else out, None)
            for y in results
            if y
        ],
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = session.run(None, inputs)
    result = from_onnx(model)(**inputs)
    for y, wanted in zip(result if isinstance(result, (tuple, list)) else [result], expected, strict=True):
        np.testing.assert_allclose(y.numpy(), wanted, rtol=1e-4, atol=2e-5)
