"""Operators on open sizes, pooling and scattering against onnxruntime, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import meta
from meta.frontend.onnx import UnsupportedError, from_onnx, to_onnx

from .models import check, expected, parsed


def test_sizes_of_inputs_are_operands_of_shapes() -> None:
    model = parsed("""main (float[N, 6, 4] x) => (float[a, b, c] y, float[d, e] z, float[f, g, h] w) {
        shape = Shape(x)
        zero = Constant<value_ints=[0]>()
        one = Constant<value_ints=[1]>()
        two = Constant<value_ints=[2]>()
        n = Gather<axis=0>(shape, zero)
        half = Constant<value_ints=[3]>()
        rest = Constant<value_ints=[-1]>()
        new = Concat<axis=0>(n, half, rest)
        y = Reshape(x, new)
        z = Flatten<axis=2>(x)
        twice = Mul(n, two)
        m = Sub(twice, n)
        end = Slice(shape, one, half)
        back = Concat<axis=0>(m, end)
        flat = ReduceProd<keepdims=1>(back)
        column = Reshape(x, flat)
        w = Reshape(column, back)
    }""")
    program = from_onnx(model)
    assert program.undecided is None
    y, z, w = (list(map(str, t.type.shape)) for t in program.module.functions["main"].body.result.fields)
    assert (y, z, w) == (["N", "3", "8"], ["6*N", "4"], ["N", "6", "4"])
    x = np.arange(48, dtype="float32").reshape(2, 6, 4)
    with meta.with_dialect("reference"):
        outputs = program.interpret(x)
    for result, shape in zip(outputs, ((2, 3, 8), (12, 4), (2, 6, 4)), strict=True):
        np.testing.assert_array_equal(result.numpy(), x.reshape(shape))


def test_pooling_agrees_with_onnxruntime() -> None:
    model = parsed(
        """main (float[2, 2, 5, 6] x) => (float[a, b, c, d] y, float[e, f, g, h] z, float[i, j, k, l] m,
                                                     int64[i2, j2, k2, l2] p, float[o, q, r, s] n) {
        y = AveragePool<kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 0, 1], ceil_mode=1>(x)
        z = AveragePool<kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 2, 1], count_include_pad=1>(x)
        m, p = MaxPool<kernel_shape=[2, 3], strides=[2, 1], pads=[0, 1, 1, 2], storage_order=1>(x)
        n = LpPool<kernel_shape=[2, 2], strides=[2, 2], pads=[1, 0, 0, 0], p=3>(x)
    }""",
        opset=18,
    )
    x = np.random.default_rng(0).normal(size=(2, 2, 5, 6)).astype("float32")
    with meta.with_dialect("reference"):
        outputs = from_onnx(model).interpret(x)
    for result, reference in zip(outputs, expected(model, x), strict=True):
        np.testing.assert_allclose(result.numpy(), reference, rtol=1e-5, atol=1e-6)


def test_extremes_of_nothing_are_the_ends_of_the_dtype() -> None:
    model = parsed("""main (int32[2, 0] x, bool[0] b) => (int32[2] y, int32[2] z, bool t) {
        axis = Constant<value_ints=[1]>()
        y = ReduceMax<keepdims=0>(x, axis)
        z = ReduceMin<keepdims=0>(x, axis)
        t = ReduceMax<keepdims=0>(b)
    }""")
    y, z, t = from_onnx(model).interpret(np.zeros((2, 0), "int32"), np.zeros((0,), "bool"))
    assert (y.tolist(), z.tolist(), t.item()) == ([-(2**31)] * 2, [2**31 - 1] * 2, False)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("main (float[2] x) => (float8e4m3fn[2] y) { y = Cast<to=17>(x) }", "data type float8e4m3fn; expected float"),
        ("main (float[1, 1, 4, N] x) => (float[1, 1, a, b] y) { s = Constant<value_floats=[1.0, 1.0, 1.0, 1.5]>() "
         "y = Resize(x, , s) }", r"an axis of size N is scaled by 1\.5; expected a known size, or a whole factor"),
        ("main (float[1, 1, 4, 4] x) => (float[1, 1, a, b] y) { s = Constant<value_floats=[1.0, 1.0, 2.0, 2.0]>() "
         'y = Resize<mode="area">(x, , s) }', r"mode is 'area'; expected nearest, linear or cubic"),
        ("main (float[1, 1, 4] x) => (float[1, 1, a] y) { y = MaxPool<kernel_shape=[2], pads=[-1, 0]>(x) }",
         r"pads \(\(-1, 0\),\) are negative; expected numbers from 0 on"),
        ("main (float[1, 1, 1, 1, 1, 4] x, float[1, 1, 1, 1, 1, 1] w) => (float[1, 1, 1, 1, 1, 4] y) "
         "{ y = Conv(x, w) }",
         r"an input of 6 axes; expected 3 to 5"),
        ("main (float[2] x) => (int32[2] y) { y = RandomNormalLike<dtype=6>(x) }",
         r"the result is int32; expected a floating dtype"),
        ("main (float[1, 2, 4] x, float[1, 2, 3] w, float[1, 2, 2] r) => (float[a, b, c, d] y) "
         '{ y = RNN<direction="sideways">(x, w, r) }', r"direction is 'sideways'; expected forward, reverse or bid"),
    ],
)  # fmt: skip
def test_what_is_not_supported_is_refused_by_name(body: str, message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        from_onnx(parsed(body))


def test_quotients_of_sizes_are_truncated() -> None:
    text = """main (float[n, 2] x) => (int64[1] y, int64[1] z) {
        size = Shape<start=0, end=1>(x)  nine = Constant<value_ints=[9]>()  below = Sub(size, nine)
        two = Constant<value_ints=[2]>()  back = Constant<value_ints=[-2]>()
        y = Div(below, two)  z = Div(below, back)
    }"""
    model = parsed(text)
    program = from_onnx(model)
    for size in (4, 6, 9, 12):
        check(program, model, np.zeros((size, 2), np.float32))


def test_quotients_of_sizes_are_written_as_floors() -> None:
    function = meta.trace(lambda x: x + (5 - x.shape[0]) // 2)
    model = to_onnx(function, meta.zeros((5, 2)), dynamic={"x": {0: "n"}})
    for size in (4, 6, 9, 12):
        x = np.zeros((size, 2), np.float32)
        np.testing.assert_array_equal(expected(model, x)[0], function(meta.array(x)).numpy())


def test_known_remainders_and_quotients_by_0_are_the_same_as_in_the_program() -> None:
    program = from_onnx(parsed("main (int64[3] x, int64[3] z) => (int64[3] y) { y = Mod(x, z) }"))
    x, z = np.array([1, -1, 5]), np.array([0, 0, 3])
    assert program.interpret(x, z).tolist() == program(x, z).tolist() == [0, 0, 2]
    text = "main (float[2] x) => (float[2] y) { c = Constant<value_floats=[0.0, -1.0]>() y = Div(c, x) }"
    quotient = from_onnx(parsed(text))
    x = np.array([0.0, 0.0], np.float32)
    np.testing.assert_array_equal(quotient.interpret(x), quotient(x))


@pytest.mark.parametrize(("mode", "skips"), [("TF", 0), ("TF", 5), ("IDF", 1), ("TFIDF", 5)])
def test_ngrams_of_numbers_are_counted(mode: str, skips: int) -> None:
    """Pool: 2, 3, 5, 4 alone, then the pairs 5 6, 7 8 and 6 7."""
    text = f"""main (int32[2, 6] x) => (float[a, b] y) {{
        y = TfIdfVectorizer<mode="{mode}", min_gram_length=1, max_gram_length=2, max_skip_count={skips},
            ngram_counts=[0, 4], ngram_indexes=[0, 1, 2, 3, 4, 5, 6], pool_int64s=[2, 3, 5, 4, 5, 6, 7, 8, 6, 7],
            weights=[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]>(x) }}"""
    model = parsed(text)
    check(from_onnx(model), model, np.array([[1, 1, 3, 3, 3, 7], [8, 6, 7, 5, 6, 8]], np.int32))


def test_ngrams_of_words_are_refused() -> None:
    text = """main (int32[6] x) => (float[b] y) { y = TfIdfVectorizer<mode="TF", min_gram_length=1, max_gram_length=1,
        max_skip_count=0, ngram_counts=[0], ngram_indexes=[0], pool_strings=["a"]>(x) }"""
    with pytest.raises(UnsupportedError, match="the n-grams are of words; expected integers: meta has no tensors of"):
        from_onnx(parsed(text))


NAN = np.array(np.nan, "float32")
EDGES: dict[str, tuple[str, int, tuple[np.ndarray, ...]]] = {
    "a size that the operator knows": (
        """main (float[n, k] x) => (float[n, m] y) {
            w = Constant<value_floats=[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]>()
            shape = Constant<value_ints=[3, 2]>()
            matrix = Reshape(w, shape)
            y = MatMul(x, matrix)
        }""", 21, (np.ones((2, 3), "float32"),)),
    "sizes that must be equal": (
        "main (float[n, 3] x, float[m, 3] z) => (float[n, 3] y) { y = Add(x, z) }", 21,
        (np.ones((2, 3), "float32"), np.ones((2, 3), "float32"))),
    "positions of a number": ("main (float x) => (int64[a, b] y) { y = NonZero(x) }", 21, (np.array(3, "float32"),)),
    "positions of 0": ("main (float x) => (int64[a, b] y) { y = NonZero(x) }", 21, (np.array(0, "float32"),)),
    "a limit of NaN": ("main (float[3] x, float low) => (float[3] y) { y = Clip(x, low) }", 21,
                       (np.array([1, -2, 3], "float32"), NAN)),
    "an upper limit of NaN": ("main (float[3] x, float low, float high) => (float[3] y) { y = Clip(x, low, high) }", 21,
                              (np.array([1, -2, np.nan], "float32"), np.array(0, "float32"), NAN)),
    "one scale beside an axis": (
        """main (uint8[4] x) => (float[4] y)
            <float[1] scale = {0.5}, uint8[1] zero = {1}> { y = DequantizeLinear(x, scale, zero) }""", 10,
        (np.arange(4, dtype="uint8"),)),
}  # fmt: skip


@pytest.mark.parametrize("name", EDGES)
def test_edges_agree_with_onnxruntime(name: str) -> None:
    body, opset, inputs = EDGES[name]
    model = parsed(body, opset)
    program = from_onnx(model)
    check(program, model, *inputs)


def test_operators_that_onnx_defines_by_functions_run_as_these() -> None:
    model = parsed("""main (float[N, 4] x) => (float[3, 2] y, int64[n] z, float[a, b] w) {
        size = Constant<value_ints=[3, 2]>()
        y = CenterCropPad(x, size)
        sizes = Shape(x)
        numbers = CastLike(sizes, x)
        z = CastLike(numbers, size)
        w = Swish<alpha=2.0>(x)
    }""", opset=24)  # fmt: skip
    x = np.linspace(-2, 3, 16).astype("float32").reshape(4, 4)
    y, z, w = from_onnx(model)(x)
    np.testing.assert_array_equal(y.numpy(), x[:3, 1:3])
    assert z.tolist() == [4, 4]
    np.testing.assert_allclose(w.numpy(), x / (1 + np.exp(-2 * x)), rtol=1e-6)
