"""Calls of operators that several dialects implement: sizes of ResNet-50 (batch 64), of a transformer (batch 8), and
small ones."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

from meta.testing.samples import Sample, T

Shape = tuple[int, ...]


def sample(op: str, *args: Any, **kwargs: Any) -> Sample:
    """A row that is measured, not checked."""
    return Sample(op, *args, ref=_no_reference, **kwargs)


def _no_reference(*_: Any, **__: Any) -> None:
    raise NotImplementedError("benchmark calls have no reference")


def _convolution(rank: int, x: Shape, w: Shape, padding: int = 0, stride: int = 1, groups: int = 1) -> Iterator[Sample]:
    """A convolution and both gradients."""
    spatial = [(s + 2 * padding - k) // stride + 1 for s, k in zip(x[2:], w[2:], strict=True)]
    y = (x[0], w[0], *spatial)
    options = {"padding": padding, "stride": stride, "groups": groups}
    yield sample(f"conv{rank}d", T(*x), T(*w), **options)
    yield sample(f"conv{rank}d_dx", T(*w), T(*y), x, **options)
    yield sample(f"conv{rank}d_dw", T(*x), T(*y), w, **options)


def _pooling(rank: int, x: Shape, kernel: int, stride: int, padding: int = 0) -> Iterator[Sample]:
    y = (*x[:2], *((s + 2 * padding - kernel) // stride + 1 for s in x[2:]))
    yield sample(f"max_pool{rank}d", T(*x), kernel, stride, padding)
    yield sample(f"max_pool{rank}d_with_indices", T(*x), kernel, stride, padding)
    yield sample(
        f"max_pool{rank}d_dx", T(*y), T(*y, dtype="int32", low=0, high=prod(x[2:])), x, kernel, stride, padding
    )
    yield sample(f"avg_pool{rank}d", T(*x), kernel, stride, padding)
    yield sample(f"avg_pool{rank}d_dx", T(*y), x, kernel, stride, padding)


def _adaptive(x: Shape, size: int) -> Iterator[Sample]:
    y = (*x[:2], size, size)
    yield sample("adaptive_max_pool2d", T(*x), size)
    yield sample("adaptive_max_pool2d_with_indices", T(*x), size)
    yield sample("adaptive_max_pool2d_dx", T(*y), T(*y, dtype="int32", low=0, high=prod(x[2:])), x)
    yield sample("adaptive_avg_pool2d", T(*x), size)
    yield sample("adaptive_avg_pool2d_dx", T(*y), x)


def _batch_norm(x: Shape) -> Iterator[Sample]:
    c = x[1]
    variance = T(c, low=0.5, high=1.5)
    yield sample("batch_norm_train", T(*x), T(c), variance, T(c), T(c))
    yield sample("batch_norm_train_dxwb", T(*x), T(*x), T(c), T(c), variance)
    yield sample("batch_norm_infer", T(*x), T(c), variance, T(c), T(c))


def _rows(x: Shape, axis: int = -1) -> Iterator[Sample]:
    for name in ("softmax", "log_softmax"):
        yield sample(name, T(*x), axis=axis)
        yield sample(f"{name}_dx", T(*x), T(*x), axis=axis)


def _layer_norm(x: Shape) -> Iterator[Sample]:
    d = x[-1]
    yield sample("layer_norm", T(*x), T(d), T(d))
    yield sample("layer_norm_dx", T(*x), T(d), T(*x))
    yield sample("layer_norm_dwb", T(*x), T(*x))


def _attention(x: Shape) -> Iterator[Sample]:
    yield sample("attention_with_lse", T(*x), T(*x), T(*x))
    yield sample("attention_with_lse_dx", T(*x), T(*x), T(*x), T(*x), T(*x[:-1]), T(*x))


def problems() -> Iterator[Sample]:
    """All calls."""
    yield from _convolution(2, (64, 64, 56, 56), (64, 64, 3, 3), 1)
    yield from _convolution(2, (64, 1, 8, 8), (16, 1, 3, 3), 1)
    yield from _convolution(2, (8, 16, 8, 8), (32, 16, 3, 3), 1)
    yield from _convolution(2, (64, 512, 14, 14), (512, 1, 3, 3), 1, groups=512)
    yield from _convolution(1, (16, 256, 1024), (256, 256, 3), 1)
    yield from _convolution(1, (4, 8, 64), (8, 8, 3), 1)
    yield from _convolution(3, (4, 32, 16, 56, 56), (32, 32, 3, 3, 3), 1)
    yield from _convolution(3, (1, 4, 8, 8, 8), (4, 4, 3, 3, 3), 1)
    yield sample("conv2d_transpose", T(16, 256, 28, 28), T(256, 128, 4, 4), stride=2, padding=1)
    yield sample("conv2d_transpose", T(1, 8, 8, 8), T(8, 8, 4, 4), stride=2, padding=1)
    yield sample("conv1d_transpose", T(16, 128, 512), T(128, 64, 4), stride=2, padding=1)
    yield sample("conv3d_transpose", T(2, 32, 8, 28, 28), T(32, 32, 2, 2, 2), stride=2)
    for size in (64, 128, 256, 512, 2048):
        yield sample("matmul", T(size, size), T(size, size))
        yield sample("dense", T(size, size), T(size, size), T(size))
    yield sample("matmul", T(96, 512, 64), T(96, 64, 512))
    yield from _rows((8192, 1024))
    yield from _rows((64, 1000))
    yield from _rows((32, 64, 56, 56), 1)
    yield from _layer_norm((8192, 1024))
    yield from _layer_norm((64, 256))
    yield from _batch_norm((64, 64, 56, 56))
    yield from _batch_norm((8, 16, 8, 8))
    yield from _pooling(2, (64, 64, 112, 112), 3, 2, 1)
    yield from _pooling(2, (64, 32, 8, 8), 2, 2)
    yield from _pooling(1, (64, 64, 4096), 2, 2)
    yield from _pooling(3, (4, 32, 16, 56, 56), 2, 2)
    yield from _adaptive((64, 512, 7, 7), 1)
    yield from _adaptive((16, 64, 56, 56), 7)
    yield from _attention((8, 16, 1024, 64))
    yield from _attention((2, 4, 64, 32))
    yield sample("sort", T(1024, 4096))
    yield sample("argsort", T(1024, 4096))
    yield sample("topk", T(1024, 4096), 8)
    yield sample("sort", T(8, 64))
    yield sample("topk", T(8, 64), 4)
    yield sample("concatenate", [T(1024, 1024), T(1024, 1024)], axis=1)
