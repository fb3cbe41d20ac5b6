"""Resizing, sums of windows, response normalisation and bilinear forms, compared with torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch.nn.functional as tf

import meta
from meta import vm
from meta.errors import ArgumentError, TypeInferenceError
from meta.testing.arrays import check, to_torch
from tests.python.functional.against_torch import floats
from tests.python.functional.rows import Row, assert_agrees


def resized(*shape: int, **how: Any) -> Row:
    return Row(lambda x: meta.interpolate(x, **how), lambda x: tf.interpolate(x, **how), [floats(*shape)])


def summed(rank: int, shape: tuple[int, ...], *window: Any) -> Row:
    pool, mean = getattr(meta, f"sum_pool{rank}d"), getattr(tf, f"avg_pool{rank}d")
    return Row(lambda x: pool(x, *window), lambda x: mean(x, *window, divisor_override=1), [floats(*shape)])


ROWS: dict[str, Row] = {
    "nearest": resized(2, 1, 5, scale_factor=1.7),
    "nearest-exact": resized(1, 2, 4, 5, scale_factor=(0.6, 1.7), mode="nearest-exact"),
    "bilinear": resized(1, 2, 4, 5, scale_factor=1.7, mode="bilinear"),
    "bilinear recomputed": resized(1, 2, 4, 5, scale_factor=0.6, mode="bilinear", recompute_scale_factor=True),
    "bicubic": resized(1, 1, 5, 4, scale_factor=(1.3, 0.7), mode="bicubic"),
    "trilinear": resized(1, 1, 3, 2, 3, scale_factor=1.5, mode="trilinear"),
    "area": resized(1, 2, 5, 6, size=(2, 4), mode="area"),
    "smaller without aliases": resized(1, 2, 7, 9, size=(3, 4), mode="bilinear", antialias=True),
    "bicubic without aliases": resized(1, 1, 8, 6, scale_factor=0.4, mode="bicubic", antialias=True),
    "corners without aliases": resized(1, 1, 8, 6, size=(3, 9), mode="bicubic", antialias=True, align_corners=True),
    "sum_pool2d": summed(2, (1, 2, 6, 7), (3, 2), (2, 2), (1, 0), True),
    "sum_pool3d": summed(3, (1, 1, 4, 4, 5), 2),
    "local_response_norm": Row(
        lambda x: meta.local_response_norm(x, 3, 0.5, 0.6, 1.2),
        lambda x: tf.local_response_norm(x, 3, 0.5, 0.6, 1.2),
        [floats(2, 5, 3)],
    ),
    "bilinear form": Row(meta.bilinear, tf.bilinear, [floats(2, 3, 4), floats(2, 3, 5), floats(2, 4, 5), floats(2)]),
}


@pytest.mark.parametrize("name", ROWS)
def test_values_and_gradients(name: str) -> None:
    assert_agrees(ROWS[name])


def test_sizes_of_integers_and_halves() -> None:
    x = np.arange(6, dtype=np.int64).reshape(1, 1, 6)
    assert meta.interpolate(meta.array(x), scale_factor=0.7).tolist() == [[[0, 1, 2, 4]]]
    half = meta.cast(meta.array(floats(1, 1, 3, 4)), "bfloat16")
    y = meta.interpolate(half, scale_factor=1.7, mode="bilinear")
    assert (y.shape, y.dtype) == ((1, 1, 5, 6), "bfloat16")


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("antialias", [False, True])
def test_bytes_are_resized_as_in_torch(mode: str, antialias: bool) -> None:
    x = np.random.default_rng(0).integers(0, 256, (2, 3, 7, 12), dtype=np.uint8)
    for size, factor, aligned in (((3, 4), None, False), ((9, 13), None, True), (None, (1.7, 0.6), False)):
        y = meta.interpolate(meta.array(x), size, factor, mode, aligned, antialias=antialias)
        options = {"mode": mode, "align_corners": aligned, "antialias": antialias}
        expected = tf.interpolate(to_torch(x), size, factor, **options)
        np.testing.assert_array_equal(y.numpy(), expected.numpy())


def test_integers_are_not_interpolated() -> None:
    text = r"mode is 'bicubic', x is int32 with 2 spatial axes; expected a floating dtype, or uint8 with two spatial"
    with pytest.raises(ArgumentError, match=text):
        meta.interpolate(meta.ones((1, 1, 4, 4), "int32"), (2, 2), mode="bicubic", antialias=True)
    with pytest.raises(ArgumentError, match="x is uint8 with 1 spatial axes"):
        meta.interpolate(meta.ones((1, 1, 4), "uint8"), 2, mode="linear")


def test_a_program_resizes() -> None:
    x = floats(1, 1, 4, 5)
    y = vm.compile(meta.trace(lambda x: meta.interpolate(x, scale_factor=1.7, mode="bilinear")))(meta.array(x))
    check(y, tf.interpolate(to_torch(x), scale_factor=1.7, mode="bilinear"))


def test_an_empty_batch_is_normalised() -> None:
    x, scale = meta.zeros((0, 4, 3)), meta.ones((4,))
    for y in (meta.group_norm(x, 2, scale), meta.instance_norm(x, scale), meta.local_response_norm(x, 2)):
        assert tuple(y.shape) == (0, 4, 3)
    x.requires_grad = scale.requires_grad = True
    meta.group_norm(x, 2, scale).sum().backward()
    assert scale.grad.tolist() == [0.0] * 4
    assert tuple(x.grad.shape) == (0, 4, 3)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda x: meta.interpolate(x), r"\[interpolate\] size is None, scale_factor is None; expected one of the two"),
        (lambda x: meta.interpolate(x, (2, 2, 2)), r"size is \(2, 2, 2\), 'x' .*; expected one number, or 2, one for"),
        (lambda x: meta.interpolate(x, 2, mode="linear"), r"mode is 'linear', 'x' has shape .*, 1 spatial axes"),
        (lambda x: meta.interpolate(x, 2, mode="cubic"), r"mode is 'cubic'; expected 'nearest', 'nearest-exact'"),
        (lambda x: meta.interpolate(x, scale_factor=0.1), r"the result would have sizes \(0, 0\); expected at least"),
        (lambda x: meta.interpolate(x, 2, align_corners=True), r"align_corners with mode 'nearest'; expected a mode"),
        (lambda x: meta.interpolate(x, 2, mode="area", antialias=True), r"antialias with mode 'area'; expected \"bil"),
        (lambda x: meta.sum_pool1d(x, 2), r"\[sum_pool1d\] 'x' has shape .*; expected rank 3"),
        (
            lambda x: meta.local_response_norm(x, 0),
            r"size is 0; expected \(n, channels, ...\) and a size of at least 1",
        ),
        (lambda x: meta.bilinear(x, x, x), r"\[bilinear\] 'x1' has shape .*; expected \(..., in1\), \(..., in2\)"),
    ],
)
def test_wrong_arguments(call: Callable[[Any], Any], match: str) -> None:
    with pytest.raises(ArgumentError, match=match):
        call(meta.ones((1, 2, 4, 4)))


def test_windows_that_do_not_fit() -> None:
    with pytest.raises(TypeInferenceError, match=r"\[sum_pool2d\] a kernel of 5 .* does not fit into 4 elements"):
        meta.sum_pool2d(meta.ones((1, 2, 4, 4)), 5)
