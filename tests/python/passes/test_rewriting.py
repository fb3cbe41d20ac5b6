"""Rules and rewriting."""

from dataclasses import replace

import pytest

from meta.errors import TypeInferenceError
from meta.ir.expr import Call, FunctionExpr, Span
from meta.ir.parser import parse_function
from meta.ir.printer import to_text
from meta.ir.type import FunctionType, tensor_type
from meta.ir.verifier import verify
from meta.ir.visitor import free_vars, walk
from meta.passes.rewriting import by_op, rewrite
from tests.python.ir.programs import EXAMPLE, HEAD, NESTED, OPS, T, function, lines, lookup


def test_a_rule_replaces_values_at_every_depth():
    def to_norm(binding, scope):
        return scope.call_expr(OPS["norm"], (binding.value.args[0], None, None, 1e-5))

    new = rewrite(function(NESTED), by_op({"softmax": to_norm}))
    verify(new)
    assert "softmax" not in to_text(new)
    assert [b.var.name for b in walk(new)] == ["c", "a", "b", "y", "v", "w", "f", "z"]


def test_a_rule_replaces_a_variable_by_an_atom():
    new = rewrite(function(NESTED), by_op({"softmax": lambda binding, scope: binding.value.args[0]}))
    verify(new)
    branch = new.body.bindings[1].value
    assert branch.then.bindings == ()
    assert branch.then.result is new.params[0]


def test_a_rule_puts_bindings_in_front():
    def split(binding, scope):
        first = scope.call(OPS["norm"], (binding.value.args[0], None, None, 1e-5), "first")
        return scope.call_expr(OPS["add"], (first, 1.0))

    f = parse_function(HEAD + "  %a = softmax(%x)  # net.py:5\n  %a\n}", lookup)
    new = rewrite(f, by_op({"softmax": split}))
    assert lines(new) == [
        '%first: Tensor[(2, 3), "float32"] = norm(%x)',
        '%a: Tensor[(2, 3), "float32"] = add(%first, 1.0)',
        "%a",
    ]
    assert [b.span for b in new.body.bindings] == [Span("net.py", 5)] * 2


def test_the_first_rule_that_answers_counts():
    f = function("  %a = softmax(%x)\n  %a")
    seen = []
    rules = (
        lambda b, s: seen.append(1),
        lambda b, s: s.call_expr(OPS["add"], (b.value.args[0], 1)),
        lambda b, s: seen.append(2),
    )
    assert lines(rewrite(f, *rules))[0].endswith("add(%x, 1)")
    assert seen == [1]


def test_rules_see_rewritten_operands_and_their_definitions():
    def once(binding, scope):
        """softmax(softmax(x)) -> softmax(x)"""
        before = scope.definition(binding.value.args[0])
        if isinstance(before, Call) and before.op is OPS["softmax"]:
            return binding.value.args[0]
        return None

    f = function("  %a = softmax(%x)\n  %b = softmax(%a)\n  %c = softmax(%b)\n  %d = add(%c, %c)\n  %d")
    assert [line.split(" = ")[-1] for line in lines(rewrite(f, by_op({"softmax": once})))] == [
        "softmax(%x)", "add(%a, %a)", "%d",
    ]  # fmt: skip


def test_where_types_change_the_calls_that_read_them_are_typed_again():
    def half(binding, scope):
        return scope.call(OPS["cast"], (binding.value.args[0], "float16"))

    f = function("  %a = softmax(%x)\n  %b = norm(%a)\n  %t = (%b, %b)\n  %d = %t[0]\n  %d")
    new = rewrite(f, by_op({"softmax": half}))
    verify(new)
    assert new.type.result is T.with_dtype("float16")
    assert [b.var.name for b in new.body.bindings] == ["", "b", "t", "d"]
    mixed = function("  %a = softmax(%x)\n  %b = add(%a, %x)\n  %b")
    with pytest.raises(TypeInferenceError, match="differ"):
        rewrite(mixed, by_op({"softmax": half}))


def test_bodies_of_closures_are_rewritten_and_their_calls_typed_again():
    f = function(
        '%f = fn(%u: Tensor[(2, 3), "float32"]) -> Tensor[(2, 3), "float32"] { %v = softmax(%u) %v }\n'
        "%a = %f(%x)\n %b = norm(%a)\n %b"
    ).body
    f = FunctionExpr((x := free_vars(f)[0],), f)
    half = by_op({"softmax": lambda b, s: s.call_expr(OPS["cast"], (b.value.args[0], "float16"))})
    new = rewrite(f, half)
    verify(new)
    assert new.type == FunctionType((x.type,), T.with_dtype("float16"))


def test_what_does_not_change_is_shared():
    f = function(NESTED)
    assert rewrite(f, lambda b, s: None) is f
    assert rewrite(f, lambda b, s: b.value) is f
    new = rewrite(f, by_op({"softmax": lambda b, s: b.value.args[0]}))
    assert new.body.bindings[0] is f.body.bindings[0]
    assert new.body.bindings[2] is f.body.bindings[2]
    assert new.body.bindings[1] is not f.body.bindings[1]


def test_rewriting_the_example_twice_is_stable():
    main = parse_function(EXAMPLE.split("\n\n")[0].replace('  %9: Tensor[(2, 3), "float32"] = @"the other"(%8)\n', "")
                          .replace("%9", "%8").replace("$0", "%w").replace("(1, 3)", "(3,)"), lookup)  # fmt: skip
    table = by_op({"softmax": lambda b, s: s.call_expr(OPS["norm"], (b.value.args[0], None, None, 0.5))})
    once = rewrite(main, table)
    assert once is not main
    assert rewrite(once, table) is once
    assert replace(once, attrs={}).attrs == {}
    assert tensor_type((2, 3)) is T
