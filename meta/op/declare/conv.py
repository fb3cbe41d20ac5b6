"""Declarations of convolutions and their backward operators, for one, two and three spatial axes."""

from __future__ import annotations

from meta.dim import Dim, Shape, same_dim
from meta.ir.type import TensorType, tensor_type
from meta.op import rules, windows
from meta.op.registry import declare
from meta.schema import conv as schema

_Ints = tuple[int, ...]


def _conv_shape(
    rank: int, x: Shape, w: Shape, stride: _Ints, padding: _Ints, dilation: _Ints, groups: int, channels_last: bool
) -> Shape:
    """The shape of a convolution of x with w. Raises TypeInferenceError when they do not fit."""
    rules.require_axes("x", x, windows.axes(rank, "batch", "channels", channels_last))
    rules.require_axes("w", w, windows.axes(rank, "out channels", "channels / groups", channels_last))
    given = x
    x, w = (windows.channels_first(shape, channels_last) for shape in (x, w))
    _not_empty(x, w)
    rules.require(groups >= 1, f"groups is {groups}", "at least 1")
    rules.require(
        same_dim(w[1] * groups, x[1]),
        f"x has {x[1]} channels, w takes {w[1]} in each of {groups} group(s)",
        f"w.shape[1] * groups == {x[1]}",
        _move(given, w[1] * groups, channels_last),
    )
    rules.require(
        same_dim((w[0] // groups) * groups, w[0]),
        f"w has {w[0]} out channels in {groups} groups",
        "a multiple of groups",
    )
    steps, pads, dilations = windows.attributes(rank, stride, padding, dilation)
    spatial = tuple(
        windows.window_count(size, kernel, step, pad, spread)
        for size, kernel, step, pad, spread in zip(x[2:], w[2:], steps, pads, dilations, strict=True)
    )
    return windows.channels_moved((x[0], w[0], *spatial), channels_last)


def _move(x: Shape, channels: Dim, channels_last: bool) -> str:
    """How to move the channels, if they are at the place of the other layout; "" otherwise."""
    if not rules.is_known_equal(x[1 if channels_last else -1], channels):
        return ""
    return (
        "move the channels: meta.moveaxis(x, 1, -1)" if channels_last else "move the channels: meta.moveaxis(x, -1, 1)"
    )


def _not_empty(x: Shape, w: Shape) -> None:
    """Only the batch may have no elements."""
    rules.require(
        0 not in w and 0 not in x[1:],
        f"shapes are {rules.show(x)} and {rules.show(w)}",
        "nothing but the batch may be empty",
    )


def _operands(**types: TensorType) -> None:
    """Floating tensors of one dtype on one device."""
    for name, t in types.items():
        rules.require_float(name, t)
    _numbers(**types)


def _numbers(**types: TensorType) -> None:
    """Tensors of numbers, of one dtype and on one device."""
    for name, t in types.items():
        rules.require_number(name, t)
    rules.require_same_dtype(**types)
    rules.same_device(*types.values())


def _declare_conv(rank: int, **facts: str) -> None:
    name = f"conv{rank}d"

    @declare(name, schema=schema.conv(rank), pattern="out_ewise_fusable", amp="always")
    def conv(
        x: TensorType, w: TensorType, stride: _Ints, padding: _Ints, dilation: _Ints, groups: int, channels_last: bool
    ) -> TensorType:
        """Cross-correlation of x with the kernel w: each result is the sum over the channels of its group and over the
        window of x * w. Half precisions accumulate in float32, integers in their own dtype, modulo 2**bits: cast
        narrow ones first. A bias is added by `bias_add`."""
        _numbers(x=x, w=w)
        return x.with_shape(_conv_shape(rank, x.shape, w.shape, stride, padding, dilation, groups, channels_last))

    @declare(f"{name}_dx", schema=schema.conv_dx(rank), pattern="out_ewise_fusable", amp="always")
    def conv_dx(
        w: TensorType, dy: TensorType, shape: Shape, stride: _Ints, padding: _Ints, dilation: _Ints, groups: int,
        channels_last: bool,
    ) -> TensorType:  # fmt: skip
        """Gradient of a convolution with respect to its input."""
        _operands(w=w, dy=dy)
        forward = _conv_shape(rank, shape, w.shape, stride, padding, dilation, groups, channels_last)
        rules.require_same_shape(y=dy.with_shape(forward), dy=dy)
        return dy.with_shape(shape)

    @declare(f"{name}_dw", schema=schema.conv_dw(rank), pattern="out_ewise_fusable", amp="always")
    def conv_dw(
        x: TensorType, dy: TensorType, shape: Shape, stride: _Ints, padding: _Ints, dilation: _Ints, groups: int,
        channels_last: bool,
    ) -> TensorType:  # fmt: skip
        """Gradient of a convolution with respect to its kernel."""
        _operands(x=x, dy=dy)
        forward = _conv_shape(rank, x.shape, shape, stride, padding, dilation, groups, channels_last)
        rules.require_same_shape(y=dy.with_shape(forward), dy=dy)
        return x.with_shape(shape)

    @declare(f"{name}_transpose", schema=schema.conv_transpose(rank), pattern="out_ewise_fusable", amp="always")
    def conv_transpose(
        x: TensorType, w: TensorType, stride: _Ints, padding: _Ints, output_padding: _Ints, dilation: _Ints, groups: int
    ) -> TensorType:
        """The transpose of a convolution, which is also its gradient with respect to the input: every element of x
        adds a scaled copy of the kernel to the result."""
        _numbers(x=x, w=w)
        shape = _transposed_shape(rank, x.shape, w.shape, stride, padding, output_padding, dilation, groups)
        return tensor_type(shape, x.dtype, x.device)


@declare("conv2d_epilogue", schema=schema.conv_epilogue(2), pattern="out_ewise_fusable", amp="always")
def conv2d_epilogue(
    x: TensorType, w: TensorType, bias: TensorType | None, other: TensorType | None, relu: bool, stride: _Ints,
    padding: _Ints, dilation: _Ints, groups: int, channels_last: bool,
) -> TensorType:  # fmt: skip
    """conv2d, then a bias for each channel, then the sum with a tensor, then relu. Programs call it where a library
    does all of that in one kernel."""
    shape = _conv_shape(2, x.shape, w.shape, stride, padding, dilation, groups, channels_last)
    return _with_epilogue(x, w, bias, other, w.shape[0], shape)


@declare("conv2d_packed", schema=schema.conv_packed(2), pattern="out_ewise_fusable", amp="always")
def conv2d_packed(
    x: TensorType, w: TensorType, channels: int, bias: TensorType | None, other: TensorType | None, relu: bool,
    stride: _Ints, padding: _Ints, dilation: _Ints,
) -> TensorType:  # fmt: skip
    """conv2d_epilogue with channels last and a kernel in panels of out channels, which lie next to each other. Programs
    call it with constant kernels, packed when they are compiled."""
    is_packed = len(w.shape) == 5 and isinstance(w.shape[0], int) and isinstance(w.shape[4], int)
    layout = "(panels, height, width, channels, panel size), the first and the last of them numbers"
    rules.require(is_packed, f"'w' has shape {rules.show(w.shape)}", layout)
    panels, *window, ins, width = w.shape
    rules.require(
        channels >= 1 and not (isinstance(channels, int) and channels > panels * width),
        f"channels is {channels}, w has {panels} panels of {width}",
        f"1 to {panels * width}",
    )
    kernel = (channels, *window, ins)
    shape = _conv_shape(2, x.shape, kernel, stride, padding, dilation, 1, True)
    return _with_epilogue(x, w, bias, other, channels, shape)


@declare("conv2d_int8", schema=schema.conv_int8, pattern="out_ewise_fusable", amp="keep")
def conv2d_int8(
    x: TensorType, w: TensorType, channels: int, fill: int, stride: _Ints, padding: _Ints, dilation: _Ints,
    channels_last: bool,
) -> TensorType:  # fmt: skip
    """conv2d of bytes, with sums in int32. Programs call it for products of quantised numbers; kernels are packed so
    that four channels of a register of out channels are adjacent, with zeros behind the last ones."""
    layout = "(panels, height, width, channels / 4, panel size, 4)"
    rules.require_packed_bytes(x, w, 6, layout, channels, x.shape[-1 if channels_last else 1])
    rules.require_held(fill, x.dtype)
    window = windows.channels_moved((channels, x.shape[-1 if channels_last else 1], *w.shape[1:3]), channels_last)
    shape = _conv_shape(2, x.shape, window, stride, padding, dilation, 1, channels_last)
    return tensor_type(shape, "int32", x.device)


def _with_epilogue(
    x: TensorType, w: TensorType, bias: TensorType | None, other: TensorType | None, channels: Dim, shape: Shape
) -> TensorType:
    """The type of a convolution's result of `shape`. Raises TypeInferenceError when bias or other do not fit."""
    _operands(**{n: t for n, t in (("x", x), ("w", w), ("bias", bias), ("other", other)) if t is not None})
    out = x.with_shape(shape)
    if bias is not None:
        fits = len(bias.shape) == 1 and same_dim(bias.shape[0], channels)
        rules.require(fits, f"'bias' has shape {rules.show(bias.shape)}", f"({channels},)")
    if other is not None:
        rules.require_same_shape(y=out, other=other)
    return out


def _transposed_shape(
    rank: int, x: Shape, w: Shape, stride: _Ints, padding: _Ints, extra: _Ints, dilation: _Ints, groups: int
) -> Shape:
    rules.require_axes("x", x, windows.axes(rank, "batch", "channels"))
    rules.require_axes("w", w, windows.axes(rank, "channels", "out channels / groups"))
    _not_empty(x, w)
    rules.require(groups >= 1, f"groups is {groups}", "at least 1")
    rules.require(same_dim(w[0], x[1]), f"x has {x[1]} channels, w takes {w[0]}", f"w.shape[0] == {x[1]}")
    rules.require(
        same_dim((x[1] // groups) * groups, x[1]),
        f"x has {x[1]} channels in {groups} groups",
        "a multiple of groups",
    )
    steps, pads, dilations = windows.attributes(rank, stride, padding, dilation)
    more = windows.per_axis("output_padding", extra, rank, least=0)
    for added, step in zip(more, steps, strict=True):
        rules.require(added < step, f"output_padding is {more} with stride {steps}", "smaller than the stride")
    sizes = tuple(
        (size - 1) * step + windows.reach(kernel, spread) - before - after + added
        for size, kernel, step, (before, after), spread, added in zip(
            x[2:], w[2:], steps, pads, dilations, more, strict=True
        )
    )
    for size in sizes:
        rules.require(
            not isinstance(size, int) or size >= 1,
            f"the result would have spatial shape {rules.show(sizes)}",
            "at least one element an axis",
            "cut off less padding",
        )
    return (x[0], w[1] * groups, *sizes)


for _rank in (1, 2, 3):
    _declare_conv(_rank)
