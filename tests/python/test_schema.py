"""Schemas: how the arguments of a call are bound and normalised, and which schemas and calls are refused."""

from __future__ import annotations

from typing import Any

import pytest

import meta
from meta.errors import ArgumentError
from meta.schema import Arg, Float, Int, Schema, Tensor

SCHEMA = Schema("scaled", Arg("x", Tensor), Arg("axis", Int, -1), Arg("by", Float, 2.0))
X = meta.ones((2,))


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [((X, 1, 3.0), {}), ((X, 1), {"by": 3}), ((X,), {"by": 3.0, "axis": 1}), ((), {"by": 3, "x": X, "axis": 1})],
)
def test_positional_and_keyword_arguments_bind_to_the_same_values(args: Any, kwargs: Any) -> None:
    bound = SCHEMA.bind("scale", args, kwargs)
    assert bound[0] is X
    assert bound[1:] == (1, 3.0)
    assert type(bound[2]) is float
    assert SCHEMA.bind("scale", bound, {}) == bound


def test_absent_arguments_have_their_defaults() -> None:
    assert SCHEMA.bind("scale", (X,), {}) == (X, -1, 2.0)
    assert repr(SCHEMA) == "scaled(x: Tensor, axis: Int = -1, by: Float = 2.0)"


@pytest.mark.parametrize(
    ("args", "kwargs", "text"),
    [
        ((X, 1, 2.0, 3), {}, r"\[scale\] 4 arguments given; expected at most 3: scale\("),
        ((X,), {"axs": 1}, r"\[scale\] unknown argument 'axs'; expected scale\(.*write axis=1"),
        ((X, 1), {"axis": 1}, r"\[scale\] argument 'axis' given twice"),
        ((), {"axis": 1}, r"\[scale\] argument 'x' is missing"),
        ((X, 1.5), {}, r"\[scale\] argument 'axis' is float 1\.5"),
        ((X,), {"by": "two"}, r"\[scale\] argument 'by' is str 'two'"),
        ((2.0,), {}, r"\[scale\] argument 'x' is float 2\.0; expected a tensor"),
    ],
)
def test_rejects_arguments_that_do_not_fit(args: Any, kwargs: Any, text: str) -> None:
    with pytest.raises(ArgumentError, match=text):
        SCHEMA.bind("scale", args, kwargs)


def test_rejects_invalid_schemas() -> None:
    with pytest.raises(ValueError, match="required 'x' follows an argument with a default"):
        Schema("scaled", Arg("axis", Int, -1), Arg("x", Tensor))
    with pytest.raises(ValueError, match="an argument name occurs twice"):
        Schema("scaled", Arg("x", Tensor), Arg("x", Tensor))
    with pytest.raises(ArgumentError, match="argument 'axis' is str 'last'"):
        Schema("scaled", Arg("x", Tensor), Arg("axis", Int, "last"))
