"""Each rule of the verifier has a program that breaks it, and only it."""

import pytest

from meta.errors import IRError
from meta.ir.builder import Builder, Module
from meta.ir.expr import (
    MUTATES,
    Binding,
    Block,
    Call,
    Constant,
    FunctionExpr,
    GlobalVar,
    If,
    Span,
    Tuple,
    TupleGetItem,
    Var,
)
from meta.ir.parser import parse
from meta.ir.type import FunctionType, tensor_type
from meta.ir.verifier import BINDING_RULES, BLOCK_RULES, FUNCTION_RULES, verify
from meta.limits import MAX_DEPTH
from tests.python.ir.programs import EXAMPLE, OPS, T, build, constant, lookup

X = Var("x", T)
SPAN = Span("net.py", 7)


def call(op, *args, kind=T, **kwargs):
    return Call(OPS[op], args, kind, SPAN, **kwargs)


def program(*values, result=None, params=(X,), attrs=None):
    """A function that binds the values to %v0, %v1, ... and returns the last."""
    bindings = tuple(v if isinstance(v, Binding) else Binding(Var(f"v{i}", v.type), v) for i, v in enumerate(values))
    return FunctionExpr(params, Block(bindings, result or bindings[-1].var), attrs or {}, span=Span("net.py", 1))


def bound(value, name="a", kind=None):
    return Binding(Var(name, kind or value.type), value)


TWICE = bound(call("softmax", X, 0))
LOST = Var("lost", T)
TRUE = constant(True, "bool")
SELF = Var("f", FunctionType((T,), T))
IDENTITY = build(lambda b, x: x, T)

