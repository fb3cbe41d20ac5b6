"""argwhere, whose result size is known only at run time."""

from __future__ import annotations

import numpy as np
import pytest

import meta
from meta import vm
from meta.interpreter.run import run

X = np.array([[0, 2, 0], [1, 0, -3]], np.float32)


@pytest.mark.parametrize("x", [X, X > 5, np.float32(2), np.float32(0), np.zeros((0, 3)), np.array([np.nan, 0.0])])
def test_eager(x: np.ndarray) -> None:
    positions = meta.argwhere(meta.array(x))
    assert positions.shape == np.argwhere(x).shape
    assert positions.tolist() == np.argwhere(x).tolist()


def test_calls_of_one_type_may_return_different_shapes() -> None:
    assert [len(meta.argwhere(meta.array(row)).tolist()) for row in X] == [1, 2]
    assert len(meta.argwhere(meta.array(X[0] * 0)).tolist()) == 0


def test_interpreter() -> None:
    record = meta.trace(lambda x: meta.argwhere(x) + 1).record(meta.array(X))
    for x in (X, -X + 1):
        result = run(record.module, meta.array(x))
        (result,) = result if isinstance(result, tuple) else (result,)
        assert result.tolist() == (np.argwhere(x) + 1).tolist()


def test_compiled_programs() -> None:
    compiled = vm.compile(meta.trace(lambda x: (meta.argwhere(x) + 1, x * 2)))
    for x in (X, -X + 1):
        rows, twice = compiled(meta.array(x))
        assert rows.tolist() == (np.argwhere(x) + 1).tolist()
        np.testing.assert_array_equal(twice.numpy(), x * 2)
