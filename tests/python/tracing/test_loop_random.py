"""Random numbers in the bodies of loops: those of eager code, step by step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meta
from meta.errors import TraceError


def _normal(*shape: int) -> Any:
    return meta.array(np.random.default_rng(0).standard_normal(shape).astype("float32"))


def _drawing(xs: Any, reverse: bool = False) -> Any:
    """Random numbers before, between and inside of two loops, the inner one with a conditional."""

    def outer(carry: Any, x: Any) -> Any:
        def inner(h: Any, _: Any) -> Any:
            masked = meta.dropout(h, meta.random.next_key(), 0.5)[0]
            noise = meta.random.normal(h.shape)
            less = meta.random.uniform(())
            return meta.cond(noise.sum() > 0.0, lambda: masked + noise * h, lambda: masked - less), ()

        h = meta.scan(inner, carry + x, length=3)[0]
        return h * meta.random.uniform(h.shape), h

    last, items = meta.scan(outer, meta.random.normal(xs.shape[1:]), xs, reverse=reverse)
    return (last + items * meta.random.normal(last.shape)).sum()


@pytest.mark.parametrize("reverse", [False, True])
def test_loops_draw_the_random_numbers_of_eager_code(reverse: bool) -> None:
    def step(xs: Any) -> Any:
        loss = _drawing(xs, reverse)
        loss.backward()
        return loss

    compiled = meta.vm.compile(meta.trace(step))
    results: list[Any] = []
    for run in (step, compiled):
        xs = _normal(4, 2, 3)
        xs.requires_grad = True
        meta.random.seed(7)
        losses = [run(xs).item(), run(xs).item()]
        assert losses[0] != losses[1]
        results.append((losses, xs.grad.numpy(), meta.random.default_generator.state))
    (losses, grad, state), (others, other, end) = results
    np.testing.assert_allclose(others, losses, rtol=1e-5)
    np.testing.assert_allclose(other, grad, rtol=1e-4, atol=1e-5)
    assert state[0] == end[0]


def test_loops_take_keys_for_all_of_their_steps() -> None:
    def halve(x: Any) -> Any:
        return meta.while_loop(
            lambda v: v.sum() > 1.0, lambda v: v * meta.random.uniform(v.shape), x, max_steps=40
        )  # fmt: skip

    meta.random.seed(2)
    expected = halve(_normal(3) + 5.0).numpy()
    state = meta.random.default_generator.state[1]
    meta.random.seed(2)
    compiled = meta.vm.compile(meta.trace(halve))
    np.testing.assert_allclose(compiled(_normal(3) + 5.0).numpy(), expected, rtol=1e-6)
    assert 1 < state < meta.random.default_generator.state[1] == 40
    scan = meta.trace(lambda xs: meta.scan(lambda c, x: (c + meta.random.normal(()), x), 0.0, xs)[0])
    assert meta.vm.compile(scan)(meta.ones((0,))).item() == 0.0
    generator = meta.random.Generator(5)
    own = meta.trace(
        lambda: meta.scan(lambda c, _: (c + meta.random.normal((), generator=generator), ()), 0.0, length=3)[0]
    )
    drawn_by_own = meta.vm.compile(own)().item()
    assert generator.state == (5, 3)
    generator.seed(5)
    assert drawn_by_own == pytest.approx(sum(meta.random.normal((), generator=generator).item() for _ in range(3)))


def test_random_numbers_need_a_bound_on_the_steps() -> None:
    def grow(x: Any) -> Any:
        return meta.while_loop(lambda v: v < 1.0, lambda v: v + meta.random.uniform(()), x)

    problem = r"\[while_loop\] random numbers are drawn in a loop whose number of steps is not known .*pass max_steps="
    with pytest.raises(TraceError, match=problem):
        meta.trace(grow).record(meta.zeros(()))
    scan = meta.trace(lambda xs: meta.scan(lambda c, x: (c + meta.random.normal(()), x), 0.0, xs)[0])
    with pytest.raises(TraceError, match=r"\[scan\] random numbers are drawn .*a length that is not symbolic"):
        meta.vm.compile(scan, dynamic={"xs": {0: "n"}})(meta.ones((3,)))
