"""Reading IR text, its types and sizes, and inlining take bounded time and memory for any input."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from functools import reduce
from typing import Any

import pytest

from meta.dim import SymDim, product, sym, total
from meta.dtype import array_bytes
from meta.errors import ArgumentError, IRError, MetaError, TypeInferenceError
from meta.ir import lexer
from meta.ir.builder import Builder
from meta.ir.expr import Tuple
from meta.ir.parser import parse
from meta.ir.printer import to_text
from meta.ir.type import FunctionType, TupleType, tensor_type
from meta.ir.verifier import verify
from meta.limits import MAX_FACTORS, MAX_INLINED
from meta.passes.inline_calls import inline_calls

TYPE = 'Tensor[(2,), "float32"]'
HEAD = f"def main(%x: {TYPE}) -> {TYPE}"


def _body(*lines: str) -> str:
    return "\n".join([HEAD + " {", *lines, "%x }"])


def _size(text: str) -> str:
    return f'def main(%x: Tensor[({text},), "float32"]) -> Tensor[({text},), "float32"] {{ %x }}'


def _ones(count: int) -> str:
    return ", ".join(["1"] * count)


def _shared(levels: int) -> list[str]:
    return [f"%t{i} = (%{f't{i - 1}' if i else 'x'}, %{f't{i - 1}' if i else 'x'})" for i in range(levels)]


TEXTS: dict[str, tuple[Callable[[], str], str]] = {
    "names in a sum": (lambda: _size(" + ".join(f"n{i}" for i in range(8000))), "8000 factors; expected at most 1024"),
    "names in a product": (lambda: _size(" * ".join(f"n{i}" for i in range(8000))), "1025 factors"),
    "digits of a number": (lambda: _size("9" * 500), "a number of 500 characters; expected at most 400"),
    "digits of a product": (lambda: _size("*".join(["9" * 300] * 1000)), "a product with too many digits"),
    "shared tuples": (lambda: _body(*_shared(40)), "131071 types"),
    "many shared tuples": (lambda: _body(*_shared(15), *(f"%u{i} = (%t14, %x)" for i in range(50))), "too many parts"),
    "nested tuples": (lambda: _body("%a0 = (%x,)", *(f"%a{i} = (%a{i - 1},)" for i in range(1, 70))), "nested 65 deep"),
    "axes of a constant": (
        lambda: f'{HEAD} {{ %x }}\nconstants {{ $0: Tensor[({_ones(70)}), "float32"] = "AAAAAA==" }}',
        "a tensor of 70 dimensions; expected at most 64",
    ),
    "sizes of an empty constant": (
        lambda: f'{HEAD} {{ %x }}\nconstants {{ $0: Tensor[(0, {2**62}, {2**62}), "float32"] = "" }}',
        "is too large",
    ),
    "axes of a result": (lambda: _body(f"%y = reshape(%x, shape=({_ones(70)}, 2))"), "a tensor of 71 dimensions"),
    "numbers in an attribute": (lambda: _body(f"%y = reshape(%x, shape=({_ones(100_001)}))"), "too many items"),
    "characters of an attribute": (lambda: f'{HEAD} with {{"a": "{"a" * 10**7}"}} {{ %x }}', "10000002 characters"),
    "characters of a name": (lambda: _body(f"%{'y' * 5000} = negative(%x)"), "a name of 5001 characters"),
    "digits of a line": (lambda: _body(f"%y = negative(%x)  # f.py:{'9' * 5000}"), ""),
    "a string without end": (lambda: _body('%y = sum(%x, axis="a'), "this string does not end"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_texts_are_bounded(name: str) -> None:
    text, words = TEXTS[name]
    program = text()
    start = time.process_time()
    if words:
        with pytest.raises(IRError, match=words) as caught:
            parse(program)
        assert len(str(caught.value)) < 1000
    else:
        verify(parse(program))
    assert time.process_time() - start < 3


def test_programs_have_a_largest_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lexer, "MAX_PROGRAM", 1000)
    monkeypatch.setattr(lexer, "MAX_TOKENS", 100)
    for text in ("#" + "a" * 1000, "(" * 101):
        with pytest.raises(IRError, match="the program is too long; expected at most 1000 characters"):
            lexer.Cursor(text, "")
    with pytest.raises(IRError, match="the text has 1000 characters"):
        lexer.Cursor("\n" * 1000, "")
    data = "A" * 5000
    assert len(lexer.Cursor(f'"{data}"', "").tokens[0].text) == 5002


def test_strings_end_behind_escapes() -> None:
    cursor = lexer.Cursor(r'"a\"b\\" "c"', "")
    assert [cursor.string(""), cursor.string("")] == ['a"b\\', "c"]


@pytest.mark.parametrize("mutates", ['"abc"', "{0: (1, 2)}", '{"a": 0}', "{0: 5}", "3"])
def test_mutations_of_another_form_do_not_verify(mutates: str) -> None:
    module = parse(f'{HEAD} with {{"mutates": {mutates}}} {{ %x }}')
    with pytest.raises(IRError, match="mutations_fit: 'mutates'"):
        verify(module)


def test_operators_are_loaded_by_the_first_text() -> None:
    text = _body("%y = negative(%x)")
    code = f"import meta; meta.ir.parser.parse({text!r}); import sys; assert 'torch' not in sys.modules"
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr


def test_arguments_left_out_are_as_the_schema_normalises_them() -> None:
    verify(parse(f'{HEAD} {{\n%y = zeros((2,), "float32")\n%y }}'))


@pytest.mark.parametrize(
    "lines",
    [
        ("%t = (%x, %x)", "%y = negative(%t)"),
        ("%t = (%x,)", "%y = add(%t, %x)"),
        ("%t = (%x,)", "%y = concatenate([%t])"),
        (f"%f = fn(%a: {TYPE}) -> {TYPE} {{ %a }}", "%y = negative(%f)"),
        ("%y = add(@main, 1)",),
        ("%y = layer_norm(%x, @main)",),
        ("%s = shape(%x)", "%y = add(%s, %s)"),
    ],
)
def test_operands_that_are_not_tensors_are_refused(lines: tuple[str, ...]) -> None:
    operand = r"an operand has type .*; expected tensors and attributes"
    with pytest.raises(IRError, match=operand + r"|argument '\w+' is GlobalVar @main; expected a tensor"):
        parse(_body(*lines))


def test_types_are_bounded() -> None:
    pair: Any = tensor_type((2,))
    for _ in range(15):
        pair = TupleType((pair, pair))
    with pytest.raises(IRError, match=r"a tuple type of 131071 types, nested 16 deep; expected at most 100000 and 64"):
        TupleType((pair, pair))
    function: Any = tensor_type((2,))
    for _ in range(63):
        function = FunctionType((function,), tensor_type(()))
    with pytest.raises(IRError, match="a function type of 131 types, nested 65 deep"):
        FunctionType((FunctionType((function,), tensor_type(())),), tensor_type(()))
    assert TupleType((pair,)) == TupleType((pair,))


def test_a_builder_refuses_types_that_expand() -> None:
    builder = Builder()
    with builder.function("main", [("x", tensor_type((2,)))]) as scope:
        value: Any = scope.params[0]
        for _ in range(15):
            value = builder.emit(Tuple((value, value)))
        with pytest.raises(IRError, match="131071 types"):
            builder.emit(Tuple((value, value)))
        scope.ret(value)


def test_sizes_are_bounded() -> None:
    with pytest.raises(TypeInferenceError, match="a symbolic size has"):
        product(sym(f"n{i}") + 1 for i in range(20))
    with pytest.raises(TypeInferenceError, match="a symbolic size has a part of"):
        reduce(lambda size, _: (size * size + 1) // 3, range(60), sym("n"))
    with pytest.raises(TypeInferenceError, match=f"{MAX_FACTORS + 1} factors; expected at most {MAX_FACTORS}"):
        product([sym("n")] * (MAX_FACTORS + 1))


def test_a_sum_of_sizes() -> None:
    n, m = sym("n"), sym("m")
    assert total([n, 2, m, n, -3]) == n + 2 + m + n - 3
    assert total([]) == 0
    assert total([n, -n]) == 0


@pytest.mark.parametrize("name", ["", "a b", "1n", "True", "inf", "const", "device", 'n"', "n\n", 3, None, "n" * 5000])
def test_names_that_text_cannot_hold(name: Any) -> None:
    with pytest.raises(ArgumentError, match="the name of a symbolic size is"):
        SymDim(name)


@pytest.mark.parametrize("name", ["n", "batch_size", "x.0", "_1", "größe", "fn", "if", "def", "constants", "Tensor"])
def test_names_of_sizes_read_back(name: str) -> None:
    text = str(parse(_size(name)))
    assert str(parse(text)) == text


@pytest.mark.parametrize(
    ("shape", "count"),
    [((), 1), ((2, 3), 6), ((0, 2**62), 0), ((0, 2**62, 2**62), None), ((-1,), None), ((True,), None), ((2.0,), None),
     ((1,) * 64, 1), ((1,) * 65, None), ((2**63,), None), ((2**62,), 2**62)],
)  # fmt: skip
def test_bytes_of_an_array(shape: Any, count: int | None) -> None:
    assert array_bytes(shape, 1) == count


def doubling(levels: int) -> str:
    functions = [f"def f0(%x: {TYPE}) -> {TYPE} {{\n%y = negative(%x)\n%y }}"]
    for i in range(levels):
        functions.append(f"def f{i + 1}(%x: {TYPE}) -> {TYPE} {{\n%y = @f{i}(%x)\n%z = @f{i}(%y)\n%z }}")
    return "\n".join([*functions, f"{HEAD} {{\n%y = @f{levels}(%x)\n%y }}"])


def _count(module: Any) -> int:
    return sum(len(function.body.bindings) for function in module.functions.values())


def test_inlining_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[inline_calls.transform.__module__], "MAX_INLINED", 1000)
    small, large = parse(doubling(5)), parse(doubling(40))
    inlined = inline_calls(small)
    assert len(inlined.main.body.bindings) == 32
    grown = inline_calls(large)
    assert _count(large) < _count(grown) <= _count(large) + 1000
    verify(grown)
    assert MAX_INLINED >= 10_000


def test_inlining_many_functions_takes_linear_time() -> None:
    chain = [f"def f{i + 1}(%x: {TYPE}) -> {TYPE} {{\n%y = @f{i}(%x)\n%y }}" for i in range(1500)]
    module = parse("\n".join([f"def f0(%x: {TYPE}) -> {TYPE} {{\n%y = @f0(%x)\n%y }}", *chain]))
    start = time.process_time()
    inlined = inline_calls(module)
    assert time.process_time() - start < 3
    assert inlined["f1500"].body.bindings[0].value.op.name == "f0"


def test_repeated_names_print_in_linear_time() -> None:
    builder = Builder()
    with builder.function("main", [("x", tensor_type((2,)))]) as scope:
        for _ in range(20_000):
            builder.emit(Tuple((scope.params[0],)), "y")
        scope.ret(scope.params[0])
    start = time.process_time()
    assert "%y_19999:" in to_text(scope.function)
    assert time.process_time() - start < 5


def test_errors_of_the_limits_are_errors_of_meta() -> None:
    with pytest.raises(MetaError):
        parse("(" * 100_000)
