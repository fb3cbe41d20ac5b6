"""Elementwise operators, gradients of pooling, packed layouts and random draws, against their definitions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.python.frontend.relay.ops.rows import conv2d, f32, ints
from tests.python.frontend.relay.ops.test_rare import assert_equals_definition, evaluate, threefry

X, Y = f32(2, 3, 4), f32(3, 1)
POSITIVE = f32(2, 3, low=0.1)
WHOLE, SHIFTS = ints(5, low=-90, high=90), np.array([0, 1, 2, 3, 6], "int32")
IMAGE = f32(1, 4, 5, 6)
KEY = np.array([1, 2, 3, 4, 0, 0, 0, 7, 1 << 63, 0], "uint64")


def pool_gradient(dy: np.ndarray, x: np.ndarray, *, largest: bool, counts_padding: bool = False) -> np.ndarray:
    """Of windows of 3 x 2 with strides 2 and 1 and a row of padding above and below."""
    out = np.zeros(x.shape)
    for n, c, i, j in itertools.product(*map(range, dy.shape)):
        rows = [r for r in range(2 * i - 1, 2 * i + 2) if 0 <= r < x.shape[2]]
        places = [(n, c, r, s) for r in rows for s in (j, j + 1)]
        if largest:
            out[max(places, key=lambda place: x[place])] += dy[n, c, i, j]
            continue
        for place in places:
            out[place] += dy[n, c, i, j] / (6 if counts_padding else len(places))
    return out


def scattered(x: np.ndarray, i: np.ndarray, v: np.ndarray) -> np.ndarray:
    out = x.copy()
    for place in itertools.product(*map(range, i.shape)):
        out[place[0], i[place]] += v[place]
    return out


def transposed_line(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """NCW, IOW, strides 2, padding 1 on both sides."""
    out = np.zeros((x.shape[0], w.shape[1], 2 * (x.shape[2] - 1) + w.shape[2]))
    for i, k in itertools.product(range(x.shape[2]), range(w.shape[2])):
        out[:, :, 2 * i + k] += x[:, :, i] @ w[:, :, k]
    return out[:, :, 1:-1]


def in_blocks(x: np.ndarray) -> np.ndarray:
    """Blocks of 2 x 3 with a row of zeros above, NHWC: the place in a block is the slowest part of the batch."""
    padded = np.pad(x, ((0, 0), (1, 0), (0, 0), (0, 0)))
    return np.concatenate([padded[:, i::2, j::3] for i in range(2) for j in range(3)])


def requantised(q: np.ndarray, zero: int, ratio: float, out_zero: int) -> np.ndarray:
    return np.clip(np.floor((q.astype("float64") - zero) * ratio + 0.5) + out_zero, -128, 127)


def aligned(x: np.ndarray, box: np.ndarray) -> np.ndarray:
    """Averages of 2 x 2 bilinear samples in 2 x 2 cells of a region, at half of its scale."""
    (left, top, right, bottom), out = box[0, 1:] * 0.5, np.zeros((1, x.shape[1], 2, 2))
    height, width = max(bottom - top, 1.0), max(right - left, 1.0)
    for i, j, a, b in itertools.product(range(2), repeat=4):
        r, s = top + (i + (a + 0.5) / 2) * height / 2, left + (j + (b + 0.5) / 2) * width / 2
        r, s = min(max(r, 0), x.shape[2] - 1), min(max(s, 0), x.shape[3] - 1)
        r0, s0 = int(r), int(s)
        r1, s1 = min(r0 + 1, x.shape[2] - 1), min(s0 + 1, x.shape[3] - 1)
        for row, share in ((r0, 1 - r + r0), (r1, r - r0)):
            out[0, :, i, j] += 0.25 * share * (x[0, :, row, s0] * (1 - s + s0) + x[0, :, row, s1] * (s - s0))
    return out


DEFINITIONS: list[tuple[str, tuple[np.ndarray, ...], Callable[..., Any]]] = [
    *[(f"{name}(%a)", (X,), fn) for name, fn in {
        "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "tanh": np.tanh, "sin": np.sin, "tan": np.tan, "atan": np.arctan,
        "erf": np.vectorize(math.erf), "floor": np.floor, "trunc": np.trunc, "nn.relu": lambda x: np.maximum(x, 0),
    }.items()],
    *[(f"{name}(%a)", (X,), lambda x: x) for name in ("copy", "on_device", "device_copy")],
    *[(f'annotation.compiler_{side}(%a, compiler="other")', (X,), lambda x: x) for side in ("begin", "end")],
    ("log10(%a)", (POSITIVE,), np.log10),
    ("power(%a, %b)", (POSITIVE, f32(3)), np.power),
    *[(f"{name}(%a, %b)", (X, Y), fn) for name, fn in {
        "add": np.add, "less": np.less, "not_equal": np.not_equal}.items()],
    *[(f"{name}(%a, %b)", (WHOLE, SHIFTS), fn) for name, fn in {
        "bitwise_and": np.bitwise_and, "bitwise_xor": np.bitwise_xor, "right_shift": np.right_shift}.items()],
    ("logical_or(%a, %b)", (X > 0, Y > 0), np.logical_or),
    ("logical_not(%a)", (X > 0,), np.logical_not),
    ("cast_like(%a, %b)", (X, WHOLE), lambda x, _: x.astype("int32")),
    ('zeros(shape=[2, 3], dtype="int32")', (X,), lambda _: np.zeros((2, 3))),
    ("broadcast_to_like(%a, %b)", (Y, X), lambda y, x: np.broadcast_to(y, x.shape)),
    ("collapse_sum_to(%a, shape=[3, 1])", (X,), lambda x: x.sum((0, 2))[:, None]),
    ("%0 = shape_of(%b);\n  dyn.broadcast_to(%a, %0)", (Y, X), lambda y, x: np.broadcast_to(y, x.shape)),
    ("scatter_add(%a, %b, %c, axis=1)", (f32(3, 4), ints(3, 4, high=4), f32(3, 4)), scattered),
    ("%0 = shape_of(%c);\n  %1 = ones_like(%0);\n  strided_set(%a, %b, %1, %0, %1)", (f32(4, 4), f32(2, 2), f32(3, 3)),
     lambda x, v, _: np.block([[x[:1, :1], x[:1, 1:3], x[:1, 3:]], [x[1:3, :1], v, x[1:3, 3:]],
                               [x[3:, :1], x[3:, 1:3], x[3:, 3:]]])),
    # --- networks
    ("nn.cross_entropy(%a, %b)", (POSITIVE, f32(2, 3)), lambda p, t: -(t * np.log(p)).sum() / 2),
    ("nn.global_max_pool2d(%a)", (IMAGE,), lambda x: x.max((2, 3), keepdims=True)),
    ("nn.max_pool2d_grad(%a, %b, pool_size=[3, 2], strides=[2, 1], padding=[1, 0, 1, 0])", (f32(1, 4, 3, 5), IMAGE),
     lambda dy, x: pool_gradient(dy, x, largest=True)),
    *[(f"nn.avg_pool2d_grad(%a, %b, pool_size=[3, 2], strides=[2, 1], padding=[1, 0, 1, 0], count_include_pad={flag})",
       (f32(1, 4, 3, 5), IMAGE),
       lambda dy, x, flag=flag: pool_gradient(dy, x, largest=False, counts_padding=flag)) for flag in (False, True)],
    ("nn.conv1d_transpose(%a, %b, channels=3, kernel_size=[4], strides=[2], padding=[1, 1])",
     (f32(2, 2, 5), f32(2, 3, 4)), transposed_line),
    ("nn.space_to_batch_nd(%a, block_shape=[2, 3], paddings=[[1, 0], [0, 0]])", (f32(1, 3, 6, 2),), in_blocks),
    ("vision.roi_align(%a, %b, pooled_size=[2, 2], spatial_scale=0.5f, sample_ratio=2)",
     (IMAGE, np.array([[0, 1.0, 2.5, 9.0, 7.5]], "float32")), aligned),
    # --- packed: channels in blocks
    ('nn.contrib_conv2d_NCHWc(%a, %b, channels=6, kernel_size=[3, 3], data_layout="NCHW2c", kernel_layout="OIHW2i3o", '
     'out_layout="NCHW3c")', (f32(1, 2, 5, 6, 2), f32(2, 2, 3, 3, 2, 3)),
     lambda x, w: conv2d(x.transpose(0, 1, 4, 2, 3).reshape(1, 4, 5, 6),
                         w.transpose(0, 5, 1, 4, 2, 3).reshape(6, 4, 3, 3))
     .reshape(1, 2, 3, 3, 4).transpose(0, 1, 3, 4, 2)),
    ('nn.contrib_depthwise_conv2d_NCHWc(%a, %b, channels=4, groups=4, kernel_size=[3, 3], data_layout="NCHW2c", '
     'kernel_layout="OIHW1i2o", out_layout="NCHW2c")', (f32(1, 2, 5, 6, 2), f32(2, 1, 3, 3, 1, 2)),
     lambda x, w: np.stack([conv2d(x[:, c // 2, :, :, c % 2][:, None],
                                   w[c // 2, :, :, :, 0, c % 2][None])[:, 0] for c in range(4)], 1)
     .reshape(1, 2, 2, 3, 4).transpose(0, 1, 3, 4, 2)),
    ('nn.contrib_dense_pack(%a, %b, units=6, weight_layout="NC3n")', (f32(2, 4), f32(2, 4, 3)),
     lambda x, w: x @ w.transpose(0, 2, 1).reshape(6, 4).T),
    # --- quantised
    ('qnn.requantize(%a, 0.5f, 3, 0.25f, -2, out_dtype="int8")', (WHOLE,), lambda q: requantised(q, 3, 2.0, -2)),
    ('qnn.requantize(%a, 0.25f, 1, 0.5f, 4, out_dtype="int8")', (WHOLE,), lambda q: requantised(q, 1, 0.5, 4)),
]  # fmt: skip


@pytest.mark.parametrize(("body", "inputs", "expected"), DEFINITIONS, ids=[body[:48] for body, *_ in DEFINITIONS])
def test_an_operator_is_its_definition(body: str, inputs: tuple[np.ndarray, ...], expected: Callable[..., Any]) -> None:
    assert_equals_definition(body, inputs, expected, 2e-5)


def test_a_transposed_sparse_matrix() -> None:
    dense = f32(4, 4) * (f32(4, 4) > 0.3)
    rows, columns = dense.nonzero()
    indptr = np.concatenate([[0], np.bincount(rows, minlength=4).cumsum()]).astype("int32")
    data, indices, starts = evaluate(
        "nn.sparse_transpose(%a, %b, %c)", dense[rows, columns], columns.astype("int32"), indptr
    )
    there = np.zeros((4, 4), "float32")
    for row in range(4):
        there[row, indices[starts[row] : starts[row + 1]]] = data[starts[row] : starts[row + 1]]
    np.testing.assert_array_equal(there, dense.T)


# --- random numbers --------------------------------------------------------------------------------------------------


def uniform(count: int) -> np.ndarray:
    """The first numbers of KEY, from 0 to 1."""
    words = [w for i in range(count // 4) for w in threefry([1, 2, 3, 4], [i, i, i, 7 + i])]
    return np.array([word >> 41 for word in words]) / 2**23


def test_normal_numbers_follow_box_and_muller() -> None:
    (_, numbers) = evaluate('random.normal(%a, 3f, 0.5f, out_shape=[2, 4], out_dtype="float32")', KEY)
    first, second = uniform(16).reshape(2, 2, 4)
    expected = np.sqrt(-2 * np.log(first)) * np.cos(2 * np.pi * second) * 0.5 + 3
    np.testing.assert_allclose(numbers, expected, rtol=1e-5, atol=1e-5)


def test_multinomial_indices_follow_cumulative_shares() -> None:
    weights = np.array([[1.0, 0.0, 3.0], [2.0, -1.0, 2.0]], "float32")
    (_, indices) = evaluate("random.multinomial(%a, %b, num_samples=8)", KEY, weights)
    shares = np.maximum(weights, 0) / np.maximum(weights, 0).sum(1, keepdims=True)
    expected = [[int(np.searchsorted(shares[i].cumsum(), u, side="right")) for u in uniform(16).reshape(2, 8)[i]]
                for i in range(2)]  # fmt: skip
    assert indices.dtype == "int32"
    np.testing.assert_array_equal(indices, expected)
