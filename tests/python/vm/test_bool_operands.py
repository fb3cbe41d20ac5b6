"""Elementwise operators of bools that the same kernel computes, in vectors: TVM has no bounds for vectors of bools, and
refuses variables of an expression with one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import meta
from tests.python.op.samples import samples
from tests.python.vm.test_special_values import assert_same

_BOOLS: dict[str, Callable[[Any, float], Any]] = {
    "comparison": lambda x, k: x > k,
    "negation": lambda x, k: ~(x < k),
    "conjunction": lambda x, k: (x > k) & (x < 0.9),
    "exclusive": lambda x, k: (x > k) ^ (x < 0.9),
    "class": lambda x, k: meta.isfinite(x / (x - k)),
    "integers": lambda x, k: x.astype("int32") != int(10 * k),
    "choice": lambda x, k: meta.where(x > k, x < 0.9, x > 0.3),
}


def _elementwise() -> list[str]:
    """The operators of samples that take one float32 tensor and nothing else, and compute each element by itself."""
    rows = {row.op: row for row in samples() if row.operator.pattern == "elemwise" and row.is_floating}
    return sorted(op for op, row in rows.items() if len(row.args) == 1 and not row.kwargs and hasattr(meta, op))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
@pytest.mark.parametrize("kind", _BOOLS)
def test_every_elementwise_operator(kind: str, dtype: str) -> None:
    every = dtype == "float32" and kind in ("comparison", "negation")
    names = _elementwise() if every else ["tanh", "exp", "erf", "log1p"]
    assert len(names) > 3

    def program(x: Any) -> list[Any]:
        casts = [_BOOLS[kind](x, 0.01 * i).astype(dtype) for i in range(len(names))]
        return [getattr(meta, name)(each) for name, each in zip(names, casts, strict=True)]

    x = meta.array([0.03 * i - 0.9 for i in range(64)])
    assert_same(meta.vm.compile(meta.trace(program))(x), program(x), "vm")
