"""Small programs in which the fuzzer of programs (scripts/fuzz_programs.py) found wrong values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

import meta
from tests.python.vm.test_plan_correctness import (
    Function,
    assert_budgets_change_nothing,
    assert_compiled_equals_eager,
    both_fusions,
    matrix,
    vector,
)


def ones(width: int) -> Any:
    return meta.ones((width,), dtype="float64")


def statistic_written_after(m: Any, v: Any, w: Any, x: Any, y: Any) -> Any:
    """Running statistics are state, which is updated again by a statistic of the batch."""
    _, _, _, mean, _ = meta.batch_norm_train(x, m, v, None, meta.relu(w[0]), 0.3)
    m *= mean
    return (y,)


def statistic_in_the_bias(m: Any, v: Any, w: Any, x: Any, y: Any) -> Any:
    """The bias is computed from the running mean that the same call updates."""
    h, *_ = meta.batch_norm_train(x, m, v, y[0] - m, None, 0.3)
    m += 0.5
    return (h,)


def statistic_into_state(m: Any, v: Any, w: Any, x: Any, y: Any) -> Any:
    _, _, var, _, _ = meta.batch_norm_train(x, v * 1.0, meta.square(y[0]) + 0.5, w[0], None, 0.3)
    w[0] = var
    return (y,)


def statistic_of_a_product(m: Any, v: Any, w: Any, x: Any, y: Any) -> Any:
    _, mean, *_ = meta.batch_norm_train(x, m * 2.0, ones(x.shape[1]), m, m, 0.3)
    return (mean + y,)


def statistics_twice_through_state(m: Any, v: Any, w: Any, x: Any, y: Any) -> Any:
    _, _, _, mean, invstd = meta.batch_norm_train(x, m, v, None, None, 0.3)
    _, *rest = meta.batch_norm_train(y, m, ones(x.shape[1]), invstd * 1.0, mean * 1.0, 0.3)
    return [x * r for r in rest]


def update_of_an_updated_value(m: Any, v: Any, w: Any, x: Any, y: Any) -> Any:
    """Results of one update operator are operands of the next."""
    positive = meta.square(y) + 1.0
    a, b, c, _ = meta.rmsprop_centered(w, x @ y, positive, x * 0.5, meta.zeros_like(x), 0.1, 0.9, 0.5)
    _, second, _ = meta.adam(x * 1.0, a, w * 1.0, meta.square(y), None, 0.1, 0.9, 0.99, 1e-2, 0.0)
    return c @ y, b @ x, second


def update_of_a_product_and_state(m: Any, v: Any, w: Any, x: Any, y: Any) -> Any:
    r = meta.amsgrad((x @ y) * 1.0, y.reshape((-1,)).reshape(y.shape), w, meta.square(x) + 0.25,
                     meta.square(meta.roll(y, 1, 0)) + 0.25, None, 0.1, 0.9, 0.99, 1e-2, 0.0)  # fmt: skip
    return (sum((part @ part.T).mean() * part for part in r),)


def scenario_of(body: Any) -> Any:
    def scenario(width: int) -> tuple[Function, Sequence[Any]]:
        state = vector(width, 2), meta.abs(vector(width, 3)) + 0.5, matrix(width, 0)
        return (lambda x, y: body(*state, x, y)), state

    return scenario


PROGRAMS = [
    statistic_written_after, statistic_in_the_bias, statistic_into_state, statistic_of_a_product,
    statistics_twice_through_state, update_of_an_updated_value, update_of_a_product_and_state,
]  # fmt: skip


@both_fusions
@pytest.mark.parametrize("body", PROGRAMS, ids=lambda f: f.__name__)
def test_programs_with_several_results(body: Any, fuse: bool) -> None:
    assert_compiled_equals_eager(scenario_of(body), 6, fuse=fuse)


def mean_beside_a_product(m: Any, v: Any, w: Any, x: Any, y: Any) -> Any:
    """The mean of squares is computed from a product, in tiles; the mean, another result, is not."""
    squares = meta.square(w @ y * 0.3) + 0.25
    new, *_ = meta.rmsprop_centered(w, x * 0.05, squares, x @ x.T, meta.zeros_like(x), 0.1, 0.9, 0.5, 0.0, 0.9)
    return (new * 1.0,)


def product_behind_a_mean(m: Any, v: Any, w: Any, x: Any, y: Any) -> Any:
    """The first result does not read the product."""
    _, new, *_ = meta.amsgrad(w, x @ y, x * 0.5, meta.square(y), meta.square(y) + 0.5, None, 0.1, 0.9, 0.99, 1e-2, 0.0)
    return new * 1.0, meta.tanh(y)


@both_fusions
@pytest.mark.parametrize("body", [mean_beside_a_product, product_behind_a_mean], ids=lambda f: f.__name__)
def test_results_beside_tiles_of_a_product(body: Any, fuse: bool) -> None:
    assert_compiled_equals_eager(scenario_of(body), 32, fuse=fuse)


# --- budgets of memory -----------------------------------------------------------------------------------------------


def long_product(x: Any, y: Any) -> Any:
    """A value whose computation needs memory."""
    a = meta.cumsum(x @ y, axis=0) @ x
    return meta.cumsum(a @ y, axis=1) @ a * 1e-3


def swapped_states(w: Any, u: Any, x: Any, y: Any) -> Any:
    half = meta.full(x.shape, 0.5, dtype="float64")
    a, b = w * 1.0, u.copy()
    w[...] = b
    u[...] = a
    return ((half @ long_product(x, y)) * w * u @ x,)


def view_into_state(w: Any, u: Any, x: Any, y: Any) -> Any:
    h = w * 2.0
    w[...] = (u * 1.0).reshape((-1,)).reshape(x.shape)
    return ((h @ long_product(x, y)) * w @ u,)


def part_written(w: Any, u: Any, x: Any, y: Any) -> Any:
    h = meta.sigmoid(w + u)
    w[0] = -0.625
    return ((h @ long_product(x, y)) * w @ u,)


def argument_added_to_itself(w: Any, u: Any, x: Any, y: Any) -> Any:
    h = x * 0.5
    x += h
    return (h * x @ long_product(w, y) @ u,)


@pytest.mark.parametrize(
    "body", [swapped_states, view_into_state, part_written, argument_added_to_itself], ids=lambda f: f.__name__
)
def test_budgets_of_programs_that_write(body: Any) -> None:
    def scenario(width: int) -> tuple[Function, Sequence[Any]]:
        state = matrix(width, 0), matrix(width, 1)
        return (lambda x, y: body(*state, x, y)), state

    assert_budgets_change_nothing(scenario, 8)
