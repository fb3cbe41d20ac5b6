"""Kernels of reductions: many short rows keep their length, and programs fuse reductions with what is before them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import meta
from tests.python.kernels_in_memory import kernels_of

_SHAPES = ((301, 5), (257, 5), (300, 3), (256, 9), (300, 10), (299, 11))


@pytest.mark.parametrize("name", ["sum", "prod", "max", "argmax", "any", "logsumexp", "var", "softmax", "log_softmax"])
@pytest.mark.parametrize("axis", [0, 1])
def test_many_short_rows_have_kernels_of_their_length(name: str, axis: int) -> None:
    rng = np.random.default_rng(0)
    function, reference = getattr(meta, name), getattr(torch, {"max": "amax"}.get(name, name))
    before = kernels_of(name)
    for shape in _SHAPES:
        x = rng.standard_normal(shape).astype("float32")
        result, expected = function(meta.array(x), axis).numpy(), reference(torch.tensor(x), axis).numpy()
        np.testing.assert_allclose(result, expected, rtol=2e-5, atol=2e-6)
    assert kernels_of(name) - before <= 4


_FUSED: dict[str, tuple[Any, list[str]]] = {
    "squares": (lambda x: (x * x).sum(axis=1), ["multiply", "sum"]),
    "mean squared error": (lambda x: ((x - 1.0) * (x - 1.0)).mean(), ["subtract", "multiply", "mean"]),
    "columns": (lambda x: (x * 2.0 + 1.0).sum(axis=0), ["multiply", "add", "sum"]),
    "condition": (lambda x: meta.any(x > 2.0, axis=1), ["greater", "any"]),
    "largest": (lambda x: meta.amax(meta.abs(x), axis=1), ["abs", "max"]),
    "to halves": (lambda x: (x * 2.0).astype("float16").sum(axis=1), ["multiply", "cast", "sum"]),
    "nothing before": (lambda x: x.sum(axis=1) * 2.0, ["sum", "multiply"]),
}


@pytest.mark.parametrize("name", _FUSED)
def test_reductions_are_one_kernel_with_elementwise_operators_before_them(name: str) -> None:
    function, operators = _FUSED[name]
    for shape in ((33, 257), (4, 5), (300, 3)):
        x = meta.array(np.random.default_rng(1).standard_normal(shape).astype("float32"))
        executor = meta.vm.compile(function)
        np.testing.assert_allclose(executor(x).numpy(), function(x).numpy(), rtol=1e-5, atol=1e-5)
        (kernel,) = executor.program(x).loaded.kernels.values()
        assert [operator.split(".")[1] for operator in kernel] == operators


def test_tensors_with_other_readers_are_written_once() -> None:
    executor = meta.vm.compile(lambda x: ((x * 2.0).sum(axis=1), x * 2.0))
    x = meta.ones((16, 64))
    total, doubled = executor(x)
    assert total.tolist() == [128.0] * 16
    assert doubled.sum().item() == 2048.0
    kernels = sorted(executor.program(x).loaded.kernels.values())
    assert kernels == [("tvm.multiply",), ("tvm.sum",)]
