"""Shapes, layouts and movements of elements."""

from __future__ import annotations

from typing import Any

import numpy as np

import meta
from meta._generated.methods import Tensor
from meta.dim import SymDim, is_static, product
from meta.errors import TypeInferenceError
from meta.frontend.relay.convert.call import OpCall, constant, converter, rows
from meta.frontend.relay.convert.tensor_layout import convert_layout
from meta.frontend.relay.convert.type_mapping import dtype_of

_MAX_AXES = 64
_MAX_PARTS = 65536
"""Limits on the axes and on the parts that one operator creates."""


@converter("reshape")
def reshape(call: OpCall) -> Any:
    x = call.tensors(1)[0]
    return reshaped(call, x, call.sizes("newshape"), call.flag("allowzero"))


@converter("contrib_reverse_reshape")
def reverse_reshape(call: OpCall) -> Any:
    """Special sizes count from the end."""
    (x,) = call.tensors(1)
    newshape = call.sizes("newshape")
    if any(d < -1 for d in newshape):
        call.refuse(f"newshape is {newshape}", "sizes, 0 or -1")
    shape = new_shape(call, tuple(reversed(x.shape)), tuple(reversed(newshape)), call.flag("allowzero"))
    return meta.reshape(x, tuple(reversed(shape)))


def reshaped(call: OpCall, x: Tensor, newshape: tuple[int, ...], allow_zero: bool = False) -> Any:
    shape = new_shape(call, x.shape, newshape, allow_zero)
    return x if shape == x.shape else meta.reshape(x, shape)


def new_shape(call: OpCall, old: tuple[Any, ...], newshape: tuple[Any, ...], allow_zero: bool) -> tuple[Any, ...]:
    """The shape after Relay's special sizes: 0 copies a size, -1 is inferred, -2 copies all remaining sizes, -3
    multiplies the next two, -4 splits the next one into the two that follow; one of these may be -1."""
    out: list[Any] = []
    axis = i = 0
    inferred = None

    def take() -> Any:
        nonlocal axis
        if axis >= len(old):
            raise TypeInferenceError("reshape", f"newshape {newshape} names more axes than {old} has")
        axis += 1
        return old[axis - 1]

    while i < len(newshape):
        size = newshape[i]
        if isinstance(size, SymDim) or size > 0 or (size == 0 and allow_zero):
            out.append(size)
            axis += 1
        elif size == 0:
            out.append(take())
        elif size == -1:
            inferred = len(out)
            out.append(1)
            axis += 1
        elif size == -2:
            out += old[axis:]
            axis = len(old)
        elif size == -3:
            out.append(take() * take())
        elif size == -4 and i + 2 < len(newshape):
            out += _split(call, take(), newshape[i + 1], newshape[i + 2])
            i += 2
        else:
            call.refuse(f"newshape is {newshape}", "sizes, 0, -1, -2, -3, or -4 followed by two sizes")
        i += 1
    if inferred is not None:
        rest = product(out)
        out[inferred] = product(old) // rest if rest != 0 else 0
    return tuple(out)


