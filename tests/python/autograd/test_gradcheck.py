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


def test_moves_inputs_as_a_whole_along_random_directions() -> None:
    calls: list[int] = []

    def tanh(x: meta.NDArray, wrong: bool = False) -> Any:
        calls.append(1)
        factors = np.ones(x.shape)
        factors[5, 5] += 0.001 * wrong
        return meta.tanh(x) + meta.array(factors - 1.0) * (meta.tanh(x) - meta.tanh(x).detach())

    x = leaf(10, 10)
    assert gradcheck(tanh, x, rtol=1e-6, atol=1e-6, directions=4)
    assert len(calls) == 1 + 2 * 4
    assert gradgradcheck(meta.tanh, x, rtol=1e-6, atol=1e-6, directions=4)
    problem = r"gradient of input 0 along direction \d is .* \([34] of 4 directions differ\)"
    with pytest.raises(GradientError, match=problem):
        gradcheck(lambda x: tanh(x, wrong=True), x, rtol=1e-6, atol=1e-6, directions=4)


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
