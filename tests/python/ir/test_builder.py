"""Building IR: types, spans, scopes and the errors of each."""

from contextlib import suppress
from linecache import getline

import pytest

from meta.errors import IRError, TypeInferenceError
from meta.ir.builder import Builder, Module
from meta.ir.expr import Call, Span, Tuple, TupleGetItem, Var
from meta.ir.type import FunctionType, TupleType, tensor_type
from meta.limits import MAX_DEPTH
from tests.python.ir.programs import OPS, T, build, constant


def test_calls_are_typed_and_remember_the_line_of_the_user():
    builder = Builder()
    x = Var("x", T)
    out = builder.call(OPS["cast"], (x, "int8"), "y")
    assert (out.name, out.type) == ("y", T.with_dtype("int8"))
    assert out.span is not None
    assert out.span.file == __file__
    assert 'builder.call(OPS["cast"]' in getline(__file__, out.span.line)
    assert builder.bindings[0].var is out
    assert isinstance(builder.definition(out), Call)
    assert builder.definition(x) is None
    assert builder.definition(-1) is None


def test_a_given_span_wins_and_passes_leave_none():
    x = Var("x", T)
    assert Builder(span=Span("a.py", 3)).call(OPS["softmax"], (x, 0)).span == Span("a.py", 3)
    assert Builder(caller_spans=False).call(OPS["softmax"], (x, 0)).span is None


def test_the_type_rule_speaks_where_the_call_is_built():
    with pytest.raises(TypeInferenceError, match=r"\[add\] .* differ; expected equal types"):
        Builder().call(OPS["add"], (Var("x", T), Var("y", T.with_dtype("int8"))))


def test_tuples_fields_conditionals_and_functions():
    def make(b, x):
        pair = b.tuple([x, constant(1.0)])
        field = b.get_item(pair, 0)
        branch = b.if_(b.call(OPS["test"], (x, "any")), lambda: b.call(OPS["softmax"], (field, 0)), lambda: x)
        with b.function("inner", [("y", T)]) as scope:
            scope.ret((scope.params[0], branch))
        return b.call_function(b.emit(scope.function), [field])

    function = build(make, T)
    pair, field, _, branch, inner, result = (b.var.type for b in function.body.bindings)
    assert pair == TupleType((T, tensor_type(())))
    assert field is T
    assert branch is T
    assert inner == FunctionType((T,), TupleType((T, T)))
    assert result == TupleType((T, T))
    assert function.type == FunctionType((T,), TupleType((T, T)))


def test_branches_of_two_types_are_refused():
    b = Builder()
    with pytest.raises(IRError, match=r"the branches return .* and .*; expected one type for both"):
        b.if_(constant(True, "bool"), lambda: constant(1.0), lambda: constant(1, "int64"))


def test_functions_are_called_with_what_they_take():
    b = Builder()
    f = Var("f", FunctionType((T,), T))
    assert b.call_function(f, [Var("x", T)]).type is T
    with pytest.raises(IRError, match=r"arguments of types \[\] do not fit fn\(.*expected 1 argument"):
        b.call_function(f, [])
    with pytest.raises(IRError, match=r"a value of type .* is called; expected a function"):
        b.call_function(Var("x", T), [])


def test_definitions_end_with_their_block():
    b = Builder()
    outer = b.tuple([])
    with b.block() as scope:
        inner = b.tuple([outer])
        scope.ret(inner)
        assert b.definition(outer) is not None
        assert b.definition(inner) is not None
    assert b.definition(outer) is not None
    assert b.definition(inner) is None


def test_a_block_needs_a_result():
    b = Builder()
    with pytest.raises(IRError, match=r"ended without a result; call ret"), b.block():
        b.tuple([])
    assert b.bindings == ()


def test_an_error_inside_a_block_leaves_the_builder_as_it_was():
    b = Builder()
    with suppress(ZeroDivisionError), b.function("f"):
        b.tuple([])
        raise ZeroDivisionError
    assert b.bindings == ()


def test_nesting_is_bounded():
    b = Builder()

    def deeper():
        return b.if_(constant(True, "bool"), deeper, lambda: constant(1.0))

    with pytest.raises(IRError, match=f"deeper than {MAX_DEPTH}"):
        deeper()


def test_fields_out_of_range():
    pair = Var("p", TupleType((T,)))
    assert TupleGetItem(pair, 0).type is T
    for value, index in ((pair, 1), (pair, -1), (Var("x", T), 0)):
        with pytest.raises(IRError, match=f"there is no field {index} in a value of type"):
            TupleGetItem(value, index).type  # noqa: B018


def test_modules_are_immutable_and_look_up_by_name():
    f, g = build(lambda b, x: x, T), build(lambda b, x: b.tuple([x]), T)
    module = Module({"main": f})
    more = module.with_function("helper", g)
    assert list(module) == ["main"]
    assert list(more) == ["main", "helper"]
    assert more.main is f
    assert "helper" in more
    assert list(more.without("main")) == ["helper"]
    assert more["helper"].type == g.type
    with pytest.raises(IRError, match=r"no function 'helpr'; expected one of main, helper; did you mean 'helper'\?"):
        more["helpr"]
    assert isinstance(Tuple(()).type, TupleType)
