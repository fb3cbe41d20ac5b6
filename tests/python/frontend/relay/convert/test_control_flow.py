"""Functions, conditionals, recursion, references and data types: on the interpreter, some on the VM as well."""

from __future__ import annotations

import numpy as np
import pytest

import meta
from meta.frontend.relay import RelayError, UnsupportedError, from_relay
from meta.interpreter.run import run
from meta.ir.expr import If
from meta.ir.parser import parse
from meta.ir.printer import to_text
from meta.ir.verifier import verify
from meta.ir.visitor import walk

HEADER = '#[version = "0.0.5"]\n'
X = np.array([0.5, -1.0, 2.0], "float32")
YES, NO = np.asarray(True), np.asarray(False)

TYPES = """
type List[A] {
  Cons(A, List[A]),
  Nil,
}
type Opt[A] {
  Some(A),
  None_,
}
"""


def imported(source: str) -> meta.ir.Module:
    module = from_relay(HEADER + source)
    verify(module)
    assert to_text(parse(to_text(module))) == to_text(module)
    return module


def value(source: str, *inputs: np.ndarray, vm: bool = False) -> np.ndarray:
    module = imported(source)
    with meta.with_dialect(["reference"]):
        actual = run(module, *inputs)
    if vm:
        compiled = meta.vm.compile(module)(*[meta.array(x) for x in inputs])
        np.testing.assert_allclose(compiled.numpy(), actual.numpy(), rtol=1e-6)
    return actual.numpy()


def test_closures_capture_and_are_passed_on() -> None:
    source = """
def @twice[A](%f: fn (A) -> A, %x: A) -> A { %0 = %f(%x); %f(%0) }
def @main(%x: Tensor[(3), float32], %y: Tensor[(3), float32]) -> Tensor[(3), float32] {
  let %add = fn (%z: Tensor[(3), float32]) { add(%z, %y) };
  let %make = fn (%s: float32) { fn (%z: Tensor[(3), float32]) { multiply(%z, %s) } };
  %0 = %make(3f);
  %1 = @twice(%add, %x);
  @twice(%0, %1)
}"""
    np.testing.assert_allclose(value(source, X, X), X * 27)


def test_operators_are_values() -> None:
    source = """
def @apply(%f: fn (Tensor[(3), float32]) -> Tensor[(3), float32], %x: Tensor[(3), float32]) { %f(%x) }
def @main(%x: Tensor[(3), float32]) { @apply(exp, %x) }"""
    np.testing.assert_allclose(value(source, X), np.exp(X), rtol=1e-6)


def test_conditions_that_are_known_are_decided() -> None:
    module = imported("def @main(%x: Tensor[(3), float32]) { if (True) { exp(%x) } else { log(%x) } }")
    assert not any(isinstance(b.value, If) for b in walk(module.main))


def test_conditional_of_nested_tuples() -> None:
    source = """
def @main(%x: Tensor[(3), float32], %c: bool) {
  %0 = if (%c) { %1 = exp(%x); (%x, (%1, %x)) } else { (%x, (%x, %x)) };
  %2 = %0.1;
  %2.0
}"""
    np.testing.assert_allclose(value(source, X, YES, vm=True), np.exp(X), rtol=1e-6)
    np.testing.assert_allclose(value(source, X, NO), X)


def test_recursion_on_tensors() -> None:
    source = """
def @power(%n: int32, %x: Tensor[(3), float32]) -> Tensor[(3), float32] {
  %0 = equal(%n, 0);
  if (%0) { %x } else { %1 = subtract(%n, 1); %2 = multiply(%x, 2f); @power(%1, %2) }
}
def @main(%n: int32, %x: Tensor[(3), float32]) { @power(%n, %x) }"""
    assert list(imported(source)) == ["main", "power"]
    np.testing.assert_allclose(value(source, np.int32(5), X, vm=True), X * 32)


def test_mutual_and_polymorphic_recursion() -> None:
    source = """
def @even[A](%n: int32, %x: A) -> A { %0 = equal(%n, 0); if (%0) { %x } else { %1 = subtract(%n, 1); @odd(%1, %x) } }
def @odd[A](%n: int32, %x: A) -> A { %0 = subtract(%n, 1); @even(%0, %x) }
def @main(%n: int32, %x: Tensor[(3), float32]) {
  %0 = @even(%n, %x);
  %1 = @even(%n, %n);
  %2 = cast(%1, dtype="float32");
  add(%0, %2)
}"""
    module = imported(source)
    assert sorted(module) == ["even", "even_1", "main", "odd", "odd_1"]
    np.testing.assert_allclose(value(source, np.int32(4), X), X + 4)


def test_local_recursion_sees_what_is_around_it() -> None:
    source = """
def @main(%n: int32, %x: Tensor[(3), float32]) -> Tensor[(3), float32] {
  let %loop: fn (int32, Tensor[(3), float32]) -> Tensor[(3), float32] =
    fn (%i: int32, %y: Tensor[(3), float32]) -> Tensor[(3), float32] {
      %0 = less(%i, %n);
      if (%0) { %1 = add(%i, 1); %2 = add(%y, %x); %loop(%1, %2) } else { %y }
    };
  %loop(0, %x)
}"""
    np.testing.assert_allclose(value(source, np.int32(3), X, vm=True), X * 4)


