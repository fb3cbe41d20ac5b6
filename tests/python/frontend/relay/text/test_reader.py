"""Relay text: functions, scopes, expressions, types, attributes and the metadata section."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from meta.frontend.relay import ast
from meta.frontend.relay.errors import RelaySyntaxError
from meta.frontend.relay.source import read
from tests.python.frontend.relay.programs import DATA, FLOAT, VECTOR, body, lets, main


def test_functions_with_attributes_and_type_parameters() -> None:
    program = read(DATA / "functions.relay")
    assert list(program.functions) == ["identity", "twice", "fused", "main"]
    generic = ast.NamedType("A")
    assert program.functions["identity"].type_params == ("A",)
    assert program.functions["identity"].result == generic
    assert program.functions["twice"].params[0].type == ast.FuncType((generic,), generic)
    fused = program.functions["fused"]
    assert dict(fused.attrs) == {"Primitive": 1, "Composite": "dnnl.dense_relu", "global_symbol": "k_0"}
    assert [p.name for p in fused.params] == ["x", "w"]
    assert isinstance(fused.body, ast.Call)
    assert isinstance(fused.body.args[0], ast.Call)
    assert dict(fused.body.args[0].attrs) == {"units": 4}


def test_closures_and_tuples() -> None:
    function = main((DATA / "functions.relay").read_text())
    scale, pick = lets(function.body)
    assert isinstance(scale.value, ast.RelayFunction)
    assert isinstance(pick.value, ast.RelayFunction)
    assert pick.value.type_params == ("A", "B")
    assert pick.value.result == ast.TupleType((ast.NamedType("A"), ast.NamedType("B")))
    product = scale.value.body
    assert isinstance(product, ast.Call)
    inner = product.args[1]
    assert isinstance(inner, ast.TupleGetItem)
    assert inner.index == 0
    assert isinstance(inner.value, ast.TupleGetItem)
    assert inner.value.value is function.params[2]
    result = pick.body
    assert isinstance(result, ast.Tuple)
    assert [type(each) for each in result.fields] == [ast.Call, ast.TupleGetItem, ast.Tuple, ast.Tuple, ast.Call]
    single = result.fields[3]
    assert isinstance(single, ast.Tuple)
    assert single.fields == (result.fields[0],)
    assert isinstance(result.fields[4], ast.Call)
    assert isinstance(result.fields[4].callee, ast.RelayFunction)


def test_bindings_of_the_graph_are_shared() -> None:
    result = body("%0 = exp(%x); %1 = (%0, %0); (%1, %1.0)")
    assert result.fields[0].fields[0] is result.fields[0].fields[1]
    assert result.fields[1].value is result.fields[0]


def test_scopes() -> None:
    result = body("%0 = (let %a = exp(%x); let %b = tanh(%a); (%a, %b)); add(%0.0, %0.1)")
    scoped = result.args[0].value
    assert result.args[1].value is scoped
    assert [each.var.name for each in lets(scoped)] == ["a", "b"]
    with pytest.raises(RelaySyntaxError, match="%a is not defined here"):
        body("%0 = (let %a = exp(%x); %a); %a")
    # A block hides what is outside of it, and uncovers it again.
    shadowed = body("%0 = { let %x = 1f; %x }; add(%0, %x)")
    assert isinstance(shadowed.args[0].body, ast.Var)
    assert shadowed.args[0].body is not shadowed.args[1]


def test_control_flow() -> None:
    program = read(DATA / "control.relay")
    loop = program.functions["loop"].body
    assert isinstance(loop, ast.If)
    assert isinstance(loop.then, ast.Let)
    assert isinstance(loop.then.body, ast.Call)
    assert isinstance(loop.then.body.callee, ast.GlobalVar)
    assert loop.then.body.callee.name == "loop"
    fact, outer, effect = lets(program.functions["main"].body)
    assert isinstance(fact.value, ast.RelayFunction)
    assert isinstance(fact.value.body, ast.If)
    recursive = fact.value.body.otherwise
    assert isinstance(recursive, ast.Call)
    assert isinstance(recursive.args[1], ast.Call)
    assert recursive.args[1].callee is fact.var
    assert [each.var.name for each in lets(outer.value)] == ["inner", "more"]
    assert effect.var.name == ""
    last = effect.body
    assert isinstance(last, ast.Call)
    branch = last.args[2]
    assert isinstance(branch, ast.If)
    assert isinstance(branch.otherwise, ast.If)
    assert isinstance(branch.otherwise.then, ast.Let)


def test_references() -> None:
    first, effect, nested = lets(main((DATA / "references.relay").read_text()).body)
    assert first.var.type == ast.RefType(VECTOR)
    assert isinstance(first.value, ast.RefCreate)
    assert isinstance(effect.value, ast.RefWrite)
    assert isinstance(effect.value.value, ast.Call)
    assert isinstance(effect.value.value.args[0], ast.RefRead)
    assert nested.var.type == ast.RefType(ast.TupleType((ast.RefType(FLOAT), ast.TensorType((), "int64"))))


def test_data_types_and_match() -> None:
    program = read(DATA / "types.relay")
    tree = program.types["Tree"]
    assert tree.type_params == ("A", "B")
    assert [each.name for each in tree.constructors] == ["Leaf", "Node"]
    assert tree.constructors[0].fields == (ast.NamedType("A"),)
    assert program.types["Storage"].constructors == program.types["Empty"].constructors == ()
    length = program.functions["length"].body
    assert isinstance(length, ast.Match)
    assert length.complete
    (cons, one), (nil, _) = length.clauses
    assert isinstance(cons, ast.ConstructorPattern)
    assert isinstance(cons.fields[0], ast.WildcardPattern)
    assert isinstance(cons.fields[1], ast.VarPattern)
    assert isinstance(nil, ast.ConstructorPattern)
    assert nil.fields == ()
    assert isinstance(one, ast.Call)
    assert isinstance(one.args[1], ast.Call)
    assert one.args[1].args == (cons.fields[1].var,)
    first = program.functions["first"].body
    assert isinstance(first, ast.Match)
    assert not first.complete
    pattern, value = first.clauses[0]
    assert isinstance(pattern, ast.TuplePattern)
    node = pattern.fields[1]
    assert isinstance(node, ast.ConstructorPattern)
    assert isinstance(node.fields[1], ast.VarPattern)
    assert value is node.fields[1].var
    (binding,) = lets(program.functions["main"].body)
    assert isinstance(binding.value, ast.Call)
    assert isinstance(binding.value.callee, ast.ConstructorRef)
    inner = binding.value.args[1]
    assert isinstance(inner, ast.Call)
    # A constructor without fields is the call of it.
    assert isinstance(inner.args[1], ast.Call)
    assert inner.args[1].args == ()


def test_types() -> None:
    types = [each.type for each in read(DATA / "types.relay").functions["main"].params]
    item = ast.NamedType("T")
    many = ast.NamedType("List", (item,))
    assert types == [
        ast.TensorType((None, 3), "float32"),
        ast.NamedType("Storage"),
        ast.FuncType((many, ast.FuncType((item,), item)), many, ("T",)),
        ast.UnknownType(),
    ]
    function = main("def @main(%a: Tensor[(n, 2i64, ?), float16], %b: Tensor[(), bool], %c: ()) { %a }")
    assert [each.type for each in function.params] == [
        ast.TensorType(("n", 2, None), "float16"),
        ast.TensorType((), "bool"),
        ast.TupleType(()),
    ]
    constrained = main("def @main(%f: fn [A, B](A, B) -> A where Broadcast(A, B)) { %f }").params[0].type
    assert constrained == ast.FuncType((ast.NamedType("A"), ast.NamedType("B")), ast.NamedType("A"), ("A", "B"))


def test_attributes() -> None:
    function = main((DATA / "attributes.relay").read_text())
    assert function.params[2].type == ast.TensorType(("a", 2, "b"), "custom[posit32]32")
    result = function.body
    assert isinstance(result, ast.Tuple)
    some, *others = result.fields[1:]
    full = result.fields[0]
    assert isinstance(full, ast.Call)
    assert dict(full.attrs) == {"shape": (None, 3, -1), "dtype": "float32", "layout": None}
    assert isinstance(some, ast.Call)
    assert dict(some.attrs) == {
        "empty": (),
        "nested": ((1, (2.0, True)), ("x", None)),
        "dict": {"k": 1, "j": (2,), "m": {"n": False}},
        "name": "float16",
        "fn_name": "main",
        "quoted": "it",
        "grouped": 3,
    }
    attrs: list[dict[str, Any]] = [dict(each.attrs) for each in others if isinstance(each, ast.Call)]
    assert attrs == [{}, {"a": 1, "b": 2.5}]
    einsum = some.args[0]
    assert isinstance(einsum, ast.Call)
    assert einsum.attrs["equation"] == 'a"b\\c\n\t->AB'
    transpose = einsum.args[0].fields[0]  # type: ignore[union-attr]
    assert dict(transpose.attrs) == {"axes": None}
    clip = transpose.args[0]
    assert dict(clip.attrs) == {"a_min": -1e-05, "a_max": math.inf}
    convolution = clip.args[0].args[0]
    assert convolution.attrs["channels"] == 4
    assert convolution.attrs["out_dtype"] is None


def test_numbers() -> None:
    fields = main((DATA / "numbers.relay").read_text()).body.fields  # type: ignore[union-attr]
    expected: list[tuple[float, str]] = [
        (0, "int32"), (-1, "int32"), (2147483648, "int64"), (3, "int64"), (-4, "int8"), (5, "int16"), (6, "uint8"),
        (7, "uint16"), (8, "uint32"), (9, "uint64"), (1, "float32"), (-1, "float32"), (0.5, "float32"),
        (1e-05, "float32"), (-2.5e10, "float32"), (1, "float16"), (1, "float64"), (0x4050, "bfloat16"),
        (1.5, "float32"), (True, "bool"), (False, "bool"), (math.inf, "float32"), (-math.inf, "float32"),
        (math.nan, "float32"), (math.inf, "float16"), (math.nan, "float64"), (1, "float32"),
    ]  # fmt: skip
    assert [each.dtype for each in fields] == [dtype for _, dtype in expected]
    for each, (value, dtype) in zip(fields, expected, strict=True):
        assert each.value.shape == ()
        assert each.value.dtype == np.dtype("uint16" if dtype == "bfloat16" else dtype)
        np.testing.assert_array_equal(each.value, np.asarray(value).astype(each.value.dtype))


def test_infix_operators() -> None:
    function = main((DATA / "expression.relay").read_text())
    assert [(each.name, each.type) for each in function.params] == [
        ("x", ast.TensorType((10,), "float32")),
        ("y", ast.TensorType((10,), "float32")),
    ]

    def written(expr: Any) -> str:
        if isinstance(expr, ast.Call):
            return f"{written(expr.callee)}({', '.join(map(written, expr.args))})"
        return expr.name if isinstance(expr, (ast.OpRef, ast.Var)) else f"{expr.value:g}"

    first = "subtract(add(multiply(x, 2), divide(y, -3)), x)"
    second = f"less({first}, y)"
    assert written(function.body) == f"where(equal({second}, greater_equal(x, y)), {first}, not_equal(x, y))"


def test_comments_nest_and_strings_hide_them() -> None:
    function = main((DATA / "comments.relay").read_text())
    assert [each.name for each in function.params] == ["x", "z"]
    (bound,) = lets(function.body)
    assert isinstance(bound.value, ast.Call)
    assert dict(bound.value.attrs) == {"text": "// no /* comment */ %z"}
    assert bound.place == ast.Place(5, 3)


def test_names() -> None:
    function = read(DATA / "names.relay").functions["main.v1"]
    names = ["layer1.0.weight", "aten::add_0", "input:0", "model/conv-a", "v_param_1", "letter", "x.1", "été"]
    assert [each.name for each in function.params] == names
    outer = function.body
    assert isinstance(outer, ast.Call)
    assert isinstance(outer.callee, ast.OpRef)
    assert outer.callee.name == "matcher"
    call = outer.args[0]
    assert isinstance(call, ast.Call)
    assert isinstance(call.callee, ast.OpRef)
    assert call.callee.name == "relay.ext.some_op"
    assert dict(call.attrs) == {"type": 1, "match": 2, "def": "x"}
    assert call.args[5] is function.params[6]
    field = call.args[6]
    assert isinstance(field, ast.TupleGetItem)
    # The longest name in scope, then fields of the tuple that it is.
    assert isinstance(field.value, ast.Tuple)
    nested = field.value.fields[1]
    assert isinstance(nested, ast.TupleGetItem)
    assert isinstance(nested.value, ast.TupleGetItem)
    assert nested.value.value is function.params[0]


def test_an_expression_is_the_function_main() -> None:
    assert main('#[version = "0.0.5"]\nfn (%x: float32) { %x }').params[0].name == "x"
    assert isinstance(main("add(1f, 2f)").body, ast.Call)


def test_constants_of_the_metadata_section_are_shared() -> None:
    program = read(DATA / "strided_set.relay")
    call = program.functions["main"].body
    assert isinstance(call, ast.Call)
    begin, end = call.args[2:4]
    assert isinstance(begin, ast.Constant)
    assert isinstance(end, ast.Constant)
    assert begin.dtype == "int32"
    assert begin.value.dtype == np.int32
    assert begin.place.line == 3
    # Metadata that several places of the text refer to is decoded once.
    twice = (DATA / "scalar_const_binary.relay").read_text().replace("add(%0,", "add(meta[relay.Constant][0],")
    pair = main(twice).body
    assert isinstance(pair, ast.Call)
    assert pair.args[0].value is pair.args[1].value  # type: ignore[union-attr]


def test_attributes_of_the_metadata_section_are_spread_into_the_call() -> None:
    call = main((DATA / "cumsum_excl_flat.relay").read_text()).body
    assert isinstance(call, ast.Call)
    assert dict(call.attrs) == {"axis": None, "dtype": None, "exclusive": True}
    with pytest.raises(RelaySyntaxError, match="is not an expression"):
        read((DATA / "cumsum_excl_flat.relay").read_text().replace("cumsum(%x, ", "(%x, "))
