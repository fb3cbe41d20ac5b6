"""Operators of one and three spatial axes, of computed shapes, and quantised ones, against their definitions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.python.frontend.relay.ops.rows import conv2d, f32, ints, softmax
from tests.python.frontend.relay.ops.test_rare import assert_equals_definition

LINE, VOLUME = f32(2, 3, 7), f32(1, 2, 4, 5, 6)
X = f32(2, 3, 4)
Q = ints(2, 3, 4, low=-128, high=128, dtype="int8")


def windows(x: Any, size: int, stride: int, function: Callable[..., Any]) -> np.ndarray:
    """A function of the windows of all axes but the first two."""
    rank = x.ndim - 2
    counts = [(n - size) // stride + 1 for n in x.shape[2:]]
    out = np.zeros((*x.shape[:2], *counts))
    for place in itertools.product(*map(range, counts)):
        window = x[(slice(None), slice(None), *(slice(i * stride, i * stride + size) for i in place))]
        out[(slice(None), slice(None), *place)] = function(window, axis=tuple(range(2, 2 + rank)))
    return out


def adaptive(x: Any, sizes: tuple[int, ...], function: Callable[..., Any]) -> np.ndarray:
    """A function of the parts of all axes but the first two, which begin at floors and end at ceilings."""
    out = np.zeros((*x.shape[:2], *sizes))
    for place in itertools.product(*map(range, sizes)):
        ends = zip(place, x.shape[2:], sizes, strict=True)
        part = tuple(slice(i * n // m, math.ceil((i + 1) * n / m)) for i, n, m in ends)
        out[(slice(None), slice(None), *place)] = function(x[(slice(None), slice(None), *part)],
                                                           axis=tuple(range(2, x.ndim)))  # fmt: skip
    return out


def conv3d(x: Any, w: Any) -> np.ndarray:
    """NCDHW, OIDHW: a sum of convolutions of slices."""
    depth = x.shape[2] - w.shape[2] + 1
    planes = [sum(conv2d(x[:, :, d + k], w[:, :, k]) for k in range(w.shape[2])) for d in range(depth)]
    return np.stack(planes, 2)


def linear(x: Any, size: int, axis: int) -> np.ndarray:
    """Half-pixel linear interpolation along an axis."""
    n = x.shape[axis]
    place = np.clip((np.arange(size) + 0.5) * n / size - 0.5, 0, n - 1)
    low = np.floor(place).astype(int)
    high, share = np.minimum(low + 1, n - 1), (place - low).reshape([-1 if i == axis else 1 for i in range(x.ndim)])
    return x.take(low, axis) * (1 - share) + x.take(high, axis) * share


def floored(x: Any, scale: int, axis: int) -> np.ndarray:
    """Relay's nearest neighbour of half-pixel positions: the one at or before the position."""
    place = np.floor((np.arange(x.shape[axis] * scale) + 0.5) / scale - 0.5 + 1e-5).astype(int)
    return x.take(np.maximum(place, 0), axis)


def bilinear(x: Any, grid: Any) -> np.ndarray:
    """grid_sample with align_corners and zeros outside; grid: (n, 2, h, w), x before y, from -1 to 1."""
    n, c, h, w = x.shape
    out = np.zeros((n, c, *grid.shape[2:]))
    for b, i, j in itertools.product(range(n), *map(range, grid.shape[2:])):
        px, py = (grid[b, 0, i, j] + 1) * (w - 1) / 2, (grid[b, 1, i, j] + 1) * (h - 1) / 2
        for r, s in itertools.product((math.floor(py), math.floor(py) + 1), (math.floor(px), math.floor(px) + 1)):
            if 0 <= r < h and 0 <= s < w:
                out[b, :, i, j] += x[b, :, r, s] * (1 - abs(py - r)) * (1 - abs(px - s))
    return out


def affine(theta: Any, h: int, w: int) -> np.ndarray:
    ys, xs = np.meshgrid(np.linspace(-1, 1, h), np.linspace(-1, 1, w), indexing="ij")
    return np.einsum("bij,jhw->bihw", theta, np.stack((xs, ys, np.ones_like(xs))))


def quantised(values: Any, scale: float, zero: int) -> np.ndarray:
    return np.clip(np.round(values / scale) + zero, -128, 127)


