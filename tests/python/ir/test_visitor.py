"""Walking and rebuilding."""

from itertools import combinations

import pytest

from meta.errors import IRError
from meta.ir.builder import Builder
from meta.ir.equality import structural_equal
from meta.ir.expr import Block, Call, Constant, GlobalVar, If, Span, Tuple, TupleGetItem, Var
from meta.ir.printer import to_text
from meta.ir.type import FunctionType
from meta.ir.verifier import verify
from meta.ir.visitor import (
    bound_vars,
    free_vars,
    inline,
    renamed,
    use_counts,
    walk,
    walk_blocks,
    with_blocks,
    with_operands,
    with_results,
)
from meta.passes.cse import value_key
from tests.python.ir.programs import NESTED, OPS, T, build, constant, function


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


def test_blocks_belong_to_conditionals_and_functions():
    f = function("  %a = softmax(%x)\n  %a")
    with pytest.raises(IRError, match="blocks are given to a Call"):
        with_blocks(f.body.bindings[0].value, (f.body,))


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


def test_operands_of_lists_and_callees_are_replaced():
    x, y = Var("x", T), Var("y", T)
    call = Call(OPS["concat"], ((x, x), 0), T)
    assert with_operands(call, (y, y)).args == ((y, y), 0)
    assert with_operands(call, (x, x)) is call
    f = Var("f", build(lambda b, x: x, T).type)
    applied = Call(f, (x,), T)
    assert with_operands(applied, (f, y)).op is f
    with pytest.raises(IRError, match="the function of a call was replaced by a tensor"):
        with_operands(applied, (constant(1.0), x))


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


def test_results_are_replaced():
    x, y = Var("x", T), Var("y", T)
    assert with_results(Block((), x), [y]) is y
    pair = Tuple((x, x))
    assert with_results(Block((), pair), [x, x]) is pair
    assert with_results(Block((), pair), [x, y]).fields == (x, y)
