"""The public functions of operators from meta.define: signature, documentation, fast path and methods."""

from __future__ import annotations

import inspect
import typing
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import pytest

import meta
from meta.errors import ArgumentError, RegistryError
from meta.op import registry
from meta.op.user import gradients
from meta.schema import Arg, Float, Int, IntTuple, Schema, Str, Tensor, TensorList

_numbers = count()
SCALE = Schema("scale", Arg("x", Tensor, doc="Input of any shape."), Arg("by", Float, 2, doc="The factor."))

pytestmark = pytest.mark.usefixtures("remove_operators")


def define(schema: Schema = SCALE, declare: Any = lambda x, *_: x, **facts: Any) -> Any:
    """An operator whose result is its first tensor times 2."""
    name = f"scaled{next(_numbers)}_by_its_function"
    facts.setdefault("reference", lambda x, *_: x * np.float32(2.0))
    return meta.define(name, schema, **facts)(declare)


def forbid(op: Any) -> None:
    """Make calls of `op` fail unless they take the fast path."""

    def invoke(*_: Any) -> Any:
        raise AssertionError("the general path is called")

    op.__globals__["_invoke"] = invoke


def test_signature_annotations_and_documentation() -> None:
    op = define(doc="Multiply by a number.")
    assert str(inspect.signature(op)) == "(x: 'T', by: 'float' = 2.0, *_more, **_unknown) -> 'T'"
    assert typing.get_type_hints(op) == {"x": meta.NDArray, "by": float, "return": meta.NDArray}
    assert op.__doc__ == "Multiply by a number.\nx: Input of any shape.\nby: The factor."
    assert op.__module__ == __name__
    with pytest.raises(ArgumentError, match=rf"\[{op.__name__}\] unknown argument 'factor'; expected .*by: Float"):
        op(meta.ones((2,)), factor=3.0)


def test_a_second_call_takes_the_fast_path() -> None:
    op, x = define(), meta.ones((2,))
    op(x)
    op(x, by=3.0)
    forbid(op)
    assert op(x).tolist() == op(x, 3.0).tolist() == [2.0, 2.0]
    with pytest.raises(AssertionError, match="the general path"):
        op(meta.ones((3,)))


def test_a_fast_call_is_recorded_and_its_gradient_needs_no_second_look(monkeypatch: pytest.MonkeyPatch) -> None:
    op = define(gradient={"x": lambda dy, by: dy * by})
    x = meta.ones((2,))
    op(x)
    forbid(op)
    monkeypatch.setattr(gradients, "check_gradient", lambda *_: pytest.fail("checked at length"))
    x.requires_grad = True
    op(x).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2.0, 2.0]


@pytest.mark.parametrize(
    "name",
    [
        "record",
        "invoke",
        "scopes",
        "modes",
        "run",
        "type",
        "int",
        "tuple",
        "getattr",
        "KeyError",
        "TypeError",
        "t",
        "self",
    ],
)
def test_arguments_may_have_the_names_of_what_functions_use(name: str) -> None:
    schema = Schema("f", Arg("xs", TensorList), Arg(name, Tensor), Arg("axes", IntTuple, 1))
    formulas = {"xs": "not_implemented: not needed", name: "dy"}
    op = define(schema, lambda xs, x, axes: x, gradient=formulas, reference=lambda xs, x, axes: x + xs[0])
    x = meta.array([1.0], requires_grad=True)
    for _ in range(2):
        assert op([meta.ones((1,))], x, 1).tolist() == [2.0]
    op([meta.ones((1,))], **{name: x}).backward()
    assert x.grad is not None
    assert x.grad.tolist() == [1.0]


def test_nothing_but_names_of_the_user_is_compiled() -> None:
    class Hostile(str):
        def __repr__(self) -> str:
            return "print('default')"

    kind = replace(Str, annotation="print('annotation')")
    value = Hostile("value")
    schema = Schema("f", Arg("x", Tensor, doc='"""\nprint("argument")'), Arg("mode", kind, value))
    op = define(schema, doc='"""\nprint("doc")\n"""', method=True)
    assert op(meta.ones((1,))).tolist() == [2.0]
    assert inspect.signature(op).parameters["mode"].default is value
    own = {f"_{letter}_{op.__name__}" for letter in "rs"}
    helpers = {"_KeyError", "_AttributeError", "_TypeError", "_scopes", "_invoke", "_refuse", "_record"}
    assert set(op.__code__.co_names) == own | helpers | {"_type", "_node", "active"}


def test_methods_of_arrays_and_symbols() -> None:
    op = define(method=True)
    assert getattr(meta.ones((2,)), op.__name__)().tolist() == [2.0, 2.0]
    signature = inspect.signature(getattr(meta.NDArray, op.__name__))
    assert str(signature) == "(self, by: 'float' = 2.0, *_more, **_unknown) -> 'T'"
    with pytest.raises(ArgumentError, match=rf"\[{op.__name__}\] unknown argument 'bye'.*write by=3.0"):
        getattr(meta.ones((2,)), op.__name__)(bye=3.0)
    traced = meta.trace(lambda x: getattr(x, op.__name__)(by=3.0))
    assert meta.vm.compile(traced)(meta.ones((2,))).tolist() == [2.0, 2.0]


@pytest.mark.parametrize(
    ("schema", "facts", "text"),
    [
        (Schema("f", Arg("_x", Tensor)), {}, "argument '_x' begins with an underscore.*; expected another name"),
        (Schema("f", Arg("n", Int)), {"method": True}, "method=True, but .* takes no tensor first"),
        (Schema("f", Arg("x", Tensor), Arg("self", Int)), {"method": True}, "an argument is called 'self'"),
    ],
)
def test_names_that_functions_cannot_have_are_refused(schema: Schema, facts: dict[str, Any], text: str) -> None:
    before = {op.name for op in registry.all_ops()}
    with pytest.raises(RegistryError, match=text):
        define(schema, **facts)
    assert {op.name for op in registry.all_ops()} == before


def test_a_method_does_not_replace_an_attribute_of_arrays() -> None:
    with pytest.raises(RegistryError, match="arrays have an attribute 'backward' already"):
        meta.define("backward", SCALE, method=True)(lambda x, by: x)


def test_an_unknown_fact_is_refused_with_a_suggestion() -> None:
    with pytest.raises(RegistryError, match=r"unknown fact 'patern'; expected pattern, .*; did you mean 'pattern'"):
        define(patern="elemwise")
    with pytest.raises(RegistryError, match="unknown fact 'operator'"):
        define(operator="__add__")
    with pytest.raises(RegistryError, match="did you mean 'reference'"):
        define(refernce=lambda x, by: x)
