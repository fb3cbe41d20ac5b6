"""Operators on windows of images other than convolutions: morphology, correlation, crops, deformed windows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import meta
from meta._generated.methods import Tensor
from meta.dtype import is_float
from meta.frontend.relay.convert.call import OpCall, constant, converter
from meta.frontend.relay.convert.tensor_layout import convert_layout, permuted
from meta.frontend.relay.ops.unary import rounded
from meta.functional._checks import as_dtype
from meta.functional.image import interpolated, nearest_inside

_MAX_STEPS = 64
"""Displacements to each side in a correlation."""
_Pair = tuple[NDArray[Any], NDArray[Any]]
"""Positions along both spatial axes."""


def _sides(padding: tuple[int, ...]) -> tuple[int, int, int, int]:
    """top, left, bottom and right, from one number, one for each axis, or four."""
    a = padding * 4 if len(padding) == 1 else padding * 2 if len(padding) == 2 else padding
    return a[0], a[1], a[2], a[3]


def _bordered(x: Tensor, padding: tuple[int, ...], value: float) -> Any:
    top, left, bottom, right = _sides(padding)
    width = (0, 0, 0, 0, top, bottom, left, right)
    return meta.pad(x, width, value) if any(width) else x


def _positions(starts: NDArray[Any], offsets: NDArray[Any]) -> Any:
    """The constant start + offset, with a row for each start."""
    return constant(starts[:, None] + offsets)


def _windows(x: Tensor, starts: _Pair, offsets: _Pair) -> Any:
    """x[n, c, start + offset] along both spatial axes: (n, c, starts, offsets, starts, offsets)."""
    index = [_positions(s, o) for s, o in zip(starts, offsets, strict=True)]
    return meta.take(meta.take(x, index[0], 2), index[1], 4)


@converter("sliding_window")
def sliding_window(call: OpCall) -> Any:
    """The windows over the last axes, from `axis` on: the axes before, then the positions of windows, then the elements
    in a window."""
    (x,) = call.tensors(1)
    axis, window, stride = call.int("axis"), call.sizes("window_shape"), call.sizes("strides")
    first = axis + x.ndim if axis < 0 else axis
    if not 0 <= first < x.ndim or len(window) != x.ndim - first or len(stride) != len(window):
        call.refuse(f"windows {window} with strides {stride} from axis {axis} of {x.shape}", "one size for each axis")
    call.check_size(*x.shape[first:])
    count = len(window)
    for i, (width, step) in enumerate(zip(window, stride, strict=True)):
        place = first + 2 * i  # earlier axes are pairs by now: windows, elements in a window
        size = int(x.shape[place])
        if not 0 < width <= size or step < 1:
            call.refuse(f"a window of {width} with stride {step} over {size}", "a window inside of the axis")
        x = meta.take(x, _positions(np.arange(0, size - width + 1, step), np.arange(width)), place)
    pairs = range(first, first + 2 * count)
    return meta.transpose(x, (*range(first), *pairs[::2], *pairs[1::2]))


@converter("image.dilation2d")
def dilation2d(call: OpCall) -> Any:
    """The largest sum of an element and the kernel's in each window (grayscale dilation)."""
    x, w = call.tensors(2)
    layout = call.text("data_layout", "NCHW") or "NCHW"
    kernel_layout = call.text("kernel_layout", "IHW") or "IHW"
    out = call.text("out_dtype") or x.dtype
    stride, dilation = call.sizes("strides", (1, 1)), call.sizes("dilations", (1, 1))
    x, w = convert_layout(call, x, layout, "NCHW"), permuted(w, kernel_layout, "IHW")
    lowest = float(np.finfo(x.dtype).min) if is_float(x.dtype) else int(np.iinfo(x.dtype).min)
    padded = _bordered(x, call.sizes("padding", (0, 0)), lowest)
    for size, extent in zip(padded.shape[2:], w.shape[1:], strict=True):
        call.check_size(size, extent)
    offsets = [np.arange(int(k)) * d for k, d in zip(w.shape[1:], dilation, strict=True)]
    sizes = zip(padded.shape[2:], offsets, stride, strict=True)
    starts = [np.arange(0, int(size - offset[-1]), step) for size, offset, step in sizes]
    patches = _windows(padded, (starts[0], starts[1]), (offsets[0], offsets[1]))
    weight = meta.reshape(w, (w.shape[0], 1, w.shape[1], 1, w.shape[2]))
    y = convert_layout(call, meta.max(meta.add(patches, weight), (3, 5)), "NCHW", layout)
    return as_dtype(y, out)


