"""Relay programs with mistakes, and hostile ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from meta.frontend.relay.errors import RelayError, RelaySyntaxError
from meta.frontend.relay.source import read
from meta.frontend.relay.text import preprocess
from tests.python.frontend.relay.programs import graph

MISTAKES = [
    ("def @main(%x) {\n  nn.relu(%x)\n", 2, 14, "unexpected end of the text; expected '}'"),
    ("def main(%x) { %x }", 1, 5, "unexpected 'main'; expected @name"),
    ("def @main(%x: Tensor[(2, 3) float32]) { %x }", 1, 29, "unexpected 'float32'; expected ','"),
    (
        "def @main(%x: Tensor[(2), flot32]) { %x }",
        1,
        27,
        "unknown dtype flot32; expected a dtype such as float32, int64 or bool; did you",
    ),
    ("def @main(%x: Tensor[(-2), int8]) { %x }", 1, 23, "-2 is not a size"),
    (
        "def @main(%x) {\n\n  add(%x, %y) }",
        3,
        11,
        "%y is not defined here; expected the name of a parameter or a let variable",
    ),
    ("def @main(%weight) { %weigth }", 1, 22, "did you mean '%weight'?"),
    ("def @main(%x) { %3 }", 1, 17, "%3 is not defined here; expected an earlier binding %3 = ...;"),
    ("def @main(%x) { f(%x, axes=) }", 1, 28, "unexpected ')'; expected a value"),
    ("def @main(%x) { f(%x }", 1, 22, "unexpected '}'; expected ')' or ','"),
    ("def @main(%x) { %0 = %x\n %0 }", 2, 2, "unexpected '%0'; expected '(', ';', .0 or an operator"),
    ("def @main(%x) { ; }", 1, 17, "unexpected ';'; expected an expression"),
    ("def @main(%x) { $ }", 1, 17, "unexpected '$'; expected an expression"),
    ("def @main(%x) { %x } /* open", 1, 22, "this comment does not end"),
    ('def @main(%x) { f(a="b) }', 1, 21, "this string does not end"),
    ("def @main(%x) { 1f128 }", 1, 17, "the suffix of '1f128' is not a float type"),
    ("def @main(%x) { 300u8 }", 1, 17, "300u8 does not fit uint8"),
    ("def @main(%x) { 1.5i8 }", 1, 17, "'1.5i8' is not an integer"),
    ("def @main(%x) { 99999999999999999999 }", 1, 17, "does not fit int64"),
    ("def @main(%x) { %x.99999999999 }", 1, 17, "field 99999999999 of a tuple; expected an index of at most 9 digits"),
    ("def @main(%x) { %0.1 = %x; %x }", 1, 17, "%0.1 is a field of a tuple and cannot be bound"),
    ("def @main(%x) { meta[relay.Constant][0] }", 1, 17, "no metadata section; print it with astext(show_meta_data"),
    ("def @main(%x) { meta[relay.Constant][1] }\n#[metadata]\n{", 1, 17, "the metadata section: line 3, column 2: Exp"),
    ("def @f() { 1 }\ndef @f() { 1 }", 2, 5, "@f is defined twice"),
    ("type T { A }\ntype T { B }", 2, 6, "type T is defined twice"),
    ("type T { A, A }", 1, 13, "constructor A is defined twice"),
    ("extern type T { A }", 1, 13, "extern type T has constructors"),
    ("def @f = meta[ExternalFunc][0]", 1, 5, "@f is meta[ExternalFunc][0], which is not a function of Relay"),
    ('#[version = "1.0"]\ndef @main() { 1 }', 1, 1, "unsupported text version"),
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
    head, line, caret = str(caught.value).split("\n")
    assert "model.relay, line 2, column 301" in head
    assert line.index("%e") == caret.index("^")
    assert len(line) < 120


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
    "exponent": ("def @main() { 1e" + "9" * 1_000_000 + " }", "characters; expected at most 400"),
    "signs": ("def @main() {" + "-" * 1_000_000 + "1 }", "characters; expected at most 400"),
    "dimensions": (
        "def @main(%x: Tensor[(" + "1, " * 1000 + "), int8]) { %x }",
        "1000 dimensions; expected at most 64",
    ),
    "dimension": ("def @main(%x: Tensor[(" + "9" * 300 + "), int8]) { %x }", "does not fit int64"),
    "name": ("def @main(%x) { %x" + ".0" * 100_000 + " }", "a name of 200002 characters"),
    "comments": ("/*" * 500_000, "this comment does not end"),
    "quotes": ('"' + '\\"' * 500_000, "this string does not end"),
    "deep metadata": ("def @main() { meta[A][0] }\n#[metadata]\n" + "[" * 100_000, "recursion"),
    "deep json": ('{"nodes": ' + "[" * 100_000, "recursion"),
    "json digits": ('{"root": ' + "1" * 1_000_000 + "}", "limit"),
    "no nodes": ("{}", 'no list "nodes"'),
    "root": ('{"root": 5, "nodes": [{}]}', '"root" is 5'),
    "no node": ('{"root": 1, "nodes": [{}, 5]}', "a node without a type_key"),
    "cycle": (graph(("relay.Tuple", {"fields": "2"}), ("Array", [1])), "refers to itself through node 1"),
    "reference": (graph(("relay.Tuple", {"fields": "99"})), "fields is '99'"),
    "element": (graph(("Array", [99])), "a reference to node 99"),
    "shared type": (_dag(100), "a value with too many leaves"),
    "kind": (graph(("relay.Let", {})), "a relay.Let with NoneType; expected a variable"),
    "no base64": (graph(("relay.Constant", {"data": "0"}), arrays=("!",)), "invalid base64"),
    "no array": (graph(("relay.Constant", {"data": "0"}), arrays=("AAAA",)), "3 bytes are left where an array starts"),
    "array number": (graph(("relay.Constant", {"data": "3"})), "array 3; expected one of 0 arrays"),
    "root kind": (graph(("runtime.String", {})), "a module or a function"),
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
    monkeypatch.setattr(preprocess, "MAX_PROGRAM", 100)
    with pytest.raises(
        RelaySyntaxError, match=r"line 2, column 50: the program is too long; expected at most 100 characters"
    ):
        read("\n".join(["x" * 50, "y" * 50]))
    # Constants do not count.
    assert read("def @main(%x) { %x }\n#[metadata]\n" + " " * 200).functions
