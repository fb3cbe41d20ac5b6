"""Samples of pooling."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F

from meta.errors import TypeInferenceError
from meta.testing.samples import ErrorCase, Sample, T
from tests.python.op.samples._vjp import pulled_back, transposed

MAX = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
AVG = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}
ADAPTIVE_MAX = {1: F.adaptive_max_pool1d, 2: F.adaptive_max_pool2d, 3: F.adaptive_max_pool3d}
ADAPTIVE_AVG = {1: F.adaptive_avg_pool1d, 2: F.adaptive_avg_pool2d, 3: F.adaptive_avg_pool3d}


def padded(x: Any, padding: Any, value: float) -> tuple[Any, Any]:
    """x padded where torch's pooling could not, and the padding that is left to it."""
    rank = x.ndim - 2
    if not isinstance(padding, tuple) or len(padding) != 2 * rank:
        return x, padding
    return F.pad(x, [p for a in reversed(range(rank)) for p in (padding[a], padding[a + rank])], value=value), 0


def max_pool(
    x: Any, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
) -> Any:
    if not x.is_floating_point():
        return max_pool(x.double(), kernel, stride, padding, dilation, ceil_mode).to(x.dtype)
    x, rest = padded(x, padding, -torch.inf)
    return MAX[x.ndim - 2](x, kernel, stride or kernel, rest, dilation, ceil_mode)