BROKEN = {
    "value": ("atoms_only", "a Var is bound", program(Binding(Var("a", T), X))),
    "nested call": ("arguments_normal", "argument 'x' is Call", program(call("softmax", call("softmax", X, 0), 0))),
    "mixed list": ("atoms_only", "an operand is a int", program(call("concat", (X, 3), 0))),
    "nested tuple": ("atoms_only", "an operand is a Tuple", program(Tuple((Tuple((X,)),)))),
    "bound twice": ("bound_once", "%a is bound a second time", program(TWICE, TWICE)),
    "bound in both branches": (
        "bound_once",
        "%a is bound a second time",
        program(If(TRUE, Block((TWICE,), TWICE.var), Block((TWICE,), TWICE.var), SPAN)),
    ),
    "parameter bound": ("bound_once", "%x is bound a second time", program(Binding(X, call("softmax", X, 0)))),
    "same closure twice": ("bound_once", "%p0 is bound a second time", program(IDENTITY, IDENTITY)),
    "undefined": ("defined_before_use", "%lost is read but not bound here", program(call("softmax", LOST, 0))),
    "used before": ("defined_before_use", "%a is read but", program(call("softmax", TWICE.var, 0), TWICE)),
    "own value": ("defined_before_use", "%a is read", program(Binding(TWICE.var, call("softmax", TWICE.var, 0)))),
    "out of branch": (
        "defined_before_use",
        "%a is read but",
        program(If(TRUE, Block((TWICE,), X), Block((), X), SPAN), call("softmax", TWICE.var, 0)),
    ),
    "parameter of a closure": (
        "defined_before_use",
        "%p0 is read but",
        program(IDENTITY, call("softmax", IDENTITY.params[0], 0)),
    ),
    "arity": ("arity", "1 arguments for softmax", program(call("softmax", X))),
    "kind": ("arguments_normal", "argument 'axis' is str 'a'", program(call("softmax", X, "a"))),
    "normal form": ("arguments_normal", "is 3, its normal form is (3,)", program(call("reshape", X, 3, kind=T))),
    "exact class": ("arguments_normal", "is 1, its normal form is 1.0", program(call("norm", X, None, None, 1))),
    "tensor for attribute": ("arguments_normal", "argument 'axis' is Var", program(call("softmax", X, X))),
    "function for tensor": (
        "arguments_normal",
        "argument 'x' is GlobalVar",
        Module({"main": program(call("softmax", GlobalVar("g", IDENTITY.type), 0)), "g": IDENTITY}),
    ),
    "value type": (
        "type_agrees",
        'the value has type Tensor[(), "int8"], inferred is Tensor[(2, 3)',
        program(call("softmax", X, 0, kind=tensor_type((), "int8"))),
    ),
    "variable type": (
        "type_agrees",
        'the variable has type Tensor[(), "int8"]',
        program(bound(call("softmax", X, 0), kind=tensor_type((), "int8"))),
    ),
    "type rule": (
        "type_agrees",
        "it cannot be typed: [add]",
        program(call("add", X, constant(1, "int8"))),
    ),
    "field": ("type_agrees", "there is no field 2", program(Binding(Var("a", T), TupleGetItem(X, 2, SPAN)))),
    "function arguments": (
        "type_agrees",
        "arguments of types [] do not fit",
        program(IDENTITY, Binding(Var("a", T), Call(SELF, (), T, SPAN)), params=(X, SELF)),
    ),
    "branches": (
        "branches_agree",
        "the branches return",
        program(If(TRUE, Block((), X), Block((), TRUE), SPAN)),
    ),
    "condition": (
        "branches_agree",
        "the condition has type",
        program(If(X, Block((), X), Block((), X), SPAN)),
    ),
    "constant shape": (
        "constants_fit",
        "a constant holds float32 of shape (2,)",
        program(call("softmax", Constant(constant([1.0, 2.0]).value, T), 0)),
    ),
    "constant dtype": (
        "constants_fit",
        "a constant holds float64 of shape ()",
        program(call("add", X, Constant(constant(1.0, "float64").value, tensor_type(())))),
    ),
    "returned constant": (
        "results_exist",
        "a constant holds float32 of shape ()",
        program(TWICE, result=Constant(constant(1.0).value, T)),
    ),
    "result": ("results_bound", "%lost is read but not bound here", program(TWICE, result=LOST)),
    "result kind": ("results_bound", "a result is a Call", program(TWICE, result=Tuple((TWICE.value,)))),
    "result of a branch": (
        "results_bound",
        "%lost is read",
        program(If(TRUE, Block((), LOST), Block((), X), SPAN)),
    ),
    "no such function": (
        "globals_exist",
        "@g is not a function of the module",
        Module({"main": program(Call(GlobalVar("g", IDENTITY.type), (X,), T, SPAN))}),
    ),
    "other function type": (
        "globals_exist",
        "@g is named with type",
        Module(
            {
                "main": program(Call(GlobalVar("g", FunctionType((T,), T)), (X,), T, SPAN)),
                "g": program(TRUE_CALL := call("test", X, "any", kind=tensor_type((), "bool"))),
            }
        ),
    ),
    "returned function": (
        "results_exist",
        "@g is not a function",
        Module({"main": program(TWICE, result=GlobalVar("g", IDENTITY.type))}),
    ),
    "parameters": ("parameters_distinct", "a variable is a parameter twice", program(TWICE, params=(X, X))),
    "mutated parameter": (
        "mutations_fit",
        "maps result 0 to parameter 3; there is no such pair",
        program(TWICE, attrs={MUTATES: {0: 3}}),
    ),
    "mutated result": (
        "mutations_fit",
        "maps result -1 to parameter 0; there is no such pair",
        program(TWICE, attrs={MUTATES: {-1: 0}}),
    ),
    "mutated type": (
        "mutations_fit",
        'maps a result Tensor[(), "bool"] to a parameter Tensor[(2, 3)',
        program(TRUE_CALL, attrs={MUTATES: {0: 0}}),
    ),
    "mutated twice": (
        "mutations_fit",
        "names a parameter twice",
        program(TWICE, result=Tuple((TWICE.var, X)), attrs={MUTATES: {0: 0, 1: 0}}),
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_rule_is_named_with_the_binding_and_the_line(name):
    rule, wrong, broken = BROKEN[name]
    with pytest.raises(IRError) as caught:
        verify(broken)
    text = str(caught.value)
    assert text.startswith(f"[verify] {rule}: ")
    assert wrong in text
    assert "of @main" in text
    assert text.endswith(("(at net.py:7)", "(at net.py:1)")) or rule in ("atoms_only", "bound_once")


def test_the_whole_text_of_an_error():
    with pytest.raises(IRError) as caught:
        verify(program(call("softmax", LOST, 0)))
    assert str(caught.value) == (
        "[verify] defined_before_use: %lost is read but not bound here; every operand is bound before it is read; "
        "look in '%v0 = softmax(%lost, axis=0)' of @main (at net.py:7)"
    )


def test_every_rule_is_tested():
    rules = [*BINDING_RULES, *BLOCK_RULES, *FUNCTION_RULES]
    assert {r.__name__ for r in rules} == {rule for rule, _, _ in BROKEN.values()}


def test_deep_programs_are_refused():
    block = Block((), X)
    for _ in range(MAX_DEPTH + 1):
        value = If(TRUE, block, Block((), X), SPAN)
        block = Block((Binding(Var("", T), value),), X)
    with pytest.raises(IRError, match=f"depth: blocks nest deeper than {MAX_DEPTH}"):
        verify(FunctionExpr((X,), block))


def test_recursion_through_the_module_and_through_closures_is_fine():
    verify(parse(EXAMPLE, lookup))
    verify(parse(EXAMPLE.replace('@"the other"(%8)', "@main(%8, %w)"), lookup))


def test_a_function_on_its_own_may_name_others():
    builder = Builder()
    with builder.function("main", [("x", T)]) as scope:
        scope.ret(builder.call_function(GlobalVar("g", IDENTITY.type), [scope.params[0]]))
    verify(scope.function)


def test_new_sizes_have_any_unused_name() -> None:
    """Each inference names the sizes that depend on values anew; two results must not share a name."""
    text = """def main(%x: Tensor[(4,), "float32"], %y: Tensor[(4,), "float32"]) -> (Tensor[(k, 1), "int64"], Tensor[(LAST, 1), "int64"]) {
  %0: Tensor[(k, 1), "int64"] = argwhere(%x)
  %1: Tensor[(LAST, 1), "int64"] = argwhere(%y)
  (%0, %1)
}"""  # noqa: E501
    verify(parse(text.replace("LAST", "m")))
    for wrong in ("k", "4"):
        with pytest.raises(IRError, match="type_agrees"):
            verify(parse(text.replace("LAST", wrong)))
