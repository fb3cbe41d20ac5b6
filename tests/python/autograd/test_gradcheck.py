"""gradcheck and gradgradcheck accept right gradients and reject wrong ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meta
from meta.autograd import Function, gradcheck, gradgradcheck
from meta.errors import GradientError


def leaf(*shape: int, dtype: str = "float64") -> meta.NDArray:
    x = meta.array(np.random.default_rng(0).uniform(-1, 1, shape).astype(dtype))
    x.requires_grad = True
    return x


class Wrong(Function):
    """tanh with an error of one percent in the gradient, or with a right first and a wrong second derivative."""

    @staticmethod
    def forward(ctx: Any, x: meta.NDArray, factor: float) -> meta.NDArray:
        y = meta.tanh(x)
        ctx.save_for_backward(y)
        ctx.factor = factor
        return y

    @staticmethod
    def backward(ctx: Any, dy: meta.NDArray) -> Any:
        (y,) = ctx.saved_arrays
        y = y if ctx.factor != 1 else y.detach()
        return meta.tanh_dx(y, dy) * ctx.factor, None


def test_accepts_right_gradients() -> None:
    x, w = leaf(2, 3), leaf(3)
    assert gradcheck(lambda x, w: meta.tanh(x) * w, [x, w])
    assert gradgradcheck(lambda x, w: meta.tanh(x) * w, [x, w])
    assert x.grad is None


def test_catches_an_error_of_one_percent() -> None:
    with pytest.raises(
        GradientError, match=r"\[gradcheck\] gradient of input 0 at \(\d, \d\) is .*by finite differences"
    ):
        gradcheck(lambda x: Wrong.apply(x, 1.01), leaf(2, 3))


def test_catches_a_missing_second_order() -> None:
    assert gradcheck(lambda x: Wrong.apply(x, 1), leaf(2, 3))
    with pytest.raises(GradientError, match="finite differences"):
        gradgradcheck(lambda x: Wrong.apply(x, 1), leaf(2, 3))


def test_accepts_constants_with_gradients_of_zeros() -> None:
    assert gradcheck(lambda x: x.detach() * 0, leaf(2))
    with pytest.raises(GradientError, match=r"gradient of input 0 at \(\d,\) is 0, by finite differences"):
        gradcheck(lambda x: x.detach() * 2, leaf(2))


def test_catches_a_detached_input() -> None:
    with pytest.raises(GradientError, match="gradient of input 1"):
        gradcheck(lambda x, w: x * w.detach(), [leaf(2), leaf(2)])


def test_rejects_low_precision_and_untracked_inputs() -> None:
    with pytest.raises(GradientError, match="input 0 has dtype float32; expected float64"):
        gradcheck(meta.tanh, leaf(2, dtype="float32"))
    with pytest.raises(GradientError, match="no input requires a gradient"):
        gradcheck(meta.tanh, leaf(2).detach())
