"""opcheck passes correct operators and reports what is wrong with others."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import meta
from meta.schema import Arg, Float, Schema, Tensor
from meta.testing import OpCheckError, opcheck

pytestmark = pytest.mark.usefixtures("remove_operators")


def tensor(*shape: int) -> meta.NDArray:
    return meta.array(np.random.default_rng(0).uniform(0.5, 1.5, shape).astype("float32"))


def scale(**changes: Any) -> Callable[..., Any]:
    """Defines the operator x * by, with some facts of its declaration replaced."""
    name = f"scale_{uuid.uuid4().hex[:8]}"
    facts: dict[str, Any] = {
        "gradient": {"x": f"{name}(dy, by)"},
        "tvm": lambda x, by: _te_scale(x, by),
        "reference": lambda x, by: x * np.asarray(by, x.dtype),
        "pattern": "elemwise",
    }
    schema = Schema("scale", Arg("x", Tensor, doc="Input."), Arg("by", Float, 2.0, doc="Factor."))

    def result_type(x: Any, by: float) -> Any:
        """x * by."""
        return x

    return meta.define(name, schema, **(facts | changes))(result_type)


def _te_scale(x: Any, by: float) -> Any:
    from tvm import te, tirx

    return te.compute(x.shape, lambda *i: x(*i) * tirx.const(by, x.dtype))


@pytest.mark.parametrize("op", ["softmax", "multiply", "matmul", "sum", "reshape", "argmax", "zeros"])
def test_passes_operators_of_the_package(op: str) -> None:
    args: dict[str, tuple[Any, ...]] = {
        "multiply": (tensor(2, 3), tensor(3)), "matmul": (tensor(2, 3), tensor(3, 2)),
        "reshape": (tensor(2, 3), (3, 2)), "zeros": ((2, 3),),
    }  # fmt: skip
    report = opcheck(op, *args.get(op, (tensor(2, 3),)))
    assert [f.check for f in report] == [
        "schema", "types", "inputs", "dialects", "gradient", "second order", "interpreter", "vm"
    ]  # fmt: skip


def test_passes_a_user_defined_operator() -> None:
    report = opcheck(scale(), tensor(3), by=3.0)
    assert not any(f.problem or f.skipped for f in report)


def test_reports_checks_that_do_not_apply() -> None:
    report = {f.check: str(f) for f in opcheck("argmax", tensor(3))}
    assert report["gradient"].split() == ["gradient", "not", "applicable:", "it", "has", "no", "gradient"]


def detached(by: Any, dy: Any) -> Any:
    """The correct gradient, but not differentiable itself."""
    return dy.detach() * by


@pytest.mark.parametrize(
    ("changes", "checks"),
    [
        ({"gradient": {"x": "dy"}}, {"gradient"}),
        ({"gradient": {"x": "stop_gradient(dy)"}}, {"gradient"}),
        ({"reference": lambda x, by: x + by}, {"dialects"}),
        ({"gradient": {"x": detached}}, {"second order"}),
    ],
)
def test_reports_the_failed_checks(changes: dict[str, Any], checks: set[str]) -> None:
    with pytest.raises(OpCheckError) as caught:
        opcheck(scale(**changes), tensor(3), by=3.0)
    lines = str(caught.value).splitlines()[1:]
    failed = {line[2:16].strip() for line in lines if "passed" not in line and "not applicable" not in line}
    assert checks <= failed
    assert "types" not in failed


def test_accepts_operator_name_and_function() -> None:
    from meta.op.registry import get

    assert opcheck(meta.tanh, tensor(2)) == opcheck("tanh", tensor(2)) == opcheck(get("tanh"), tensor(2))