DEFINITIONS: list[tuple[str, tuple[np.ndarray, ...], Callable[..., Any]]] = [
    # --- pooling
    ("nn.max_pool1d(%a, pool_size=[3], strides=[2])", (LINE,), lambda x: windows(x, 3, 2, np.max)),
    ("nn.max_pool3d(%a, pool_size=[2, 2, 2], strides=[2, 2, 2])", (VOLUME,), lambda x: windows(x, 2, 2, np.max)),
    ("nn.avg_pool3d(%a, pool_size=[2, 2, 2], strides=[1, 1, 1])", (VOLUME,), lambda x: windows(x, 2, 1, np.mean)),
    ('nn.avg_pool3d(%a, pool_size=[2, 2, 2], strides=[2, 2, 2], layout="NDHWC")', (VOLUME.transpose(0, 2, 3, 4, 1),),
     lambda x: windows(x.transpose(0, 4, 1, 2, 3), 2, 2, np.mean).transpose(0, 2, 3, 4, 1)),
    *[(f"nn.global_{how}_pool{rank}d(%a)", (x,), lambda x, fn=fn: fn(x, axis=tuple(range(2, x.ndim)), keepdims=True))
      for how, fn in (("avg", np.mean), ("max", np.max)) for rank, x in ((1, LINE), (3, VOLUME))],
    *[(f"nn.adaptive_{how}_pool1d(%a, output_size=[3])", (LINE,), lambda x, fn=fn: adaptive(x, (3,), fn))
      for how, fn in (("avg", np.mean), ("max", np.max))],
    *[(f"nn.adaptive_{how}_pool3d(%a, output_size=[3, 2, 4])", (VOLUME,),
       lambda x, fn=fn: adaptive(x, (3, 2, 4), fn)) for how, fn in (("avg", np.mean), ("max", np.max))],
    *[(f"contrib.adaptive_{how}_pool2d(%a, output_size=[2, 3])", (f32(1, 2, 5, 7),),
       lambda x, fn=fn: adaptive(x, (2, 3), fn)) for how, fn in (("avg", np.mean), ("max", np.max))],
    # --- convolutions
    ("nn.conv3d(%a, %b, kernel_size=[2, 3, 2], channels=3)", (VOLUME, f32(3, 2, 2, 3, 2)), conv3d),
    ('nn.conv3d(%a, %b, kernel_size=[2, 3, 2], channels=3, data_layout="NDHWC", kernel_layout="DHWIO")',
     (VOLUME.transpose(0, 2, 3, 4, 1), f32(2, 3, 2, 2, 3)),
     lambda x, w: conv3d(x.transpose(0, 4, 1, 2, 3), w.transpose(4, 3, 0, 1, 2)).transpose(0, 2, 3, 4, 1)),
    ("nn.conv3d_transpose(%a, %b, kernel_size=[2, 2, 2], channels=3)", (f32(1, 2, 3, 3, 3), f32(2, 3, 2, 2, 2)),
     lambda x, w: conv3d(np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1), (1, 1))),
                         w[:, :, ::-1, ::-1, ::-1].transpose(1, 0, 2, 3, 4))),
    # --- images
    ('image.resize1d(%a, size=[5], layout="NCW", method="linear")', (LINE,), lambda x: linear(x, 5, 2)),
    ('image.resize3d(%a, size=[3, 7, 4], layout="NCDHW", method="linear")', (VOLUME,),
     lambda x: linear(linear(linear(x, 3, 2), 7, 3), 4, 4)),
    ("nn.upsampling3d(%a, scale_d=2f, scale_h=1f, scale_w=3f)", (VOLUME,),
     lambda x: floored(floored(x, 2, 2), 3, 4)),
    ("image.affine_grid(%a, target_shape=[3, 4])", (f32(2, 2, 3),), lambda t: affine(t, 3, 4)),
    ("image.grid_sample(%a, %b)", (f32(1, 2, 4, 5), f32(1, 2, 3, 3, low=-1.4, high=1.4)), bilinear),
    # --- values that follow from shapes
    ("%0 = shape_of(%b);\n  dyn.tile(%a, %0)", (X, f32(2, 1, 3)), lambda x, y: np.tile(x, (2, 1, 3))),
    ('%0 = shape_of(%a);\n  dyn.ones(%0, dtype="float32")', (X,), np.ones_like),
    ('%0 = shape_of(%a);\n  dyn.zeros(%0, dtype="int32")', (X,), lambda x: np.zeros(x.shape)),
    ('%0 = shape_of(%a);\n  dyn.full(3f, %0, dtype="float32")', (X,), lambda x: np.full(x.shape, 3.0)),
    ("%0 = shape_of(%b);\n  %1 = ones_like(%0);\n  dyn.strided_slice(%a, %1, %0, %1)", (X, f32(2, 2, 3)),
     lambda x, y: x[1:2, 1:2, 1:3]),
    ("%0 = shape_of(%b);\n  dyn.squeeze(%a, %0)", (f32(2, 1, 4), f32(1)), lambda x, y: x[:, 0]),
    ("dyn.expand_dims(%a, 1)", (X,), lambda x: x[:, None]),
    ('dyn.topk(%a, 2, axis=1, ret_type="values", dtype="int32")', (X,), lambda x: np.sort(x, 1)[:, :0:-1]),
    ('dyn.one_hot(%a, 5f, 2f, 4, axis=-1, dtype="float32")', (ints(3, high=4),),
     lambda i: np.where(np.eye(4)[i] > 0, 5, 2)),
    ("%0 = shape_of(%b);\n  %1 = reshape(%0, newshape=[3, 2]);\n  dyn.nn.pad(%a, %1, 7f)",
     (X, f32(1, 2, 3, 1, 1, 2)), lambda x, y: np.pad(x, ((1, 2), (3, 1), (1, 2)), constant_values=7)),
    ("dyn.nn.upsampling(%a, 2f, 3f)", (f32(1, 2, 3, 4),), lambda x: x.repeat(2, 2).repeat(3, 3)),
    ("%0 = shape_of(%b);\n  dyn.sparse_to_dense(%a, %0, %c, 1f)", (np.array([0, 3], "int32"), f32(5), f32(2)),
     lambda i, y, v: np.array([v[0], 1, 1, v[1], 1])),
    # --- elementwise
    ("square(%a)", (X,), np.square),
    ("trunc_mod(%a, %b)", (ints(5, low=-9, high=9), np.array([2, -3, 4, -5, 7], "int32")), np.fmod),
    ("fast_erf(%a)", (X,), np.vectorize(math.erf)),
    ("nn.fast_softmax(%a, axis=1)", (X,), lambda x: softmax(x, 1)),
    *[(f"{name}(%a)", (X,), lambda x: x) for name in ("annotation.checkpoint", "annotation.cast_hint", "debug")],
    # --- quantised
    *[(f"qnn.{name}(%a, 0.02f, -3, 0.05f, 4)", (Q,), lambda q, fn=fn: quantised(fn((q + 3.0) * 0.02), 0.05, 4))
      for name, fn in {"abs": np.abs, "tanh": np.tanh, "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "exp": np.exp,
                       "erf": np.vectorize(math.erf),
                       "hardswish": lambda x: x * np.clip(x + 3, 0, 6) / 6}.items()],
    *[(f"qnn.{name}(%a, 0.02f, -130, 0.05f, 4)", (Q,), lambda q, fn=fn: quantised(fn((q + 130.0) * 0.02), 0.05, 4))
      for name, fn in {"sqrt": np.sqrt, "log": np.log, "rsqrt": lambda x: 1 / np.sqrt(x)}.items()],
    ("qnn.leaky_relu(%a, 0.02f, -3, 0.05f, 4, alpha=0.25f)", (Q,),
     lambda q: quantised(np.where(q > -3, 1.0, 0.25) * (q + 3.0) * 0.02, 0.05, 4)),
    ("qnn.subtract(%a, %b, 0.02f, 3, 0.04f, -5, 0.05f, 1)", (Q, Q[::-1].copy()),
     lambda a, b: quantised((a - 3.0) * 0.02 - (b + 5.0) * 0.04, 0.05, 1)),
    ("qnn.batch_matmul(%a, %b, 3, -2, 0.1f, 0.2f)", (Q, ints(2, 5, 4, low=-128, high=128, dtype="int8")),
     lambda a, b: np.matmul(a.astype(int) - 3, (b.astype(int) + 2).transpose(0, 2, 1))),
    ("%0 = (%a, %b);\n  %1 = (0.02f, 0.04f);\n  %2 = (3, -5);\n  qnn.concatenate(%0, %1, %2, 0.05f, 1, axis=1)", (Q, Q),
     lambda a, b: quantised(np.concatenate(((a - 3.0) * 0.02, (b + 5.0) * 0.04), 1), 0.05, 1)),
]  # fmt: skip


@pytest.mark.parametrize(("body", "inputs", "expected"), DEFINITIONS, ids=[body[:48] for body, *_ in DEFINITIONS])
def test_an_operator_is_its_definition(body: str, inputs: tuple[np.ndarray, ...], expected: Callable[..., Any]) -> None:
    # the ratio of two scales is a fixed-point number, whose products round to either side of a tie
    is_rescaled = body.startswith(("qnn.subtract", "qnn.leaky_relu", "%0 = (%a, %b);"))
    assert_equals_definition(body, inputs, expected, 1 if is_rescaled else 2e-5)
