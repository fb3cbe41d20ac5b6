"""Rarely used operators, each against its definition: bit-serial and Winograd kernels, detectors, quantised pooling,
Threefry."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import meta
from meta.frontend.relay import UnsupportedError, from_relay
from meta.interpreter.run import run
from meta.tree import leaves_of

RNG = np.random.RandomState(5)


def evaluate(body: str, *inputs: np.ndarray, dialect: str = "reference") -> list[np.ndarray]:
    """The tensors that the expressions of main give, whose parameters are a, b, ... of `inputs`."""
    kinds = [f"Tensor[({', '.join(map(str, x.shape))}), {x.dtype}]" if x.ndim else str(x.dtype) for x in inputs]
    params = ", ".join(f"%{name}: {kind}" for name, kind in zip("abcdef", kinds, strict=False))
    module = from_relay(f'#[version = "0.0.5"]\ndef @main({params}) {{\n  {body}\n}}\n')
    with meta.with_dialect([dialect]):
        return [x.numpy() for x in leaves_of(run(module, *inputs))]


def assert_equals_definition(
    body: str, inputs: tuple[np.ndarray, ...], definition: Callable[..., Any], tolerance: float
) -> None:
    """Expressions of one result equal a function of NumPy, in shape and within an absolute tolerance."""
    (result,) = evaluate(body, *inputs)
    expected = np.asarray(definition(*inputs))
    assert result.shape == expected.shape
    np.testing.assert_allclose(result.astype("float64"), expected, rtol=1e-5, atol=tolerance)


def packed(x: np.ndarray, bits: int, axis: int, bit_axis: int, dtype: str) -> np.ndarray:
    """Words of the bits of neighbours along an axis, the first in the highest bit."""
    width = 8 * np.dtype(dtype).itemsize
    groups = np.moveaxis(x, axis, -1).reshape(*np.moveaxis(x, axis, -1).shape[:-1], -1, width).astype("uint64")
    place = np.uint64(1) << np.arange(width - 1, -1, -1, dtype="uint64")
    words = [((groups >> np.uint64(b) & np.uint64(1)) * place).sum(-1, dtype="uint64") for b in range(bits)]
    return np.stack([np.moveaxis(w, -1, axis) for w in words], bit_axis).astype(dtype)


IMAGE = RNG.randint(0, 4, (1, 16, 4, 4)).astype("uint8")
KERNEL = RNG.randint(0, 4, (2, 16, 3, 3)).astype("uint8")
ROWS, WEIGHTS = RNG.randint(0, 4, (3, 32)).astype("int32"), RNG.randint(0, 2, (5, 32)).astype("int32")


def popcounts(x: np.ndarray, w: np.ndarray, unipolar: bool) -> np.ndarray:
    """The convolution that popcounts of packed words give, with padding 1."""
    bits, words = np.unpackbits, np.pad(packed(x, 2, 1, 2, "uint8"), ((0, 0),) * 3 + ((1, 1),) * 2)
    kernel = packed(w, 2, 1, 4, "uint8")
    out = np.zeros((1, w.shape[0], *x.shape[2:]), "int16")
    for o, i, j, a, b in itertools.product(*map(range, (*out.shape[1:], 2, 2))):
        window, kernel_bits = words[0, :, a, i : i + 3, j : j + 3], kernel[o, :, :, :, b]
        total = int(bits(window & kernel_bits).sum()) - (int(bits(window & ~kernel_bits).sum()) if unipolar else 0)
        out[0, o, i, j] += total << (a + b)
    return out


@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
def test_bitpack(dtype: str) -> None:
    (words,) = evaluate(f'nn.bitpack(%a, bits=2, pack_axis=1, bit_axis=2, pack_type="{dtype}")', IMAGE)
    assert words.dtype == dtype
    np.testing.assert_array_equal(words, packed(IMAGE, 2, 1, 2, dtype))


@pytest.mark.parametrize("unipolar", [True, False])
def test_bitserial_conv2d(unipolar: bool) -> None:
    call = ("nn.bitserial_conv2d(%a, %b, padding=[1, 1, 1, 1], channels=2, kernel_size=[3, 3], activation_bits=2, "
            f"weight_bits=2, unipolar={unipolar})")  # fmt: skip
    expected = popcounts(IMAGE, KERNEL, unipolar)
    for kernel in (KERNEL, packed(KERNEL, 2, 1, 4, "uint8")):
        (actual,) = evaluate(call, IMAGE, kernel)
        assert actual.dtype == "int16"
        np.testing.assert_array_equal(actual, expected)
    layout = call.replace("unipolar", 'data_layout="NHWC", kernel_layout="HWIO", unipolar')
    (actual,) = evaluate(layout, IMAGE.transpose(0, 2, 3, 1), KERNEL.transpose(2, 3, 1, 0))
    np.testing.assert_array_equal(actual, expected.transpose(0, 2, 3, 1))


def test_bitserial_dense() -> None:
    call = 'nn.bitserial_dense(%a, %b, units=5, data_bits=2, weight_bits=1, out_dtype="int32")'
    for weights in (WEIGHTS, packed(WEIGHTS, 1, 1, 1, "uint32")):
        np.testing.assert_array_equal(evaluate(call, ROWS, weights)[0], ROWS @ (2 * WEIGHTS - 1).T)


@pytest.mark.parametrize("tile", [2, 4])
def test_winograd(tile: int) -> None:
    x, w = RNG.randn(1, 3, 7, 7).astype("float32"), RNG.randn(4, 3, 3, 3).astype("float32")
    body = f"""%0 = nn.contrib_conv2d_winograd_weight_transform(%b, tile_size={tile});
  %1 = transpose(%0, axes=[0, 1, 3, 2]);
  %2 = nn.contrib_conv2d_winograd_without_weight_transform(%a, %1, tile_size={tile}, padding=[1, 1, 1, 1], channels=4,
                                                         kernel_size=[3, 3]);
  (%0, %2, nn.conv2d(%a, %b, padding=[1, 1, 1, 1]))"""
    transformed, actual, expected = evaluate(body, x, w)
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)
    if tile == 2:  # the matrix in the paper, up to the signs of rows, which cancel in the convolution
        g = np.array([[1, 0, 0], [0.5, -0.5, 0.5], [0.5, 0.5, 0.5], [0, 0, 1]])
        np.testing.assert_allclose(transformed, np.einsum("ia,jb,ocab->ijoc", g, g, w), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kernel", [(3, 3, 3), (1, 3, 3), (2, 3, 3)])
def test_winograd_in_three_dimensions(kernel: tuple[int, ...]) -> None:
    x, w = RNG.randn(1, 3, 6, 7, 5).astype("float32"), RNG.randn(4, 3, *kernel).astype("float32")
    attributes = f"padding=[0, 1, 1, 0, 1, 1], channels=4, kernel_size=[{', '.join(map(str, kernel))}]"
    body = f"""%0 = nn.contrib_conv3d_winograd_weight_transform(%b, tile_size=2);
  %1 = nn.contrib_conv3d_winograd_without_weight_transform(%a, %0, tile_size=2, {attributes});
  (%0, %1, nn.conv3d(%a, %b, {attributes}))"""
    transformed, actual, expected = evaluate(body, x, w)
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)
    g = np.array([[1, 0, 0], [0.5, -0.5, 0.5], [0.5, 0.5, 0.5], [0, 0, 1]])
    formula = "ia,jb,kc,oeabc->ijkoe" if kernel[0] == 3 else "ia,jb,oedab->ijdoe"
    matrices = (g, g, g) if kernel[0] == 3 else (g, g)
    np.testing.assert_allclose(transformed, np.einsum(formula, *matrices, w), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("axis", "window", "strides"), [(1, (3, 4), (2, 1)), (-1, (2,), (3,)), (0, (2, 7, 1), (1, 1, 2))]
)
def test_sliding_windows(axis: int, window: tuple[int, ...], strides: tuple[int, ...]) -> None:
    x = RNG.randn(2, 8, 9).astype("float32")
    (actual,) = evaluate(f"sliding_window(%a, axis={axis}, window_shape={[*window]}, strides={[*strides]})", x)
    first = axis % 3
    windows = np.lib.stride_tricks.sliding_window_view(x, window, tuple(range(first, 3)))
    steps = tuple(slice(None, None, s) for s in strides)
    np.testing.assert_array_equal(actual, windows[(slice(None),) * first + steps])


@pytest.mark.parametrize("attributes", [
    "axis=1, window_shape=[3], strides=[1, 1]", "axis=3, window_shape=[], strides=[]",
    "axis=2, window_shape=[10], strides=[1]", "axis=2, window_shape=[1], strides=[0]",
])  # fmt: skip
def test_sliding_windows_that_do_not_fit(attributes: str) -> None:
    with pytest.raises(UnsupportedError, match="sliding_window"):
        evaluate(f"sliding_window(%a, {attributes})", RNG.randn(2, 8, 9).astype("float32"))


# --- quantised -------------------------------------------------------------------------------------------------------


def test_quantised_softmax_is_a_softmax() -> None:
    q = RNG.randint(-128, 128, (4, 9)).astype("int8")
    (actual,) = evaluate("qnn.softmax(%a, 0.04f, 3, 0.00390625f, -128, axis=1)", q)
    e = np.exp((q.astype("float64") - 3) * 0.04)
    expected = e / e.sum(1, keepdims=True)
    assert actual.dtype == "int8"
    np.testing.assert_allclose((actual.astype("float64") + 128) / 256, expected, atol=0.02)


def test_quantised_pooling() -> None:
    q = RNG.randint(-128, 128, (1, 2, 4, 4)).astype("int8")
    windows = q.astype("int32").reshape(1, 2, 2, 2, 2, 2)
    attributes = "pool_size=[2, 2], strides=[2, 2]"
    (actual,) = evaluate(f"qnn.avg_pool2d(%a, 0.5f, 1, 0.5f, 1, {attributes})", q)
    np.testing.assert_array_equal(actual, np.trunc(windows.sum((3, 5)) / 4).astype("int8"))
    (actual,) = evaluate(f"qnn.avg_pool2d(%a, 0.5f, 1, 1f, 3, {attributes})", q)
    scaled = np.floor((windows - 1) * 0.5 + 0.5) + 3
    np.testing.assert_array_equal(actual, np.trunc(scaled.sum((3, 5)) / 4).astype("int8"))


@pytest.mark.parametrize("code", [0, 1, 2, 3])
def test_simulated_quantisation(code: int) -> None:
    x = np.array([[-200.3, -0.26, 0.24, 0.26, 300.0]], "float32")
    low, high = {0: (-np.inf, np.inf), 1: (-128, 127), 2: (0, 255), 3: (-(2.0**31), 2.0**31)}[code]
    quantised = np.clip(np.round(x / 0.5) + 3, low, high).astype("float32") if code else x
    for call in (f"qnn.simulated_{{}}(%a, {code}, 0.5f, 3)", "qnn.simulated_{}(%a, %b, 0.5f, 3)"):
        operands = (x, np.array(code, "int32"))[: 1 + ("%b" in call)]
        np.testing.assert_array_equal(evaluate(call.format("quantize"), *operands)[0], quantised)
        expected = (x - 3) * np.float32(0.5) if code else x
        np.testing.assert_allclose(evaluate(call.format("dequantize"), *operands)[0], expected, rtol=1e-6)


def test_annotated_quantisation() -> None:
    x = np.array([-9.0, -0.3, 0.3, 9.0], "float32")
    call = 'relay.op.annotation.simulated_quantize(%a, 0.5f, -4f, 4f, kind={}, sign=True, rounding="round")'
    np.testing.assert_array_equal(evaluate(call.format(2), x)[0], [-2.0, -0.5, 0.5, 2.0])
    np.testing.assert_array_equal(evaluate(call.format(0), x)[0], x)


# --- detectors -------------------------------------------------------------------------------------------------------


def overlap(a: np.ndarray, b: np.ndarray, end: float = 0.0) -> float:
    side = np.maximum(np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2]) + end, 0.0)
    areas = [np.prod(c[2:] - c[:2] + end) for c in (a, b)]
    return float(side.prod() / (sum(areas) - side.prod()))


def selected(boxes: np.ndarray, scores: np.ndarray, limit: float, least: float) -> list[int]:
    indices: list[int] = []
    for i in np.argsort(-scores, kind="stable"):
        if scores[i] > least and all(overlap(boxes[i], boxes[k]) < limit for k in indices):
            indices.append(int(i))
    return indices


def test_non_max_suppression_of_all_classes() -> None:
    corners = RNG.uniform(0, 1, (2, 6, 2)).astype("float32")
    boxes = np.concatenate([corners, corners + RNG.uniform(0.3, 0.6, (2, 6, 2)).astype("float32")], 2)
    scores = RNG.uniform(0, 1, (2, 3, 6)).astype("float32")
    expected = [[selected(boxes[b], scores[b, c], 0.3, 0.2)[:2] for c in range(3)] for b in range(2)]
    call = 'vision.all_class_non_max_suppression(%a, %b, 2, 0.3f, 0.2f, output_format="{}")'
    rows, count = evaluate(call.format("onnx"), boxes[:, :, [2, 1, 0, 3]], scores)  # any two opposite corners
    flat = [(b, c, i) for b in range(2) for c in range(3) for i in expected[b][c]]
    assert (rows.shape, count.tolist()) == ((36, 3), [len(flat)])
    assert list(map(tuple, rows[: len(flat)].tolist())) == flat
    rows, best, counts = evaluate(call.format("tensorflow"), boxes, scores)
    for b in range(2):
        flat = [(c, i) for c in range(3) for i in expected[b][c]]
        assert counts[b] == len(flat)
        assert list(map(tuple, rows[b, : len(flat)].tolist())) == flat
        np.testing.assert_array_equal(best[b, : len(flat)], [scores[b, c, i] for c, i in flat])
        assert not best[b, len(flat) :].any()


def test_proposal() -> None:
    batch, height, width, stride, scales, ratios = 2, 2, 3, 8, (1.0, 2.0), (0.5, 1.0)
    count = len(scales) * len(ratios)
    scores = RNG.uniform(0, 1, (batch, 2 * count, height, width)).astype("float32")
    moves = RNG.uniform(-0.2, 0.2, (batch, 4 * count, height, width)).astype("float32")
    sizes = np.array([[16, 24, 1.0], [16, 16, 2.0]], "float32")
    body = ("vision.proposal(%a, %b, %c, scales=[1f, 2f], ratios=[0.5f, 1f], feature_stride=8, threshold=0.5f, "
            "rpn_pre_nms_top_n=12, rpn_post_nms_top_n=10, rpn_min_size=3)")  # fmt: skip
    (actual,) = evaluate(body, scores, moves, sizes)
    expected: list[np.ndarray] = []
    for b in range(batch):
        boxes: list[tuple[float, np.ndarray]] = []
        for i, j, k in itertools.product(range(height), range(width), range(count)):
            side = np.floor(np.sqrt(np.floor(stride**2 / ratios[k // 2])) + 0.5)
            size = np.array([side, np.floor(side * ratios[k // 2] + 0.5)]) * scales[k % 2]
            centre = 0.5 * (stride - 1.0) + np.array([j, i]) * stride
            delta = moves[b, 4 * k : 4 * k + 4, i, j]
            middle, reach = centre + delta[:2] * size, 0.5 * (np.exp(delta[2:]) * size - 1)
            box = np.clip(np.concatenate([middle - reach, middle + reach]), 0, np.tile(sizes[b, 1::-1], 2) - 1)
            score, least = float(scores[b, count + k, i, j]), sizes[b, 2] * 3
            if i >= sizes[b, 0] // stride or j >= sizes[b, 1] // stride:
                score = -1.0
            if (box[2:] - box[:2] + 1 < least).any():
                score, box = -1.0, box + np.array([-1, -1, 1, 1]) * least / 2
            boxes.append((score, box))
        order = np.argsort([-score for score, _ in boxes], kind="stable")[:12]
        kept: list[np.ndarray] = []
        for i in order:
            if all(overlap(boxes[i][1], other, 1.0) <= 0.5 for other in kept):
                kept.append(boxes[i][1])
        expected += [np.concatenate([[b], kept[i % len(kept)]]) for i in range(10)]
    np.testing.assert_allclose(actual, np.stack(expected), rtol=1e-4, atol=1e-4)


def test_yolo_reorg() -> None:
    x = np.arange(2 * 8 * 4 * 6, dtype="float32").reshape(2, 8, 4, 6)
    (actual,) = evaluate("vision.yolo_reorg(%a, stride=2)", x)
    expected = np.zeros((2, 8, 4, 6), "float32")
    for b, k, j, i in itertools.product(*map(range, expected.shape)):
        offset = (((k % 2) * 4) * 4 + (j * 2 + k // 2 // 2) * 2) * 6 + i * 2 + k // 2 % 2
        expected[b, k, j, i] = x[b].reshape(-1)[offset]
    np.testing.assert_array_equal(actual, expected.reshape(2, 32, 2, 3))


# --- sparse ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "layout"), [(1, "NHWC"), (1, "NCHW"), (3, "NHWC"), (3, "NCHW")])
def test_sparse_conv2d(size: int, layout: str) -> None:
    x, w = RNG.randn(1, 4, 5, 5).astype("float32"), RNG.randn(6, 4, size, size).astype("float32")
    w *= RNG.rand(*w.shape) < 0.4
    matrix = (w.transpose(0, 2, 3, 1) if layout == "NHWC" else w).reshape(6, -1)
    rows, columns = matrix.nonzero()
    indptr = np.concatenate([[0], np.bincount(rows, minlength=6).cumsum()]).astype("int32")
    (expected,) = evaluate(f"nn.conv2d(%a, %b, padding=[{size // 2}, {size // 2}])", x, w)
    operand = x if layout == "NCHW" else x.transpose(0, 2, 3, 1)
    call = f'nn.sparse_conv2d(%a, %b, %c, %d, layout="{layout}", kernel_size=[{size}, {size}])'
    (actual,) = evaluate(call, operand, matrix[rows, columns], columns.astype("int32"), indptr)
    np.testing.assert_allclose(actual if layout == "NCHW" else actual.transpose(0, 3, 1, 2), expected, atol=1e-5)


def test_empty_rows_are_filled() -> None:
    indices = np.array([[0, 1], [0, 3], [2, 0], [3, 1]], "int64")
    body = "%0 = stack((5i64, 6i64), axis=0);\n  sparse_fill_empty_rows(%a, %b, %0, 10)"
    rows, values, empty = evaluate(body, indices, np.array([1, 2, 3, 4], "int32"))
    assert rows.tolist() == [[0, 1], [0, 3], [1, 0], [2, 0], [3, 1], [4, 0]]
    assert values.tolist() == [1, 2, 10, 3, 4, 10]
    assert empty.tolist() == [False, True, False, False, True]


# --- random numbers --------------------------------------------------------------------------------------------------

_WORD = (1 << 64) - 1
_ROTATIONS = ((14, 16), (52, 57), (23, 40), (5, 37), (25, 33), (46, 12), (58, 22), (32, 32))


def threefry(key: list[int], counter: list[int]) -> list[int]:
    """20 rounds of Threefry on four words of 64 bits."""
    schedule, x = [*key, 0x1BD11BDAA9FC1A22], list(counter)
    for word in key:
        schedule[4] ^= word
    for i in range(5):
        x = [(word + schedule[(i + j) % 5] + i * (j == 3)) & _WORD for j, word in enumerate(x)]
        for k in range(4):
            for j, rotation in enumerate(_ROTATIONS[(4 * i + k) % 8]):
                a, b = x[2 * j], x[2 * j + 1]
                total = (a + b) & _WORD
                x[2 * j], x[2 * j + 1] = total, total ^ ((b << rotation & _WORD) | b >> (64 - rotation))
            x = [x[0], x[3], x[2], x[1]]
    return x


@pytest.mark.parametrize("dialect", ["tvm", "reference"])
def test_random_words_follow_threefry(dialect: str) -> None:
    key = [1, 2, 3, 4, 0, 0, 0, 7, 1 << 63, 0]
    body = """%0 = random.threefry_generate(%a, out_shape=[2, 4]);
  %1 = random.threefry_split(%a);
  %2 = random.uniform(%a, -1f, 3f, out_shape=[8], out_dtype="float32");
  (%0.0, %0.1, %1.0, %1.1, %2.1)"""
    after, words, left, right, uniform = evaluate(body, np.array(key, "uint64"), dialect=dialect)
    expected = [word for i in range(2) for word in threefry(key[:4], [(c + i) & _WORD for c in key[4:8]])]
    assert [int(v) for v in words.reshape(-1)] == expected
    assert [int(v) for v in after] == [*key[:6], 0, 15, *key[8:]]
    assert [int(v) for v in left] == [*key[:8], 1 << 62, 0]
    assert [int(v) for v in right] == [*key[:4], 1 << 63, *key[5:8], 1 << 62, 0]
    fractions = np.array([word >> 41 for word in expected]).astype("float32") / 2**23
    np.testing.assert_allclose(uniform, fractions * 4 - 1, rtol=1e-6, atol=1e-6)


def test_counts_that_relay_refuses_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="6 random numbers; expected a multiple of 4"):
        evaluate("random.threefry_generate(%a, out_shape=[6])", np.zeros(10, "uint64"))
