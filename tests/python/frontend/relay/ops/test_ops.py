"""Every converter on small programs, against NumPy: what attributes mean, and that defaults are Relay's."""

from __future__ import annotations

import numpy as np
import pytest

import meta
from meta.frontend.relay import from_relay
from meta.interpreter.run import run
from tests.python.frontend.relay.ops.rows import ROWS, Row


def name(row: Row) -> str:
    """The line that says which operator a row is about."""
    return row.body.split("\n")["= (" in row.body or "= shape_of" in row.body].strip()


@pytest.mark.parametrize(
    "row", ROWS, ids=lambda row: row.body.split("\n")[-1].strip() if "%0" not in row.body else row.body.split("\n")[0]
)
def test_value(row: Row) -> None:
    module = from_relay(row.source)
    with meta.with_dialect(["reference"]):
        actual = run(module, *row.inputs).numpy()
    expected = np.asarray(row.expected(*row.inputs))
    assert actual.shape == expected.shape
    if actual.dtype.kind == "f":
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)
    else:
        assert actual.dtype == expected.dtype
        np.testing.assert_array_equal(actual, expected)
