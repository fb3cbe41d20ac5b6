"""Readers of Relay programs other than text: JSON and the other sources of `read`; long programs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from meta.errors import ArgumentError
from meta.frontend.relay import ast, from_relay
from meta.frontend.relay.errors import RelayError
from meta.frontend.relay.source import read
from meta.limits import MAX_NESTING
from meta.testing.relay import differences, left_out
from tests.python.frontend.relay.programs import DATA, body, graph, lets, main

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
    # The declaration of the class decides whether a field is a number or an object.
    assert _call_with("relay.attrs.SoftmaxAttrs", {"axis": "1"}) == {"axis": 1}
    assert _call_with("relay.attrs.TakeAttrs", {"axis": "5", "mode": "clip"}, one) == {"axis": 7, "mode": "clip"}
    assert _call_with("relay.attrs.TakeAttrs", {"axis": "0", "mode": ""}) == {"axis": None, "mode": None}
    bools = _call_with("relay.attrs.BatchNormAttrs", {"axis": "1", "epsilon": "1", "scale": "0"})
    assert bools == {"axis": 1, "epsilon": 1.0, "scale": False}
    assert [type(value) for value in bools.values()] == [int, float, bool]
    # A class without a declaration: a field refers to a node if no other field does.
    assert _call_with("relay.attrs.NewAttrs", {"first": "5", "second": "3"}, one) == {"first": 7, "second": 3}
    opaque = _call_with("relay.attrs.NewAttrs", {"target": "5"}, ("Target", {"kind": "0"}))
    assert opaque == {"target": ast.Opaque("Target")}


# --- sources ---


class Printed:
    """A module of TVM whose text has constants only with `show_meta_data`."""

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
    with pytest.raises(ArgumentError, match=r"source is int; expected Relay text, Relay JSON, a path"):
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


# --- attributes that hold an optional number ---


def reshape_like(**attrs: str) -> str:
    """JSON of `reshape_like(x, y)` for x (2, 3, 4) and y (5, 12), with fields of the attributes."""
    numbers = [("IntImm", {"dtype": "int32", "value": str(n)}) for n in (2, 3, 4, 5, 12, 1)]
    nodes = [
        ("IRModule", {"functions": "2", "type_definitions": "0"}),
        ("Map", [3, 5]),
        ("GlobalVar", {"name_hint": "4"}),
        ("runtime.String", {}),
        ("relay.Function", {"params": "6", "body": "12", "ret_type": "11", "type_params": "0", "attrs": "0"}),
        ("Array", [7, 8]),
        ("relay.Var", {"vid": "15", "type_annotation": "9"}),
        ("relay.Var", {"vid": "16", "type_annotation": "10"}),
        ("relay.TensorType", {"dtype": "float32", "shape": "19"}),
        ("relay.TensorType", {"dtype": "float32", "shape": "20"}),
        ("relay.TensorType", {"dtype": "float32", "shape": "21"}),
        ("relay.Call", {"op": "13", "args": "6", "attrs": "14", "type_args": "0"}),
        ("Op", {}),
        ("relay.attrs.ReshapeLikeAttrs", {"lhs_begin": "1", "lhs_end": "0", "rhs_begin": "1", "rhs_end": "0"} | attrs),
        ("relay.Id", {"name_hint": "17"}),
        ("relay.Id", {"name_hint": "18"}),
        ("runtime.String", {}),
        ("runtime.String", {}),
        ("Array", [22, 23, 24]),
        ("Array", [25, 26]),
        ("Array", [22, 26]),
        *numbers,
    ]
    data = json.loads(graph(*nodes))
    for number, text in ((4, "main"), (13, "reshape_like"), (17, "x"), (18, "y")):
        data["nodes"][number]["repr_str"] = text
    return json.dumps(data)


@pytest.mark.parametrize("attrs", [{}, {"rhs_end": "22"}, {"lhs_begin": "-2", "lhs_end": "23"}])
def test_an_end_that_is_null_is_the_end_of_the_tensor(attrs: dict[str, str]) -> None:
    """`lhs_end` and `rhs_end` are numbers of nodes: 0 is null, and 22 is the node of 2, which types share."""
    assert from_relay(reshape_like(**attrs)).main.body.type.shape == (2, 12)
