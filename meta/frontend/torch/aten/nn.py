"""Convolutions, padding and distances of vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import meta
from meta._generated.methods import Tensor
from meta.dtype import is_complex
from meta.errors import ArgumentError
from meta.frontend.torch.aten._row import direct, row, rows
from meta.frontend.torch.aten._values import per_axis

rows({
    "bilinear": direct("bilinear", input1="x1", input2="x2", weight="w"),
    "cosine_similarity": "cosine_similarity", "pairwise_distance": "pairwise_distance",
    "constant_pad_nd": lambda self, pad, value=0: _padded(self, pad, "constant", value),
})  # fmt: skip


def _of_parts(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that is linear in its first two arguments, extended to complex ones."""

    def run(x: Tensor, weight: Tensor, *rest: Any) -> Any:
        if not is_complex(x.dtype) and not is_complex(weight.dtype):
            return function(x, weight, *rest)
        real, imaginary = meta.real(x), meta.imag(x)
        w_real, w_imaginary = meta.real(weight), meta.imag(weight)
        return meta.complex(
            function(real, w_real, *rest) - function(imaginary, w_imaginary, *rest),
            function(real, w_imaginary, *rest) + function(imaginary, w_real, *rest),
        )

    return run


def _with_bias(x: Tensor, bias: Tensor | None) -> Any:
    """x with a number added to each channel."""
    if bias is None:
        return x
    if not is_complex(x.dtype):
        return meta.bias_add(x, bias)
    return x + meta.reshape(bias, (-1, *(1,) * (x.ndim - 2)))


def _convolution(rank: int) -> Callable[..., Any]:
    function = _of_parts((meta.conv1d, meta.conv2d, meta.conv3d)[rank - 1])

    def convolution(
        input: Tensor, weight: Tensor, bias: Any = None, stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] | str = 0, dilation: int | Sequence[int] = 1, groups: int = 1,
    ) -> Any:  # fmt: skip
        steps, spread = per_axis(stride, rank), per_axis(dilation, rank)
        named = isinstance(padding, str)
        x, width = _named_padding(input, weight, padding, steps, spread) if named else (input, padding)
        batched = x.ndim == rank + 2
        x = x if batched else meta.expand_dims(x, 0)
        out = function(x, weight, steps, per_axis(width, rank), spread, groups)
        out = _with_bias(out, bias)
        return out if batched else meta.squeeze(out, 0)

    return convolution


def _named_padding(
    x: Tensor, weight: Tensor, padding: str, stride: Sequence[int], dilation: Sequence[int]
) -> tuple[Any, Sequence[int]]:
    """x and the width of its symmetric padding. Uneven padding for "same" puts the further element at the end."""
    rank = len(stride)
    if padding not in ("valid", "same") or (padding == "same" and any(step != 1 for step in stride)):
        raise ArgumentError("conv", f"padding is {padding!r} with stride {tuple(stride)}",
                            "'valid', or 'same' with stride 1")  # fmt: skip
    if padding == "valid":
        return x, (0,) * rank
    totals = [d * (k - 1) for d, k in zip(dilation, weight.shape[2:], strict=True)]
    uneven = [(0, total % 2) for total in totals]
    if any(total % 2 for total in totals):
        x = meta.pad(x, [(0, 0)] * (x.ndim - rank) + uneven)
    return x, [total // 2 for total in totals]


def _transposed(rank: int) -> Callable[..., Any]:
    function = _of_parts((meta.conv1d_transpose, meta.conv2d_transpose, meta.conv3d_transpose)[rank - 1])

    def convolution(
        input: Tensor, weight: Tensor, bias: Any = None, stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] = 0, output_padding: int | Sequence[int] = 0, groups: int = 1,
        dilation: int | Sequence[int] = 1,
    ) -> Any:  # fmt: skip
        batched = input.ndim == rank + 2
        x = input if batched else meta.expand_dims(input, 0)
        steps, width, spread = per_axis(stride, rank), per_axis(padding, rank), per_axis(dilation, rank)
        extra = per_axis(output_padding, rank)
        zeros: tuple[int, ...] = (0,) * rank
        if any(e >= s for e, s in zip(extra, steps, strict=True)):
            _check_extra(extra, steps, spread)
            # Less is cut off at the end; what is more than the padding are zeros.
            zeros = tuple(max(e - p, 0) for e, p in zip(extra, width, strict=True))
            width, extra = (*width, *(max(p - e, 0) for e, p in zip(extra, width, strict=True))), (0,) * rank
        out = function(x, weight, steps, width, extra, spread, groups)
        out = meta.pad(out, [(0, 0), (0, 0), *((0, z) for z in zeros)]) if any(zeros) else out
        out = _with_bias(out, bias)
        return out if batched else meta.squeeze(out, 0)

    return convolution


def _check_extra(extra: tuple[int, ...], stride: tuple[int, ...], dilation: tuple[int, ...]) -> None:
    if any(e >= max(s, d) for e, s, d in zip(extra, stride, dilation, strict=True)):
        problem = f"output_padding is {extra} with stride {stride} and dilation {dilation}"
        raise ArgumentError("conv_transpose", problem, "less than one of them")


for _rank, _names in enumerate((("conv1d", "conv_transpose1d"), ("conv2d", "conv_transpose2d"),
                                ("conv3d", "conv_transpose3d")), 1):  # fmt: skip
    row(_names[0])(_convolution(_rank))
    row(_names[1])(_transposed(_rank))


@row()
def convolution(
    input: Tensor, weight: Tensor, bias: Tensor | None, stride: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int], transposed: bool, output_padding: Sequence[int], groups: int,
) -> Any:  # fmt: skip
    rank = weight.ndim - 2
    if transposed:
        return _transposed(rank)(input, weight, bias, stride, padding, output_padding, groups, dilation)
    return _convolution(rank)(input, weight, bias, stride, padding, dilation, groups)


@row()
def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    if weight.ndim == 2 and not is_complex(input.dtype) and not is_complex(weight.dtype):
        return meta.dense(input, weight, bias)
    out = meta.matmul(input, weight, transpose_b=weight.ndim > 1)
    return out if bias is None else out + bias


@row()
def pad(self: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Any:
    modes = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}
    if mode not in modes:
        raise ArgumentError("pad", f"mode is {mode!r}", f"one of {', '.join(modes)}")
    return _padded(self, pad, modes[mode], value or 0)


def _bordered(mode: str) -> Callable[..., Any]:
    def padded(self: Tensor, padding: Sequence[int]) -> Any:
        return _padded(self, padding, mode, 0)

    return padded


for _rank in (1, 2, 3):
    row(f"reflection_pad{_rank}d")(_bordered("reflect"))
    row(f"replication_pad{_rank}d")(_bordered("edge"))


def _padded(x: Tensor, pad: Sequence[int], mode: Any, value: Any) -> Any:
    """x with two widths for each of the last axes, the last first."""
    if len(pad) % 2 or len(pad) > 2 * x.ndim:
        raise ArgumentError("pad", f"{len(pad)} widths for {x.ndim} axes", "two for each of the last axes")
    pairs = [(pad[i], pad[i + 1]) for i in range(0, len(pad), 2)][::-1]
    return meta.pad(x, [(0, 0)] * (x.ndim - len(pairs)) + pairs, value, mode)
