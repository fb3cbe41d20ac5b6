"""0-d tensors have an axis 0, which is also -1, as in torch, and no other. Extrema of equal zeros are the first."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meta
from meta.errors import MetaError, TypeInferenceError
from meta.op.registry import Op, all_ops

NEEDS_AXES = ("layer_norm", "rms_norm", "topk", "squeeze", "index_select", "gather", "scatter", "take", "batch_norm")
"""Prefixes of operators that refuse 0-d tensors, or take positions as well."""


def _takes_axis(op: Op) -> bool:
    first = op.schema.args[0]
    others = [arg.name for arg in op.schema.args if arg.required and not arg.is_tensor and arg.name != "axis"]
    return first.is_tensor and first.type.role == "tensor" and "axis" in op.schema.index and not others


OPS = [op for op in all_ops() if _takes_axis(op) and not op.name.startswith(NEEDS_AXES)]


def _call(op: Op, x: Any, axis: int) -> Any:
    values = {arg.name: x for arg in op.schema.args if arg.is_tensor and arg.required}
    return op.infer(op.schema.bind(op.name, (), {**values, "axis": axis}))


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
@pytest.mark.parametrize("axis", [1, -2, 5])
def test_other_axes_are_refused(op: Op, axis: int):
    x = meta.array(1.5)
    try:
        _call(op, x, 0)
    except MetaError:
        x = meta.array(1)  # an operator of integers
    with pytest.raises(TypeInferenceError, match=rf"axis {axis} is out of range for rank [01]; expected -1 to 0"):
        _call(op, x, axis)


def test_many_operators_take_an_axis():
    assert {"sum", "max", "argmax", "std", "logsumexp", "flip", "softmax", "cumsum", "sort"} <= {op.name for op in OPS}


@pytest.mark.parametrize("axis", [0, -1, None])
def test_reductions_of_one_element(axis: int | None):
    x = meta.array(2.5, requires_grad=True)
    total = meta.sum(x, axis) * meta.max(x, axis, keepdims=True)
    total.backward()
    assert x.grad is not None
    assert (total.item(), x.grad.item(), meta.argmin(x, axis).item()) == (6.25, 5.0, 0)


UNARY = [op for op in OPS if sum(arg.is_tensor and arg.required for arg in op.schema.args) == 1]


@pytest.mark.parametrize("op", [op for op in UNARY if op.family != "collective"], ids=lambda op: op.name)
def test_the_reference_takes_axis_0(op: Op):
    x = meta.array(2.5)
    try:
        results = getattr(meta, op.name)(x, axis=0)
    except MetaError:
        x = meta.array(3)
        results = getattr(meta, op.name)(x, axis=0)
    with meta.with_dialect("reference"):
        expected = getattr(meta, op.name)(x, axis=0)
    for ours, theirs in zip(*([r] if hasattr(r, "shape") else r for r in (results, expected)), strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_equal_zeros(dtype: str):
    host = np.array([[-0.0, 0.0, -0.0] * 7, [0.0, -0.0, 0.0] * 7])
    x = meta.array(host, dtype=dtype)
    compiled = meta.vm.compile(meta.trace(lambda x: (meta.argmax(x, 1), meta.argmin(x, 1))))(x)
    for result in (meta.argmax(x, 1), meta.argmin(x, 1), meta.argmax(-x, 1), *compiled):
        assert result.tolist() == [0, 0]


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize(("name", "expected"), [("sum", 1 + 2j), ("prod", 1 + 2j), ("mean", 1 + 2j), ("var", np.nan)])
def test_reductions_of_one_complex_number_take_its_axis(name: str, expected: complex, keepdims: bool) -> None:
    result = getattr(meta, name)(meta.array(1 + 2j), 0, keepdims=keepdims).numpy()
    np.testing.assert_array_equal(result, np.asarray(expected, result.dtype))
