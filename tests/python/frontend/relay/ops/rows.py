"""Small programs of every converter with their values in NumPy: what attributes mean, and that defaults are Relay's."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

RNG = np.random.RandomState(7)
F = np.float32


def f32(*shape: int, low: float = -2.0, high: float = 2.0) -> np.ndarray:
    return RNG.uniform(low, high, shape).astype("float32")


def ints(*shape: int, low: int = 0, high: int = 5, dtype: str = "int32") -> np.ndarray:
    return np.asarray(RNG.randint(low, high, shape)).astype(dtype)


@dataclasses.dataclass
class Row:
    """body: the expressions of main, whose parameters are a, b, c, ... of `inputs`.  expected: of the inputs."""

    body: str
    inputs: tuple[np.ndarray, ...]
    expected: Callable[..., Any]

    @property
    def source(self) -> str:
        return program(self.body, self.inputs)


def tensor(x: np.ndarray) -> str:
    shape = ", ".join(map(str, x.shape))
    return f"Tensor[({shape}), {x.dtype}]" if x.ndim else str(x.dtype)


def program(body: str, inputs: tuple[np.ndarray, ...]) -> str:
    params = ", ".join(f"%{'abcdefgh'[i]}: {tensor(x)}" for i, x in enumerate(inputs))
    return f'#[version = "0.0.5"]\ndef @main({params}) {{\n  {body}\n}}\n'


def softmax(x: np.ndarray, axis: int = -1) -> np.ndarray:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def conv2d(x: Any, w: Any, stride: int = 1, pad: int = 0, groups: int = 1, dilation: int = 1) -> np.ndarray:
    """NCHW, OIHW, in float64 or integers."""
    x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    o, i, kh, kw = w.shape
    n, _, h, ww = x.shape
    oh, ow = (h - (kh - 1) * dilation - 1) // stride + 1, (ww - (kw - 1) * dilation - 1) // stride + 1
    out = np.zeros((n, o, oh, ow), np.result_type(x, w))
    for r in range(kh):
        for s in range(kw):
            part = x[:, :, r * dilation :, s * dilation :][:, :, : (oh - 1) * stride + 1 : stride]
            part = part[:, :, :, : (ow - 1) * stride + 1 : stride]
            for g in range(groups):
                rows = slice(g * o // groups, (g + 1) * o // groups)
                out[:, rows] += np.einsum("nihw,oi->nohw", part[:, g * i : (g + 1) * i], w[rows, :, r, s])
    return out


def pool2d(x: Any, k: int, s: int, pad: tuple[int, int], how: str) -> np.ndarray:
    """how: max, avg (without padding) or all (with it); padding before and after both axes."""
    fill = -np.inf if how == "max" else 0.0
    width = ((0, 0), (0, 0), pad, pad)
    p = np.pad(x, width, constant_values=fill)
    ones = np.pad(np.ones_like(x), width, constant_values=1.0 if how == "all" else 0.0)
    n = (p.shape[2] - k) // s + 1
    out = np.zeros((*x.shape[:2], n, n))
    for i in range(n):
        for j in range(n):
            window = p[:, :, i * s : i * s + k, j * s : j * s + k]
            count = ones[:, :, i * s : i * s + k, j * s : j * s + k].sum((2, 3))
            out[:, :, i, j] = window.max((2, 3)) if how == "max" else window.sum((2, 3)) / count
    return out


def batch_norm(x: Any, g: Any, b: Any, m: Any, v: Any, axis: int = 1, eps: float = 1e-5) -> np.ndarray:
    shape = [-1 if i == axis % x.ndim else 1 for i in range(x.ndim)]
    g, b, m, v = (t.reshape(shape) for t in (g, b, m, v))
    return (x - m) / np.sqrt(v + eps) * g + b


def normed(x: Any, axes: tuple[int, ...], eps: float = 1e-5) -> np.ndarray:
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)


X, Y = f32(2, 3, 4), f32(3, 1)
POS = f32(2, 3, low=0.1)
WHOLE, STEPS = ints(4, low=-7, high=8), np.array([2, -2, 3, -3], "int32")
IMG, KERNEL = f32(1, 4, 7, 7), f32(6, 4, 3, 3)
NHWC = f32(1, 6, 6, 4)
Q = ints(2, 4, low=-100, high=100, dtype="int8")

ROWS = [
    # --- elementwise
    *[Row(f"{op}(%a)", (X,), fn) for op, fn in {
        "cosh": np.cosh, "sinh": np.sinh, "exp": np.exp, "negative": np.negative, "abs": np.abs, "ceil": np.ceil,
        "sign": np.sign, "cos": np.cos, "asinh": np.arcsinh, "isnan": np.isnan, "isinf": np.isinf,
        "isfinite": np.isfinite, "zeros_like": np.zeros_like, "ones_like": np.ones_like, "fast_exp": np.exp,
        "fast_tanh": np.tanh, "annotation.stop_fusion": lambda x: x,
    }.items()],
    *[Row(f"{op}(%a)", (POS,), fn) for op, fn in {
        "log": np.log, "log2": np.log2, "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x)}.items()],
    *[Row(f"{op}(%a)", (f32(2, 3, low=-0.9, high=0.9),), fn) for op, fn in {
        "asin": np.arcsin, "acos": np.arccos, "atanh": np.arctanh}.items()],
    Row("acosh(%a)", (f32(3, low=1.1),), np.arccosh),
    Row("bitwise_not(%a)", (WHOLE,), np.invert),
    *[Row(f"{op}(%a, %b)", (X, Y), fn) for op, fn in {
        "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide, "minimum": np.minimum,
        "less_equal": np.less_equal, "greater_equal": np.greater_equal, "equal": np.equal, "floor_mod": np.mod,
        "mod": np.fmod, "trunc_divide": lambda x, y: np.trunc(x / y)}.items()],
    *[Row(f"{op}(%a, %b)", (WHOLE, STEPS), fn) for op, fn in {
        "bitwise_or": np.bitwise_or, "floor_divide": np.floor_divide, "floor_mod": np.mod, "mod": np.fmod,
        "divide": lambda x, y: np.trunc(x / y).astype("int32"), "maximum": np.maximum}.items()],
    Row("left_shift(%a, %b)", (WHOLE, np.abs(STEPS)), np.left_shift),
    *[Row(f"{op}(%a, %b)", (X > 0, Y > 0), fn) for op, fn in {
        "logical_and": np.logical_and, "logical_xor": np.logical_xor}.items()],
    Row("divide(%a, 3)", (WHOLE,), lambda x: np.trunc(x / 3).astype("int32")),
    Row("subtract(1f, %a)", (X,), lambda x: 1 - x),
    Row("clip(%a, a_min=-1f, a_max=0.5f)", (X,), lambda x: np.clip(x, -1, F(0.5))),
    Row("clip(%a, a_min=-2f, a_max=300f)", (Q,), lambda x: np.clip(x, -2, 127)),
    Row('cast(%a, dtype="bool")', (WHOLE,), lambda x: x != 0),
    Row('reinterpret(%a, dtype="int32")', (X,), lambda x: x.view("int32")),
    Row('cast(%a, dtype="int64")', (X,), lambda x: x.astype("int64")),
    Row("fixed_point_multiply(%a, multiplier=1073741824, shift=1)", (WHOLE,), lambda x: x),
    Row("nn.leaky_relu(%a)", (X,), lambda x: np.where(x > 0, x, x * 0.25)),
    Row("nn.prelu(%a, %b)", (X, f32(3)), lambda x, s: np.where(x > 0, x, x * s[:, None])),
    Row("nn.prelu(%a, %b, axis=-1)", (X, f32(4)), lambda x, s: np.where(x > 0, x, x * s)),
    Row("where(%a, %b, %c)", (WHOLE, f32(4), f32(4)), lambda c, x, y: np.where(c, x, y)),
    # --- reductions
    *[Row(f"{op}(%a, axis=[1, -1], keepdims=True)", (X,), lambda x, fn=fn: fn(x, axis=(1, 2), keepdims=True))
      for op, fn in {"sum": np.sum, "mean": np.mean, "max": np.max, "min": np.min, "prod": np.prod}.items()],
    Row("sum(%a, axis=[0], exclude=True)", (X,), lambda x: x.sum((1, 2))),
    Row("sum(%a, axis=[])", (X,), lambda x: x.sum()),
    Row("sum(%a)", (Q,), lambda x: x.sum(dtype="int8")),
    Row("sum(%a, axis=[1])", (ints(3, 4, dtype="int64"),), lambda x: x.sum(1)),
    Row("prod(%a, axis=[1])", (ints(3, 4),), lambda x: x.prod(1).astype("int32")),
    Row("all(%a)", (X > 0,), lambda x: x.all()),
    Row("any(%a, axis=[0], keepdims=True)", (X > 0,), lambda x: x.any(0, keepdims=True)),
    Row("argmin(%a, axis=[1], keepdims=True)", (X,), lambda x: x.argmin(1)[:, None].astype("int32")),
    Row("argmax(%a, axis=[0, 2])", (X,), lambda x: x.transpose(1, 0, 2).reshape(3, -1).argmax(1).astype("int32")),
    Row("argmax(%a, axis=[0], select_last_index=True)", (np.array([1, 3, 3, 0], "float32"),), lambda x: np.int32(2)),
    Row("variance(%a, %b, axis=[2], unbiased=True)", (X, X.mean(2, keepdims=True)), lambda x, m: x.var(2, ddof=1)),
    Row("logsumexp(%a, axis=[1])", (X,), lambda x: np.log(np.exp(x).sum(1))),
    Row("cumsum(%a, axis=1)", (X,), lambda x: x.cumsum(1)),
    Row("cumsum(%a, axis=1, exclusive=True)", (f32(2, 3),), lambda x: x.cumsum(1) - x),
    Row('cumsum(%a, axis=0, dtype="int64")', (Q,), lambda x: x.cumsum(0, dtype="int64")),
    Row("cumsum(%a)", (WHOLE,), lambda x: x.cumsum(dtype="int32")),
    Row("cumprod(%a)", (POS,), lambda x: x.cumprod()),
    # --- shapes
    Row("reshape(%a, newshape=[0, -1])", (X,), lambda x: x.reshape(2, 12)),
    Row("reshape(%a, newshape=[-3, 4])", (X,), lambda x: x.reshape(6, 4)),
    Row("reshape(%a, newshape=[-3, -2])", (X,), lambda x: x.reshape(6, 4)),
    Row("reshape(%a, newshape=[2, 3, -4, -1, 2])", (X,), lambda x: x.reshape(2, 3, 2, 2)),
    Row("reshape(%a, newshape=[-4, 2, -1, -2])", (X,), lambda x: x.reshape(2, 1, 3, 4)),
    Row("reshape(%a, newshape=[0, 0, 2, 2])", (X,), lambda x: x.reshape(2, 3, 2, 2)),
    Row("contrib_reverse_reshape(%a, newshape=[-1, 0, 0])", (f32(2, 3, 4),), lambda x: x),
    Row("reshape_like(%a, %b)", (X, f32(6, 4)), lambda x, y: x.reshape(6, 4)),
    Row("reshape_like(%a, %b, lhs_begin=1, rhs_begin=1)", (X, f32(5, 12)), lambda x, y: x.reshape(2, 12)),
    Row("%0 = shape_of(%b);\n  dyn.reshape(%a, %0, newshape=[])", (X, f32(6, 4)), lambda x, y: x.reshape(6, 4)),
    Row("transpose(%a, axes=[1, -1, 0])", (X,), lambda x: x.transpose(1, 2, 0)),
    Row("squeeze(%a, axis=[-2])", (f32(1, 1, 3),), lambda x: x[:, 0]),
    Row("expand_dims(%a, axis=-1, num_newaxis=2)", (f32(3),), lambda x: x[:, None, None]),
    Row("expand_dims(%a, axis=-2)", (f32(3),), lambda x: x[None]),
    Row("broadcast_to(%a, shape=[2, 3, 4])", (Y,), lambda y: np.broadcast_to(y, (2, 3, 4))),
    Row("collapse_sum_like(%a, %b)", (X, Y), lambda x, y: x.sum((0, 2)).reshape(3, 1)),
    Row("%0 = (%a, %b);\n  stack(%0, axis=-1)", (POS, POS), lambda x, y: np.stack((x, y), -1)),
    Row("%0 = (%a, %b);\n  concatenate(%0)", (POS, POS), lambda x, y: np.concatenate((x, y))),
    Row("%0 = split(%a, indices_or_sections=[1, 3], axis=-1);\n  %0.1", (X,), lambda x: x[:, :, 1:3]),
    Row("%0 = split(%a, indices_or_sections=2);\n  %0.1", (X,), lambda x: x[1:]),
    Row("repeat(%a, repeats=2, axis=-1)", (X,), lambda x: x.repeat(2, -1)),
    Row("tile(%a, reps=[2, 1])", (X,), lambda x: np.tile(x, (2, 1))),
    Row("reverse(%a, axis=1)", (X,), lambda x: x[:, ::-1]),
    Row("reverse_sequence(%a, %b, seq_axis=0, batch_axis=1)", (f32(3, 2), np.array([2, 3], "int32")),
        lambda x, n: np.stack((x[[1, 0, 2], 0], x[::-1, 1]), 1)),
    Row('%0 = (%a, %b);\n  %1 = meshgrid(%0, indexing="xy");\n  %1.0', (f32(2), f32(3)),
        lambda x, y: np.meshgrid(x, y)[0]),
    Row("%0 = (%a, %b);\n  %1 = meshgrid(%0);\n  %1.1", (f32(2), f32(3)),
        lambda x, y: np.meshgrid(x, y, indexing="ij")[1]),
    Row("shape_of(%a)", (X,), lambda x: np.array(x.shape, "int32")),
    Row('ndarray_size(%a, dtype="int64")', (X,), lambda x: np.int64(24)),
    Row('layout_transform(%a, src_layout="NHWC", dst_layout="NCHW4c")', (f32(1, 2, 2, 8),),
        lambda x: x.reshape(1, 2, 2, 2, 4).transpose(0, 3, 1, 2, 4)),
    Row('layout_transform(%a, src_layout="NCHW4c", dst_layout="NCHW")', (f32(1, 2, 2, 3, 4),),
        lambda x: x.transpose(0, 1, 4, 2, 3).reshape(1, 8, 2, 3)),
    Row('layout_transform(%a, src_layout="OIHW", dst_layout="OIHW2i4o")', (f32(4, 4, 1, 1),),
        lambda x: x.reshape(1, 4, 2, 2, 1, 1).transpose(0, 2, 4, 5, 3, 1)),
    Row("nn.space_to_depth(%a, block_size=2)", (f32(1, 2, 4, 4),),
        lambda x: x.reshape(1, 2, 2, 2, 2, 2).transpose(0, 3, 5, 1, 2, 4).reshape(1, 8, 2, 2)),
    Row('nn.depth_to_space(%a, block_size=2, mode="CRD")', (f32(1, 8, 2, 2),),
        lambda x: x.reshape(1, 2, 2, 2, 2, 2).transpose(0, 1, 4, 2, 5, 3).reshape(1, 2, 4, 4)),
    Row("nn.depth_to_space(%a, block_size=2)", (f32(1, 8, 2, 2),),
        lambda x: x.reshape(1, 2, 2, 2, 2, 2).transpose(0, 3, 4, 1, 5, 2).reshape(1, 2, 4, 4)),
    Row("nn.batch_to_space_nd(%a, block_shape=[2, 2], crops=[[0, 0], [1, 1]])", (f32(4, 2, 3, 1),),
        lambda x: x.reshape(2, 2, 1, 2, 3, 1).transpose(2, 3, 0, 4, 1, 5).reshape(1, 4, 6, 1)[:, :, 1:5]),
    Row("nn.batch_flatten(%a)", (f32(3),), lambda x: x[:, None]),
    Row("trilu(%a, 1, upper=False)", (f32(3, 4),), lambda x: np.tril(x, 1)),
    Row("trilu(%a, 0)", (f32(3, 4),), np.triu),
    Row("matrix_set_diag(%a, %b, k1=1, k2=1)", (f32(3, 4), f32(3)),
        lambda x, d: np.where(np.eye(3, 4, 1, dtype=bool), d[:, None], x)),
    Row("sequence_mask(%a, %b, axis=1)", (f32(2, 3), np.array([1, 2], "int32")),
        lambda x, n: np.where(np.arange(3)[None] < n[:, None], x, 0)),
    # --- indexing
    Row("strided_slice(%a, begin=[-1, 3], end=[-4, 0], strides=[-1, -2], axes=None)", (f32(3, 4),),
        lambda x: x[::-1, 3:0:-2]),
    Row("strided_slice(%a, begin=[1], end=[3], strides=[1], axes=[-1])", (X,), lambda x: x[:, :, 1:3]),
    Row("strided_slice(%a, begin=[1], end=[-1], strides=[1], axes=[2])", (X,), lambda x: x[:, :, 1:-1]),
    Row("strided_slice(%a, begin=[0, 1, 0], end=[2, 2, 100], strides=[1, 1, 2])", (X,), lambda x: x[:2, 1:2, ::2]),
    Row('strided_slice(%a, begin=[0, 1], end=[-1, 2], strides=[1], slice_mode="size", axes=[1, 2])', (X,),
        lambda x: x[:, :, 1:3]),
    Row("slice_like(%a, %b)", (X, f32(1, 2, 3)), lambda x, y: x[:1, :2, :3]),
    Row("take(%a, %b, axis=-1)", (X, ints(2, high=4)), lambda x, i: x[:, :, i]),
    Row('take(%a, %b, axis=0, mode="fast")', (X, ints(2, high=2)), lambda x, i: x[i]),
    Row("take(%a, %b, axis=0)", (X, np.array([-1, 9], "int64")), lambda x, i: x[[0, 1]]),
    Row("take(%a, %b, batch_dims=1, axis=2)", (X, ints(2, 5, high=4)),
        lambda x, i: np.stack([x[n][:, i[n]] for n in range(2)])),
    Row('take(%a, %b, batch_dims=1, axis=1, mode="wrap")', (X, np.array([[-1, 4], [0, 1]], "int32")),
        lambda x, i: np.stack([x[n][i[n] % 3] for n in range(2)])),
    Row("gather(%a, %b, axis=0)", (f32(3, 4), ints(2, 4, high=3)), lambda x, i: np.take_along_axis(x, i, 0)),
    Row("gather_nd(%a, %b)", (X, np.array([[0, 1], [2, 0]], "int32")), lambda x, i: x[i[0], i[1]]),
    Row("%0 = (%a, %b, %c);\n  adv_index(%0)", (X, np.array([0, -1]), np.array([[1], [2]])), lambda x, i, j: x[i, j]),
    Row("scatter(%a, %b, %c, axis=1)",
        (f32(2, 3), np.array([[2], [-3]], "int64"), f32(2, 1)),
        lambda x, i, u: np.array([[x[0, 0], x[0, 1], u[0, 0]], [u[1, 0], x[1, 1], x[1, 2]]])),
    Row('scatter_elements(%a, %b, %c, axis=0, reduction="mul")', (f32(3), np.array([0, 0, 2], "int64"), f32(3)),
        lambda x, i, u: np.array([x[0] * u[0] * u[1], x[1], x[2] * u[2]])),
    Row('scatter_nd(%a, %b, %c, mode="add")', (f32(3, 4), np.array([[0, 0]], "int64"), f32(2, 4)),
        lambda x, i, u: np.concatenate((x[:1] + u.sum(0), x[1:]))),
    Row("sparse_to_dense(%a, %b, 1f, output_shape=[5])", (np.array([0, 3], "int32"), f32(2)),
        lambda i, v: np.array([v[0], 1, 1, v[1], 1])),
    Row("%0 = shape_of(%b);\n  unravel_index(%a, %0)", (np.array([5, 7], "int32"), X),
        lambda i, x: np.stack(np.unravel_index(i, x.shape)).astype("int32")),
    Row("argwhere(%a)", (X > 0,), lambda x: np.argwhere(x).astype("int32")),
    Row("%0 = (%a, %b);\n  einsum(%0, equation=\"ij,jk->ki\")", (f32(2, 3), f32(3, 4)), lambda x, y: (x @ y).T),
    Row("searchsorted(%a, %b, right=True)", (np.array([1, 2, 2, 3], "float32"), np.array([2, 5], "float32")),
        lambda s, v: np.searchsorted(s, v, "right").astype("int32")),
    Row("invert_permutation(%a)", (np.array([2, 0, 1], "int32"),), lambda p: np.argsort(p).astype("int32")),
    Row("one_hot(%a, 3f, -1f, depth=4, axis=0, dtype=\"float32\")", (np.array([0, 2], "int32"),),
        lambda i: np.where(np.arange(4)[:, None] == i, 3.0, -1.0)),
    Row("one_hot(%a, 1, 0, depth=4, dtype=\"int32\")", (np.array([0, 2], "int32"),),
        lambda i: np.eye(4, dtype="int32")[i]),
    Row("full_like(%a, 2f)", (X,), lambda x: np.full_like(x, 2)),
    Row('full(7, shape=[2], dtype="int32")', (), lambda: np.full(2, 7, "int32")),
    Row('arange(0, 7, 2, start=0, stop=7, step=2, dtype="int64")', (), lambda: np.arange(0, 7, 2)),
    Row('ones(shape=[2, 1], dtype="int8")', (), lambda: np.ones((2, 1), "int8")),
    Row("sort(%a, axis=0, is_ascend=False)", (f32(4, 2),), lambda x: -np.sort(-x, 0)),
    Row('argsort(%a, dtype="int64")', (f32(2, 4),), lambda x: np.argsort(x, 1)),
    Row('topk(%a, k=2, axis=-1, ret_type="indices", dtype="int32")', (f32(2, 4),),
        lambda x: np.argsort(-x, 1)[:, :2].astype("int32")),
    Row('topk(%a, k=0, ret_type="values")', (f32(2, 4),), lambda x: -np.sort(-x, 1)),
    # --- products
    Row("nn.dense(%a, %b, units=5)", (X, f32(5, 4)), lambda x, w: x @ w.T),
    Row('nn.dense(%a, %b, units=None, out_dtype="int32")', (Q, ints(3, 4, low=-9, high=9, dtype="int8")),
        lambda x, w: x.astype("int32") @ w.T.astype("int32")),
    Row("nn.matmul(%a, %b, transpose_b=True)", (X, f32(5, 4)), lambda x, w: x @ w.T),
    Row("nn.batch_matmul(%a, %b, transpose_a=True, transpose_b=True)", (f32(2, 4, 3), f32(2, 5, 4)),
        lambda x, y: x.transpose(0, 2, 1) @ y.transpose(0, 2, 1)),
    Row("nn.conv2d(%a, %b, strides=[2, 2], padding=[1], dilation=[1, 1], kernel_size=[3, 3])", (IMG, KERNEL),
        lambda x, w: conv2d(x, w, 2, 1)),
    Row("nn.conv2d(%a, %b, padding=[2, 2, 2, 2], dilation=[2, 2])", (IMG, KERNEL),
        lambda x, w: conv2d(x, w, 1, 2, 1, 2)),
    Row('nn.conv2d(%a, %b, data_layout="NHWC", kernel_layout="HWIO", out_layout="NCHW")', (NHWC, f32(3, 3, 4, 2)),
        lambda x, w: conv2d(x.transpose(0, 3, 1, 2), w.transpose(3, 2, 0, 1))),
    Row('nn.conv2d(%a, %b, groups=4, data_layout="NHWC", kernel_layout="HWOI")', (NHWC, f32(3, 3, 4, 2)),
        lambda x, w: conv2d(x.transpose(0, 3, 1, 2), w.transpose(2, 3, 0, 1).reshape(8, 1, 3, 3), 1, 0, 4)
        .transpose(0, 2, 3, 1)),
    Row('nn.conv2d(%a, %b, out_dtype="int32")', (ints(1, 2, 4, 4, dtype="int8"), ints(3, 2, 2, 2, dtype="int8")),
        lambda x, w: conv2d(x.astype("int32"), w.astype("int32"))),
    Row("nn.conv1d(%a, %b)", (f32(1, 4, 7), f32(6, 4, 3)), lambda x, w: conv2d(x[:, :, None], w[:, :, None])[:, :, 0]),
    Row('nn.conv1d(%a, %b, data_layout="NWC", kernel_layout="WIO")', (f32(1, 7, 4), f32(3, 4, 2)),
        lambda x, w: conv2d(x.transpose(0, 2, 1)[:, :, None], w.transpose(2, 1, 0)[:, :, None])[:, :, 0]
        .transpose(0, 2, 1)),
    Row("nn.conv2d_backward_weight(%a, %b, kernel_size=[3, 3])", (f32(1, 6, 5, 5), IMG),
        lambda dy, x: conv2d(x.transpose(1, 0, 2, 3), dy.transpose(1, 0, 2, 3)).transpose(1, 0, 2, 3)),
    # The attributes are a convolution's: layouts of the gradient, of x, and of the result.
    Row('nn.conv2d_backward_weight(%a, %b, kernel_size=[3, 3], data_layout="NHWC", kernel_layout="NCHW", '
        'out_layout="OHWI")', (f32(1, 5, 5, 6), IMG),
        lambda dy, x: conv2d(x.transpose(1, 0, 2, 3), dy.transpose(3, 0, 1, 2)).transpose(1, 2, 3, 0)),
    Row('nn.conv2d_backward_weight(%a, %b, kernel_size=[3, 3], kernel_layout="NHWC", out_layout="HWIO")',
        (f32(1, 6, 4, 4), NHWC),
        lambda dy, x: conv2d(x.transpose(3, 0, 1, 2), dy.transpose(1, 0, 2, 3)).transpose(2, 3, 0, 1)),
    *[Row(f'nn.conv2d_transpose(%a, %b, channels=6, kernel_layout="{layout}")', (IMG, f32(*shape)),
          lambda x, w, order=order: conv2d(x, w.transpose(order)[:, :, ::-1, ::-1], 1, 2))
      for layout, shape, order in (("IOHW", (4, 6, 3, 3), (1, 0, 2, 3)), ("OIHW", (6, 4, 3, 3), (0, 1, 2, 3)),
                                   ("OIHW", (4, 6, 3, 3), (1, 0, 2, 3)), ("HWIO", (3, 3, 4, 6), (3, 2, 0, 1)))],
    # --- pooling
    Row("nn.max_pool2d(%a, pool_size=[2, 2], strides=[2, 2], ceil_mode=True)", (IMG,),
        lambda x: pool2d(x, 2, 2, (0, 1), "max")),
    Row("nn.avg_pool2d(%a, pool_size=[3, 3], strides=[2, 2], padding=[1, 1])", (IMG,),
        lambda x: pool2d(x, 3, 2, (1, 1), "avg")),
    Row("nn.avg_pool2d(%a, pool_size=[3, 3], padding=[1, 1, 1, 1], count_include_pad=True)", (IMG,),
        lambda x: pool2d(x, 3, 1, (1, 1), "all")),
    Row("nn.avg_pool2d(%a, pool_size=[2, 2], strides=[2, 2], ceil_mode=True, count_include_pad=True)", (IMG,),
        lambda x: pool2d(x, 2, 2, (0, 1), "avg")),
    # Windows at 0, 3, 6 and, past x and its padding, 9; ceil_mode adds padding that does not count.
    Row("nn.avg_pool1d(%a, pool_size=[3], strides=[3], padding=[0, 1], ceil_mode=True, count_include_pad=True)",
        (f32(1, 1, 7),), lambda x: np.array([[[x[0, 0, :3].mean(), x[0, 0, 3:6].mean(), x[0, 0, 6] / 2]]])),
    Row("nn.avg_pool1d(%a, pool_size=[1], strides=[2], padding=[0, 0], ceil_mode=True, count_include_pad=True)",
        (f32(1, 1, 4),), lambda x: np.array([[[x[0, 0, 0], x[0, 0, 2], np.nan]]])),
    Row("nn.avg_pool1d(%a, pool_size=[3], strides=[3], padding=[0, 2], ceil_mode=True)", (f32(1, 1, 8),),
        lambda x: np.array([[[x[0, 0, :3].mean(), x[0, 0, 3:6].mean(), x[0, 0, 6:].mean(), 0]]])),
    Row("nn.avg_pool1d(%a, pool_size=[3], strides=[2], padding=[1, 0], ceil_mode=True, count_include_pad=True)",
        (ints(1, 1, 7, low=-9, high=9),),
        lambda x: np.trunc(np.array([[[x[0, 0, :2].sum() / 3, x[0, 0, 1:4].mean(), x[0, 0, 3:6].mean(),
                                       x[0, 0, 5:].mean()]]])).astype("int32")),
    Row('nn.max_pool2d(%a, pool_size=[2, 2], strides=[2, 2], layout="NHWC")', (NHWC,),
        lambda x: pool2d(x.transpose(0, 3, 1, 2), 2, 2, (0, 0), "max").transpose(0, 2, 3, 1)),
    Row('nn.global_avg_pool2d(%a, layout="NHWC")', (NHWC,), lambda x: x.mean((1, 2), keepdims=True)),
    Row("nn.adaptive_max_pool2d(%a, output_size=[1, 1])", (IMG,), lambda x: x.max((2, 3), keepdims=True)),
    # --- normalisation
    Row("%0 = nn.batch_norm(%a, %b, %c, %d, %e, axis=-1, epsilon=0.1f, scale=False);\n  %0.0",
        (X, f32(4), f32(4), f32(4), f32(4, low=0.5)), lambda x, g, b, m, v: batch_norm(x, g * 0 + 1, b, m, v, -1, 0.1)),
    Row("%0 = nn.batch_norm(%a, %b, %c, %d, %e, center=False);\n  %0.0",
        (X, f32(3), f32(3), f32(3), f32(3, low=0.5)), lambda x, g, b, m, v: batch_norm(x, g, b * 0, m, v)),
    Row("nn.layer_norm(%a, %b, %c, axis=1, center=False)", (X, f32(3), f32(3)),
        lambda x, g, b: normed(x, (1,)) * g[:, None]),
    Row("nn.instance_norm(%a, %b, %c)", (IMG, f32(4), f32(4)),
        lambda x, g, b: normed(x, (2, 3)) * g[:, None, None] + b[:, None, None]),
    Row("nn.group_norm(%a, %b, %c, num_groups=2)", (IMG, f32(4), f32(4)),
        lambda x, g, b: normed(x.reshape(1, 2, 2, 7, 7), (2, 3, 4)).reshape(x.shape) * g[:, None, None]
        + b[:, None, None]),
    Row("nn.l2_normalize(%a, eps=1e-3f, axis=[1])", (X,), lambda x: x / np.sqrt((x * x).sum(1, keepdims=True))),
    Row("nn.lrn(%a, size=3)", (f32(1, 4, 2, 2),), lambda x: x / (2 + 1e-4 / 3 * sum(
        np.pad(x * x, ((0, 0), (1, 1), (0, 0), (0, 0)))[:, i : i + 4] for i in range(3))) ** 0.75),
    Row("nn.softmax(%a, axis=1)", (X,), lambda x: softmax(x, 1)),
    Row("nn.log_softmax(%a, axis=0)", (X,), lambda x: np.log(softmax(x, 0))),
    Row("nn.bias_add(%a, %b, axis=-1)", (X, f32(4)), lambda x, b: x + b),
    Row("%0 = nn.dropout(%a, rate=0.9f);\n  %0.0", (X,), lambda x: x),
    Row('nn.pad(%a, 0f, pad_width=[[0, 0], [1, 1], [2, 0]], pad_mode="edge")', (X,),
        lambda x: np.pad(x, ((0, 0), (1, 1), (2, 0)), "edge")),
    Row('nn.mirror_pad(%a, pad_width=[[0, 0], [1, 2], [0, 3]], mode="REFLECT")', (X,),
        lambda x: np.pad(x, ((0, 0), (1, 2), (0, 3)), "reflect")),
    Row("nn.dilate(%a, strides=[1, 3], dilation_value=2f)", (f32(2, 2),),
        lambda x: np.array([[x[0, 0], 2, 2, x[0, 1]], [x[1, 0], 2, 2, x[1, 1]]])),
    Row("nn.fifo_buffer(%a, %b, axis=1)", (f32(1, 2), f32(1, 3)), lambda x, b: np.concatenate((b, x), 1)[:, 2:]),
    Row("nn.cross_entropy_with_logits(%a, %b)", (f32(4, 5), f32(4, 5)), lambda x, t: -(x * t).sum() / 4),
    Row('nn.nll_loss(%a, %b, %c, reduction="sum", ignore_index=1)',
        (f32(4, 5), np.array([0, 1, 2, 4], "int32"), f32(5)),
        lambda x, t, w: -sum(x[i, t[i]] * w[t[i]] for i in (0, 2, 3))),
    Row("round(%a)", (np.array([-2.5, -1.5, -0.5, -0.2, 0.0, 0.49999997, 0.5, 1.5, 2.5, np.inf, -np.inf], "float32"),),
        lambda x: np.copysign(np.floor(np.abs(x).astype("float64") + 0.5), x).astype("float32")),
    # --- images
    Row('image.resize2d(%a, size=[6, 6], roi=[0f, 0f, 0f, 0f], method="nearest_neighbor", '
        'coordinate_transformation_mode="asymmetric", rounding_method="floor")', (f32(1, 2, 3, 3),),
        lambda x: x.repeat(2, 2).repeat(2, 3)),
    Row('nn.upsampling(%a, scale_h=2f, scale_w=3f, layout="NHWC")', (f32(1, 2, 2, 3),),
        lambda x: x.repeat(2, 1).repeat(3, 2)),
    # --- quantised
    Row("qnn.quantize(%a, 0.5f, 3, out_dtype=\"uint8\")", (X,),
        lambda x: np.clip(np.round(x / F(0.5)) + 3, 0, 255).astype("uint8")),
    Row("qnn.quantize(%a, 0.5f, 0, out_dtype=\"int8\")", (np.array([-1.25, -0.25, 0.25, 0.75], "float32"),),
        lambda x: np.array([-3, -1, 1, 2], "int8")),
    Row("qnn.dequantize(%a, 0.25f, -3)", (Q,), lambda q: (q.astype("float32") + 3) * F(0.25)),
    Row("qnn.add(%a, %b, 0.5f, 1, 0.25f, -2, 1f, 3)", (Q, Q),
        lambda a, b: np.clip(np.floor((a.astype(int) - 1) * 0.5 + 0.5) + np.floor((b.astype(int) + 2) * 0.25 + 0.5) + 3,
                             -128, 127).astype("int8")),
    Row("qnn.mul(%a, %b, 0.5f, 1, 0.25f, -2, 1f, 3)", (Q, Q),
        lambda a, b: np.clip(np.floor((a.astype(int) - 1) * (b.astype(int) + 2) * 0.125 + 0.5) + 3, -128, 127)
        .astype("int8")),
    Row('qnn.dense(%a, %b, 2, 1, 0.5f, 0.5f, units=3, out_dtype="int32")', (Q, ints(3, 4, dtype="int8")),
        lambda x, w: (x.astype("int32") - 2) @ (w.T.astype("int32") - 1)),
    Row('qnn.conv2d_transpose(%a, %b, 2, 1, 0.5f, 0.5f, kernel_layout="IOHW", kernel_size=[2, 2], out_dtype="int32")',
        (ints(1, 2, 3, 3, dtype="uint8"), ints(2, 3, 2, 2, dtype="int8")),
        lambda x, w: conv2d(x.astype("int32") - 2,
                            w.astype("int32").transpose(1, 0, 2, 3)[:, :, ::-1, ::-1] - 1, 1, 1)),
    Row('qnn.conv2d(%a, %b, 2, 0, 0.5f, 0.5f, padding=[1, 1, 1, 1], kernel_size=[3, 3], out_dtype="int32")',
        (ints(1, 2, 4, 4, dtype="uint8"), ints(3, 2, 3, 3, dtype="int8")),
        lambda x, w: conv2d(x.astype("int32") - 2, w.astype("int32"), 1, 1)),
]  # fmt: skip
