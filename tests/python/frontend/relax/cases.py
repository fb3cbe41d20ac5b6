"""A call for each row of the table of Relax's operators, which TVM computes too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from meta.backend.tvm import adapter as tvm

rng = np.random.RandomState(0)


@dataclass(frozen=True)
class Case:
    """name: of the row.  inputs: arrays.  build: TVM's module of operators and variables -> a Relax expression, or a
    list of them, each after the former.  label: tells cases of one row apart.
    expected: the results, where TVM has no lowering, or another one on the CPU."""

    name: str
    inputs: tuple[Any, ...]
    build: Callable[..., Any]
    label: str = ""
    expected: tuple[Any, ...] | None = None


def f(*shape):
    return rng.uniform(0.1, 0.9, shape).astype("float32")


def signed(*shape):
    return rng.randn(*shape).astype("float32")


def i(*shape, low=0, high=5, dtype="int64"):
    return rng.randint(low, high, shape).astype(dtype)


def const(value, dtype):
    return tvm.relax_const(value, dtype)


def shape(*dims):
    return tvm.ShapeExpr(list(dims))


def cases() -> list[Case]:
    return [*_elementwise(), *_reduce(), *_shape(), *_init(), *_indexing(), *_nn(), *_vision(), *_gradient()]


def _elementwise():
    unary = [
        "abs",
        "acos",
        "asin",
        "asinh",
        "atan",
        "atanh",
        "ceil",
        "cos",
        "cosh",
        "erf",
        "exp",
        "floor",
        "isfinite",
        "isinf",
        "isnan",
        "log",
        "negative",
        "rsqrt",
        "sigmoid",
        "sign",
        "sin",
        "sinh",
        "sqrt",
        "square",
        "tan",
        "tanh",
        "trunc",
    ]
    yield from (Case(name, (f(3, 4),), lambda op, x, name=name: getattr(op, name)(x)) for name in unary)
    yield Case("acosh", (1 + f(3),), lambda op, x: op.acosh(x))
    halves = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 1.2, -1.7], "float32")
    yield Case("round", (halves,), lambda op, x: op.round(x), expected=(np.round(halves),))
    for name in [
        "add",
        "subtract",
        "multiply",
        "divide",
        "maximum",
        "minimum",
        "power",
        "atan2",
        "log_add_exp",
        "floor_divide",
    ]:
        yield Case(name, (f(3, 4), f(4)), lambda op, a, b, name=name: getattr(op, name)(a, b))
    for name in ["equal", "not_equal", "less", "less_equal", "greater", "greater_equal"]:
        yield Case(name, (i(3, 4), i(3, 4)), lambda op, a, b, name=name: getattr(op, name)(a, b))
    for name in ["floor_mod", "mod", "floor_divide"]:
        yield Case(name, (i(20, low=-9, high=9), i(20, low=1)), lambda op, a, b, name=name: getattr(op, name)(a, b))
    for name in ["bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift"]:
        yield Case(name, (i(6), i(6)), lambda op, a, b, name=name: getattr(op, name)(a, b))
    for name in ["logical_and", "logical_or", "logical_xor"]:
        flags = (i(6, high=2) > 0, i(6, high=2) > 0)
        yield Case(name, flags, lambda op, a, b, name=name: getattr(op, name)(a, b))
    yield Case("logical_not", (i(6, high=2) > 0,), lambda op, x: op.logical_not(x))
    yield Case("bitwise_not", (i(6),), lambda op, x: op.bitwise_not(x))
    yield Case("where", (i(4, high=2) > 0, f(3, 4), f(4)), lambda op, c, a, b: op.where(c, a, b))
    x, y, z = f(3), f(3), f(3)
    yield Case("ewise_fma", (x, y, z), lambda op, a, b, c: op.ewise_fma(a, b, c), expected=(x * y + z,))
    yield Case("clip", (signed(9),), lambda op, x: op.clip(x, -0.5, 0.5))
    yield Case("astype", (signed(5) * 5,), lambda op, x: op.astype(x, "int32"))
    half = f(3).astype("float16")
    yield Case("wrap_param", (half,), lambda op, x: op.wrap_param(x, "float32"), expected=(half.astype("float32"),))
    for name in ["relu", "gelu", "gelu_tanh", "selu", "silu", "softplus"]:
        yield Case(f"nn.{name}", (3 * signed(3, 4),), lambda op, x, name=name: getattr(op.nn, name)(x))
    yield Case("nn.leakyrelu", (signed(3, 4),), lambda op, x: op.nn.leakyrelu(x, 0.2))
    yield Case("nn.prelu", (signed(2, 3, 4), f(3)), lambda op, x, a: op.nn.prelu(x, a, 1))
    yield Case("builtin.stop_lift_params", (x,), lambda op, x: op.builtin.stop_lift_params(x), expected=(x,))
    yield Case("hint_on_device", (x,), lambda op, x: op.hint_on_device(x, tvm.cpu(0)), expected=(x,))
    yield Case("to_vdevice", (x,), lambda op, x: op.to_vdevice(x, tvm.relax.VDevice("llvm")), expected=(x,))


def _reduce():
    for name in ["sum", "mean", "max", "min", "prod", "variance", "std"]:
        yield Case(name, (f(2, 3, 4),), lambda op, x, name=name: getattr(op, name)(x, [0, -1], False))
        yield Case(name, (f(2, 3),), lambda op, x, name=name: getattr(op, name)(x, None, True))
    for name in ("argmax", "argmin"):
        yield Case(name, (f(2, 3, 4),), lambda op, x, name=name: getattr(op, name)(x, 1, True))
        yield Case(name, (f(2, 3),), lambda op, x, name=name: getattr(op, name)(x, None, False))
    for name in ("cumsum", "cumprod"):
        yield Case(name, (f(2, 3),), lambda op, x, name=name: getattr(op, name)(x, 1))
        yield Case(name, (f(2, 3),), lambda op, x, name=name: getattr(op, name)(x, 0, exclusive=True))
    yield Case("median", (f(2, 4),), lambda op, x: op.median(x, 1, True))
    yield Case("sort", (f(2, 5),), lambda op, x: op.sort(x, 1, True))
    yield Case("argsort", (f(2, 5),), lambda op, x: op.argsort(x, 0, False, "int64"))
    yield Case("topk", (f(2, 5),), lambda op, x: op.topk(x, 2, -1, "both", True, "int64"))
    yield Case("bucketize", (f(2, 5), np.sort(f(3))), lambda op, x, b: op.bucketize(x, b, out_int32=True))
    yield Case("multinomial_from_uniform", (np.full((2, 4), 0.25, "float32"), f(3, 1), i(3, 1, high=2)),
               lambda op, p, u, s: op.multinomial_from_uniform(p, u, s, dtype="int64"))  # fmt: skip


def _shape():
    x = f(2, 3, 4)
    yield Case("reshape", (x,), lambda op, x: op.reshape(x, (4, -1)))
    yield Case("flatten", (x,), lambda op, x: op.flatten(x))
    yield Case("permute_dims", (x,), lambda op, x: op.permute_dims(x))
    yield Case("permute_dims", (x,), lambda op, x: op.permute_dims(x, [1, 0, 2]))
    yield Case("expand_dims", (x,), lambda op, x: op.expand_dims(x, [0, -1]))
    yield Case("squeeze", (f(2, 1, 3, 1),), lambda op, x: op.squeeze(x, [1]))
    yield Case("squeeze", (f(2, 1, 3, 1),), lambda op, x: op.squeeze(x))
    yield Case("concat", (f(2, 3), f(1, 3)), lambda op, a, b: op.concat([a, b], 0))
    yield Case("stack", (f(2, 3), f(2, 3)), lambda op, a, b: op.stack([a, b], 1))
    yield Case("split", (f(2, 6),), lambda op, x: op.split(x, 3, 1))
    yield Case("split", (f(2, 6),), lambda op, x: op.split(x, [1, 4], 1))
    yield Case("split", (f(2, 7),), lambda op, x: op.split(x, 4, 1), "uneven")
    yield Case("broadcast_to", (f(3, 1),), lambda op, x: op.broadcast_to(x, (2, 3, 4)))
    yield Case("collapse_sum_to", (x,), lambda op, x: op.collapse_sum_to(x, (3, 1)))
    yield Case("collapse_sum_like", (x, f(3, 1)), lambda op, x, y: op.collapse_sum_like(x, y))
    yield Case("repeat", (f(2, 3),), lambda op, x: op.repeat(x, 2, 1))
    yield Case("tile", (f(2, 3),), lambda op, x: op.tile(x, (2, 1, 2)))
    yield Case("flip", (f(2, 3),), lambda op, x: op.flip(x, 1))
    yield Case("reverse_sequence", (f(3, 4), np.array([1, 3, 4], "int64")),
               lambda op, x, n: op.reverse_sequence(x, n, 1, 0))  # fmt: skip
    yield Case("meshgrid", (f(2), f(3)), lambda op, a, b: op.meshgrid([a, b], "ij"))
    yield Case("layout_transform", (x,), lambda op, x: op.layout_transform(x, lambda a, b, c: (c, a, b)))
    yield Case("nn.batch_flatten", (x,), lambda op, x: op.nn.batch_flatten(x))
    yield Case("shape_of", (f(2, 3),), lambda op, x: [op.shape_of(x), lambda s: op.zeros(s, "float32")],
               expected=(np.zeros((2, 3), "float32"),))  # fmt: skip
    yield Case("tensor_to_shape", (f(6),), lambda op, x: [
        op.tensor_to_shape(const(np.array([2, 3]), "int64")), lambda s: op.broadcast_to(const(2.0, "float32"), s)
    ], expected=(np.full((2, 3), 2, "float32"),))  # fmt: skip
    yield Case("shape_to_tensor", (x,), lambda op, x: op.shape_to_tensor(op.shape_of(x)))
    yield Case("size", (x,), lambda op, x: op.size(x))


def _init():
    yield Case("zeros", (), lambda op: op.zeros((2, 3), "float32"))
    yield Case("ones", (), lambda op: op.ones((2, 3), "int32"))
    yield Case("zeros_like", (f(2, 3),), lambda op, x: op.zeros_like(x))
    yield Case("ones_like", (f(2, 3),), lambda op, x: op.ones_like(x, "int64"))
    yield Case("full", (), lambda op: op.full((2, 3), const(2.5, "float32"), "float32"))
    yield Case("full", (f(),), lambda op, x: op.full((2, 3), x, "float32"))
    yield Case("full_like", (f(2, 3),), lambda op, x: op.full_like(x, const(3, "float32")))
    yield Case("eye", (), lambda op: op.eye(3, 4, 1, "float32"))
    yield Case("eye_like", (f(3, 4),), lambda op, x: op.eye_like(x, -1))
    yield Case("arange", (), lambda op: op.arange(1, 9, 3, "int64"))
    yield Case("hamming_window", (), lambda op: op.hamming_window(6, True, 0.54, 0.46, "float32"))
    yield Case("tril", (f(3, 4),), lambda op, x: op.tril(x, 1))
    yield Case("triu", (f(3, 4),), lambda op, x: op.triu(x, -1))
    yield Case("one_hot", (i(4),), lambda op, x: op.one_hot(
        x, tvm.tirx.FloatImm("float32", 1.0), tvm.tirx.FloatImm("float32", -1.0), 5, 0))  # fmt: skip


def _indexing():
    yield Case("take", (f(5, 3), i(2, 2)), lambda op, x, n: op.take(x, n, 0))
    yield Case("take", (f(3, 5), i(2, low=-7, high=9)), lambda op, x, n: op.take(x, n, 1, "clip"), "clip")
    yield Case("strided_slice", (f(6, 5),), lambda op, x: op.strided_slice(x, [1, 0], [4, 1], [0, 5], [-2, 2]))
    bounds = ([1, 0], [5, 4], [2, 1])
    yield Case("dynamic_strided_slice", (f(6, 5),), lambda op, x: op.dynamic_strided_slice(
        x, *(const(np.array(v), "int64") for v in bounds)))  # fmt: skip
    yield Case("slice_scatter", (f(5, 4), f(2, 4)), lambda op, x, v: op.slice_scatter(x, v, 1, 5, 2, 0))
    yield Case("gather_elements", (f(3, 4), i(3, 2, high=4)), lambda op, x, n: op.gather_elements(x, n, 1))
    yield Case("gather_nd", (f(3, 4, 2), i(5, 2, high=3)), lambda op, x, n: op.gather_nd(x, n))
    yield Case("scatter_elements", (f(3, 4), i(2, 4, high=3), f(2, 4)),
               lambda op, x, n, v: op.scatter_elements(x, n, v, 0, "add"))  # fmt: skip
    yield Case("scatter_nd", (f(4, 2), np.array([[1], [3]]), f(2, 2)), lambda op, x, n, v: op.scatter_nd(x, n, v))
    yield Case("index_tensor", (f(3, 4), i(2, 1, high=3), i(3, high=4)), lambda op, x, a, b: op.index_tensor(x, [a, b]))
    yield Case("index_put", (f(3, 4), np.array([0, 2]), np.array([1, 3]), f(2)),
               lambda op, x, a, b, v: op.index_put(x, (a, b), v, True))  # fmt: skip


def _nn():
    x = f(2, 4, 7, 6)
    yield Case("matmul", (f(2, 3, 4), f(4, 5)), lambda op, a, b: op.matmul(a, b))
    yield Case("matmul", (f(4), f(4, 5)), lambda op, a, b: op.matmul(a, b))
    yield Case("outer", (f(3), f(4)), lambda op, a, b: op.outer(a, b))
    yield Case("einsum", (f(3, 4), f(4, 5)), lambda op, a, b: op.einsum([a, b], "ij,jk->ki"))
    yield Case("nn.conv1d", (f(2, 4, 7), f(6, 2, 3)), lambda op, x, w: op.nn.conv1d(x, w, 2, 1, 1, groups=2))
    yield Case("nn.conv2d", (x, f(6, 4, 3, 2)), lambda op, x, w: op.nn.conv2d(x, w, (2, 1), (1, 0, 2, 1), (1, 2)))
    yield Case("nn.conv2d", (f(2, 7, 6, 4), f(3, 2, 4, 6)), lambda op, x, w: op.nn.conv2d(
        x, w, 1, 1, data_layout="NHWC", kernel_layout="HWIO"), "NHWC")  # fmt: skip
    yield Case("nn.conv3d", (f(1, 2, 4, 4, 3), f(3, 2, 2, 2, 2)), lambda op, x, w: op.nn.conv3d(x, w))
    yield Case("nn.conv1d_transpose", (f(2, 4, 5), f(4, 3, 3)), lambda op, x, w: op.nn.conv1d_transpose(x, w, 2, 1, 1))
    yield Case("nn.conv2d_transpose", (x, f(4, 3, 3, 2)), lambda op, x, w: op.nn.conv2d_transpose(
        x, w, (2, 1), (1, 0), (1, 0)))  # fmt: skip
    yield Case(
        "nn.conv3d_transpose", (f(1, 2, 3, 3, 3), f(2, 3, 2, 2, 2)), lambda op, x, w: op.nn.conv3d_transpose(x, w)
    )
    for rank in (1, 2, 3):
        image = f(2, 3, *(7, 6, 5)[:rank])
        yield Case(f"nn.max_pool{rank}d", (image,), lambda op, x, n=f"max_pool{rank}d": getattr(op.nn, n)(
            x, 3, 2, 1, ceil_mode=True))  # fmt: skip
        yield Case(f"nn.avg_pool{rank}d", (image,), lambda op, x, n=f"avg_pool{rank}d": getattr(op.nn, n)(
            x, 3, 2, 1, count_include_pad=False))  # fmt: skip
        yield Case(f"nn.adaptive_avg_pool{rank}d", (image,),
                   lambda op, x, n=f"adaptive_avg_pool{rank}d", r=rank: getattr(op.nn, n)(x, [2] * r))  # fmt: skip
    yield Case("nn.softmax", (signed(3, 4),), lambda op, x: op.nn.softmax(x, 0))
    yield Case("nn.log_softmax", (signed(3, 4),), lambda op, x: op.nn.log_softmax(x, -1))
    yield Case("nn.pad", (f(2, 3),), lambda op, x: op.nn.pad(x, [1, 0, 2, 1], "constant", 2.0))
    yield Case("nn.pad", (f(4, 3),), lambda op, x: op.nn.pad(x, [1, 0, 2, 1], "reflect"), "reflect")
    deep = f(1, 8, 2, 3)
    blocks = deep.reshape(1, 2, 2, 2, 2, 3).transpose(0, 1, 4, 2, 5, 3).reshape(1, 2, 4, 6)
    yield Case("nn.pixel_shuffle", (deep,), lambda op, x: op.nn.pixel_shuffle(x, 2), expected=(blocks,))
    yield Case("nn.dropout", (f(2, 3),), lambda op, x: op.nn.dropout(x, 0.3))
    four = (f(4), f(4), f(4), f(4))
    yield Case("nn.batch_norm", (x, *four), lambda op, x, g, b, m, v: op.nn.batch_norm(
        x, g, b, m, v, axis=1, epsilon=1e-3, training=False))  # fmt: skip
    yield Case("nn.batch_norm", (x, *four), lambda op, x, g, b, m, v: op.nn.batch_norm(
        x, g, b, m, v, axis=1, momentum=0.2, training=True), "training")  # fmt: skip
    yield Case("nn.layer_norm", (f(2, 3, 4), f(3, 4), f(3, 4)), lambda op, x, g, b: op.nn.layer_norm(x, g, b, [-2, -1]))
    yield Case("nn.rms_norm", (f(2, 3, 4), f(4)), lambda op, x, w: op.nn.rms_norm(x, w, [-1]))
    yield Case("nn.group_norm", (x, f(4), f(4)), lambda op, x, g, b: op.nn.group_norm(x, g, b, 2, 1, [2, 3]))
    yield Case("nn.instance_norm", (x, f(4), f(4)), lambda op, x, g, b: op.nn.instance_norm(x, g, b, 1, [2, 3]))
    q, k = f(2, 3, 2, 4), f(2, 5, 2, 4)
    yield Case("nn.attention", (q, k, k), lambda op, q, k, v: op.nn.attention(q, k, v, scale=0.3))
    yield Case("nn.attention", (q, q, q), lambda op, q, k, v: op.nn.attention(q, k, v, causal_mask="TopLeft"), "causal")
    yield Case("nn.attention_bias", (q, k, k, signed(2, 2, 3, 5)), lambda op, q, k, v, b: op.nn.attention(q, k, v, b))
    yield Case("nn.cross_entropy_with_logits", (f(3, 4), f(3, 4)),
               lambda op, p, t: op.nn.cross_entropy_with_logits(p, t))  # fmt: skip
    yield Case("nn.nll_loss", (signed(3, 5), i(3), f(5)), lambda op, p, t, w: op.nn.nll_loss(p, t, w, "mean", 1))
    yield Case("nn.nll_loss", (signed(3, 5), i(3)), lambda op, p, t: op.nn.nll_loss(p, t, reduction="none"), "none")
    scale, zero = np.array([0.1, 0.2, 0.3], "float32"), np.array([1, -2, 3], "int8")
    yield Case("quantize", (signed(2, 3), scale, zero), lambda op, x, s, z: op.quantize(x, s, z, 1, "int8"))
    yield Case("dequantize", (i(2, 3, low=-99, high=99, dtype="int8"), scale, zero),
               lambda op, x, s, z: op.dequantize(x, s, z, 1, "float32"))  # fmt: skip


def _vision():
    image = f(1, 2, 5, 6)
    for method, mode in (("linear", "half_pixel"), ("nearest_neighbor", "asymmetric"), ("cubic", "align_corners")):
        yield Case("image.resize2d", (image,), lambda op, x, method=method, mode=mode: op.image.resize2d(
            x, (7, 9), method=method, coordinate_transformation_mode=mode, layout="NCHW"), method)  # fmt: skip
    yield Case("image.resize3d", (f(1, 2, 3, 4, 4),), lambda op, x: op.image.resize3d(x, (5, 6, 7), layout="NCDHW"))
    yield Case("image.grid_sample", (image, signed(1, 2, 3, 4) / 2), lambda op, x, g: op.image.grid_sample(x, g))
    yield Case("image.affine_grid", (signed(1, 2, 3),), lambda op, t: op.image.affine_grid(t, (3, 4)))
    rois = np.array([[0, 0, 0, 3, 3], [0, 1, 1, 5, 4]], "float32")
    yield Case(
        "vision.roi_align", (image, rois), lambda op, x, r: op.vision.roi_align(x, r, (2, 2), 1.0, 2, layout="NCHW")
    )
    boxes = np.concatenate([i(1, 5, 1, high=2), f(1, 5, 5)], -1).astype("float32")
    yield Case("vision.get_valid_counts", (boxes,), lambda op, x: op.vision.get_valid_counts(x, 0.4, 0, 1))
    yield Case("vision.roi_pool", (image, rois), lambda op, x, r: op.vision.roi_pool(x, r, (2, 2), 1.0))


def _gradient():
    x = f(3)
    for name in ("no_grad", "start_checkpoint", "end_checkpoint"):
        yield Case(f"grad.{name}", (x,), lambda op, x, name=name: getattr(op.grad, name)(x), expected=(x,))
    x = f(1, 2, 6, 6)
    yield Case("grad.max_pool2d_backward", (f(1, 2, 3, 3), x), lambda op, dy, x: op.grad.max_pool2d_backward(
        dy, x, (2, 2), (2, 2)))  # fmt: skip
    yield Case("grad.avg_pool2d_backward", (f(1, 2, 3, 3), x), lambda op, dy, x: op.grad.avg_pool2d_backward(
        dy, x, (2, 2), (2, 2)))  # fmt: skip
    yield Case("grad.nll_loss_backward", (f(), signed(3, 5), i(3), f(5)),
               lambda op, dy, p, t, w: op.grad.nll_loss_backward(dy, p, t, w, "mean", 1))  # fmt: skip
    yield Case("grad.take_backward", (f(2, 3), f(5, 3), i(2)), lambda op, dy, x, n: op.grad.take_backward(dy, x, n, 0))
