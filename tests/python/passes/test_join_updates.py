"""join_updates: which updates that are written out become one operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import meta
from meta import passes
from meta.ir.type import tensor_type
from tests.python.passes.programs import check_same_results, lines, program

X = tensor_type((4, 6))


def operators(function: Callable[..., Any], *types: Any) -> list[str]:
    """The operators of a program after the pass; its results are checked."""
    before = passes.drop_stop_gradient(program(function, *(types or (X, X, X))))
    after = passes.dce(passes.join_updates(before))
    check_same_results(before, after)
    return [line.split(" = ")[1].split("(")[0] for line in lines(after) if "(" in line.partition(" = ")[2]]


def descend(x: Any, v: Any, dx: Any) -> Any:
    v.update(v * 0.9 + dx)
    x.update(x - v * 0.01)
    return meta.sum(dx)


def test_a_step_with_momentum_is_sgd() -> None:
    assert operators(descend) == ["sgd", "sum"]


def test_other_orders_of_operands() -> None:
    def step(x: Any, v: Any, dx: Any) -> None:
        v.update(dx + 0.9 * v)
        x.update(x + v * -0.01)

    assert operators(step) == ["sgd"]


def test_the_gradient_may_be_a_parameter_that_both_steps_read() -> None:
    def steps(x: Any, y: Any, v: Any, w: Any) -> None:
        dx = x * y
        for parameter, velocity in ((x, v), (y, w)):
            velocity.update(velocity * 0.5 + dx)
            parameter.update(parameter - velocity * 0.125)

    assert operators(steps, X, X, X, X) == ["multiply", "sgd", "sgd"]


def _read_twice(x: Any, v: Any, dx: Any) -> Any:
    v.update(v * 0.9 + dx)
    change = v * 0.01
    x.update(x - change)
    return change


def _not_kept(x: Any, v: Any, dx: Any) -> None:
    x.update(x - (v * 0.9 + dx) * 0.01)


def _other_order(x: Any, v: Any, dx: Any) -> None:
    v.update(v * 0.9 + dx)
    x.update(v * 0.01 - x)


def _of_another(x: Any, v: Any, dx: Any) -> None:
    v.update(dx * 0.9 + dx)
    x.update(x - v * 0.01)


@pytest.mark.parametrize("function", [_read_twice, _not_kept, _other_order, _of_another])
def test_other_updates_stay(function: Callable[..., Any]) -> None:
    assert "sgd" not in operators(function)


@pytest.mark.parametrize("types", [[tensor_type((4, 6), "float16")] * 3, [X, X, tensor_type((6,))]])
def test_leaves_half_precision_and_gradients_of_another_shape(types: list[Any]) -> None:
    assert "sgd" not in operators(descend, *types)


def test_chosen_dialects_run_what_is_written() -> None:
    with meta.with_dialect(("torch", "tvm")):
        assert "sgd" not in operators(descend)


def test_a_compiled_step_writes_both_tensors_once() -> None:
    """The kernel reads x, v and dx and overwrites x and v: neither new value takes memory."""
    rng = np.random.default_rng(0)
    x, v, dx = (rng.standard_normal((4, 6)).astype("float32") for _ in range(3))
    arrays = [meta.array(a) for a in (x, v, dx)]
    step = meta.vm.compile(program(descend, X, X, X))
    total = step(*arrays)[0]
    velocity = v * np.float32(0.9) + dx
    np.testing.assert_allclose(arrays[1].numpy(), velocity, rtol=1e-6)
    np.testing.assert_allclose(arrays[0].numpy(), x - velocity * np.float32(0.01), rtol=1e-6)
    np.testing.assert_allclose(total.numpy(), dx.sum(), rtol=1e-5)
    assert step.memory(*arrays).intermediates == 0
    assert "tvm.sgd" in step.explain(*arrays)
