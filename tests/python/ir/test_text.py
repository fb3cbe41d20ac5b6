"""Printing and reading: print -> parse -> print is the identity, and errors point at the place."""

import numpy as np
import pytest

from meta.dim import sym
from meta.errors import IRError
from meta.ir.builder import Module
from meta.ir.equality import structural_equal
from meta.ir.expr import Constant, If, Span
from meta.ir.parser import parse, parse_function
from meta.ir.printer import one_line, to_array, to_text
from meta.ir.type import tensor_type
from meta.ir.verifier import verify
from meta.ir.visitor import renamed
from meta.limits import MAX_DEPTH
from meta.passes.rewriting import rewrite
from tests.python.ir.programs import EXAMPLE, HEAD, OPS, Program, T, build, constant, lookup


def test_the_example_of_everything_survives_reading():
    module = parse(EXAMPLE, lookup)
    assert to_text(module) == EXAMPLE
    verify(module)


@pytest.mark.parametrize("seed", range(150))
def test_random_programs_survive_reading(seed):
    module = Program(seed).module()
    verify(module)
    text = to_text(module)
    again = parse(text, lookup)
    assert to_text(again) == text
    verify(again)
    assert structural_equal(module, again)
    assert to_text(parse(to_text(module, spans=False), lookup)) == to_text(module, spans=False)


@pytest.mark.parametrize("seed", range(0, 150, 10))
def test_copies_of_random_programs_are_equal_and_apart(seed):
    module = Program(seed).module()
    main = module.main
    copy = renamed(main)
    assert structural_equal(main, copy)
    assert not {*main.params} & {*copy.params}
    verify(module.with_function("main", copy))
    assert rewrite(main, lambda binding, scope: None) is main


def test_random_programs_differ_from_one_another():
    texts = {to_text(Program(seed).module()) for seed in range(150)}
    assert len(texts) == 150


def test_variables_of_one_name_are_told_apart():
    function = build(lambda b, x: b.call(OPS["add"], (b.call(OPS["softmax"], (x, -1), "p0"), x), "a b"), T)
    text = to_text(function, spans=False)
    assert [line.split(":")[0].strip() for line in text.split("\n")[1:3]] == ["%p0_1", "%a_b"]


def test_defaults_are_left_out_and_what_follows_is_named():
    texts = [
        (("norm", (constant(1.0), None, None, 1e-5)), 'norm(const(1.0, "float32"))'),
        (("norm", (constant(1.0), None, constant(2.0), 0.5)),
         'norm(const(1.0, "float32"), bias=const(2.0, "float32"), eps=0.5)'),
        (("add", (constant(True, "bool"), 1.0)), 'add(const(True, "bool"), 1.0)'),
        (("full", ((1,), 1, "float32", tensor_type(()).device)), "full(shape=(1,), value=1, device=device(\"cpu\"))"),
    ]  # fmt: skip
    for (op, args), text in texts:
        function = build(lambda b, op=op, args=args: b.call(OPS[op], args))
        assert one_line(function.body.bindings[0]) == f"%0 = {text}"


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_constants_keep_their_bits(dtype):
    values = [0.1, -0.0, float("nan"), float("inf"), 1e-7, 65504.0, 1 / 3]
    for data in [*values, values, [values, values]]:
        function = build(lambda b, data=data: b.call(OPS["softmax"], (constant(data, dtype), -1)))
        again = parse_function(to_text(function), lookup)
        old, new = (f.body.bindings[0].value.args[0] for f in (function, again))
        assert to_array(new.value).tobytes() == to_array(old.value).tobytes()
        assert new.type is old.type


def test_a_nan_with_a_payload_is_not_written_as_nan():
    data = np.array([0x7FC00001], dtype=np.uint32).view(np.float32)
    function = build(lambda b: b.call(OPS["softmax"], (Constant(data, tensor_type((1,))), -1)))
    again = parse_function(to_text(function), lookup).body.bindings[0].value.args[0]
    assert again.value.view(np.uint32).tolist() == [0x7FC00001]


def test_large_data_can_be_left_out_for_readers():
    function = build(lambda b: b.call(OPS["softmax"], (constant(np.ones((4, 4))), -1)))
    text = to_text(function, data=False)
    assert text.endswith('$0: Tensor[(4, 4), "float32"] = ...\n}')
    assert str(Module({"main": function})).endswith("= ...\n}")
    with pytest.raises(IRError, match="the data of this constant was left out"):
        parse(text, lookup)


def test_types_may_be_left_out_and_are_inferred():
    function = parse_function(HEAD + '  %a = cast(%x, dtype="float16")\n  %b = cast(%a, "float32")\n  %b\n}', lookup)
    assert [b.var.type.dtype for b in function.body.bindings] == ["float16", "float32"]


def test_arguments_are_normalised():
    call = parse_function(HEAD + "  %a = reshape(%x, shape=6)\n  %b = reshape(%a, (2, 3))\n  %b\n}", lookup)
    assert [b.value.args[1] for b in call.body.bindings] == [(6,), (2, 3)]


def test_spans_come_from_comments_or_from_the_text():
    text = HEAD + "  %a = softmax(%x)  # net.py:12\n  %b = softmax(%a)\n  %b\n}"
    spans = [b.span for b in parse_function(text, lookup).body.bindings]
    assert spans == [Span("net.py", 12), None]
    spans = [b.span for b in parse_function(text, lookup, source="m.txt").body.bindings]
    assert spans == [Span("net.py", 12), Span("m.txt", 3)]


def test_symbolic_sizes_survive():
    n, m = sym("n"), sym("m")
    for size in (n, n * 2 + 1, n * m - 3, -n, n // 2, (n + 1) // m, ((n + 1) // 2) * m, (n - m) // (m + 2), 7 // n):
        function = build(lambda b, x: x, tensor_type((size, 1)))
        assert parse_function(to_text(function), lookup).params[0].type is function.params[0].type


def test_deep_programs_are_refused_by_the_printer():
    block = build(lambda b, x: x, T).body
    cond = constant(True, "bool")
    for _ in range(MAX_DEPTH + 3):
        function = build(lambda b, x, block=block: b.emit(If(cond, block, block)), T)
        block = function.body
    with pytest.raises(IRError, match="blocks nest deeper"):
        to_text(function)
