"""Parts of programs that become functions, which are branches, steps of loops and closures, know each symbolic size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import meta
from meta.dim import sym
from meta.ir.builder import Builder, Module
from meta.ir.expr import Binding, Var
from meta.ir.type import FunctionType, tensor_type
from meta.op.registry import get

Function = Callable[[Any], "tuple[Any, ...]"]


def _filled(rows: Any, value: float, columns: int = 2) -> Any:
    return meta.full((rows, columns), value, dtype="float64") * 3.0


def branch(x: Any) -> Any:
    return (meta.cond(x.sum() > 0.0, lambda: x[:, :2], lambda: _filled(x.shape[0], 1.0)),)


def branch_of_a_branch(x: Any) -> Any:
    rows = x.shape[0]

    def inner() -> Any:
        return meta.cond(x.sum() > 1.0, lambda: _filled(rows, 1.0), lambda: _filled(rows, 2.0))

    return (meta.cond(x.sum() > 0.0, inner, lambda: _filled(rows, 4.0)),)


def branch_with_a_multiple(x: Any) -> Any:
    return (meta.cond(x.sum() > 0.0, lambda: _filled(2 * x.shape[0], 1.0), lambda: _filled(x.shape[0] * 2, 4.0)),)


def scan(x: Any) -> Any:
    rows, one = x.shape[0], meta.ones((), dtype="float64")
    return meta.scan(lambda c, _: (c * 2.0, _filled(rows, 1.0) * c), one, length=3)


def scan_of_a_scan(x: Any) -> Any:
    rows, one = x.shape[0], meta.ones((), dtype="float64")

    def step(carry: Any, _: Any) -> Any:
        return meta.scan(lambda c, _: (c + _filled(rows, 1.0).sum(), ()), carry, length=2)[0] * 0.5, ()

    return (meta.scan(step, one, length=3)[0],)


def branch_of_a_scan(x: Any) -> Any:
    rows, one = x.shape[0], meta.ones((), dtype="float64")

    def step(carry: Any, _: Any) -> Any:
        return meta.cond(carry > 2.0, lambda: carry * 2.0, lambda: carry + _filled(rows, 1.0).sum()), ()

    return (meta.scan(step, one, length=3)[0],)


def while_loop(x: Any) -> Any:
    rows, one = x.shape[0], meta.ones((), dtype="float64")
    return (meta.while_loop(lambda c: c < 100.0, lambda c: c + _filled(rows, 1.0).sum(), one),)


def scan_in_a_branch(x: Any) -> Any:
    return (meta.cond(x.sum() > 0.0, lambda: scan(x)[0], lambda: scan(x)[0] + 1.0),)


PROGRAMS = [
    branch, branch_of_a_branch, branch_with_a_multiple, scan, scan_of_a_scan, branch_of_a_scan, while_loop,
    scan_in_a_branch,
]  # fmt: skip


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("fuse", [True, False], ids=["fused", "unfused"])
def test_one_program_serves_all_sizes(function: Function, fuse: bool) -> None:
    compiled = meta.vm.compile(meta.trace(function), dynamic={"x": {0: "n"}}, fuse=fuse)
    for rows in (4, 1, 7):
        x = meta.array(np.random.default_rng(rows).standard_normal((rows, 3)))
        for got, want in zip(compiled(x), function(x), strict=True):
            np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-12)


def test_closures_know_sizes_of_the_function_around() -> None:
    """repeat(x, k) = k > 0 ? repeat(x, k - 1) + 1 : x, where x is a number, and the result has n rows."""
    scalar, count, rows = tensor_type((), "float64"), tensor_type((), "int64"), tensor_type((sym("n"), 2), "float64")
    builder = Builder()
    repeat = Var("repeat", FunctionType((scalar, count), rows))

    def call(op: str, *args: Any) -> Var:
        return builder.call(get(op), args)

    with builder.function("main", [("x", tensor_type((sym("n"), 3), "float64")), ("k", count)]) as scope:
        x, steps = scope.params
        with builder.function("repeat", [("x", scalar), ("k", count)]) as inner:
            value, k = inner.params
            inner.ret(
                builder.if_(
                    call("greater", k, 0),
                    lambda: call("add", builder.call_function(repeat, [value, call("subtract", k, 1)]), 1.0),
                    lambda: call("broadcast_to", value, rows.shape),
                )
            )
        builder.bind(Binding(repeat, inner.function))
        scope.ret(builder.call_function(repeat, [call("sum", x, None, False), steps]))
    compiled = meta.vm.compile(Module({"main": scope.function}))
    for size in (4, 2):
        host = np.random.default_rng(size).standard_normal((size, 3))
        expected = np.full((size, 2), host.sum() + 3.0)
        np.testing.assert_allclose(compiled(meta.array(host), meta.array(3)).numpy(), expected, rtol=1e-12)
