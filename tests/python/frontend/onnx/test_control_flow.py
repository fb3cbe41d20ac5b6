"""Conditionals, loops, sequences and functions of ONNX models: at conversion, in programs, and node by node."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import numpy_helper

from meta.frontend.onnx import OnnxError, from_onnx
from tests.python.frontend.onnx.models import check, parsed

X = np.array([1.0, -2.0, 3.0], np.float32)


def test_a_conditional_on_an_input() -> None:
    model = parsed("""g (bool c, float[3] x) => (float[3] y) {
        y = If(c) <then_branch = t () => (float[3] a) { a = Add(x, x) },
                   else_branch = e () => (float[3] b) { b = Neg(x) }>
    }""")
    program = from_onnx(model)
    assert "= if " in str(program.module)
    check(program, model, np.array(True), X)
    check(program, model, np.array(False), X)


def test_a_conditional_on_a_size_is_decided_at_conversion() -> None:
    model = parsed("""g (float[3] x) => (float[n] y) {
        n = Size(x)  three = Constant<value_int=3>()  c = Equal(n, three)
        y = If(c) <then_branch = t () => (float[3] a) { a = Neg(x) },
                   else_branch = e () => (float[6] b) { b = Concat<axis=0>(x, x) }>
    }""")
    program = from_onnx(model)
    assert "= if " not in str(program.module)
    check(program, model, X)


def test_branches_of_different_shapes_run_node_by_node() -> None:
    model = parsed("""g (bool c, float[3] x) => (float[n] y) {
        y = If(c) <then_branch = t () => (float[3] a) { a = Neg(x) },
                   else_branch = e () => (float[6] b) { b = Concat<axis=0>(x, x) }>
    }""")
    program = from_onnx(model)
    assert "its branches differ" in str(program.undecided)
    check(program, model, np.array(True), X)
    check(program, model, np.array(False), X)


LOOP = """g (float[3] x) => (float[3] last, float[4, 3] all) {{
    n = Constant<value_int=4>()  true = Constant<value = bool {{1}}>()
    last, all = Loop(n, true, x) <body = b (int64 i, bool going, float[3] v) => (bool more, float[3] w, float[3] out) {{
        w = Add(v, x)  out = Mul(w, x)  {more}
    }}>
}}"""


def test_a_loop_of_known_length_is_one_body() -> None:
    model = parsed(LOOP.format(more="more = Identity(going)"))
    program = from_onnx(model)
    assert str(program.module).count("Loop::scan") == 1
    check(program, model, X)


def test_a_loop_that_stops_by_a_value_runs_node_by_node_where_it_stacks() -> None:
    model = parsed(
        LOOP.format(more="s = ReduceSum<keepdims=0>(w)  ten = Constant<value_float=6.0>()  more = Less(s, ten)")
    )
    program = from_onnx(model)
    assert "the number of its steps is the size of an output" in str(program.undecided)
    check(program, model, X)


def test_a_loop_that_stops_by_a_value() -> None:
    model = parsed("""g (float[3] x, int64 most) => (float[3] last) {
        last = Loop(most, , x) <body = b (int64 i, bool going, float[3] v) => (bool more, float[3] w) {
            w = Add(v, v)  s = ReduceMax<keepdims=0>(w)  ten = Constant<value_float=10.0>()  more = Less(s, ten)
        }>
    }""")
    program = from_onnx(model)
    assert program.undecided is None
    check(program, model, X, np.array(10))
    check(program, model, X, np.array(1))


def test_a_loop_over_growing_values_is_written_out() -> None:
    model = parsed("""g (float[3] x) => (float[n] y) {
        n = Constant<value_int=2>()  true = Constant<value = bool {1}>()
        y = Loop(n, true, x) <body = b (int64 i, bool going, float[a] v) => (bool more, float[c] w) {
            w = Concat<axis=0>(v, x)  more = Identity(going)
        }>
    }""")
    program = from_onnx(model)
    assert program.module.main.body.results[0].type.shape == (9,)
    check(program, model, X)


def test_scan_along_axes_and_backwards() -> None:
    model = parsed("""g (float[2] s, float[2, 3] x) => (float[2] last, float[2, 3] sums) {
        last, sums = Scan<num_scan_inputs=1, scan_input_axes=[1], scan_input_directions=[1], scan_output_axes=[1],
                          body = b (float[2] v, float[2] e) => (float[2] w, float[2] out) {
            w = Add(v, e)  out = Identity(w)
        }> (s, x)
    }""")
    program = from_onnx(model)
    assert program.undecided is None
    check(program, model, X[:2], np.arange(6, dtype=np.float32).reshape(2, 3))


def test_sequences_are_decided_at_conversion() -> None:
    model = parsed("""g (float[3] x) => (float[6] y, int64 n, seq(float[3]) all) {
        one = Neg(x)  all = SequenceConstruct(x, one, x)  p = Constant<value_int=-2>()
        a = SequenceAt(all, p)  rest = SequenceErase(all, p)  b = ConcatFromSequence<axis=0>(rest)
        y = Identity(b)  n = SequenceLength(rest)
    }""")
    program = from_onnx(model)
    assert program.undecided is None
    check(program, model, X)


def test_functions_of_the_model_and_of_onnx() -> None:
    model = parsed(
        "g (float[3] x) => (float[3] y) { a = mine.scaled<by=3.0>(x)  b = mine.scaled(a)  y = Celu<alpha=2.0>(b) }",
        functions='<domain: "mine", opset_import: ["" : 21]> scaled<by: float = 0.5>(x) => (y) '
        "{ f = Constant<value_float: float = @by>()  y = Mul(x, f) }",
        imports=', "mine" : 1',
    )  # fmt: skip
    check(from_onnx(model), model, X)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("y = SequenceAt(s, p)", "the SequenceAt that computes 'y': position 5 of 1 values; expected -1 to 0"),
        (
            "q = SequenceErase(s)  y = ConcatFromSequence<axis=0>(q)",
            "'y': the sequence is empty; expected",
        ),
        ("y = ConcatFromSequence<axis=0>(x)", "'y': a tensor is given; expected a sequence"),
    ],
)
def test_mistakes_with_sequences(body: str, text: str) -> None:
    head = "s = SequenceConstruct(x)  p = Constant<value_int=5>()"
    with pytest.raises(OnnxError, match=text):
        from_onnx(parsed(f"g (float[3] x) => (float[3] y) {{ {head}  {body} }}"))


def test_slices_of_an_axis_that_values_decide() -> None:
    model = parsed("""g (float[3] x) => (int64[1, m] y) {
        found = NonZero(x)  filled = Concat<axis=1>(found, minus)  y = Slice(filled, zero, two, one)
    }""")
    numbers = {"minus": np.array([[-1, -1]]), "zero": np.array([0]), "two": np.array([2]), "one": np.array([1])}
    model.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in numbers.items())
    program = from_onnx(model)
    assert program.undecided is None
    for x, expected in ((X, [[0, 1]]), (X * [0, 0, 1], [[2, -1]])):
        assert program(x.astype("float32")).tolist() == expected