def test_recursion_with_a_function_among_the_arguments() -> None:
    source = """
def @repeat(%f: fn (Tensor[(3), float32]) -> Tensor[(3), float32], %n: int32, %x: Tensor[(3), float32])
    -> Tensor[(3), float32] {
  %0 = equal(%n, 0);
  if (%0) { %x } else { %1 = subtract(%n, 1); %2 = %f(%x); @repeat(%f, %1, %2) }
}
def @main(%n: int32, %x: Tensor[(3), float32], %y: Tensor[(3), float32]) {
  let %step = fn (%z: Tensor[(3), float32]) { add(%z, %y) };
  @repeat(%step, %n, %x)
}"""
    np.testing.assert_allclose(value(source, np.int32(3), X, X, vm=True), X * 4)


def test_lists_are_unrolled() -> None:
    source = (
        TYPES
        + """
def @map[A](%f: fn (A) -> A, %l: List[A]) -> List[A] {
  match (%l) { Cons(%h, %t) => { %0 = %f(%h); %1 = @map(%f, %t); Cons(%0, %1) }, Nil => { Nil } }
}
def @total(%l: List[Tensor[(3), float32]], %s: Tensor[(3), float32]) -> Tensor[(3), float32] {
  match (%l) { Cons(%h, %t) => { %2 = add(%s, %h); @total(%t, %2) }, Nil => { %s } }
}
def @main(%x: Tensor[(3), float32]) {
  %0 = Nil;
  %1 = Cons(%x, %0);
  %2 = Cons(%x, %1);
  %3 = fn (%z: Tensor[(3), float32]) { multiply(%z, 3f) };
  %4 = @map(%3, %2);
  %5 = zeros_like(%x);
  @total(%4, %5)
}"""
    )
    np.testing.assert_allclose(value(source, X), X * 6)


def test_match_on_a_value_that_depends_on_a_condition() -> None:
    source = (
        TYPES
        + """
def @main(%x: Tensor[(3), float32], %c: bool) {
  %0 = if (%c) { %1 = exp(%x); Some(%1) } else { None_ };
  match (%0) { Some(%v) => { negative(%v) }, None_ => { %x } }
}"""
    )
    np.testing.assert_allclose(value(source, X, YES, vm=True), -np.exp(X), rtol=1e-6)
    np.testing.assert_allclose(value(source, X, NO), X)


def test_references_in_branches() -> None:
    source = """
def @main(%x: Tensor[(3), float32], %c: bool) {
  let %r = ref(%x);
  let %s = ref(%x);
  let %u = if (%c) { %0 = ref_read(%r); %1 = add(%0, %x); ref_write(%r, %1) } else { () };
  %2 = ref_read(%r);
  %3 = ref_read(%s);
  add(%2, %3)
}"""
    np.testing.assert_allclose(value(source, X, YES, vm=True), X * 3)
    np.testing.assert_allclose(value(source, X, NO), X * 2)


def test_tuple_parameters_of_main() -> None:
    module = imported("def @main(%p: (Tensor[(3), float32], (int32, bool))) { %0 = %p.1; %0.0 }")
    assert [p.name for p in module.main.params] == ["p.0", "p.1", "p.2"]


def test_differentiates() -> None:
    module = imported("""
def @main(%x: Tensor[(3), float32], %c: bool) {
  if (%c) { %0 = multiply(%x, %x); sum(%0) } else { sum(%x) }
}""")
    both = meta.passes.auto_diff()(module)
    with meta.with_dialect(["reference"]):
        _, dx = run(both, X, YES, np.float32(1))
    np.testing.assert_allclose(dx.numpy(), 2 * X)


REFUSED = {
    "a function as input": ("def @main(%f: fn (float32) -> float32) { %f(1f) }", "'f' is a function"),
    "data as input": (TYPES + "def @main(%l: Opt[float32]) { match (%l) { Some(%v) => { %v }, None_ => { 1f } } }",
                      "'l' is of the type Opt"),
    "a function as result": ("def @main(%x: float32) { fn (%y: float32) { add(%x, %y) } }",
                             "the result of @main holds a function"),
    "data as result": (TYPES + "def @main(%x: float32) { Some(%x) }", "data type, Some"),
    "a choice as result": (TYPES + "def @main(%x: float32, %c: bool) { if (%c) { Some(%x) } else { None_ } }",
                           "the result of @main holds"),
    "endless unrolling": (TYPES + """
def @grow(%l: List[float32]) -> float32 { %0 = Cons(1f, %l); @grow(%0) }
def @main() { %0 = Nil; @grow(%0) }""", "nest deeper than"),
    "a mask that is not there": ("def @main(%x: Tensor[(3), float32]) { %0 = nn.dropout(%x); %0.1 }", "mask"),
    "recursion that says no type": ("def @f(%x: float32) { @f(%x) }\ndef @main(%x: float32) { @f(%x) }", "inference"),
    "branches of two types": ("def @main(%x: Tensor[(3), float32], %c: bool) { if (%c) { sum(%x) } else { %x } }",
                              "the branches return"),
    "a condition that is no bool": ("def @main(%x: float32) { if (%x) { %x } else { %x } }", "the condition is"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    source, text = REFUSED[name]
    with pytest.raises(RelayError, match=text) as error:
        from_relay(HEADER + source)
    assert "line " in str(error.value)


def test_programs_that_grow_are_refused_in_time() -> None:
    calls = "\n".join(f"def @f{i}(%x: float32) {{ %0 = @f{i + 1}(%x); @f{i + 1}(%0) }}" for i in range(40))
    source = f"{calls}\ndef @f40(%x: float32) {{ %x }}\ndef @main(%x: float32) {{ @f0(%x) }}"
    with pytest.raises(UnsupportedError, match="expressions once its functions are inlined"):
        from_relay(HEADER + source)