@converter("nn.correlation")
def correlation(call: OpCall) -> Any:
    """The agreement of patches of one feature map with displaced patches of another, one channel per displacement
    (A. Dosovitskiy et al., "FlowNet", 2015)."""
    a, b = call.tensors(2)
    call.only("layout", "NCHW")
    kernel, reach = call.int("kernel_size", 1), call.int("max_displacement", 1)
    stride, step = call.int("stride1", 1), call.int("stride2", 1)
    padding, multiply = call.sizes("padding", (0, 0)), call.flag("is_multiply", True)
    radius = reach // step
    a, b = _bordered(a, padding, 0.0), _bordered(b, padding, 0.0)
    border = reach + (kernel - 1) // 2
    call.check_size(*a.shape[2:])
    counts: list[int] = [-((2 * border - d) // stride) for d in a.shape[2:]]
    call.check_size(max(counts) * stride + kernel, 2 * radius + 1)
    if min(counts) < 1 or radius > _MAX_STEPS:
        call.refuse(f"max_displacement {reach} in {a.shape}", f"at most {_MAX_STEPS} steps, inside the map")
    centres = [reach + np.arange((count - 1) * stride + kernel) for count in counts]
    moves = np.arange(-radius, radius + 1) * step
    other = _windows(b, (moves, moves), (centres[0], centres[1]))
    centre_offset = np.zeros(1, "int64")
    first = _windows(a, (centre_offset, centre_offset), (centres[0], centres[1]))
    match = meta.mean(meta.multiply(first, other) if multiply else meta.abs(meta.subtract(first, other)), (1,))
    channels = meta.transpose(match, (0, 1, 3, 2, 4))
    maps = meta.reshape(channels, (a.shape[0], len(moves) ** 2, *(len(c) for c in centres)))
    return meta.avg_pool2d(maps, (kernel, kernel), (stride, stride))


@converter("image.crop_and_resize")
def crop_and_resize(call: OpCall) -> Any:
    """Regions of images, with corners y1, x1, y2, x2 from 0 to 1, resized to one size (TensorFlow's definition)."""
    x, boxes, images = call.tensors(3)
    layout = call.text("layout", "NCHW") or "NCHW"
    method = call.only("method", "bilinear", "nearest_neighbor")
    outside, out = call.float("extrapolation_value", 0.0), call.text("out_dtype")
    x = meta.transpose(convert_layout(call, x, layout, "NCHW"), (0, 2, 3, 1))
    x = x if is_float(x.dtype) else meta.cast(x, "float32")
    y1, x1, y2, x2 = (meta.squeeze(part, (1,)) for part in meta.split(boxes, 4, 1))
    height, width = call.sizes("crop_size")
    rows = _spread(y1, y2, height, x.shape[1])
    columns = _spread(x1, x2, width, x.shape[2])
    shape = (boxes.shape[0], height, width)
    points = [
        meta.broadcast_to(meta.expand_dims(rows, 2), shape),
        meta.broadcast_to(meta.expand_dims(columns, 1), shape),
    ]
    image = meta.broadcast_to(meta.reshape(meta.cast(images, "int64"), (-1, 1, 1)), shape)

    def pick(corner: list[Any]) -> Any:
        return meta.gather_nd(x, meta.stack([image, *nearest_inside(corner, x.shape[1:3])], 0))

    nearest = method == "nearest_neighbor"
    sampled = pick([rounded(p) for p in points]) if nearest else interpolated(points, pick)
    sampled = meta.where(meta.expand_dims(_inside(points, x.shape[1:3]), 3), sampled, outside)
    y = convert_layout(call, meta.transpose(sampled, (0, 3, 1, 2)), "NCHW", layout)
    return as_dtype(y, out or y.dtype)


def _spread(first: Any, last: Any, count: int, size: int) -> Any:
    """Coordinates (r, count) from the first to the last; a single coordinate lies in the middle."""
    scale = float(size - 1)
    if count == 1:
        return meta.expand_dims(meta.multiply(meta.add(first, last), 0.5 * scale), 1)
    steps = meta.multiply(meta.arange(0, count, 1, first.dtype), scale / (count - 1))
    return meta.add(
        meta.expand_dims(meta.multiply(first, scale), 1),
        meta.multiply(meta.expand_dims(meta.subtract(last, first), 1), steps),
    )


def _inside(points: list[Any], spatial: tuple[int, ...], open_end: bool = False) -> Any:
    """Whether coordinates lie between 0 and the last index (open_end: below the size)."""
    parts: list[Any] = []
    for a, size in zip(points, spatial, strict=True):
        below = meta.less(a, float(size)) if open_end else meta.less_equal(a, float(size - 1))
        parts.append(meta.logical_and(meta.greater_equal(a, 0.0), below))
    return meta.logical_and(parts[0], parts[1])


@converter("nn.deformable_conv2d")
def deformable_conv2d(call: OpCall) -> Any:
    """A convolution whose window elements each have an offset (y, x) at each position (J. Dai et al., 2017). Elements
    outside the image are 0."""
    x, offset, w = call.tensors(3)
    for name in ("data_layout", "out_layout"):
        call.only(name, "NCHW", "", default="NCHW")
    call.only("kernel_layout", "OIHW", "", default="OIHW")
    out = call.text("out_dtype")
    if out not in ("", x.dtype):
        call.refuse(f"out_dtype {out} for operands of {x.dtype}", f"{x.dtype}")
    stride, dilation = call.sizes("strides", (1, 1)), call.sizes("dilation", (1, 1))
    top, left, _, _ = _sides(call.sizes("padding", (0, 0)))
    parts, groups = call.int("deformable_groups", 1), call.int("groups", 1)
    batch, channels, *spatial = x.shape
    filters, _, kh, kw = w.shape
    for name, actual in (("channels", filters), ("kernel_size", (kh, kw))):
        attribute = call.axes(name)
        if attribute and attribute != (actual if isinstance(actual, tuple) else (actual,)):
            call.refuse(f"{name} is {attribute} for a kernel of shape {w.shape}", f"{actual}")
    height, width = offset.shape[2:]
    shape = (batch * parts, kh * kw, height, width)
    call.check_size(*shape[1:])
    moves = meta.reshape(offset, (batch * parts, kh * kw, 2, height, width))
    window = np.reshape(np.mgrid[0:kh, 0:kw], (2, -1, 1, 1)) * np.reshape(dilation, (2, 1, 1, 1))
    origins = np.mgrid[0:height, 0:width][:, None] * np.reshape(stride, (2, 1, 1, 1))
    start = window + origins - np.reshape((top, left), (2, 1, 1, 1))
    points = [
        meta.add(meta.squeeze(m, (2,)), constant(start[i].astype(x.dtype)))
        for i, m in enumerate(meta.split(moves, 2, 2))
    ]
    split_up = meta.reshape(x, (batch * parts, channels // parts, *spatial))
    moved = meta.transpose(split_up, (0, 2, 3, 1))
    image = meta.broadcast_to(meta.reshape(meta.arange(0, batch * parts, 1, "int64"), (-1, 1, 1, 1)), shape)

    def pick(corner: list[Any]) -> Any:
        return meta.gather_nd(moved, meta.stack([image, *nearest_inside(corner, spatial)], 0))

    inside = meta.expand_dims(_inside(points, tuple(spatial), open_end=True), 4)
    # Axes: batch * parts, kh * kw, height, width, and the channels of a part.
    sampled = meta.where(inside, interpolated(points, pick), 0)
    columns = meta.reshape(
        meta.transpose(sampled, (0, 4, 1, 2, 3)), (batch, groups, channels // groups * kh * kw, height * width)
    )
    weights = meta.reshape(w, (1, groups, filters // groups, channels // groups * kh * kw))
    return meta.reshape(meta.matmul(weights, columns), (batch, filters, height, width))
