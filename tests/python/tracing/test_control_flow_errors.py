"""What conditionals and loops refuse, eagerly and in traces."""

from __future__ import annotations

from typing import Any

import pytest

import meta
from meta.errors import ArgumentError, GradientError, TraceError


def test_the_gradient_of_an_unbounded_compiled_loop_is_refused() -> None:
    @meta.trace
    def run(x: Any) -> Any:
        x.requires_grad = True
        return meta.autograd.grad(meta.while_loop(lambda y: y < 100.0, lambda y: y * y, x), x)

    text = (
        r"\[while_loop\] the gradient goes through a loop whose number of steps is not known before it ends; expected "
        r"loops with a bound; pass max_steps=.*test_control_flow_errors.py"
    )
    with pytest.raises(GradientError, match=text):
        run.record(meta.array(2.0))


_CARRIES: list[tuple[Any, str]] = [
    (lambda c, x: (c.cast("float64"), x), r'\[scan\] the carry has Tensor\[\(2,\), "float32"\], and <lambda> returns '
     r'Tensor\[\(2,\), "float64"\]; expected one shape, dtype and device; cast or reshape .*test_control_flow_errors'),
    (lambda c, x: (x.sum(), x), r'returns Tensor\[\(\), "float32"\]; expected one shape'),
    (lambda c, x: ((c, c), x), r"the carry has the structure tensor, and <lambda> returns \(tensor, tensor\)"),
    (lambda c, x: c, r"<lambda> returns \w+; expected a tuple \(carry, y\)"),
    (lambda c, x: (c, "text"), r"the item has a str; expected tensors, numbers"),
]  # fmt: skip


@pytest.mark.parametrize(("step", "text"), _CARRIES)
def test_carries_keep_their_types(step: Any, text: str) -> None:
    def run(xs: Any) -> Any:
        return meta.scan(step, meta.zeros((2,)), xs)

    for each in (run, meta.trace(run).record):
        with pytest.raises(ArgumentError, match=text):
            each(meta.ones((3, 2)))


def test_lengths_agree() -> None:
    step = lambda c, x: (c, ())  # noqa: E731
    with pytest.raises(ArgumentError, match=r"\[scan\] xs.0 has 2 elements and xs.1 3; expected one length of all"):
        meta.scan(step, 0.0, (meta.ones((2,)), meta.ones((3,))))
    with pytest.raises(ArgumentError, match=r"xs has 2 elements and length 3"):
        meta.scan(step, 0.0, meta.ones((2,)), length=3)
    with pytest.raises(ArgumentError, match="neither xs nor a length; expected one of them; pass length="):
        meta.scan(step, 0.0)
    with pytest.raises(ArgumentError, match="xs is 0-d; expected tensors with an axis 0"):
        meta.scan(step, 0.0, meta.ones(()))


def test_predicates_are_flags_and_branches_return_one_type() -> None:
    x = meta.ones((2,))
    with pytest.raises(ArgumentError, match=r"\[cond\] the predicate is Tensor\[\(2,\), .bool.\]; expected a 0-d bool"):
        meta.cond(x > 0.0, lambda: x, lambda: x)
    with pytest.raises(
        ArgumentError, match=r"\[while_loop\] the result of <lambda> is Tensor\[\(\), .float32.\]; expected"
    ):
        meta.while_loop(lambda y: y.sum(), lambda y: y, x)
    with pytest.raises(
        ArgumentError, match=r"<lambda> returns Tensor\[\(2,\), .float32.\], and <lambda> returns Tensor\[\(\)"
    ):
        meta.trace(lambda x: meta.cond(x.sum() > 0.0, lambda: x, lambda: x.sum())).record(x)


def test_bodies_write_nothing_and_differentiate_nothing() -> None:
    total = meta.zeros(())

    def writes(c: Any, x: Any) -> Any:
        total.update(total + x)
        return c, x

    def differentiates(c: Any, x: Any) -> Any:
        c.requires_grad = True
        (c * x).backward()
        return c, x

    for step, text in (
        (writes, r"\[scan\] '\w+' is written in place inside; expected branches and bodies that return"),
        (differentiates, r"\[scan\] backward is called inside; .* call it outside of scan"),
    ):
        with pytest.raises(TraceError, match=text):
            meta.trace(lambda xs, step=step: meta.scan(step, 0.0, xs)).record(meta.ones((3,)))
