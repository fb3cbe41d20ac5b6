"""The passes cse, dce and inline_calls."""

from __future__ import annotations

import sys

import meta
from meta import passes
from meta.interpreter.run import run
from meta.ir.analysis import op_counts
from meta.ir.builder import Module
from meta.ir.expr import Call
from meta.ir.printer import to_text
from meta.ir.visitor import walk
from tests.python.passes.programs import check_same_results, parse_program, program, random_module
from tests.python.recorded import array, assert_equal, check_ir

X = (2, 3)
BRANCHES = """
def main(%x: T, %y: T) -> (T, T) {
  %s = sum(%x)
  %c = greater(%s, 0.0)
  %a = tanh(%x)
  %z = if %c {
    %b = tanh(%x)
    %d = relu(%y)
    %e = relu(%y)
    %f = add(%b, %d)
    %g = add(%f, %e)
    %g
  } else {
    %h = relu(%y)
    %h
  }
  %r = relu(%y)
  %t = tanh(%x)
  %u = add(%r, %t)
  (%z, %u)
}"""


# --- cse -------------------------------------------------------------------------------------------------------------


def test_merges_equal_calls():
    before = program(lambda x: (meta.relu(x) * 2.0) + (meta.relu(x) * 2.0) - meta.relu(x), X)
    after = check_same_results(before, passes.cse(before))
    assert op_counts(after.main) == {"add": 1, "multiply": 1, "relu": 1, "subtract": 1}


def test_distinguishes_calls_by_attributes_and_operands():
    before = program(lambda x, y: meta.softmax(x, 0) + meta.softmax(x, 1) + meta.softmax(y, 0) + x * 1.0 + x * 1, X, X)
    assert op_counts(passes.cse(before).main) == op_counts(before.main)


def test_blocks_reuse_outer_values_but_not_values_of_sibling_blocks():
    before = parse_program(BRANCHES)
    after = check_same_results(before, passes.cse(before), seeds=4)
    assert op_counts(after.main) == {"add": 3, "greater": 1, "relu": 3, "sum": 1, "tanh": 1}
    assert passes.cse(after) is after
    assert to_text(passes.cse(before)) == to_text(after)


def test_merges_equal_constants_and_fields():
    before = program(lambda x: x * meta.array([1.0, 2.0, 3.0]) + x * meta.array([1.0, 2.0, 3.0]), X)
    assert op_counts(passes.cse(before).main) == {"add": 1, "multiply": 1}


def test_keeps_random_draws_with_different_keys():
    before = program(lambda x: meta.random.normal(X) + meta.random.normal(X) + x, X)
    assert op_counts(passes.cse(before).main)["normal"] == 2


# --- dce -------------------------------------------------------------------------------------------------------------


def test_removes_dead_chains_blocks_and_closures():
    before = parse_program("""
    def main(%x: T, %y: T) -> T {
      %a = tanh(%x)
      %b = relu(%a)
      %s = sum(%b)
      %c = greater(%s, 0.0)
      %z = if %c {
        %d = exp(%x)
        %e = relu(%d)
        %e
      } else {
        %f = exp(%y)
        %x
      }
      %dead = if %c {
        %g = exp(%y)
        %g
      } else {
        %x
      }
      %loop = fn(%u: T) -> T {
        %h = exp(%u)
        %i = %loop(%h)
        %i
      }
      %j = add(%dead, %y)
      %k = relu(%z)
      %k
    }""")
    after = check_same_results(before, passes.dce(before), seeds=4)
    assert op_counts(after.main) == {"exp": 1, "greater": 1, "relu": 3, "sum": 1, "tanh": 1}
    assert passes.dce(after) is after


def test_removes_functions_that_main_does_not_call():
    before = random_module(1)
    inlined = passes.inline_calls(before)
    assert set(inlined) == {"helper", "main"}
    assert set(passes.dce(inlined)) == {"main"}
    library = Module({"a": before.main, "helper": before["helper"]})
    assert set(passes.dce(library)) == {"a", "helper"}


def test_keeps_parameters():
    after = passes.dce(program(lambda x, y: y * 2.0, X, X))
    assert [p.name for p in after.main.params] == ["x", "y"]


# --- inline_calls ----------------------------------------------------------------------------------------------------

CALLS = """
def leaf(%x: T) -> T {
  %y = relu(%x)
  %y
}

def middle(%x: T) -> (T, T) {
  %y = @leaf(%x)
  %z = @leaf(%y)
  (%y, %z)
}

def count(%x: T) -> T {
  %s = sum(%x)
  %c = greater(%s, 0.0)
  %y = if %c {
    %v = subtract(%x, 1.0)
    %w = @count(%v)
    %w
  } else {
    %u = @leaf(%x)
    %u
  }
  %y
}

def main(%x: T) -> T {
  %p = @middle(%x)
  %a = %p[0]
  %f = fn(%u: T) -> T {
    %g = fn(%v: T) -> T {
      %h = add(%v, %a)
      %h
    }
    %i = %g(%u)
    %i
  }
  %b = %f(%a)
  %d = %f(%b)
  %e = @count(%d)
  %e
}"""


def test_inlines_calls_unless_they_recurse():
    before = parse_program(CALLS)
    after = check_same_results(before, passes.dce(passes.inline_calls(before)), seeds=4)
    assert set(after) == {"count", "main"}
    callees = [b.value.callee.name for f in after.functions.values() for b in walk(f)
              if isinstance(b.value, Call) and b.value.callee]  # fmt: skip
    assert callees == ["count", "count"]
    assert passes.dce(passes.inline_calls(after)) is after


# --- size ------------------------------------------------------------------------------------------------------------


def test_passes_are_linear_in_the_program():
    def chain(n):
        def f(x):
            for i in range(n):
                x = meta.tanh(x) * (1.0 + i) + meta.split(x, 3, 1)[1]
            return x

        return program(f, X)

    def calls(n):
        """Calls of Python functions: the same number in every run, unlike seconds."""
        module, count = chain(n), 0

        def event(frame, kind, arg):
            nonlocal count
            count += kind == "call"

        sys.setprofile(event)
        try:
            passes.standard()(passes.auto_cast()(passes.auto_diff()(module)))
        finally:
            sys.setprofile(None)
        return count

    calls(2)  # what is loaded and cached once
    assert calls(80) < 5 * calls(20)  # four times the program; a quadratic pass would need 16 times as many


def test_gradients_of_a_long_program_agree_with_eager():
    w = array(*X, grad=True)

    def f(x):
        for _ in range(30):
            x = meta.tanh(x) + meta.split(x, 3, 1)[1]
        return x

    module = passes.auto_diff()(program(f, X))
    check_ir(module)
    _, dw = run(module, w.detach(), meta.ones(X))
    f(w).backward(meta.ones(X))
    assert_equal(dw, w.grad, rtol=1e-4)
