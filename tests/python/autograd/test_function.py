"""autograd.Function: user-defined gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meta
from meta.autograd import Function, gradcheck, gradgradcheck
from meta.errors import ArgumentError, GradientError
from meta.testing import check


def leaf(*shape: int, seed: int = 0, dtype: str = "float64") -> meta.NDArray:
    x = meta.array(np.random.default_rng(seed).uniform(-1, 1, shape).astype(dtype))
    x.requires_grad = True
    return x


class Cube(Function):
    @staticmethod
    def forward(ctx: Any, x: meta.NDArray) -> meta.NDArray:
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx: Any, dy: meta.NDArray) -> Any:
        (x,) = ctx.saved_arrays
        return x * x * 3 * dy


class Exp(Function):
    """exp, whose gradient saves the result."""

    @staticmethod
    def forward(ctx: Any, x: meta.NDArray) -> meta.NDArray:
        y = meta.exp(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, dy: meta.NDArray) -> Any:
        return ctx.saved_arrays[0] * dy


class SumAndProduct(Function):
    @staticmethod
    def forward(ctx: Any, a: meta.NDArray, b: meta.NDArray, scale: float) -> Any:
        ctx.save_for_backward(a, b)
        ctx.scale = scale
        return a + b, a * b * scale

    @staticmethod
    def backward(ctx: Any, ds: meta.NDArray, dp: meta.NDArray) -> Any:
        a, b = ctx.saved_arrays
        return ds + dp * b * ctx.scale, ds + dp * a * ctx.scale, None


def test_gradient() -> None:
    x = leaf(3)
    y = Cube.apply(x)
    assert y.requires_grad
    y.sum().backward()
    check(x.grad, 3 * x.detach().numpy() ** 2, rtol=1e-10)


@pytest.mark.parametrize("function", [Cube, Exp])
def test_first_and_second_order(function: type[Function]) -> None:
    assert gradcheck(function.apply, leaf(2, 3))
    assert gradgradcheck(function.apply, leaf(2, 3))


def test_several_results_and_arguments_without_gradient() -> None:
    a, b = leaf(3), leaf(3, seed=1)
    assert gradcheck(lambda a, b: SumAndProduct.apply(a, b, 2.0), [a, b])
    assert gradgradcheck(lambda a, b: SumAndProduct.apply(a, b, 2.0), [a, b])


def test_unused_results_have_gradients_of_zeros() -> None:
    a, b = leaf(3), leaf(3, seed=1)
    total, _ = SumAndProduct.apply(a, b, 2.0)
    total.sum().backward()
    check(a.grad, np.ones(3))


def test_needs_input_grad() -> None:
    a, b = leaf(3), leaf(3, seed=1).detach()
    needs: list[tuple[bool, ...]] = []

    class Probe(SumAndProduct):
        @staticmethod
        def backward(ctx: Any, ds: meta.NDArray, dp: meta.NDArray) -> Any:
            needs.append(ctx.needs_input_grad)
            return SumAndProduct.backward(ctx, ds, dp)

    Probe.apply(a, b, 1.0)[0].sum().backward()
    assert needs == [(True, False, False)]


def test_records_nothing_without_tracked_arguments() -> None:
    assert not Cube.apply(leaf(3).detach()).requires_grad
    with meta.no_grad():
        assert not Cube.apply(leaf(3)).requires_grad


def test_returned_arguments() -> None:
    class Reverse(Function):
        """The identity with a negated gradient."""

        @staticmethod
        def forward(ctx: Any, x: meta.NDArray) -> meta.NDArray:
            return x

        @staticmethod
        def backward(ctx: Any, dy: meta.NDArray) -> Any:
            return -dy

    x = leaf(3)
    y = Reverse.apply(x)
    assert y is not x
    (y * 2).sum().backward()
    check(x.grad, np.full(3, -2.0))


def test_mark_non_differentiable() -> None:
    class Split(Function):
        @staticmethod
        def forward(ctx: Any, x: meta.NDArray) -> Any:
            a, b = x * 2, x * 3
            ctx.mark_non_differentiable(b)
            return a, b

        @staticmethod
        def backward(ctx: Any, da: meta.NDArray, db: Any) -> Any:
            assert db is None
            return da * 2

    x = leaf(3)
    a, b = Split.apply(x)
    assert not b.requires_grad
    (a + b).sum().backward()
    check(x.grad, np.full(3, 2.0))


def function_returning(returned: Any) -> type[Function]:
    class Wrong(Function):
        @staticmethod
        def forward(ctx: Any, x: meta.NDArray, y: meta.NDArray) -> meta.NDArray:
            return x * y

        @staticmethod
        def backward(ctx: Any, dy: meta.NDArray) -> Any:
            return returned(dy)

    return Wrong


@pytest.mark.parametrize(
    ("returned", "text"),
    [
        (
            lambda dy: dy,
            r"\[Wrong\] backward returned 1 gradients; expected one for each of the 2 arguments of forward; return",
        ),
        (lambda dy: (dy, dy, dy), "backward returned 3 gradients"),
        (
            lambda dy: (dy.sum(), dy),
            r'gradient of argument 0 is Tensor\[\(\), "float64"\]; expected the argument.s type Tensor\[\(3,\).*; sum',
        ),
        (lambda dy: (dy, 1.0), "gradient of argument 1 is of class float; expected the argument's type"),
    ],
)
def test_rejects_wrong_gradients(returned: Any, text: str) -> None:
    y = function_returning(returned).apply(leaf(3), leaf(3, seed=1))
    with pytest.raises(GradientError, match=text):
        y.sum().backward()


def test_rejects_wrong_results_and_saved_values() -> None:
    class Number(Cube):
        @staticmethod
        def forward(ctx: Any, x: meta.NDArray) -> Any:
            return 1.0

    class Saves(Cube):
        @staticmethod
        def forward(ctx: Any, x: meta.NDArray) -> Any:
            ctx.save_for_backward(x, 3)
            return x * x

    class ReadsTensors(Cube):
        @staticmethod
        def backward(ctx: Any, dy: meta.NDArray) -> Any:
            return ctx.saved_tensors[0] * dy

    with pytest.raises(
        GradientError, match=r"of ReadsTensors has no attribute 'saved_tensors'; write ctx\.saved_arrays"
    ):
        ReadsTensors.apply(leaf(3)).sum().backward()
    with pytest.raises(GradientError, match=r"\[Number\] forward returned float; expected an NDArray or a tuple"):
        Number.apply(leaf(3))
    with pytest.raises(ArgumentError, match=r"\[Saves\] save_for_backward got int; expected arrays and None; set"):
        Saves.apply(leaf(3))


def test_freed_with_the_graph() -> None:
    y = Cube.apply(leaf(3)).sum()
    y.backward()
    with pytest.raises(GradientError, match="freed"):
        y.backward()


def test_rejects_saved_values_written_in_place() -> None:
    from meta.eager.gradient_graph import record_write

    x = leaf(3)
    y = Cube.apply(x).sum()
    with meta.no_grad():
        record_write("update", x)
    with pytest.raises(GradientError, match=r"\[Cube\] a value .* modified in place"):
        y.backward()
