"""The judge of the fuzzer of programs tells errors from rounding."""

from __future__ import annotations

import pytest

from scripts.program_judge import judge

_FILE = """
import numpy as np
import meta

OPTIONS, DYNAMIC, BUDGETS, SIZES = {{}}, {{}}, (), ({size},) * 3

def data(seed, shape):
    x = np.random.default_rng(seed).standard_normal(shape).astype("float32")
    return meta.array(x, dtype='{dtype}')

def make():
    w0 = data(119002, ({size}, {size}))
    given = w0,

    def function(x0):
        w0, = given
        with meta.no_grad():
{body}

    return function, lambda: {{"w0": w0}}, lambda call: [data(120000 + 10 * call, ({size}, {size}))]
"""


def _source(dtype: str, size: int, *lines: str) -> str:
    return _FILE.format(dtype=dtype, size=size, body="\n".join(" " * 12 + line for line in lines))


NEARLY_EQUAL = _source(
    "bfloat16", 8,
    "w0[0] = w0.T @ meta.abs(x0[0]) * 0.3",
    "sums, one = 0.5 * meta.cumsum(w0, axis=-1), meta.full((), 1.0, dtype='bfloat16')",
    "w0.update(meta.exp(-meta.abs(meta.where(sums > one, sums, one * 0.5))))",
    "return w0 * 1.0,",
)  # fmt: skip
"""Rounding decides comparisons of sums with one."""
VARIANCE_OVERFLOWS = _source(
    "float32", 3,
    "ones = meta.ones((3,), dtype='float32')",
    "h = (x0 @ w0) * 1e20",
    "y, *_ = meta.batch_norm_train(h, ones * 1.0, ones * 1.0, None, None, 0.3, 0.01)",
    "return (y if isinstance(x0, meta.NDArray) else y + 1.0),",
)  # fmt: skip
"""The variance is more than the largest number, so that eager code returns zeros. Traces add one, in place of a sum in
another order that does not overflow."""


@pytest.mark.parametrize("source", [NEARLY_EQUAL, VARIANCE_OVERFLOWS], ids=["nearly equal", "variance overflows"])
def test_what_rounding_explains_is_no_finding(source: str) -> None:
    assert judge(source).findings == ()


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
def test_other_values_are_findings(dtype: str) -> None:
    source = _source(
        dtype, 4, "h = meta.tanh(x0 @ w0)", "return (h if isinstance(x0, meta.NDArray) else h + 0.5),"
    )  # fmt: skip
    verdict = judge(source)
    assert verdict.outcome == "wrong"
    assert [(f.way, f.kind) for f in verdict.findings] == [("interpreter", "results"), ("compiled", "results")]