def _split(call: OpCall, size: Any, first: int, second: int) -> list[Any]:
    if first == -1 and second == -1:
        call.refuse("newshape has -4, -1, -1", "one inferred size of the two")
    return [size // second if first == -1 else first, size // first if second == -1 else second]


@converter("reshape_like")
def reshape_like(call: OpCall) -> Any:
    """The axes lhs_begin to lhs_end take the sizes of the axes rhs_begin to rhs_end of the other tensor."""
    x, like = call.tensors(2)

    def span(side: str, ndim: int) -> tuple[int, int]:
        begin, end = call.int(f"{side}_begin", 0), call.get(f"{side}_end")
        last = ndim if end is None else int(end)
        return begin + ndim * (begin < 0), last + ndim * (last < 0)

    (a, b), (c, d) = span("lhs", x.ndim), span("rhs", like.ndim)
    return meta.reshape(x, (*x.shape[:a], *like.shape[c:d], *x.shape[b:]))


@converter("nn.batch_flatten")
def batch_flatten(call: OpCall) -> Any:
    (x,) = call.tensors(1)
    return meta.reshape(x, (x.shape[0], product(x.shape[1:])))


rows({
    "concatenate": lambda call: meta.concatenate(call.tuple(), call.int("axis")),
    "expand_dims": lambda call: expanded(call.argument, call.int("axis"), call.int("num_newaxis", 1)),
    "layout_transform": lambda call: (
        convert_layout(call, call.argument, call.text("src_layout"), call.text("dst_layout"))
    ),
    "meshgrid": lambda call: meta.meshgrid(*call.tuple(), indexing=call.only("indexing", "ij", "xy")),
    "reverse": lambda call: meta.flip(call.argument, (call.int("axis"),)),
    "squeeze": lambda call: meta.squeeze(call.argument, call.axes()),
    "stack": lambda call: meta.stack(call.tuple(), call.int("axis")),
    "tile": lambda call: meta.tile(call.argument, call.sizes("reps")),
})  # fmt: skip


def expanded(x: Tensor, axis: int, count: int) -> Any:
    if not count:
        return x
    if not 0 < count <= _MAX_AXES:
        raise TypeInferenceError("expand_dims", f"num_newaxis is {count}", f"at most {_MAX_AXES}")
    first = axis if axis >= 0 else axis + x.ndim + 1
    return meta.expand_dims(x, tuple(range(first, first + count)))


@converter("transpose")
def transpose(call: OpCall) -> Any:
    (x,) = call.tensors(1)
    axes = call.axes("axes")
    return meta.transpose(x, axes or None)


@converter("broadcast_to")
def broadcast_to(call: OpCall) -> Any:
    call.text("dtype")
    return meta.broadcast_to(call.argument, call.sizes("shape"))


@converter("broadcast_to_like")
def broadcast_to_like(call: OpCall) -> Any:
    x, like = call.tensors(2)
    return meta.broadcast_to_like(x, like)


@converter("collapse_sum_like")
def collapse_sum_like(call: OpCall) -> Any:
    x, like = call.tensors(2)
    return x if x.shape == like.shape else meta.sum_to(x, like.shape)


@converter("collapse_sum_to")
def collapse_sum_to(call: OpCall) -> Any:
    x, *rest = call.tensors(1, 2)
    shape = call.axes("shape")
    call.text("dtype")
    return meta.sum_to(x, call.ints(rest[0], "shape") if rest else shape or ())


@converter("split")
def split(call: OpCall) -> Any:
    (x,) = call.tensors(1)
    sections = call.get("indices_or_sections")
    if isinstance(sections, int) and sections > _MAX_PARTS:
        call.refuse(f"indices_or_sections is {sections}", f"at most {_MAX_PARTS}")
    return meta.split(x, sections, call.int("axis"))


@converter("repeat")
def repeat(call: OpCall) -> Any:
    (x,) = call.tensors(1)
    axis = call.get("axis")
    return meta.repeat(x, call.int("repeats"), None if axis is None else int(axis))


@converter("shape_of")
def shape_of(call: OpCall) -> Any:
    (x,) = call.tensors(1)
    dtype = dtype_of(call.text("dtype", "int32"), call.place)
    if is_static(x.shape):
        return constant(np.asarray(x.shape, dtype))
    shape = meta.stack([_size(x, axis, dtype) for axis in range(x.ndim)], 0)
    call.shapes[shape.atom] = x.shape
    return shape


def _size(x: Any, axis: int, dtype: str) -> Any:
    """The size of an axis as a tensor; the program counts an open size."""
    if isinstance(x.shape[axis], int):
        return constant(np.asarray(x.shape[axis], dtype))
    others = tuple(i for i in range(x.ndim) if i != axis)
    row = meta.ones_like(x, "int64")
    return meta.cast(meta.sum(meta.max(row, others) if others else row), dtype)


@converter("ndarray_size")
def ndarray_size(call: OpCall) -> Any:
    (x,) = call.tensors(1)
    dtype = dtype_of(call.text("dtype", "int32"), call.place)
    if not is_static(x.shape):
        return meta.cast(meta.sum(meta.ones_like(x, "int64")), dtype)
    return constant(np.asarray(x.size, dtype))


@converter("nn.space_to_depth", "nn.depth_to_space")
def space_and_depth(call: OpCall) -> Any:
    (x,) = call.tensors(1)
    block, layout = call.int("block_size", 1), call.only("layout", "NCHW", "NHWC")
    x = x if layout == "NCHW" else meta.transpose(x, (0, 3, 1, 2))
    n, c, h, w = x.shape
    if call.name == "nn.space_to_depth":
        x = meta.transpose(meta.reshape(x, (n, c, h // block, block, w // block, block)), (0, 3, 5, 1, 2, 4))
        out = meta.reshape(x, (n, c * block * block, h // block, w // block))
    else:
        mode = call.only("mode", "DCR", "CRD")
        channels = c // (block * block)
        if mode == "DCR":
            x = meta.transpose(meta.reshape(x, (n, block, block, channels, h, w)), (0, 3, 4, 1, 5, 2))
        else:
            x = meta.transpose(meta.reshape(x, (n, channels, block, block, h, w)), (0, 1, 4, 2, 5, 3))
        out = meta.reshape(x, (n, channels, h * block, w * block))
    return out if layout == "NCHW" else meta.transpose(out, (0, 2, 3, 1))


@converter("nn.space_to_batch_nd")
def space_to_batch_nd(call: OpCall) -> Any:
    """Blocks of the spatial axes (those after the first) move to the batch (TensorFlow's definition)."""
    (x,) = call.tensors(1)
    blocks = call.sizes("block_shape")
    paddings = tuple(tuple(map(int, p)) for p in call.get("paddings"))
    width = [(0, 0), *paddings, *[(0, 0)] * (x.ndim - 1 - len(blocks))]
    x = meta.pad(x, tuple(v for pair in width for v in pair), call.float("pad_value", 0.0))
    count, rest = len(blocks), x.shape[1 + len(blocks) :]
    sizes = [x.shape[1 + i] // b for i, b in enumerate(blocks)]
    split_up = [v for size, b in zip(sizes, blocks, strict=True) for v in (size, b)]
    x = meta.reshape(x, (x.shape[0], *split_up, *rest))
    order = [*(2 + 2 * i for i in range(count)), 0, *(1 + 2 * i for i in range(count))]
    x = meta.transpose(x, (*order, *range(1 + 2 * count, x.ndim)))
    return meta.reshape(x, (product(x.shape[: count + 1]), *sizes, *rest))


@converter("nn.batch_to_space_nd")
def batch_to_space_nd(call: OpCall) -> Any:
    (x,) = call.tensors(1)
    blocks = call.sizes("block_shape")
    crops = tuple(tuple(map(int, c)) for c in call.get("crops"))
    count, rest = len(blocks), x.shape[1 + len(blocks) :]
    batch = x.shape[0] // product(blocks)
    spatial = x.shape[1 : 1 + count]
    x = meta.reshape(x, (*blocks, batch, *spatial, *rest))
    order = [count, *(v for i in range(count) for v in (count + 1 + i, i))]
    x = meta.transpose(x, (*order, *range(2 * count + 1, x.ndim)))
    sizes = [size * b for size, b in zip(spatial, blocks, strict=True)]
    x = meta.reshape(x, (batch, *sizes, *rest))
    begin = (0, *(c[0] for c in crops))
    end = (x.shape[0], *(size - c[1] for size, c in zip(sizes, crops, strict=True)))
    return x if not any(map(any, crops)) else meta.strided_slice(x, begin, end)


@converter("nn.fifo_buffer")
def fifo_buffer(call: OpCall) -> Any:
    """The buffer with x appended and as many elements removed at its start."""
    x, buffer = call.tensors(2)
    axis = call.int("axis") % x.ndim
    joined = meta.concatenate((buffer, x), axis)
    return meta.strided_slice(joined, (*(0,) * axis, x.shape[axis]), joined.shape[: axis + 1])