def avg_pool(
    x: Any, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Any:  # fmt: skip
    rank = x.ndim - 2
    if dilation == 1:
        x, rest = padded(x, padding, 0.0)
        return AVG[rank](x, kernel, stride or kernel, rest, ceil_mode, count_include_pad)
    # torch has no dilation here: a convolution with equal weights, one channel at a time.
    assert rank == 2
    assert count_include_pad
    assert not ceil_mode
    w = torch.full((x.shape[1], 1, kernel, kernel), 1 / kernel**2, dtype=x.dtype)
    return F.conv2d(x, w, None, stride or kernel, padding, dilation, x.shape[1])


def adaptive_max_pool(x: Any, size: Any) -> Any:
    if not x.is_floating_point():
        return adaptive_max_pool(x.double(), size).to(x.dtype)
    return ADAPTIVE_MAX[x.ndim - 2](x, size)


def adaptive_avg_pool(x: Any, size: Any) -> Any:
    return ADAPTIVE_AVG[x.ndim - 2](x, size)


def places(x: Any, pool: Any) -> Any:
    """The flat places in the spatial axes of the elements that a max-pooling function takes."""
    numbers = torch.arange(x.shape[2:].numel()).reshape(x.shape[2:])
    ranks = x.flatten().argsort().argsort().reshape(x.shape).double()
    found = pool(ranks)
    flat = (ranks.flatten(2)[:, :, None, :] == found.flatten(2)[..., None]).double().argmax(-1)
    return numbers.flatten()[flat].reshape(found.shape)


def taken(x: Any, v: Any, pool: Any) -> Any:
    """The elements of v where the pooled elements of x are."""
    at = places(x.detach(), pool)
    return v.flatten(2).gather(2, at.flatten(2)).reshape(at.shape)


def max_rows(x: tuple[int, ...], y: tuple[int, ...], *args: Any, **attributes: Any) -> list[Sample]:
    """Max pooling and its backward operators; y is the shape of the result."""
    name = f"max_pool{len(x) - 2}d"
    distinct = T(*x, distinct=True)
    return [
        Sample(name, distinct, *args, ref=max_pool, **attributes),
        Sample(f"{name}_dx", distinct, T(*y), *args, **attributes,
               ref=lambda x, dy, *a, **k: pulled_back(lambda x: max_pool(x, *a, **k), x, dy)),
        Sample(f"{name}_at", distinct, T(*x), *args, **attributes,
               ref=lambda x, v, *a, **k: taken(x, v, lambda x: max_pool(x, *a, **k))),
    ]  # fmt: skip


def avg_rows(x: tuple[int, ...], y: tuple[int, ...], *args: Any, **attributes: Any) -> list[Sample]:
    name = f"avg_pool{len(x) - 2}d"
    return [
        Sample(name, T(*x), *args, ref=avg_pool, **attributes),
        Sample(f"{name}_dx", T(*y), x, *args, **attributes,
               ref=lambda dy, shape, *a, **k: transposed(lambda x: avg_pool(x, *a, **k), shape, dy)),
    ]  # fmt: skip


def adaptive_rows(x: tuple[int, ...], size: Any, y: tuple[int, ...]) -> list[Sample]:
    largest, mean = f"adaptive_max_pool{len(x) - 2}d", f"adaptive_avg_pool{len(x) - 2}d"
    distinct = T(*x, distinct=True)
    return [
        Sample(largest, distinct, size, ref=adaptive_max_pool),
        Sample(f"{largest}_dx", distinct, T(*y),
               ref=lambda x, dy: pulled_back(lambda x: adaptive_max_pool(x, tuple(dy.shape[2:])), x, dy)),
        Sample(f"{largest}_at", distinct, T(*x), size,
               ref=lambda x, v, size: taken(x, v, lambda x: adaptive_max_pool(x, size))),
        Sample(mean, T(*x), size, ref=adaptive_avg_pool),
        Sample(f"{mean}_dx", T(*y), x,
               ref=lambda dy, shape: transposed(lambda x: adaptive_avg_pool(x, tuple(dy.shape[2:])), shape, dy)),
    ]  # fmt: skip


SAMPLES = [
    *max_rows((2, 3, 6, 8), (2, 3, 3, 4), 2),
    *max_rows((2, 3, 9, 8), (2, 3, 5, 7), (3, 2), (2, 1), (1, 0)),
    *max_rows((1, 2, 11, 8), (1, 2, 5, 4), 3, 2, 1, 2, ceil_mode=True),
    *max_rows((1, 2, 7, 9), (1, 2, 4, 5), 3, 2, (0, 1, 2, 1)),
    *max_rows((1, 2, 7, 7), (1, 2, 3, 3), 2, 3, ceil_mode=True),
    *max_rows((2, 3, 9), (2, 3, 5), 3, 2, 1),
    *max_rows((1, 2, 5, 4, 6), (1, 2, 3, 2, 3), 3, 2, 1),
    *avg_rows((2, 3, 6, 8), (2, 3, 3, 4), 2),
    *avg_rows((2, 3, 9, 8), (2, 3, 5, 7), (3, 2), (2, 1), (1, 0)),
    *avg_rows((1, 2, 7, 7), (1, 2, 4, 4), 3, 2, 1, ceil_mode=True, count_include_pad=False),
    *avg_rows((1, 2, 6, 9), (1, 2, 3, 4), 4, 3, 2, ceil_mode=True),
    *avg_rows((1, 2, 6, 9), (1, 2, 3, 4), 4, 3, 2, ceil_mode=True, count_include_pad=False),
    *avg_rows((1, 2, 5, 5), (1, 2, 2, 2), 2, 3, ceil_mode=True),
    *avg_rows((1, 2, 9, 9), (1, 2, 4, 4), 3, 2, 1, dilation=2),
    *avg_rows((1, 2, 7, 9), (1, 2, 4, 5), 3, 2, (0, 1, 2, 1)),
    *avg_rows((2, 3, 9), (2, 3, 5), 3, 2, 1),
    *avg_rows((1, 2, 5, 4, 6), (1, 2, 3, 2, 3), 3, 2, 1),
    *adaptive_rows((2, 3, 6, 8), 1, (2, 3, 1, 1)),
    *adaptive_rows((1, 2, 7, 9), (3, 5), (1, 2, 3, 5)),
    *adaptive_rows((1, 2, 6, 8), (2, 4), (1, 2, 2, 4)),
    *adaptive_rows((1, 2, 3, 4), (5, 1), (1, 2, 5, 1)),
    *adaptive_rows((2, 3, 7), 3, (2, 3, 3)),
    *adaptive_rows((1, 2, 4, 5, 6), (3, 2, 4), (1, 2, 3, 2, 4)),
]
ERRORS = [
    ErrorCase("max_pool2d", T(2, 3, 8), 2, error=TypeInferenceError, match="'x' has shape (2, 3, 8)"),
    ErrorCase(
        "max_pool2d", T(2, 3, 8, 8), 9, error=TypeInferenceError, match="a kernel of 9 with dilation 1 does not fit"
    ),
    ErrorCase(
        "max_pool2d",
        T(2, 3, 8, 8),
        2,
        padding=2,
        error=TypeInferenceError,
        match="padding is (2, 2) for a kernel that spans 2",
    ),
    ErrorCase("max_pool2d", T(2, 3, 8, 8), (2, 2, 2), error=TypeInferenceError, match="kernel is (2, 2, 2)"),
    ErrorCase("max_pool2d", T(2, 3, 8, 8, dtype="bool"), 2, error=TypeInferenceError, match="'x' has dtype bool"),
    ErrorCase(
        "max_pool2d_dx", T(2, 3, 8, 8), T(2, 3, 8, 8), 2, error=TypeInferenceError, match="'y' has shape (2, 3, 4, 4)"
    ),
    ErrorCase("avg_pool2d", T(2, 3, 8, 8, dtype="int64"), 2, error=TypeInferenceError, match="'x' has dtype int64"),
    ErrorCase(
        "avg_pool2d_dx", T(2, 3, 8, 8), (2, 3, 8, 8), 2, error=TypeInferenceError, match="'y' has shape (2, 3, 4, 4)"
    ),
    ErrorCase("adaptive_avg_pool2d", T(2, 3, 8, 8), (1, 2, 3), error=TypeInferenceError, match="size is (1, 2, 3)"),
    ErrorCase("max_pool2d", T(2, 0, 8, 8), 2, error=TypeInferenceError, match="'x' has shape (2, 0, 8, 8)"),
    ErrorCase("adaptive_avg_pool2d", T(2, 3, 8, 8), 0, error=TypeInferenceError, match="size is 0"),
    ErrorCase("adaptive_max_pool2d", T(2, 3, 8), 1, error=TypeInferenceError, match="'x' has shape (2, 3, 8)"),
]
