"""What is known is computed before the program runs, as long as it is small."""

from __future__ import annotations

import numpy as np
import pytest

import meta
from meta import passes
from meta.dim import sym
from meta.ir.analysis import op_counts
from meta.ir.expr import Constant
from meta.ir.type import tensor_type
from meta.modes import modes
from meta.passes.fold_const import LIMIT
from tests.python.passes.programs import lines, parsed, program, same_results
from tests.python.recorded import array

X = (2, 3)


def folded(function, *types):
    before = program(function, *types)
    return passes.dce(same_results(before, passes.fold_const(before)))


def test_calls_on_constants_are_evaluated():
    after = folded(lambda x: x + meta.sqrt(meta.array([4.0, 9.0, 16.0])) * 2.0, X)
    assert lines(after) == ['%0 = add(%x, const([4.0, 6.0, 8.0], "float32"))', "(%0,)"]


def test_small_results_of_creation_operators_are_known():
    after = folded(lambda x: x * meta.reshape(meta.ones((), "float32") * 3.0, (1, 1)) + meta.arange(3) * 2, X)
    assert op_counts(after.main) == {"add": 1, "multiply": 1}


def test_creation_operators_themselves_stay():
    before = program(lambda x: x + meta.zeros(X), X)
    assert passes.fold_const(before) is before


def test_several_results_are_folded():
    after = folded(lambda x: sum(meta.split(meta.arange(6, dtype="float32"), 2), x), (3,))
    assert op_counts(after.main) == {"add": 2}


def test_large_results_stay():
    big = (LIMIT + 1,)
    for function in (
        lambda x: x + meta.broadcast_to(meta.array([1.0]), big),
        lambda x: x + meta.exp(meta.ones(big)),
    ):
        before = program(function, big)
        assert passes.fold_const(before) is before


def test_a_constant_may_become_one_of_its_size():
    table = np.ones(LIMIT + 1, "float32")
    before = program(lambda x: x + meta.exp(meta.array(table)), (LIMIT + 1,))
    assert op_counts(passes.fold_const(before).main) == {"add": 1}


def test_symbolic_sizes_are_not_known():
    n = sym("n")
    before = program(lambda x: x + meta.exp(meta.zeros((n, 3))), tensor_type((n, 3)))
    assert passes.fold_const(before) is before


def test_draws_with_known_keys_are_folded_as_they_are_drawn():
    after = folded(lambda x: x + meta.normal(meta.array([3, 4]), X), X)
    assert op_counts(after.main) == {"add": 1}


def test_a_known_condition_takes_its_branch():
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
        before = parsed(text.format(value))
        after = passes.dce(same_results(before, passes.fold_const(before)))
        assert op_counts(after.main) == expected


def test_modes_of_the_caller_do_not_matter():
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


def test_constants_of_absent_devices_stay():
    before = parsed("""
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
    after = folded(lambda x: meta.concatenate([x, meta.reshape(meta.ones((2,), dtype), (1, 2))]), kind)
    assert op_counts(after.main) == {"concatenate": 1}
