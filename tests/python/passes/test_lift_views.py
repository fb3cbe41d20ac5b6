"""lift_views: reshapes come before the elementwise operators that read what a library computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import meta
from meta import passes
from meta.interpreter.run import run
from tests.python.passes.programs import lines, program
from tests.python.vm.programs import assert_same, randoms

SHAPE = (2, 3, 8)


def lifted(function: Callable[..., Any], *shapes: tuple[int, ...]) -> list[str]:
    """The operators of a program after the pass."""
    with meta.with_dialect(["torch", "tvm"]):
        found = lines(passes.dce(passes.lift_views(program(function, *shapes))))
    return [line.split(" = ")[1].split("(")[0] for line in found if " = " in line]


def residual(x: Any, w: Any, b: Any, rest: Any) -> Any:
    return (x @ w + b).reshape(SHAPE) * rest


def chain(x: Any, w: Any, b: Any, rest: Any) -> Any:
    return meta.tanh(meta.negative((x @ w) * 2.0) + b).reshape(SHAPE) - rest


def read_twice(x: Any, w: Any, b: Any, rest: Any) -> Any:
    y = x @ w + b
    return y, y.reshape(SHAPE) * rest


def other_last_axis(x: Any, w: Any, b: Any, rest: Any) -> Any:
    return (x @ w + b).reshape((2, 8, 3)) * rest.reshape((2, 8, 3))


def summed(x: Any, w: Any, b: Any, rest: Any) -> Any:
    """TVM computes the sum and what follows it as one kernel."""
    y = meta.tanh(meta.sum(x, axis=(1,), keepdims=True) * 0.5)
    return y.reshape((2, 3, 1)) * rest + (w.sum() + b.sum())


def read_by_a_library(x: Any, w: Any, b: Any, rest: Any) -> Any:
    return (x @ w + b).reshape(SHAPE) @ w + rest


@pytest.mark.parametrize(
    ("function", "operators"),
    [
        (residual, ["matmul", "reshape", "add", "multiply"]),
        (chain, ["matmul", "reshape", "multiply", "negative", "add", "tanh", "subtract"]),
        (read_twice, ["matmul", "add", "reshape", "multiply"]),
        (other_last_axis, ["matmul", "add", "reshape", "reshape", "multiply"]),
        (summed, ["sum", "multiply", "tanh", "reshape", "multiply", "sum", "sum", "add", "add"]),
        (read_by_a_library, ["matmul", "add", "reshape", "matmul", "add"]),
    ],
    ids=lambda x: getattr(x, "__name__", None),
)
def test_operators(function: Callable[..., Any], operators: list[str]) -> None:
    shapes = (6, 8), (8, 8), (8,), SHAPE
    assert lifted(function, *shapes) == operators
    arrays = randoms(*shapes)
    module = program(function, *shapes)
    with meta.with_dialect(["torch", "tvm"]):
        after = passes.lift_views(module)
    assert_same(run(after, *arrays), run(module, *arrays))


def test_it_is_a_part_of_the_standard_passes() -> None:
    arrays = randoms((6, 8), (8, 8), (8,), SHAPE)
    with meta.with_dialect(["torch", "tvm"]):
        executor = meta.vm.compile(meta.trace(residual))
        assert_same(executor(*arrays), run(executor.module(*arrays), *arrays), rtol=1e-5)
        kernels = executor.program(*arrays).loaded.kernels.values()
    assert ("tvm.add", "tvm.multiply") in kernels
