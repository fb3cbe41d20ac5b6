"""The adapter of ONNX's backend tests: models run node by node, with all values at hand."""

from __future__ import annotations

import os
from contextlib import nullcontext
from typing import Any

import meta
from meta.errors import NotSupportedError
from meta.frontend.onnx import from_onnx
from meta.schema._dsl import TensorLike

DIALECT = os.environ.get("META_ONNX_DIALECT", "")
"""A dialect to run all operators with; the one of each operator by default."""


def run(model: Any, inputs: list[Any]) -> list[Any]:
    with meta.with_dialect(DIALECT) if DIALECT else nullcontext():
        program = from_onnx(model)
        result = program.interpret(*inputs)
    outputs = result if isinstance(result, tuple) else (result,)
    return [_host(value) for value in outputs]


def unsupported(error: Exception) -> bool:
    return isinstance(error, NotSupportedError)


def before() -> None:
    (meta.ones((2, 2)) + 1.0).numpy()


def _host(value: Any) -> Any:
    if isinstance(value, list):
        return [_host(v) for v in value]
    return value.numpy() if isinstance(value, TensorLike) else value
