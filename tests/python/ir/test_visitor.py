"""Walking and rewriting."""

from dataclasses import replace
from itertools import combinations

import pytest

from meta.errors import IRError, TypeInferenceError
from meta.ir.builder import Builder
from meta.ir.equality import structural_equal, value_key
from meta.ir.expr import Block, Call, Constant, FunctionExpr, GlobalVar, If, Tuple, TupleGetItem, Var
from meta.ir.parser import parse_function
from meta.ir.printer import to_text
from meta.ir.span import Span
from meta.ir.type import FunctionType, tensor_type
from meta.ir.verifier import verify
from meta.ir.visitor import (
    bound_vars,
    by_op,
    free_vars,
    inline,
    map_operands,
    renamed,
    rewrite,
    use_counts,
    walk,
    walk_blocks,
    with_blocks,
)
from tests.python.ir.programs import EXAMPLE, HEAD, OPS, T, build, constant, lookup


def function(body):
    return parse_function(HEAD + body + "\n}", lookup)


def lines(f):
    return [line.strip() for line in to_text(f, spans=False).split("\n")[1:-1]]


NESTED = """
  %c = test(%x)
  %y = if %c {
    %a = softmax(%x)
    %b = softmax(%a)
    %b
  } else {
    %x
  }
  %f = fn(%u: Tensor[(2, 3), "float32"]) -> Tensor[(2, 3), "float32"] {
    %v = add(%u, %y)
    %w = %f(%v)
    %w
  }
  %z = %f(%y)
  %z"""


def test_bindings_come_with_nested_ones_first():
    f = function(NESTED)
    assert [b.var.name for b in walk(f)] == ["c", "a", "b", "y", "v", "w", "f", "z"]
    assert [len(block.bindings) for block in walk_blocks(f)] == [2, 0, 2, 4]
    assert [v.name for v in bound_vars(f)] == ["x", "c", "y", "a", "b", "f", "u", "v", "w", "z"]


def test_uses_are_counted_at_every_depth():
    counts = use_counts(function(NESTED))
    assert {v.name: n for v, n in counts.items()} == {"x": 3, "c": 1, "a": 1, "b": 1, "y": 2, "u": 1, "v": 1, "w": 1,
                                                      "f": 2, "z": 1}  # fmt: skip
    assert counts[Var("other", T)] == 0


def test_free_variables_leave_out_what_is_bound_inside():
    f = function(NESTED)
    y, closure, z = (b.value for b in f.body.bindings[1:])
    assert [v.name for v in free_vars(y)] == ["c", "x"]
    assert [v.name for v in free_vars(closure)] == ["y", "f"]
    assert [v.name for v in free_vars(z)] == ["f", "y"]
    assert free_vars(f) == ()
    assert [v.name for v in free_vars(y.then)] == ["x"]


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


def test_blocks_belong_to_conditionals_and_functions():
    f = function("  %a = softmax(%x)\n  %a")
    with pytest.raises(IRError, match="blocks are given to a Call"):
        with_blocks(f.body.bindings[0].value, (f.body,))


def test_what_does_not_change_is_shared():
    f = function(NESTED)
    assert rewrite(f, lambda b, s: None) is f
    assert rewrite(f, lambda b, s: b.value) is f
    new = rewrite(f, by_op({"softmax": lambda b, s: b.value.args[0]}))
    assert new.body.bindings[0] is f.body.bindings[0]
    assert new.body.bindings[2] is f.body.bindings[2]
    assert new.body.bindings[1] is not f.body.bindings[1]


def test_a_copy_shares_no_variable():
    f = function(NESTED)
    copy = renamed(f)
    assert structural_equal(f, copy)
    assert not set(bound_vars(f)) & set(bound_vars(copy))
    assert to_text(copy) == to_text(f)


def test_inlining_twice_gives_a_correct_program():
    f = function(NESTED)

    def make(b, x):
        return inline(b, f, (inline(b, f, (x,)),))

    twice = build(make, T)
    verify(twice)
    assert len(twice.body.bindings) == 8
    with pytest.raises(IRError, match="0 arguments for 1 parameters"):
        inline(Builder(), f, ())


