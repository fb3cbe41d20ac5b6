"""Operators on boxes, windows, sparse matrices and spectra, and values that are known only at run time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import meta
from meta.frontend.relay import UnsupportedError, from_relay
from meta.interpreter.run import run

RNG = np.random.RandomState(11)


def f32(*shape: int, low: float = -2.0, high: float = 2.0) -> np.ndarray:
    return RNG.uniform(low, high, shape).astype("float32")


@dataclass
class Row:
    """body: the expressions of main, whose parameters are a, b, ... of `inputs`.  expected: of the inputs, flat."""

    body: str
    inputs: tuple[Any, ...]
    expected: Callable[..., Any]

    @property
    def source(self) -> str:
        kinds = [
            f"Tensor[({', '.join(map(str, x.shape))}), {x.dtype}]" if x.ndim else str(x.dtype) for x in self.inputs
        ]
        params = ", ".join(f"%{name}: {kind}" for name, kind in zip("abcd", kinds, strict=False))
        return f'#[version = "0.0.5"]\ndef @main({params}) {{\n  {self.body}\n}}\n'


BOXES = np.array(
    [[[0, 0.8, 1, 20, 25, 45], [1, 0.7, 30, 60, 50, 80], [0, 0.4, 4, 21, 19, 40],
      [2, 0.9, 35, 61, 52, 79], [1, 0.5, 100, 60, 70, 110]]], "float32",
)  # fmt: skip
PLACES = np.arange(5, dtype="int32")[None]
VALID = np.array([4], "int32")
NUMBERS = np.array([5, 3, 5, 1, 3, 3, 9], "int32")
ROWS, INDICES = np.array([0, 2, 2, 3, 5], "int32"), np.array([1, 4, 0, 2, 3], "int32")
DATA = f32(5)
FIVE = f32(3, 5)
WAVE = f32(2, 8)
IMAGE = f32(1, 2, 5, 6)
COUNTED = np.array([[[-50, 7, 8, 9], [3, -2, 1, 0], [5, 5, 5, 6], [7, -7, 7, -8]]], "int32")[None]


def csr() -> np.ndarray:
    out = np.zeros((4, 5), "float32")
    for row in range(4):
        out[row, INDICES[ROWS[row] : ROWS[row + 1]]] = DATA[ROWS[row] : ROWS[row + 1]]
    return out


def dilated(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    windows = [x[:, :, r : r + 3, c : c + 5] + w[:, r, c, None, None] for r in range(3) for c in range(2)]
    return np.max(windows, 0)


def correlated(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    padded = np.pad(b, ((0, 0), (0, 0), (1, 1), (1, 1)))
    moved = [padded[:, :, y : y + 5, x : x + 6] for y in range(3) for x in range(3)]
    return np.stack([(a * m).mean(1) for m in moved], 1)


def cropped(x: np.ndarray, *_: Any) -> np.ndarray:
    rows, columns = np.linspace(0, 4, 3), np.linspace(2.5, 5, 2)
    out = np.zeros((1, 2, 3, 2))
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            low, part = int(column), column % 1
            pair = x[0, :, int(row), low : low + 2]
            out[0, :, i, j] = pair[:, 0] * (1 - part) + (pair[:, 1] * part if part else 0)
    return out


def averages(x: np.ndarray) -> np.ndarray:
    return np.trunc(x.reshape(1, 1, 2, 2, 2, 2).sum((3, 5)) / 4).astype("int32")


UNIQUE, FIRST, INVERSE, COUNTS = (v.astype("int32") for v in np.unique(NUMBERS, True, True, True))
ORDER = np.argsort(FIRST)

CASES = [
    Row("%0 = vision.get_valid_counts(%a, 0.45f); (%0.0, %0.1, %0.2)", (BOXES,), lambda x: (
        np.array([4], "int32"), np.concatenate([x[:, [0, 1, 3, 4]], x[:, :1] * 0 - 1], 1),
        np.array([[0, 1, 3, 4, -1]], "int32"))),
    Row("%0 = vision.non_max_suppression(%a, %b, %c, -1, 0.6f, force_suppress=True); (%0.0, %0.1)",
        (BOXES, VALID, PLACES), lambda *_: (np.array([[3, 0, 2, -1, -1]], "int32"), np.array([[3]], "int32"))),
    Row("%0 = vision.non_max_suppression(%a, %b, %c, 2, 0.7f); %0.0",
        (BOXES, VALID, PLACES), lambda *_: np.array([[3, 0, -1, -1, -1]], "int32")),
    Row("vision.non_max_suppression(%a, %b, %c, -1, 0.7f, top_k=3, return_indices=False, invalid_to_bottom=True)",
        (BOXES, VALID, PLACES), lambda x, *_: np.concatenate([x[:, [3, 0, 1]], x[:, :2] * 0 - 1], 1)),
    Row("vision.multibox_prior(%a, sizes=[0.5f], ratios=[1f, 4f])", (IMAGE[:, :, :1, :2],), lambda _: np.array(
        [[[0.125, 0.25, 0.375, 0.75], [0, 0.375, 0.5, 0.625], [0.625, 0.25, 0.875, 0.75], [0.5, 0.375, 1, 0.625]]])),
    Row("%0 = vision.multibox_transform_loc(%a, %b, %c, threshold=0.5f); (%0.0, %0.1)",
        (np.array([[[0.1, 0.9], [0.2, 0.05], [0.7, 0.05]]], "float32"), np.zeros((1, 8), "float32"),
         np.array([[[0.1, 0.1, 0.5, 0.7], [0, 0, 1, 1]]], "float32")),
        lambda *_: (np.array([[[1, 0.7, 0.1, 0.1, 0.5, 0.7], [-1] * 6]]), np.array([1], "int32"))),
    Row("vision.roi_pool(%a, %b, pooled_size=[1, 2], spatial_scale=0.5f)",
        (IMAGE, np.array([[0, 2, 0, 9, 4]], "float32")),
        lambda x, _: np.stack([x[..., :3, 1:4].max((2, 3)), x[..., :3, 3:6].max((2, 3))], -1)[:, :, None]),
    Row("image.crop_and_resize(%a, %b, %c, crop_size=[3, 2])",
        (IMAGE, np.array([[0, 0.5, 1, 1]], "float32"), np.array([0], "int32")), cropped),
    Row("image.dilation2d(%a, %b)", (IMAGE, f32(2, 3, 2)), dilated),
    Row("nn.correlation(%a, %b, padding=[1, 1])", (IMAGE, IMAGE * 2), correlated),
    Row("nn.deformable_conv2d(%a, %b, %c, kernel_size=[1, 1])",
        (IMAGE, np.stack([np.ones((5, 6)), np.zeros((5, 6))])[None].astype("float32"), np.eye(2, dtype="float32")
         .reshape(2, 2, 1, 1)), lambda x, *_: np.concatenate([x[:, :, 1:], x[:, :, :1] * 0], 2)),
    Row("nn.sparse_dense(%a, %b, %c, %d)", (FIVE, DATA, INDICES, ROWS), lambda x, *_: x @ csr().T),
    Row("nn.sparse_add(%a, %b, %c, %d)", (f32(4, 5), DATA, INDICES, ROWS), lambda x, *_: x + csr()),
    Row("%0 = sparse_reshape(%a, %b, %c); (%0.0, %0.1)",
        (np.array([[0, 1], [2, 3]], "int32"), np.array([3, 4], "int32"), np.array([2, -1], "int32")),
        lambda *_: (np.array([[0, 1], [1, 5]], "int32"), np.array([2, 6], "int32"))),
    Row("%0 = dft(%a, %b, inverse=True); (%0.0, %0.1)", (WAVE, WAVE * 2),
        lambda x, y: (np.fft.ifft(x + 1j * y).real, np.fft.ifft(x + 1j * y).imag)),
    Row("stft(%a, %b, n_fft=4, hop_length=2, win_length=4, normalized=False, onesided=True)", (WAVE, f32(4)),
        lambda x, w: np.stack([(lambda z: np.stack([z.real, z.imag], -1))(np.fft.rfft(x[:, i : i + 4] * w))
                               for i in (0, 2, 4)], 2)),
    Row("nn.avg_pool2d(%a, pool_size=[2, 2], strides=[2, 2], padding=[0, 0, 0, 0])", (COUNTED,), averages),
    Row("nn.adaptive_avg_pool2d(%a, output_size=[2, 2])", (COUNTED,), averages),
    Row("nn.global_avg_pool2d(%a)", (COUNTED,), lambda x: np.trunc(x.sum((2, 3), keepdims=True) / 16).astype("int32")),
    Row("%0 = unique(%a, sorted=False, return_counts=True); (%0.0, %0.1, %0.2, %0.3, %0.4)", (NUMBERS,), lambda _: (
        UNIQUE[ORDER], FIRST[ORDER], np.argsort(ORDER).astype("int32")[INVERSE], np.array([4], "int32"),
        COUNTS[ORDER])),
    Row("%0 = greater(%a, 0f); argwhere(%0)", (FIVE,), lambda x: np.argwhere(x > 0).astype("int32")),
    Row('scatter_elements(%a, %b, %c, axis=1, reduction="mean")',
        (FIVE, np.array([[0, 0], [1, 2], [4, -1]], "int64"), np.ones((3, 2), "float32")),
        lambda x, *_: np.stack([[(x[0, 0] + 2) / 3, *x[0, 1:]], [x[1, 0], *(x[1, 1:3] + 1) / 2, *x[1, 3:]],
                                [*x[2, :4], (x[2, 4] + 2) / 3]])),
    Row("matrix_set_diag(%a, %b, k1=-1, k2=0)", (np.zeros((2, 3), "float32"), np.array([[1, 2], [3, 4]], "float32")),
        lambda *_: np.array([[1, 0, 0], [3, 2, 0]])),
    Row("trilu(%a, %b, upper=False)", (FIVE, np.int32(-1)), np.tril),
    Row('full(%a, shape=[2, 3], dtype="float32")', (np.float32(3),), lambda x: np.full((2, 3), x)),
    Row("nn.pad(%a, %b, pad_width=[[1, 0], [0, 2]])", (FIVE, np.float32(4)),
        lambda x, v: np.pad(x, ((1, 0), (0, 2)), constant_values=v)),
    Row("qnn.dequantize(%a, %b, %c)", (NUMBERS, np.float32(0.5), np.int32(3)), lambda x, s, z: (x - z) * s),
    Row("fixed_point_multiply_per_axis(%a, %b, %c, %d, is_lshift_required=False, is_rshift_required=True, axes=[1])",
        (np.array([[100, -7]], "int32"), np.array([1 << 30, 1 << 30], "int32"), np.zeros(2, "int32"),
         np.array([0, 1], "int32")), lambda *_: np.array([[50, -2]], "int32")),
]  # fmt: skip


COMPILED = ("argwhere", "get_valid_counts", "sparse_add", "stft", "trilu")
"""Those of which the VM is asked, too: building takes most of the time."""


def leaves(value: Any) -> list[np.ndarray]:
    return [leaf.numpy() for leaf in (value if isinstance(value, tuple) else (value,))]


@pytest.mark.parametrize("row", CASES, ids=lambda row: row.body.split("(")[0].removeprefix("%0 = "))
def test_value(row: Row) -> None:
    module = from_relay(row.source)
    expected = row.expected(*row.inputs)
    arrays = [meta.array(x) for x in row.inputs]
    with meta.with_dialect(["reference"]):
        interpreted = leaves(run(module, *arrays))
    compiled = [leaves(meta.vm.compile(module)(*arrays))] if any(op in row.body for op in COMPILED) else []
    for values in (interpreted, *compiled):
        for x, y in zip(values, expected if isinstance(expected, tuple) else (expected,), strict=True):
            assert x.shape == np.shape(y)
            np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5 if x.dtype.kind == "f" else 0)


@pytest.mark.parametrize(("body", "text"), [
    ("vision.non_max_suppression(%a, %b, %c, -1, 0.7f, return_indices=False)", "results in the order of the input"),
    ("%0 = vision.multibox_transform_loc(%a, %a, %a, keep_background=True); %0.0", "keep_background"),
    ("vision.mystery(%a, %b, %c)", r"vision.mystery \(once: line 3\)"),
])  # fmt: skip
def test_refused(body: str, text: str) -> None:
    with pytest.raises(UnsupportedError, match=text):
        from_relay(Row(body, (BOXES, VALID, PLACES), lambda: None).source)
