"""Samples of opcheck: given by the caller, or derived from the schema."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meta
from meta.errors import ArgumentError, RegistryError
from meta.op import rules
from meta.op.registry import get
from meta.schema import Arg, Float, Int, IntTuple, Schema, Str, Tensor, TensorList
from meta.testing import Sample, T, opcheck
from tests.python.testing.test_opcheck import all_but, scale

pytestmark = pytest.mark.usefixtures("remove_operators")


def test_derives_samples_from_the_schema() -> None:
    assert opcheck(scale(), skip=all_but("types")).samples == (
        'x=Tensor[(2, 3), "float32"]',
        'x=Tensor[(2, 3, 4), "float32"]',
    )
    schema = Schema("total", Arg("xs", TensorList, doc="Terms."), Arg("axis", Int, doc="An axis."))

    def declare(xs: Any, axis: int) -> Any:
        """The sum of the tensors."""
        rules.require_rank("xs[0]", xs[0], 1)
        return xs[0]

    name = "total_of_opcheck"
    total = meta.define(name, schema, reference=lambda xs, axis: sum(xs), gradient="non_differentiable")(declare)
    assert opcheck(total, skip=all_but("types")).samples == (
        'xs=[Tensor[(4,), "float32"], Tensor[(4,), "float32"]], axis=1',
    )


def test_derived_samples_lie_in_the_domain_of_the_operator() -> None:
    for name in ("log", "acosh"):
        assert opcheck(name, skip=all_but("gradient")).ok


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            (Arg("shape", IntTuple),),
            r"'shape' is IntTuple without a default; expected .*; pass samples: opcheck\(scale",
        ),
        ((Arg("mode", Str),), "'mode' is Str without a default"),
        ((Arg("by", Float, 2.0),), "refuses tensors of shapes .* in float32, int64 and bool"),
    ],
)
def test_says_why_no_sample_follows_from_a_schema(arguments: tuple[Arg, ...], text: str) -> None:
    def refuse(x: Any, argument: Any) -> Any:
        rules.require(False, "no")

    with pytest.raises(ArgumentError, match=rf"\[opcheck\] no sample follows from scale\(x: Tensor, .*\): .*{text}"):
        opcheck(scale(refuse, Schema("scale", Arg("x", Tensor), *arguments), gradient=None))


@pytest.mark.parametrize(
    ("sample", "error", "text"),
    [
        (meta.array([1.0]), ArgumentError, r"sample 0 is of class NDArray; expected a tuple .*; write opcheck\(scale"),
        ((meta.array([1.0]), 2.0, 3.0), ArgumentError, "3 arguments given"),
        ({"y": meta.array([1.0])}, ArgumentError, "unknown argument 'y'"),
        (Sample("tanh", T(2), ref=np.tanh), ArgumentError, "sample 0 is of tanh; expected samples of scale"),
    ],
)
def test_rejects_samples_that_are_not_calls(sample: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        opcheck(scale(), sample)


def test_takes_arrays_of_numpy_and_leaves_the_samples_unchanged() -> None:
    host, ours = np.array([1.0, 2.0], "float32"), meta.array([3.0], requires_grad=True)
    assert opcheck(scale(), (host,), (ours,), skip=("vm", "dtypes")).ok
    assert host.tolist() == [1.0, 2.0]
    assert ours.requires_grad
    assert ours.grad is None


def test_accepts_operator_name_and_function() -> None:
    reports = [opcheck(op, (T(2),), skip=all_but("types")) for op in (meta.tanh, "tanh", get("tanh"))]
    assert reports[0] == reports[1] == reports[2]
    with pytest.raises(RegistryError, match="did you mean 'tanh'"):
        opcheck("tamh")
