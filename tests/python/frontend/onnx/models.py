"""Models in ONNX's text form, and their outputs by onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx


def parsed(body: str, opset: int = 21, functions: str = "", imports: str = "") -> Any:
    """A model. body: its graph.  functions: the model's own.  imports: further domains, `, "mine": 1`."""
    return onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : {opset}{imports}]>\n{body}\n{functions}')


def expected(model: Any, *inputs: Any) -> list[Any]:
    """The outputs by onnxruntime, without its optimisations."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, dict(zip([i.name for i in session.get_inputs()], inputs, strict=True)))


def check(program: Any, model: Any, *inputs: Any) -> None:
    """Assert that a program gives the outputs of onnxruntime, node by node and as it runs by default."""
    reference = expected(model, *inputs)
    for run in (program.interpret, program):
        result = run(*inputs)
        outputs = result if isinstance(result, tuple) else (result,)
        for actual, value in zip(outputs, reference, strict=True):
            _same(actual, value)


def _same(result: Any, value: Any) -> None:
    if isinstance(value, list):
        assert len(result) == len(value)
        for item, reference in zip(result, value, strict=True):
            _same(item, reference)
        return
    assert result.numpy().dtype == value.dtype
    np.testing.assert_allclose(result.numpy(), value, rtol=1e-5, atol=1e-6)
