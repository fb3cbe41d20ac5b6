"""Patches, shuffles of pixels and channels, unpooling and fractional pooling, compared with torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as tf

import meta
from meta import vm
from meta.errors import ArgumentError, TypeInferenceError
from meta.testing.arrays import check, to_torch
from tests.python.functional.against_torch import floats
from tests.python.functional.rows import Row, assert_agrees

SAMPLES = floats(2, 3, 3, low=0)


def both(name: str, *inputs: Any, args: tuple[Any, ...] = ()) -> Row:
    """A row of a function with the same arguments in both libraries."""
    ours, theirs = getattr(meta, name), getattr(tf, {"im2col": "unfold", "col2im": "fold"}.get(name, name))
    return Row(lambda *xs: ours(*xs, *args), lambda *xs: theirs(*xs, *args), inputs)


def unpool(rank: int, shape: tuple[int, ...], window: tuple[Any, ...], output_size: tuple[int, ...] | None) -> Row:
    """Unpooling of what pooling with the same window gives."""
    pool, unpool = getattr(tf, f"max_pool{rank}d"), getattr(tf, f"max_unpool{rank}d")
    x, indices = pool(to_torch(floats(*shape)), *window, return_indices=True)
    function = getattr(meta, f"max_unpool{rank}d")
    return Row(
        lambda x, i: function(x, i, *window, output_size=output_size),
        lambda x, i: unpool(x, i, *window, output_size=output_size),
        [x.numpy(), indices.numpy()],
    )


def fractional(rank: int, shape: tuple[int, ...], kernel: Any, size: Any) -> Row:
    samples = SAMPLES[: shape[0] if len(shape) == rank + 2 else 1, :, :rank].copy()
    pool, function = getattr(tf, f"fractional_max_pool{rank}d"), getattr(meta, f"fractional_max_pool{rank}d")

    def theirs(x: Any) -> Any:
        return pool(x, kernel, size, return_indices=True, _random_samples=to_torch(samples))

    return Row(lambda x: function(x, meta.array(samples), kernel, size), theirs, [floats(*shape)])


ROWS: dict[str, Row] = {
    "im2col": both("im2col", floats(2, 3, 5, 6), args=((2, 3), 1, (0, 1), (2, 1))),
    "im2col dilated": both("im2col", floats(2, 5, 4), args=(2, 2, 1)),
    "col2im": both("col2im", floats(2, 6, 9), args=((4, 5), (2, 3), 1, (0, 1), (1, 2))),
    "col2im without a batch": both("col2im", floats(8, 4), args=(3, 2)),
    "pixel_shuffle": both("pixel_shuffle", floats(2, 8, 2, 3), args=(2,)),
    "pixel_unshuffle": both("pixel_unshuffle", floats(2, 4, 6), args=(2,)),
    "channel_shuffle": both("channel_shuffle", floats(2, 6, 3), args=(3,)),
    "max_unpool1d": unpool(1, (2, 3, 7), (2,), (7,)),
    "max_unpool2d": unpool(2, (2, 3, 6, 5), ((2, 3), 2, (1, 0)), (2, 3, 6, 5)),
    "max_unpool3d": unpool(3, (2, 4, 4, 4), (2,), None),
    "fractional_max_pool2d": fractional(2, (2, 3, 7, 8), (2, 3), (3, 1)),
    "fractional_max_pool3d": fractional(3, (3, 5, 5, 6), 2, (2, 3, 4)),
}


@pytest.mark.parametrize("name", ROWS)
def test_values_and_gradients(name: str) -> None:
    assert_agrees(ROWS[name])


def test_fold_is_the_transpose_of_unfold() -> None:
    x, y = meta.array(floats(1, 2, 4, 4)), meta.array(floats(1, 8, 9))
    check(meta.sum(meta.im2col(x, 2) * y), meta.sum(meta.col2im(y, 4, 2) * x).numpy())


def test_a_program_unpools() -> None:
    x = meta.array(floats(1, 2, 4, 6))

    def restored(x: Any) -> Any:
        y, indices = meta.max_pool2d_with_indices(x, (2, 3))
        return meta.max_unpool2d(y, indices, (2, 3))

    theirs = torch.nn.functional.max_pool2d(to_torch(x.numpy()), (2, 3), return_indices=True)
    check(vm.compile(meta.trace(restored))(x), tf.max_unpool2d(*theirs, (2, 3)))


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda x: meta.im2col(x[0, 0], 2), r"\[im2col\] 'x' has shape \(4, 4\); expected \(n, c, h, w\)"),
        (
            lambda x: meta.col2im(x[0, 0], 4, 2),
            r"\[col2im\] 'x' has shape .*\(n, channels \* 4, 9\), the patches of an image",
        ),
        (lambda x: meta.col2im(x[0, 0], (3, 3, 3), 2), r"\[col2im\] size is \(3, 3, 3\); expected an int, or two"),
        (lambda x: meta.pixel_shuffle(x, 2), r"\[pixel_shuffle\] x has 2 channels, factor is 2; expected .* 4 divides"),
        (lambda x: meta.pixel_unshuffle(x, 3), r"\[pixel_unshuffle\] 'x' has shape \(1, 2, 4, 4\), factor is 3"),
        (lambda x: meta.pixel_shuffle(x, 0), r"factor is 0, .*; expected a positive factor"),
        (lambda x: meta.channel_shuffle(x, 3), r"\[channel_shuffle\] groups is 3"),
        (lambda x: meta.max_unpool2d(x, x[0], 2), r"'indices' \(2, 4, 4\); expected equal shapes of rank 4, or 3"),
        (lambda x: meta.max_unpool2d(x, x, 2, output_size=(5, 8)), r"output_size is \(5, 8\); expected \(8, 8\), or"),
        (
            lambda x: meta.max_unpool2d(x, x, (2, 2, 2)),
            r"kernel is \(2, 2, 2\); expected one int or 2, each at least 1",
        ),
        (
            lambda x: meta.fractional_max_pool2d(x, x, 2, 2),
            r"'samples' \(1, 2, 4, 4\); expected x of rank 4 and samples",
        ),
        (lambda x: meta.fractional_max_pool2d(x, x[:, :, 0, :2], 4, 2), r"kernel \(4, 4\) and size \(2, 2\) of an ima"),
    ],
)
def test_wrong_arguments(call: Callable[[Any], Any], match: str) -> None:
    with pytest.raises(ArgumentError, match=match):
        call(meta.ones((1, 2, 4, 4)))


def test_kernels_that_do_not_fit() -> None:
    with pytest.raises(TypeInferenceError, match=r"\[im2col\] a kernel of 5 with dilation 1 does not fit into 4 elem"):
        meta.im2col(meta.ones((1, 2, 4, 4)), 5)
    with pytest.raises(TypeInferenceError, match=r"\[col2im\] stride is 0; expected one int or 2, each at least 1"):
        meta.col2im(meta.ones((1, 8, 9)), 4, 2, stride=0)


def test_positions_outside_of_the_result_are_refused() -> None:
    with pytest.raises(IndexError, match="9"):
        meta.max_unpool1d(meta.ones((1, 1, 2)), meta.array(np.array([[[0, 9]]])), 2)
