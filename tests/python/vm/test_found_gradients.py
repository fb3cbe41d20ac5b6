"""Small programs in which the fuzzer of programs (scripts/fuzz_programs.py) found errors of traced gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

import meta
from meta.errors import GradientError
from tests.python.vm.test_plan_correctness import Function, assert_compiled_equals_eager, matrix

Loss = Callable[[Any, Any, Any], Any]
"""A loss of a parameter p, which reads a value w of a graph that is freed, and x."""


def detached_in_a_branch(p: Any, w: Any, x: Any) -> Any:
    return meta.cond(x.sum() > 0.0, lambda: meta.tanh(w.detach() * x) @ p, lambda: x @ p * w.detach())


def detached_in_one_of_two_branches(p: Any, w: Any, x: Any) -> Any:
    def inner() -> Any:
        return meta.cond(x.sum() > 1.0, lambda: w.detach() @ p, lambda: p * 2.0)

    return meta.cond(x.sum() > 0.0, inner, lambda: x @ p)


def another_result_of_a_branch(p: Any, w: Any, x: Any) -> Any:
    return meta.cond(x.sum() > 0.0, lambda: (x @ p, w * 2.0), lambda: (p * 1.0, w * 3.0))[0]


def detached_in_a_branch_of_a_loop(p: Any, w: Any, x: Any) -> Any:
    def step(carry: Any, _: Any) -> Any:
        return meta.cond(carry.sum() > 0.0, lambda: carry @ p * 0.1, lambda: w.detach() @ p), ()

    return meta.scan(step, x, length=2)[0]


def first_carry_that_is_not_read(p: Any, w: Any, x: Any) -> Any:
    return meta.scan(lambda _, y: (meta.tanh(y @ p), ()), w[0], x)[0]


@pytest.mark.parametrize(
    "loss",
    [
        detached_in_a_branch, detached_in_one_of_two_branches, another_result_of_a_branch,
        detached_in_a_branch_of_a_loop, first_carry_that_is_not_read,
    ],
    ids=lambda f: f.__name__,
)  # fmt: skip
def test_no_gradient_flows_to_what_is_read_without_one(loss: Loss) -> None:
    """The graph of w has been freed: a gradient that flowed there would be an error."""

    def scenario(width: int) -> tuple[Function, Sequence[Any]]:
        p = matrix(width, 0)
        p.requires_grad = True

        def function(x: Any, y: Any) -> Any:
            w = meta.tanh(p * y)
            (first,) = meta.autograd.grad(w.mean(), [p])
            (second,) = meta.autograd.grad(loss(p, w, x).sum(), [p])
            return first, second

        return function, (p,)

    assert_compiled_equals_eager(scenario, 4)


def test_written_state_is_a_constant_of_later_branches() -> None:
    """An array written without gradients, from a value whose graph has been freed, is read inside of a branch."""

    def scenario(width: int) -> tuple[Function, Sequence[Any]]:
        p, w = matrix(width, 0), matrix(width, 1)
        p.requires_grad = True

        def function(x: Any, y: Any) -> Any:
            loss = (p * y).mean()
            (first,) = meta.autograd.grad(loss, [p])
            written = w
            with meta.no_grad():
                written *= loss
            h = meta.cond(x.sum() > 0.0, lambda: (w * 1.0) @ p, lambda: w * p)
            (second,) = meta.autograd.grad((h * x).mean(), [p])
            return first, second

        return function, (p, w)

    assert_compiled_equals_eager(scenario, 4)


def test_gradients_of_branches_are_constants_of_later_graphs() -> None:
    def scenario(width: int) -> tuple[Function, Sequence[Any]]:
        p = matrix(width, 0)
        p.requires_grad = True

        def function(x: Any, y: Any) -> Any:
            h = meta.cond(x.sum() > 0.0, lambda: meta.tanh(x @ p) * p, lambda: x * p * p)
            (first,) = meta.autograd.grad(h.sum(), [p])
            (second,) = meta.autograd.grad((first * y * p).sum(), [p])
            return first, second

        return function, (p,)

    assert_compiled_equals_eager(scenario, 4)


def test_a_second_backward_through_a_branch_is_refused() -> None:
    p = matrix(3, 0)
    p.requires_grad = True

    def function(x: Any) -> Any:
        h = meta.cond(x.sum() > 0.0, lambda: meta.tanh(x @ p), lambda: x * p)
        (first,) = meta.autograd.grad(h.mean(), [p])
        (second,) = meta.autograd.grad(h.sum(), [p])
        return first, second

    for call in (function, meta.vm.compile(meta.trace(function))):
        with pytest.raises(GradientError, match="the graph was freed by an earlier backward"):
            call(matrix(3, 1))
