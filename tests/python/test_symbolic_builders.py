"""The generated builders take what the public functions take."""

from __future__ import annotations

import inspect

import pytest

from meta._generated import symbolic
from meta.errors import ArgumentError
from meta.ir.builder import Builder
from meta.ir.expr import Var
from meta.ir.module import Module
from meta.ir.type import tensor_type
from meta.op.registry import all_ops
from tests.python.recorded import check_ir


def test_every_operator_has_a_builder_with_its_arguments():
    for op in all_ops():
        if op.family == "user":
            continue
        signature = inspect.signature(getattr(symbolic, op.name))
        assert tuple(signature.parameters) == ("bb", *op.schema.names)
        for arg in op.schema.args:
            default = signature.parameters[arg.name].default
            assert (default is inspect.Parameter.empty) == arg.required


def test_arguments_are_normalised():
    builder = Builder()
    with builder.function("main", [("x", tensor_type((1, 3, 8, 8))), ("w", tensor_type((4, 3, 3, 3)))]) as scope:
        x, w = scope.params
        y = symbolic.conv2d(builder, x, w, 1, padding=1)
        z = symbolic.sum(builder, symbolic.cast(builder, y, float), 1)
        scope.ret(symbolic.split(builder, z, [3], -1))
    check_ir(Module({"main": scope.function}))
    assert scope.function.body.bindings[0].value.args[2:4] == ((1,), (1,))
    assert scope.function.body.bindings[1].value.args[1] == "float32"


def test_operators_with_a_value_give_it():
    x = Var("x", tensor_type((2, 3)))
    assert symbolic.shape(Builder(), x) == (2, 3)


def test_errors_are_those_of_the_schema():
    with pytest.raises(ArgumentError, match=r"\[softmax\] argument 'axis' is str 'a'"):
        symbolic.softmax(Builder(), Var("x", tensor_type((2, 3))), "a")