def test_operands_of_lists_and_callees_are_mapped():
    x, y = Var("x", T), Var("y", T)
    swap = {x: y}
    call = Call(OPS["concat"], ((x, x), 0), T)
    assert map_operands(call, lambda a: swap.get(a, a)).args == ((y, y), 0)
    assert map_operands(call, lambda a: a) is call
    f = Var("f", build(lambda b, x: x, T).type)
    applied = Call(f, (x,), T)
    assert map_operands(applied, lambda a: y if a is x else a).op is f
    with pytest.raises(IRError, match="the function of a call was replaced by a tensor"):
        map_operands(applied, lambda a: constant(1.0) if a is f else a)


def test_equality_is_by_content():
    same = [function("  %a = softmax(%x, axis=0)\n  %a"), function("  %zz = softmax(%x, axis=0)\n  %zz")]
    assert structural_equal(*same)
    others = [
        "  %a = softmax(%x)\n  %a", "  %a = softmax(%x, axis=0)\n  %x", "  %a = tvm.softmax(%x, axis=0)\n  %a",
        '  %a = softmax(%x, axis=0) with {"k": 1}\n  %a', "  %a = softmax(%x, axis=0)\n  %b = (%a,)\n  %a",
        "  %a = add(%x, 1)\n  %a", "  %a = add(%x, 1.0)\n  %a", "  %a = add(%x, True)\n  %a",
        '  %a = add(%x, const(1.0, "float32"))\n  %a', '  %a = add(%x, const(2.0, "float32"))\n  %a',
    ]  # fmt: skip
    for a, b in combinations([same[0], *map(function, others)], 2):
        assert not structural_equal(a, b)


def test_free_variables_compare_by_identity():
    x, y = Var("x", T), Var("x", T)
    make = lambda v: Block((), v)  # noqa: E731
    assert structural_equal(make(x), make(x))
    assert not structural_equal(make(x), make(y))


def test_keys_of_values_join_what_computes_the_same():
    x, y = Var("x", T), Var("x", T)
    call = lambda *args, op="add", **kw: Call(OPS[op], args, T, **kw)  # noqa: E731
    assert value_key(call(x, 1)) == value_key(call(x, 1, span=Span("a", 1)))
    assert value_key(call(x, constant(0.5))) == value_key(call(x, constant(0.5)))
    big = constant([[1.0, 2.0]])
    assert value_key(call(x, big)) == value_key(call(x, big))
    keys = [
        value_key(v)
        for v in (
            call(x, 1), call(x, 1.0), call(x, True), call(y, 1), call(x, x), call(x, y), call(x, 1, dialect="tvm"),
            call(x, 1, attrs={"k": 1}), call(x, big), call(x, Constant(big.value, big.type)), call(x, 1, op="softmax"),
        )
    ]  # fmt: skip
    assert len(set(keys)) == len(keys)
    pair = Tuple((x, y))
    assert value_key(pair) == value_key(Tuple((x, y))) != value_key(Tuple((y, x)))
    p = Var("p", pair.type)
    assert value_key(TupleGetItem(p, 0)) == value_key(TupleGetItem(p, 0)) != value_key(TupleGetItem(p, 1))
    apply = lambda name: Call(GlobalVar(name, FunctionType((T,), T)), (x,), T)  # noqa: E731
    assert value_key(apply("g")) == value_key(apply("g")) != value_key(apply("h"))
    f = function(NESTED)
    assert value_key(f) is None
    assert isinstance(f.body.bindings[1].value, If)
    assert value_key(f.body.bindings[1].value) is None


def test_rewriting_the_example_twice_is_stable():
    main = parse_function(EXAMPLE.split("\n\n")[0].replace('  %9: Tensor[(2, 3), "float32"] = @"the other"(%8)\n', "")
                          .replace("%9", "%8").replace("$0", "%w").replace("(1, 3)", "(3,)"), lookup)  # fmt: skip
    table = by_op({"softmax": lambda b, s: s.call_expr(OPS["norm"], (b.value.args[0], None, None, 0.5))})
    once = rewrite(main, table)
    assert once is not main
    assert rewrite(once, table) is once
    assert replace(once, attrs={}).attrs == {}
    assert tensor_type((2, 3)) is T
