"""fold_const: constant expressions with small results are computed in advance."""

from __future__ import annotations

import numpy as np
import pytest

import meta
from meta import passes
from meta._generated.limits import FOLDED_ELEMENTS
from meta.dim import sym
from meta.ir.analysis import op_counts
from meta.ir.expr import Constant
from meta.ir.type import tensor_type
from meta.modes import modes
from tests.python.passes.programs import check_same_results, lines, parse_program, program
from tests.python.recorded import array

X = (2, 3)


def fold(function, *types):
    before = program(function, *types)
    return passes.dce(check_same_results(before, passes.fold_const(before)))


def test_calls_on_constants_are_evaluated():
    after = fold(lambda x: x + meta.sqrt(meta.array([4.0, 9.0, 16.0])) * 2.0, X)
    assert lines(after) == ['%0 = add(%x, const([4.0, 6.0, 8.0], "float32"))', "(%0,)"]


def test_folds_uses_of_small_creation_operators():
    after = fold(lambda x: x * meta.reshape(meta.ones((), "float32") * 3.0, (1, 1)) + meta.arange(3) * 2, X)
    assert op_counts(after.main) == {"add": 1, "multiply": 1}


def test_keeps_creation_operators():
    before = program(lambda x: x + meta.zeros(X), X)
    assert passes.fold_const(before) is before


def test_folds_several_results():
    after = fold(lambda x: sum(meta.split(meta.arange(6, dtype="float32"), 2), x), (3,))
    assert op_counts(after.main) == {"add": 2}


def test_keeps_large_results():
    big = (FOLDED_ELEMENTS + 1,)
    for function in (
        lambda x: x + meta.broadcast_to(meta.array([1.0]), big),
        lambda x: x + meta.exp(meta.ones(big)),
    ):
        before = program(function, big)
        assert passes.fold_const(before) is before


def test_folds_constants_to_constants_of_the_same_size():
    table = np.ones(FOLDED_ELEMENTS + 1, "float32")
    before = program(lambda x: x + meta.exp(meta.array(table)), (FOLDED_ELEMENTS + 1,))
    assert op_counts(passes.fold_const(before).main) == {"add": 1}


def test_keeps_calls_with_symbolic_sizes():
    n = sym("n")
    before = program(lambda x: x + meta.exp(meta.zeros((n, 3))), tensor_type((n, 3)))
    assert passes.fold_const(before) is before


def test_folds_random_draws_with_constant_keys():
    after = fold(lambda x: x + meta.normal(meta.array([3, 4]), X), X)
    assert op_counts(after.main) == {"add": 1}


def test_folds_conditionals_with_constant_conditions():
    text = """
    def main(%x: T) -> T {{
      %c = greater(const({}, "float32"), 0.0)
      %z = if %c {{
        %a = relu(%x)
        %p = if %c {{
          %b = tanh(%a)
          %b
        }} else {{
          %x
        }}
        %p
      }} else {{
        %x
      }}
      %y = add(%z, 1.0)
      %y
    }}"""
    for value, expected in (("1.0", {"add": 1, "relu": 1, "tanh": 1}), ("-1.0", {"add": 1})):
        before = parse_program(text.format(value))
        after = passes.dce(check_same_results(before, passes.fold_const(before)))
        assert op_counts(after.main) == expected


def test_ignores_modes_of_the_caller():
    w = array(3, grad=True)
    eye = np.eye(3, dtype="float32")
    before = program(lambda x: x @ meta.matmul(meta.array(eye), meta.array(eye)), X)
    with meta.amp.autocast("bfloat16"):
        after = passes.fold_const(before)
        assert modes.autocast is not None
    constant = after.main.body.bindings[-1].value.args[1]
    assert isinstance(constant, Constant)
    assert constant.type.dtype == "float32"
    assert not constant.value.requires_grad
    assert w.requires_grad


def test_keeps_constants_of_missing_devices():
    before = parse_program("""
    def main(%x: T) -> T {
      %a = relu(const([1.0], "float32", "cuda"))
      %b = device_copy(%a, device=device("cpu"))
      %y = add(%x, %b)
      %y
    }""")
    assert passes.fold_const(before) is before


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int8", "bool"])
def test_folding_keeps_dtypes(dtype):
    kind = tensor_type((1, 2), dtype)
    after = fold(lambda x: meta.concatenate([x, meta.reshape(meta.ones((2,), dtype), (1, 2))]), kind)
    assert op_counts(after.main) == {"concatenate": 1}
