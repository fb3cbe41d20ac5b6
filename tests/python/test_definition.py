"""`meta.define`: what is refused when an operator is registered at run time, or turns out to be wrong when it runs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import numpy as np
import pytest

import meta
from meta.errors import KernelError, RegistryError
from meta.op import registry
from meta.schema import Arg, Float, Int, Schema, Tensor

_numbers = count()


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    """No test leaves an operator behind."""
    before = {op.name for op in registry.all_ops()}
    yield
    for name in {op.name for op in registry.all_ops()} - before:
        registry.remove(name)
        meta.__dict__.pop(name, None)


def define(name: str | None = None, declare: Any = lambda x, by: x, **facts: Any) -> Any:
    """An operator that this test alone knows (dialects keep what they are given)."""
    name = f"operator{next(_numbers)}_of_a_test" if name is None else name
    return meta.define(name, Schema("scaled", Arg("x", Tensor), Arg("by", Float, 2.0)), **facts)(declare)


@pytest.mark.parametrize("name", ["a-b", "class", "", "1st"])
def test_a_name_is_one_of_python(name: str) -> None:
    with pytest.raises(RegistryError, match=r"an operator cannot be called .*; expected names as Python's"):
        define(name)


@pytest.mark.parametrize("name", ["a-b", "class", ""])
def test_an_argument_name_is_one_of_python(name: str) -> None:
    with pytest.raises(ValueError, match="an argument cannot be called"):
        Schema("scaled", Arg("x", Tensor), Arg(name, Int, 1))


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        ({"pattern": "elemwse"}, "pattern is 'elemwse'; expected elemwise, .*; did you mean 'elemwise'"),
        ({"amp": "sometimes"}, "amp is 'sometimes'; expected always, never, infer, keep"),
    ],
)
def test_facts_are_known_ones_and_a_refused_operator_is_not_registered(facts: dict[str, Any], text: str) -> None:
    with pytest.raises(RegistryError, match=text):
        define("scaled_by_this_test", **facts)
    define("scaled_by_this_test")


@pytest.mark.parametrize("result", [None, 3])
def test_a_type_function_returns_a_type(result: Any) -> None:
    op = define(declare=lambda x, by: result, reference=lambda x, by: x)
    with pytest.raises(RegistryError, match=rf"its type function returned {type(result).__name__}; expected a Tens"):
        op(meta.ones((2,)))


def test_a_reference_of_another_shape_is_not_broadcast() -> None:
    op = define(reference=lambda x, by: x[:1] * by)
    with pytest.raises(KernelError, match=r"returned shape \(1, 3\), its declaration says \(2, 3\)"):
        op(meta.ones((2, 3)))


def test_explain_takes_the_function_of_an_operator() -> None:
    op = define(reference=lambda x, by: x * by)
    assert op(meta.ones((2,))).tolist() == [2.0, 2.0]
    assert meta.explain(op, meta.ones((2,))).chosen == "reference"
    assert str(meta.explain(meta.softmax, meta.ones((2,)))) == str(meta.explain("softmax", meta.ones((2,))))
    with pytest.raises(RegistryError, match="ndarray is no operator's name"):
        meta.explain(np.ones(2), meta.ones((2,)))  # type: ignore[arg-type]
