"""Samples of pooling."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch.nn import functional as F

from meta.errors import TypeInferenceError
from meta.testing.samples import ErrorCase, Sample, T
from tests.python.op.samples._vjp import transposed

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


def indices_of(x: Any, pool: Any) -> Any:
    """The flat indices, in the spatial axes, of the elements that a max-pooling function selects."""
    ranks = x.flatten().argsort().argsort().reshape(x.shape).double()
    pooled = pool(ranks)
    equal = ranks.flatten(2)[:, :, None, :] == pooled.flatten(2)[..., None]
    return equal.double().argmax(-1).reshape(pooled.shape).int()


class Indices(T):
    """The indices of the maxima of a random tensor of shape x that `pool` pools to shape y."""

    def __init__(self, x: tuple[int, ...], y: tuple[int, ...], pool: Any) -> None:
        super().__init__(*y, dtype="int32")
        self.x, self.pool = T(*x, distinct=True), pool

    def values(self, dtype: str, seed: str) -> Any:
        return indices_of(torch.tensor(self.x.values("float64", seed)), self.pool).numpy()


def scattered(dy: Any, indices: Any, shape: Any, *_: Any, **__: Any) -> Any:
    flat = torch.zeros(shape, dtype=dy.dtype).flatten(2)
    return flat.scatter_add(2, indices.flatten(2).long(), dy.flatten(2)).reshape(shape)


def max_rows(x: tuple[int, ...], y: tuple[int, ...], *args: Any, **attributes: Any) -> list[Sample]:
    """Max pooling, with indices too, and its gradient; y is the shape of the result."""
    name = f"max_pool{len(x) - 2}d"
    distinct = T(*x, distinct=True)

    def both(x: Any, *args: Any, **attributes: Any) -> tuple[Any, Any]:
        pool = partial(max_pool, **attributes)
        return pool(x, *args), indices_of(x.detach(), lambda x: pool(x, *args))

    chosen = Indices(x, y, lambda x: max_pool(x, *args, **attributes))
    return [
        Sample(name, distinct, *args, ref=max_pool, **attributes),
        Sample(f"{name}_with_indices", distinct, *args, ref=both, **attributes),
        Sample(f"{name}_dx", T(*y), chosen, x, *args, ref=scattered, **attributes),
    ]


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
        Sample(f"{largest}_with_indices", distinct, size,
               ref=lambda x, size: (
                   adaptive_max_pool(x, size), indices_of(x.detach(), lambda x: adaptive_max_pool(x, size)))),
        Sample(f"{largest}_dx", T(*y), Indices(x, y, lambda x: adaptive_max_pool(x, size)), x, ref=scattered),
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
    Sample("avg_pool2d", T(2, 3, 7, 9, dtype="int64", low=-50, high=50), 3, 2, 1, ref=F.avg_pool2d),
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
        "max_pool2d_dx",
        T(2, 3, 8, 8),
        T(2, 3, 8, 8, dtype="int32"),
        (2, 3, 8, 8),
        2,
        error=TypeInferenceError,
        match="'y' has shape (2, 3, 4, 4)",
    ),
    ErrorCase(
        "max_pool2d_dx",
        T(2, 3, 4, 4),
        T(2, 3, 4, 4),
        (2, 3, 8, 8),
        2,
        error=TypeInferenceError,
        match="'indices' has dtype float32",
    ),
    ErrorCase("avg_pool2d", T(2, 3, 8, 8, dtype="bool"), 2, error=TypeInferenceError, match="'x' has dtype bool"),
    ErrorCase(
        "avg_pool2d_dx", T(2, 3, 8, 8), (2, 3, 8, 8), 2, error=TypeInferenceError, match="'y' has shape (2, 3, 4, 4)"
    ),
    ErrorCase("adaptive_avg_pool2d", T(2, 3, 8, 8), (1, 2, 3), error=TypeInferenceError, match="size is (1, 2, 3)"),
    ErrorCase("max_pool2d", T(2, 0, 8, 8), 2, error=TypeInferenceError, match="'x' has shape (2, 0, 8, 8)"),
    ErrorCase("adaptive_avg_pool2d", T(2, 3, 8, 8), 0, error=TypeInferenceError, match="size is 0"),
    ErrorCase("adaptive_max_pool2d", T(2, 3, 8), 1, error=TypeInferenceError, match="'x' has shape (2, 3, 8)"),
]
