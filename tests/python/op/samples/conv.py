"""Samples of convolutions."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F

from meta.errors import TypeInferenceError
from meta.testing.samples import ErrorCase, Sample, T
from tests.python.op.samples._vjp import transposed

TORCH = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


def conv(
    x: Any, w: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1, channels_last: bool = False
) -> Any:
    if channels_last:
        first = conv(x.movedim(-1, 1), w.movedim(-1, 1), stride, padding, dilation, groups)
        return first.movedim(1, -1)
    rank = x.ndim - 2
    pads = padding if isinstance(padding, tuple) else (padding,) * rank
    pads = pads * 2 if len(pads) == rank else pads
    around = [p for a in reversed(range(rank)) for p in (pads[a], pads[a + rank])]
    return TORCH[rank](F.pad(x, around), w, None, stride, 0, dilation, groups)


def conv_epilogue(
    x: Any, w: Any, bias: Any = None, other: Any = None, relu: bool = False, *attributes: Any,
    channels_last: bool = False, **named: Any,
) -> Any:  # fmt: skip
    y = conv(x, w, *attributes, channels_last=channels_last, **named)
    if bias is not None:
        y = y + (bias if channels_last else bias[:, None, None])
    y = y if other is None else y + other
    return torch.relu(y) if relu else y


def conv_packed(x: Any, w: Any, channels: int, *epilogue: Any, **named: Any) -> Any:
    return conv_epilogue(x, w.movedim(-1, 1).flatten(0, 1)[:channels], *epilogue, channels_last=True, **named)


def conv_dx(w: Any, dy: Any, shape: tuple[int, ...], *attributes: Any, **named: Any) -> Any:
    return transposed(lambda x: conv(x, w, *attributes, **named), shape, dy)


def conv_dw(x: Any, dy: Any, shape: tuple[int, ...], *attributes: Any, **named: Any) -> Any:
    return transposed(lambda w: conv(x, w, *attributes, **named), shape, dy)


def conv_transpose(
    x: Any, w: Any, stride: Any = 1, padding: Any = 0, output_padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Any:
    return TRANSPOSED[x.ndim - 2](x, w, None, stride, padding, output_padding, groups, dilation)


def whole(function: Any) -> Any:
    """The function on integers, which torch computes on floats only."""
    return lambda x, w, **named: function(x.double(), w.double(), **named).to(x.dtype)


def rows(x: tuple[int, ...], w: tuple[int, ...], y: tuple[int, ...], **attributes: Any) -> list[Sample]:
    """The operator and its two backward operators; y is the shape of the result."""
    name, note = f"conv{len(x) - 2}d", "-".join(f"{k}={v}" for k, v in attributes.items()).replace(" ", "") or "plain"
    return [
        Sample(name, T(*x), T(*w), ref=conv, **attributes),
        Sample(f"{name}_dx", T(*w), T(*y), x, ref=conv_dx, id=f"{x}-{note}", **attributes),
        Sample(f"{name}_dw", T(*x), T(*y), w, ref=conv_dw, id=f"{w}-{note}", **attributes),
    ]


def _unpacked(w: Any, sums: int, terms: int) -> Any:
    """Rows of weights from panels, in which four terms of each column of a panel are adjacent."""
    rows = torch.movedim(w, -2, 1).reshape(w.shape[0] * w.shape[-2], *w.shape[1:-3], w.shape[-3] * 4)
    return rows[:sums, ..., :terms].double()


def conv_int8(
    x: Any, w: Any, channels: int, fill: int = 0, stride: int = 1, padding: int = 0, dilation: int = 1,
    channels_last: bool = False,
) -> Any:  # fmt: skip
    x = torch.movedim(x.double(), -1, 1) if channels_last else x.double()
    kernel = torch.movedim(_unpacked(w, channels, x.shape[1]), -1, 1)
    y = F.conv2d(F.pad(x, (padding,) * 4, value=fill), kernel, None, stride, 0, dilation).int()
    return torch.movedim(y, 1, -1) if channels_last else y


def _bytes(*shape: int) -> T:
    return T(*shape, dtype="uint8", low=0, high=256)


def _int8(*shape: int) -> T:
    return T(*shape, dtype="int8", low=-127, high=128)


SAMPLES = [
    *rows((2, 3, 6, 5), (4, 3, 3, 2), (2, 4, 4, 4)),
    *rows((2, 4, 9, 8), (6, 2, 3, 2), (2, 6, 5, 3), stride=(2, 3), padding=(1, 0, 2, 1), dilation=(1, 2), groups=2),
    *rows((1, 4, 7, 7), (4, 1, 3, 3), (1, 4, 4, 4), stride=2, padding=1, groups=4),
    *rows((2, 3, 5, 5), (4, 3, 1, 1), (2, 4, 2, 2), stride=3),
    *rows((1, 2, 3, 4), (3, 2, 3, 4), (1, 3, 3, 1), padding=(1, 0)),
    *rows((1, 1, 1, 1), (1, 1, 1, 1), (1, 1, 1, 1)),
    *rows((2, 4, 9), (6, 2, 3), (2, 6, 4), stride=2, padding=(1, 0), groups=2),
    *rows((1, 2, 4, 5, 4), (2, 2, 2, 3, 2), (1, 2, 3, 3, 3), stride=2, padding=1),
    *rows(
        (2, 9, 8, 4),
        (6, 3, 2, 2),
        (2, 5, 3, 6),
        stride=(2, 3),
        padding=(1, 0, 2, 1),
        dilation=(1, 2),
        groups=2,
        channels_last=True,
    ),
    *rows((1, 4, 5, 4, 2), (2, 2, 3, 2, 2), (1, 3, 3, 3, 2), stride=2, padding=1, channels_last=True),
    Sample("conv2d_epilogue", T(2, 3, 6, 5), T(4, 3, 3, 3), T(4), T(2, 4, 4, 3), True, ref=conv_epilogue),
    Sample(
        "conv2d_epilogue",
        T(2, 6, 5, 4),
        T(4, 3, 3, 2),
        T(4),
        T(2, 3, 3, 4),
        True,
        padding=1,
        stride=2,
        groups=2,
        channels_last=True,
        ref=conv_epilogue,
    ),
    Sample("conv2d_epilogue", T(2, 5, 5, 3), T(4, 1, 1, 3), channels_last=True, ref=conv_epilogue),
    Sample(
        "conv2d_packed",
        T(2, 6, 5, 3),
        T(2, 3, 2, 3, 4),
        7,
        T(7),
        T(2, 4, 3, 7),
        True,
        padding=(1, 0, 2, 1),
        stride=2,
        ref=conv_packed,
    ),
    Sample("conv2d_packed", T(1, 5, 5, 3), T(1, 2, 2, 3, 8), 8, dilation=2, ref=conv_packed),
    Sample(
        "conv2d_int8",
        T(2, 5, 6, 3, dtype="uint8", high=128),
        _int8(1, 3, 2, 1, 16, 4),
        7,
        9,
        2,
        1,
        channels_last=True,
        ref=conv_int8,
    ),
    Sample("conv2d_int8", _bytes(1, 8, 5, 5), _int8(2, 3, 3, 2, 32, 4), 40, dilation=2, padding=3, ref=conv_int8),
    Sample("conv2d_int8", _int8(1, 6, 3, 4), _int8(1, 1, 1, 2, 16, 4), 16, -3, padding=1, ref=conv_int8),
    Sample("conv2d", T(1, 2, 4, 4, dtype="int32"), T(2, 2, 3, 3, dtype="int32"), padding=1, ref=whole(conv)),
    Sample(
        "conv2d_transpose",
        T(1, 2, 3, 3, dtype="int32"),
        T(2, 2, 2, 2, dtype="int32"),
        stride=2,
        ref=whole(conv_transpose),
    ),
    Sample("conv2d_transpose", T(2, 4, 4, 3), T(4, 3, 3, 2), ref=conv_transpose),
    Sample("conv2d_transpose", T(2, 4, 5, 4), T(4, 3, 3, 2), (2, 3), (1, 0), (1, 2), (1, 2), 2, ref=conv_transpose),
    Sample("conv1d_transpose", T(2, 4, 5), T(4, 3, 3), stride=2, ref=conv_transpose),
    Sample("conv3d_transpose", T(1, 2, 2, 3, 2), T(2, 2, 2, 2, 2), padding=1, stride=2, ref=conv_transpose),
]
ERRORS = [
    ErrorCase("conv2d_int8", T(1, 4, 5, 5), _int8(1, 1, 1, 1, 16, 4), 16, error=TypeInferenceError, match="float32"),
    ErrorCase(
        "conv2d_int8",
        _bytes(1, 4, 5, 5),
        _int8(1, 1, 1, 2, 16, 4),
        16,
        error=TypeInferenceError,
        match="sums of 4 products, w has 2 times 4",
    ),
    ErrorCase(
        "conv2d_int8",
        _bytes(1, 4, 5, 5),
        _int8(1, 1, 1, 1, 16, 4),
        16,
        -1,
        error=TypeInferenceError,
        match="-1",
    ),
    ErrorCase(
        "conv2d_packed", T(1, 5, 5, 3), T(8, 3, 3, 3), 8, error=TypeInferenceError, match="'w' has shape (8, 3, 3, 3)"
    ),
    ErrorCase(
        "conv2d_packed",
        T(1, 5, 5, 3),
        T(2, 3, 3, 3, 4),
        9,
        error=TypeInferenceError,
        match="channels is 9, w has 2 panels of 4; expected 1 to 8",
    ),
    ErrorCase("conv2d", T(2, 3, 6), T(4, 3, 3, 3), error=TypeInferenceError, match="'x' has shape (2, 3, 6)"),
    ErrorCase(
        "conv2d",
        T(2, 6, 6),
        T(4, 3, 3, 3),
        channels_last=True,
        error=TypeInferenceError,
        match="expected (batch, height, width, channels)",
    ),
    ErrorCase("conv2d", T(2, 3, 6, 6), T(4, 2, 3, 3), error=TypeInferenceError, match="x has 3 channels, w takes 2"),
    ErrorCase(
        "conv2d",
        T(2, 4, 6, 6),
        T(3, 2, 3, 3),
        groups=2,
        error=TypeInferenceError,
        match="w has 3 out channels in 2 groups",
    ),
    ErrorCase(
        "conv2d",
        T(2, 3, 6, 6),
        T(4, 3, 7, 3),
        error=TypeInferenceError,
        match="a kernel of 7 with dilation 1 does not fit",
    ),
    ErrorCase(
        "conv2d_epilogue", T(2, 3, 6, 6), T(4, 3, 3, 3), T(3), error=TypeInferenceError, match="'bias' has shape (3,)"
    ),
    ErrorCase(
        "conv2d_epilogue",
        T(2, 3, 6, 6),
        T(4, 3, 3, 3),
        None,
        T(2, 4, 6, 6),
        error=TypeInferenceError,
        match="'other' has (2, 4, 6, 6)",
    ),
    ErrorCase("conv2d", T(2, 3, 6, 6), T(4, 3, 3, 3), 0, error=TypeInferenceError, match="stride is 0"),
    ErrorCase(
        "conv2d",
        T(2, 3, 6, 6),
        T(4, 3, 3, 3),
        padding=(1, 2, 3),
        error=TypeInferenceError,
        match="padding is (1, 2, 3)",
    ),
    ErrorCase(
        "conv2d",
        T(2, 3, 6, 6),
        T(4, 3, 3, 3),
        dilation=(1, 1, 1),
        error=TypeInferenceError,
        match="dilation is (1, 1, 1)",
    ),
    ErrorCase(
        "conv2d",
        T(2, 3, 6, 6),
        T(4, 3, 3, 3, dtype="float64"),
        error=TypeInferenceError,
        match="'x' is float32, 'w' is float64",
    ),
    ErrorCase(
        "conv2d", T(1, 1, 2, 2, dtype="bool"), T(1, 1, 1, 1), error=TypeInferenceError, match="'x' has dtype bool"
    ),
    ErrorCase(
        "conv2d",
        T(2, 3, 0, 6),
        T(4, 3, 3, 3),
        padding=2,
        error=TypeInferenceError,
        match="nothing but the batch may be empty",
    ),
    ErrorCase(
        "conv2d_dx",
        T(4, 3, 3, 3),
        T(2, 4, 6, 6),
        (2, 3, 6, 6),
        error=TypeInferenceError,
        match="'y' has shape (2, 4, 4, 4)",
    ),
    ErrorCase(
        "conv2d_transpose",
        T(2, 4, 5, 4),
        T(4, 3, 3, 2),
        output_padding=1,
        error=TypeInferenceError,
        match="output_padding is (1, 1)",
    ),
    ErrorCase(
        "conv2d_transpose", T(2, 3, 5, 4), T(4, 3, 3, 2), error=TypeInferenceError, match="x has 3 channels, w takes 4"
    ),
]
