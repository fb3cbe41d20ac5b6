"""Schemas of convolutions. Each schema serves one, two and three spatial axes."""

from meta.schema._dsl import Arg, Bool, Int, IntTuple, OptionalTensor, Schema, Tensor

_PADDING = "Zeros added around x: one int, one per axis, or all leading then all trailing (top, left, bottom, right)."


def _common(rank: int) -> tuple[Arg, ...]:
    """The attributes of every convolution. Defaults are in normal form: the fast path uses them as cache keys."""
    return (
        Arg("stride", IntTuple, (1,) * rank, doc="Step between windows: one int, or one per axis."),
        Arg("padding", IntTuple, (0,) * rank, doc=_PADDING),
        Arg("dilation", IntTuple, (1,) * rank, doc="Step between the elements of a window: one int, or one per axis."),
        Arg("groups", Int, 1, doc="Number of groups that the channels are divided into."),
    )


_CHANNELS_LAST = Arg(
    "channels_last",
    Bool,
    False,
    doc="Whether channels are the last axis: x and the result are (batch, *spatial, channels), the kernel is "
    "(out channels, *window, channels / groups).",
)


def conv(rank: int) -> Schema:
    return Schema(
        "conv",
        Arg("x", Tensor, doc="Input, (batch, channels, *spatial)."),
        Arg("w", Tensor, doc="Kernel, (out channels, channels / groups, *window)."),
        *_common(rank),
        _CHANNELS_LAST,
    )


_EPILOGUE = (
    Arg("bias", OptionalTensor, None, doc="Added to each channel."),
    Arg("other", OptionalTensor, None, doc="Added then; of the shape of the result."),
    Arg("relu", Bool, False, doc="Whether negative results become 0."),
)


def conv_epilogue(rank: int) -> Schema:
    return Schema(
        "conv_epilogue",
        Arg("x", Tensor, doc="Input, (batch, channels, *spatial)."),
        Arg("w", Tensor, doc="Kernel, (out channels, channels / groups, *window)."),
        *_EPILOGUE,
        *_common(rank),
        _CHANNELS_LAST,
    )


def conv_packed(rank: int) -> Schema:
    *window, _ = _common(rank)
    return Schema(
        "conv_packed",
        Arg("x", Tensor, doc="Input, (batch, *spatial, channels)."),
        Arg("w", Tensor, doc="Packed kernel, (panels, *window, channels, out channels of a panel)."),
        Arg("channels", Int, doc="Out channels; those after them, in the last panel, do not count."),
        *_EPILOGUE,
        *window,
    )


conv_int8 = Schema(
    "conv_int8",
    Arg("x", Tensor, doc="Bytes, int8 or uint8, (batch, channels, *spatial)."),
    Arg("w", Tensor, doc="Packed kernel, int8, (panels, *window, channels / 4, out channels of a panel, 4)."),
    Arg("channels", Int, doc="Out channels; those after them, in the last panel, do not count."),
    Arg("fill", Int, 0, doc="The value around x: its zero point."),
    *_common(2)[:-1],
    _CHANNELS_LAST,
)


def conv_dx(rank: int) -> Schema:
    return Schema(
        "conv_dx",
        Arg("w", Tensor, doc="Kernel of the forward operator."),
        Arg("dy", Tensor, doc="Gradient of the result."),
        Arg("shape", IntTuple, doc="Shape of the forward operator's x."),
        *_common(rank),
        _CHANNELS_LAST,
    )


def conv_dw(rank: int) -> Schema:
    return Schema(
        "conv_dw",
        Arg("x", Tensor, doc="Input of the forward operator."),
        Arg("dy", Tensor, doc="Gradient of the result."),
        Arg("shape", IntTuple, doc="Shape of the forward operator's w."),
        *_common(rank),
        _CHANNELS_LAST,
    )


def conv_transpose(rank: int) -> Schema:
    stride, _, dilation, groups = _common(rank)
    return Schema(
        "conv_transpose",
        Arg("x", Tensor, doc="Input, (batch, channels, *spatial)."),
        Arg("w", Tensor, doc="Kernel, (channels, out channels / groups, *window)."),
        stride,
        Arg("padding", IntTuple, (0,) * rank, doc="Elements cropped around the result; as for a convolution."),
        Arg("output_padding", IntTuple, (0,) * rank, doc="Extra size at the end of each spatial axis of the result."),
        dilation,
        groups,
    )
