"""The readers of Relay programs: text, JSON and whatever `read` takes."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meta.errors import ArgumentError
from meta.frontend.relay import ast, layout
from meta.frontend.relay.errors import RelayError, RelaySyntaxError
from meta.frontend.relay.limits import MAX_NESTING
from meta.frontend.relay.source import read
from meta.testing.relay import differences, left_out

DATA = Path(__file__).parent / "data"
VECTOR = ast.TensorType((2,), "float32")
FLOAT = ast.TensorType((), "float32")


def main(text: str) -> ast.Function:
    return read(text).functions["main"]


def body(text: str, params: str = "%x: float32") -> Any:
    """What `text` is, as the body of a function over %x."""
    return main(f"def @main({params}) {{ {text} }}").body


def lets(expr: ast.Expr) -> Iterator[ast.Let]:
    while isinstance(expr, ast.Let):
        yield expr
        expr = expr.body


def graph(*nodes: tuple[str, Any], root: int = 1, arrays: tuple[str, ...] = ()) -> str:
    """JSON of (type_key, attrs | data); node 0 is null."""
    made: list[dict[str, Any]] = [{"type_key": ""}]
    for kind, parts in nodes:
        made.append({"type_key": kind, "data" if isinstance(parts, list) else "attrs": parts})
    return json.dumps({"root": root, "nodes": made, "b64ndarrays": list(arrays), "attrs": {}})


# --- text: functions, scopes and expressions ---


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
    assert isinstance(scale.value, ast.Function)
    assert isinstance(pick.value, ast.Function)
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
    assert isinstance(result.fields[4].callee, ast.Function)


def test_bindings_of_the_graph_are_shared() -> None:
    made = body("%0 = exp(%x); %1 = (%0, %0); (%1, %1.0)")
    assert made.fields[0].fields[0] is made.fields[0].fields[1]
    assert made.fields[1].value is made.fields[0]


def test_scopes() -> None:
    made = body("%0 = (let %a = exp(%x); let %b = tanh(%a); (%a, %b)); add(%0.0, %0.1)")
    scoped = made.args[0].value
    assert made.args[1].value is scoped
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
    assert isinstance(fact.value, ast.Function)
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
    (made,) = lets(program.functions["main"].body)
    assert isinstance(made.value, ast.Call)
    assert isinstance(made.value.callee, ast.ConstructorRef)
    inner = made.value.args[1]
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
    # What several places of the text name is decoded once.
    twice = (DATA / "scalar_const_binary.relay").read_text().replace("add(%0,", "add(meta[relay.Constant][0],")
    pair = main(twice).body
    assert isinstance(pair, ast.Call)
    assert pair.args[0].value is pair.args[1].value  # type: ignore[union-attr]


def test_attributes_of_the_metadata_section_are_spread_into_the_call() -> None:
    call = main((DATA / "cumsum_excl_flat.relay").read_text()).body
    assert isinstance(call, ast.Call)
    assert dict(call.attrs) == {"axis": None, "dtype": None, "exclusive": True}
    with pytest.raises(RelaySyntaxError, match="is no expression"):
        read((DATA / "cumsum_excl_flat.relay").read_text().replace("cumsum(%x, ", "(%x, "))


# --- depth ---


def test_long_programs_take_no_stack() -> None:
    count = 5000
    text = "".join(f"let %y{i} = f({'%x' if i == 0 else f'%y{i - 1}'});\n" for i in range(count))
    assert sum(1 for _ in lets(body(text + f"%y{count - 1}"))) == count
    text = "".join(f"%{i} = f({'%x' if i == 0 else f'%{i - 1}'});\n" for i in range(count))
    expr, depth = body(text + f"%{count - 1}"), 0
    while isinstance(expr, ast.Call):
        expr, depth = expr.args[0], depth + 1
    assert depth == count


def test_long_json_takes_no_stack() -> None:
    count = 20_000
    nodes: list[tuple[str, Any]] = [("relay.Function", {"body": "2"})]
    for i in range(count):
        nodes += [("relay.Tuple", {"fields": str(2 * i + 3)}), ("Array", [2 * i + 4])]
    nodes.append(("relay.Tuple", {}))
    expr, depth = main(graph(*nodes)).body, 0
    while isinstance(expr, ast.Tuple) and expr.fields:
        expr, depth = expr.fields[0], depth + 1
    assert depth == count


def test_nesting_is_bounded_and_allowed_below() -> None:
    deep = MAX_NESTING - 10
    assert isinstance(body("f(" * deep + "%x" + ")" * deep), ast.Call)
    assert isinstance(body("if (%x) { %x } else " * deep + "{ %x }"), ast.If)
    assert isinstance(main("def @main(%x: " + "fn () -> " * deep + "float32) { %x }").params[0].type, ast.FuncType)


# --- JSON ---


@pytest.mark.parametrize("path", sorted(DATA.glob("*.json")), ids=lambda path: path.stem)
def test_text_and_json_give_the_same_program(path: Path) -> None:
    text, saved = read(path.with_suffix(".relay")), read(path)
    assert list(differences(text, saved)) == []
    assert sorted(text.types) == sorted(saved.types)
    # Text leaves attributes at their defaults out; nothing else is missing.
    defaults = {("sum", "axis", None), ("sum", "exclude", False), ("sum", "keepdims", False)}
    assert set(left_out(text, saved)) <= defaults


def test_differences_are_found() -> None:
    text = (DATA / "strided_set.relay").read_text()
    saved = read(DATA / "strided_set.json")
    assert list(differences(read(text.replace("%x, %v", "%v, %x", 1).replace("(2, 2, 2)", "(2, 2, 1)", 1)), saved))
    assert list(differences(read(text.replace("@main", "@other")), saved))


def _call_with(kind: str, fields: dict[str, str], *more: tuple[str, Any]) -> dict[str, Any]:
    """The attributes of a call whose attribute node is node 4."""
    nodes: list[tuple[str, Any]] = [
        ("relay.Function", {"body": "2"}),
        ("relay.Call", {"op": "3", "args": "0", "attrs": "4"}),
        ("GlobalVar", {"name_hint": "f"}),
        (kind, fields),
        *more,
    ]
    call = main(graph(*nodes)).body
    assert isinstance(call, ast.Call)
    return dict(call.attrs)


def test_fields_of_attributes_in_json() -> None:
    one = ("IntImm", {"dtype": "int32", "value": "7"})
    # A number in one class and an object in another, by the declaration of the class.
    assert _call_with("relay.attrs.SoftmaxAttrs", {"axis": "1"}) == {"axis": 1}
    assert _call_with("relay.attrs.TakeAttrs", {"axis": "5", "mode": "clip"}, one) == {"axis": 7, "mode": "clip"}
    assert _call_with("relay.attrs.TakeAttrs", {"axis": "0", "mode": ""}) == {"axis": None, "mode": None}
    bools = _call_with("relay.attrs.BatchNormAttrs", {"axis": "1", "epsilon": "1", "scale": "0"})
    assert bools == {"axis": 1, "epsilon": 1.0, "scale": False}
    assert [type(value) for value in bools.values()] == [int, float, bool]
    # A class that nobody declared: a node that nothing else refers to must be the one that the field names.
    assert _call_with("relay.attrs.NewAttrs", {"first": "5", "second": "3"}, one) == {"first": 7, "second": 3}
    opaque = _call_with("relay.attrs.NewAttrs", {"target": "5"}, ("Target", {"kind": "0"}))
    assert opaque == {"target": ast.Opaque("Target")}


# --- mistakes ---


MISTAKES = [
    ("def @main(%x) {\n  nn.relu(%x)\n", 2, 14, "unexpected the end of the text; expected '}'"),
    ("def main(%x) { %x }", 1, 5, "unexpected 'main'; expected @name"),
    ("def @main(%x: Tensor[(2, 3) float32]) { %x }", 1, 29, "unexpected 'float32'; expected ','"),
    (
        "def @main(%x: Tensor[(2), flot32]) { %x }",
        1,
        27,
        "flot32 is no dtype; float32, int64, bool and the like; did you",
    ),
    ("def @main(%x: Tensor[(-2), int8]) { %x }", 1, 23, "-2 is no size of a dimension"),
    ("def @main(%x) {\n\n  add(%x, %y) }", 3, 11, "%y is not defined here; names of parameters and let variables"),
    ("def @main(%weight) { %weigth }", 1, 22, "did you mean '%weight'?"),
    ("def @main(%x) { %3 }", 1, 17, "%3 is not defined here; a binding %3 = ...; above"),
    ("def @main(%x) { f(%x, axes=) }", 1, 28, "unexpected ')'; expected a value"),
    ("def @main(%x) { f(%x }", 1, 22, "unexpected '}'; expected ')' or ','"),
    ("def @main(%x) { %0 = %x\n %0 }", 2, 2, "unexpected '%0'; expected '(', ';', .0 or an operator"),
    ("def @main(%x) { ; }", 1, 17, "unexpected ';'; expected an expression"),
    ("def @main(%x) { $ }", 1, 17, "unexpected '$'; expected an expression"),
    ("def @main(%x) { %x } /* open", 1, 22, "this comment does not end"),
    ('def @main(%x) { f(a="b) }', 1, 21, "this string does not end"),
    ("def @main(%x) { 1f128 }", 1, 17, "the suffix of '1f128' is no float type"),
    ("def @main(%x) { 300u8 }", 1, 17, "300u8 does not fit uint8"),
    ("def @main(%x) { 1.5i8 }", 1, 17, "'1.5i8' is no integer"),
    ("def @main(%x) { 99999999999999999999 }", 1, 17, "does not fit int64"),
    ("def @main(%x) { %x.99999999999 }", 1, 17, "field 99999999999 of a tuple; at most 9 digits"),
    ("def @main(%x) { %0.1 = %x; %x }", 1, 17, "%0.1 is a field of a tuple and cannot be bound"),
    ("def @main(%x) { meta[relay.Constant][0] }", 1, 17, "no metadata section; print it with astext(show_meta_data"),
    ("def @main(%x) { meta[relay.Constant][1] }\n#[metadata]\n{", 1, 17, "the metadata section: line 3, column 2: Exp"),
    ("def @f() { 1 }\ndef @f() { 1 }", 2, 5, "@f is defined twice"),
    ("type T { A }\ntype T { B }", 2, 6, "type T is defined twice"),
    ("type T { A, A }", 1, 13, "constructor A is defined twice"),
    ("extern type T { A }", 1, 13, "extern type T has constructors"),
    ("def @f = meta[ExternalFunc][0]", 1, 5, "@f is meta[ExternalFunc][0], a function that is not written in Relay"),
    ('#[version = "1.0"]\ndef @main() { 1 }', 1, 1, "a form of the text that this reader does not know"),
]


@pytest.mark.parametrize(("text", "line", "column", "words"), MISTAKES, ids=[each[3][:30] for each in MISTAKES])
def test_mistakes_have_a_place(text: str, line: int, column: int, words: str) -> None:
    with pytest.raises(RelaySyntaxError) as caught:
        read(text)
    error = caught.value
    assert (error.line, error.column) == (line, column)
    head, shown, caret = str(error).split("\n")
    assert head.startswith(f"[relay] text, line {line}, column {column}: ")
    assert words in head
    assert __file__ in head
    assert shown == "    " + text.split("\n")[line - 1]
    assert caret == " " * (3 + column) + "^"


def test_long_lines_are_cut_around_the_mistake(tmp_path: Path) -> None:
    path = tmp_path / "model.relay"
    path.write_text("def @main(" + "%abc: float32, " * 40 + "%d) {\n" + " " * 300 + "%e }")
    with pytest.raises(RelaySyntaxError) as caught:
        read(path)
    head, shown, caret = str(caught.value).split("\n")
    assert "model.relay, line 2, column 301" in head
    assert shown.index("%e") == caret.index("^")
    assert len(shown) < 120


def _dag(depth: int) -> str:
    """A type of 2**depth leaves in which every level is shared."""
    nodes: list[tuple[str, Any]] = []
    for i in range(depth):
        nodes += [("TupleType", {"fields": str(2 * i + 2)}), ("Array", [2 * i + 3, 2 * i + 3])]
    return graph(*nodes, ("TupleType", {}))


HOSTILE = {
    "parentheses": ("(" * 100_000, "nested 201 deep"),
    "calls": ("def @main(%x) {" + "f(" * 100_000, "nested 201 deep"),
    "types": ("def @main(%x: " + "(" * 100_000, "nested 201 deep"),
    "function types": ("def @main(%x: " + "fn () -> " * 10_000 + "int8) { 1 }", "function types nested 201 deep"),
    "let in let": ("def @main(%x) {" + "let %a = " * 10_000 + "%x; %a }", "nested 201 deep"),
    "else if": ("def @main(%x) {" + "if (%x) { %x } else " * 1000 + "{ %x } }", "a chain of 999 else if"),
    "digits": ("def @main() {" + "1" * 1_000_000 + "}", "a number of 1000000 characters"),
    "exponent": ("def @main() { 1e" + "9" * 1_000_000 + " }", "characters; at most 400"),
    "signs": ("def @main() {" + "-" * 1_000_000 + "1 }", "characters; at most 400"),
    "dimensions": ("def @main(%x: Tensor[(" + "1, " * 1000 + "), int8]) { %x }", "1000 dimensions; at most 64"),
    "dimension": ("def @main(%x: Tensor[(" + "9" * 300 + "), int8]) { %x }", "does not fit int64"),
    "name": ("def @main(%x) { %x" + ".0" * 100_000 + " }", "a name of 200002 characters"),
    "comments": ("/*" * 500_000, "this comment does not end"),
    "quotes": ('"' + '\\"' * 500_000, "this string does not end"),
    "deep metadata": ("def @main() { meta[A][0] }\n#[metadata]\n" + "[" * 100_000, "recursion"),
    "deep json": ('{"nodes": ' + "[" * 100_000, "recursion"),
    "json digits": ('{"root": ' + "1" * 1_000_000 + "}", "limit"),
    "no nodes": ("{}", 'no list "nodes"'),
    "root": ('{"root": 5, "nodes": [{}]}', '"root" is 5'),
    "no node": ('{"root": 1, "nodes": [{}, 5]}', "no node with a type_key"),
    "cycle": (graph(("relay.Tuple", {"fields": "2"}), ("Array", [1])), "refers to itself through node 1"),
    "reference": (graph(("relay.Tuple", {"fields": "99"})), "fields is '99'"),
    "element": (graph(("Array", [99])), "a reference to node 99"),
    "shared type": (_dag(100), "shared parts make too large"),
    "kind": (graph(("relay.Let", {})), "a relay.Let with NoneType; a variable"),
    "no base64": (graph(("relay.Constant", {"data": "0"}), arrays=("!",)), "no base64"),
    "no array": (graph(("relay.Constant", {"data": "0"}), arrays=("AAAA",)), "3 bytes are left where an array starts"),
    "array number": (graph(("relay.Constant", {"data": "3"})), "array 3; one of 0 arrays"),
    "root kind": (graph(("runtime.String", {})), "a module or a function of Relay"),
    "lowered": (
        graph(
            ("IRModule", {"functions": "2"}), ("Map", [3, 4]), ("GlobalVar", {"name_hint": "f"}), ("tir.PrimFunc", {})
        ),
        "function @f is a tir.PrimFunc",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_sources_are_refused(name: str) -> None:
    text, words = HOSTILE[name]
    with pytest.raises(RelayError) as caught:
        read(text)
    assert words in str(caught.value)
    assert len(str(caught.value)) < 600


def test_long_programs_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "MAX_PROGRAM", 100)
    with pytest.raises(RelaySyntaxError, match=r"line 2, column 50: the program is too long; at most 100 characters"):
        read("\n".join(["x" * 50, "y" * 50]))
    # Constants do not count.
    assert read("def @main(%x) { %x }\n#[metadata]\n" + " " * 200).functions


# --- sources ---


class Printed:
    """A module of another system; one that has constants to show says so."""

    def astext(self, show_meta_data: bool = False) -> str:
        assert show_meta_data
        return (DATA / "scalar_const_binary.relay").read_text()


class PrintedPlainly:
    def astext(self) -> str:
        return "def @main(%x) { %x }"


def test_what_is_a_source(tmp_path: Path) -> None:
    text = (DATA / "ref_cell.relay").read_text()
    path = DATA / "ref_cell.relay"
    windows = text.replace("\n", "\r\n").encode("utf-8-sig")
    for source in (text, path, str(path), text.encode(), windows, Printed(), PrintedPlainly(), DATA / "ref_cell.json"):
        assert list(read(source).functions) == ["main"]
    odd = tmp_path / "model"
    odd.write_text(text)
    assert list(read(str(odd)).functions) == ["main"]


def test_what_is_no_source(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"source is int; Relay text, Relay JSON, a path"):
        read(5)  # type: ignore[arg-type]
    with pytest.raises(RelayError, match=r"cannot read .*missing\.relay: No such file"):
        read(tmp_path / "missing.relay")
    with pytest.raises(RelayError, match=r"cannot read missing\.json: No such file"):
        read("missing.json")
    with pytest.raises(RelayError, match="cannot read"):
        read(tmp_path)
    (tmp_path / "binary").write_bytes(b"\xb7\x9c\x04\x05O\x8d\xe5\xf7")
    with pytest.raises(RelayError, match=r"binary is not text: byte 0 .*parameters are a separate file"):
        read(tmp_path / "binary")


def test_lark_is_imported_when_text_is_read() -> None:
    code = "import sys, meta, meta.frontend; import meta.frontend.relay; assert 'lark' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
