"""Programs read back what was written: a part of `tests.python.frontend.round_trips`, chosen by rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import meta
from meta.frontend.onnx import from_onnx, to_onnx
from meta.testing.samples import Sample
from tests.python.frontend.round_trips import difference
from tests.python.op.samples import first_rows, samples

_PATTERNS = ("injective", "reduce")
"""Patterns of operators whose attributes have positions and sizes, which writers spell in their own way."""


def _chosen() -> list[Sample]:
    rows = [row for row in samples() if row in first_rows() and row.operator.pattern in _PATTERNS]
    return [row for row in rows if row.check is None]


@pytest.mark.parametrize("opened", [False, True], ids=["static", "open"])
@pytest.mark.parametrize("sample", _chosen(), ids=repr)
def test_operators_by_onnx(sample: Sample, opened: bool) -> None:
    problem = difference(sample, sample.run_dtypes()[0], "onnx", opened=opened)
    assert not problem or problem.startswith("refused"), problem


@pytest.mark.parametrize("way", ["relax", "file"])
@pytest.mark.parametrize("opened", [False, True], ids=["static", "open"])
@pytest.mark.parametrize("sample", _chosen()[::8], ids=repr)
def test_operators_by_other_ways(sample: Sample, opened: bool, way: str) -> None:
    problem = difference(sample, sample.run_dtypes()[0], way, opened=opened)
    assert not problem or problem.startswith("refused"), problem


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "columns": lambda x: x[:, 2:9],
    "backwards": lambda x: x[:, ::-1],
    "transforms": lambda x: meta.fft.irfft(meta.fft.rfft(x)),
    "rest": lambda x: x[1:],
    "end": lambda x: x[-2:] * 2.0,
    "pairs": lambda x: x[::2] + x.shape[0] % 2,
    "neighbours": lambda x: x[1:] - x[:-1],
    "last": lambda x: x[-1],
    "half": lambda x: x[x.shape[0] // 2 :],
    "scaled": lambda x: x / x.shape[0] ** 0.5,
    "range": lambda x: meta.arange(x.shape[0] - 1, -1, -1),
    "points": lambda x: meta.linspace(-1, 1, x.shape[0]),
    "classes": lambda x: meta.one_hot(meta.argmax(x, 0), x.shape[0]),
    "identity": lambda x: meta.eye(x.shape[0] + 1, 4),
    "rolled": lambda x: meta.roll(meta.roll(x, 7, 0), -1, 0),
    "tiled": lambda x: meta.tile(x, (x.shape[0], 1)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_an_open_axis_by_onnx(name: str) -> None:
    function = FUNCTIONS[name]
    arrays = [meta.array(np.random.default_rng(0).uniform(-1, 1, (rows, 10)).astype("float32")) for rows in (5, 2)]
    again = from_onnx(to_onnx(meta.trace(function), arrays[0], dynamic={"x": {0: "n"}}))
    for x in arrays:
        results: Any = again(x)
        expected = function(x)
        assert results.type == expected.type
        np.testing.assert_allclose(results.numpy(), expected.numpy(), 1e-5, 1e-6)
