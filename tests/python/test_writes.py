"""Writes in place and gradients: one rule in eager code, on the interpreter, in programs, jvp, vjp and vmap."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import meta
from meta.autograd import jvp, vjp, vmap
from meta.errors import GradientError, NotSupportedError, TraceError
from scripts.fuzz_writes import judge
from scripts.write_functions import random_function


def leaf(*values: float) -> Any:
    return meta.array(values or (1.0, 2.0, 3.0), requires_grad=True)


def ways(f: Callable[..., Any]) -> list[Callable[..., Any]]:
    """A function eagerly and compiled."""
    return [f, meta.vm.compile(meta.trace(f))]


def element(v: Any, y: Any) -> None:
    del v
    y[0] = 7.0


def mask(v: Any, y: Any) -> None:
    y[v > 1.5] = 7.0


def masked_values(v: Any, y: Any) -> None:
    y[v > 1.5] = (v * v)[:2]


def positions(v: Any, y: Any) -> None:
    y[[0, 2]] = v[1:] * 3.0


def tensor_positions(v: Any, y: Any) -> None:
    y[meta.array([1, 0])] += v[:2]


def axis(v: Any, y: Any) -> None:
    y[..., 0] = v.sum()


def whole(v: Any, y: Any) -> None:
    y[:] *= 2.0
    y.update(y + v)


def without_gradients(v: Any, y: Any) -> None:
    with meta.no_grad():
        y += v
        y[1] = 5.0


def through_detach(v: Any, y: Any) -> None:
    y.detach()[1:] = v.detach()[1:] * 4.0


def view_without_gradients(v: Any, y: Any) -> None:
    with meta.no_grad():
        y[None].update(v[None] * 3.0)


WRITES = {
    element: [7.0, 8.0, 12.0], mask: [4.0, 7.0, 7.0], masked_values: [8.0, 13.0, 4.0], positions: [6.0, 11.0, 18.0],
    tensor_positions: [8.0, 10.0, 12.0], axis: [7.0, 9.0, 13.0], whole: [10.0, 20.0, 30.0],
    without_gradients: [5.0, 9.0, 15.0], through_detach: [4.0, 12.0, 18.0],
    view_without_gradients: [5.0, 10.0, 15.0],
}  # fmt: skip


@pytest.mark.parametrize("write", WRITES, ids=lambda w: w.__name__)
def test_the_rest_keeps_its_gradient(write: Callable[[Any, Any], None]) -> None:
    def f(v: Any) -> Any:
        y = v * 2.0
        write(v, y)
        return (y * v).sum()

    def gradient(x: Any) -> Any:
        return vjp(f, x)[1](meta.ones(()))[0]

    def inside(v: Any, x: Any) -> Any:
        f(v).backward()
        return v.grad, gradient(x), vmap(gradient)(x[None])[0], jvp(f, (x,), (meta.ones((3,)),))[1]

    expected = WRITES[write]
    for run in ways(inside):
        *gradients, tangent = run(leaf(), leaf().detach())
        assert [g.tolist() for g in gradients] == [expected] * 3
        if "without" not in write.__name__:  # which forward mode ignores, as in torch
            assert tangent.item() == sum(expected)
    for run in ways(f) if write in (element, mask, without_gradients) else (f,):  # compilations take long
        v = leaf()
        run(v).backward()
        assert v.grad.tolist() == expected


def test_results_without_gradients_have_none() -> None:
    def f(x: Any) -> Any:
        with meta.no_grad():
            x[0] = 4.0
            return x * x

    for run in ways(lambda x: vjp(f, x)[1](meta.ones((3,)))[0]):
        assert run(leaf().detach()).tolist() == [0.0, 0.0, 0.0]


def test_forward_mode_ignores_no_grad() -> None:
    def f(x: Any) -> Any:
        z = x * 2.0
        with meta.no_grad():
            z *= 3.0
        return z * x

    assert jvp(f, (leaf().detach(),), (meta.ones((3,)),))[1].tolist() == [12.0, 24.0, 36.0]
    assert vjp(f, leaf().detach())[1](meta.ones((3,)))[0].tolist() == [8.0, 16.0, 24.0]


@pytest.mark.parametrize(
    "view", [lambda x: x[None], lambda x: x.reshape((3, 1)), lambda x: x.expand_dims(0), lambda x: x.detach()],
    ids=["index", "reshape", "expand_dims", "detach"],
)  # fmt: skip
def test_views_write_through(view: Callable[[Any], Any]) -> None:
    def f(x: Any) -> Any:
        v = view(x)
        v *= 2.0
        return (x * x).sum()

    def x() -> Any:
        return meta.array([1.0, 2.0, 3.0])

    runs = [
        f, meta.vm.compile(meta.trace(f)), lambda x: jvp(f, (x,), (x,))[0], lambda x: vjp(f, x)[0],
        lambda x: vmap(f)(x[None])[0], meta.vm.compile(meta.trace(lambda x: vjp(f, x)[0])),
    ]  # fmt: skip
    assert [run(x()).item() for run in runs] == [56.0] * len(runs)


def test_leaves_written_without_gradients_keep_theirs() -> None:
    def scaled(x: Any) -> Any:
        with meta.no_grad():
            x *= -2.0
        return (x * x).sum()

    def element(x: Any) -> Any:
        with meta.no_grad():
            x[0] = 5.0
        return (x * x).sum()

    for f, expected in ((scaled, [-4.0, -8.0, -12.0]), (element, [10.0, 4.0, 6.0])):
        for run in ways(f):
            x = leaf()
            run(x).backward()
            assert x.grad.tolist() == expected


def test_a_program_records_its_writes_to_arguments() -> None:
    def add(total: Any, w: Any) -> Any:
        total *= w
        total[0] = w.sum()
        with meta.no_grad():
            total += 1.0
        return w * 1.0

    for tracked in (False, True):
        results: list[Any] = []
        for run in ways(add):
            w = leaf()
            total = w * 5.0 if tracked else meta.ones((3,))
            run(total, w)
            (total * w).sum().backward()
            results.append((total.tolist(), w.grad.tolist()))  # type: ignore[union-attr]
        assert results[0] == results[1]
    compiled = meta.vm.compile(meta.trace(add))
    compiled(meta.ones((3,)), leaf())
    with pytest.raises(GradientError, match=r"\[vm\] .*is a leaf that requires grad"):
        compiled(leaf(), leaf())


def test_values_that_a_gradient_saved() -> None:
    def f(x: Any) -> Any:
        z = meta.tanh(x)
        with meta.no_grad():
            z[...] = meta.sign(z)
        (z + x * x).sum().backward()
        return x.grad

    for run in ways(f):
        with pytest.raises(GradientError, match=r"\[tanh\] a value of shape \(3,\) .*was modified in place"):
            run(leaf())
    x, buffer = leaf().detach(), meta.ones((3,))
    _, pullback = vjp(lambda x: x * buffer, x)
    buffer += 1.0
    with pytest.raises(GradientError, match="was modified in place"):
        pullback(meta.ones((3,)))


def test_arrays_made_inside_of_transformations() -> None:
    def f(x: Any) -> Any:
        y, z = meta.zeros((3,)), meta.array([1.0, 0.0, 0.0])
        y[0] = x.sum()
        y += x
        with meta.no_grad():
            z += 1.0
        z[None][0, 1] = x[0]
        return (y * z * x).sum()

    x = leaf().detach()
    gradient = vjp(f, x)[1](meta.ones(()))[0]
    assert gradient.tolist() == [22.0, 6.0, 8.0]
    for run in ways(lambda x: jvp(f, (x,), (meta.ones((3,)),))[1]):
        assert run(x).item() == 36.0
    assert vmap(f)(meta.stack([x, x * 2.0])).tolist() == [f(x).item(), f(x * 2.0).item()]


@pytest.mark.parametrize(
    "transform", [lambda f, x: vjp(f, x), lambda f, x: jvp(f, (x,), (x,)), lambda f, x: vmap(f)(x)]
)
def test_captured_arrays_refuse_values_of_a_transformation(transform: Callable[[Any, Any], Any]) -> None:
    buffer = meta.zeros((3,))

    def f(x: Any) -> Any:
        buffer[0] = x.sum()
        return x * 1.0

    with pytest.raises(NotSupportedError, match=r"\[setitem\] a tensor of shape \(3,\) from outside of \w+ is written"):
        transform(f, meta.ones((2, 3)))
    assert not buffer.numpy().any()


def test_vmap_writes_along_the_axis_of_each_call() -> None:
    def f(x: Any) -> Any:
        y = x * 1.0
        y[1:] = x.sum()
        y[x > 2.5] = x[0]
        return y

    x = meta.arange(6.0).reshape((2, 3))
    assert vmap(f)(x).tolist() == [f(x[0]).tolist(), f(x[1]).tolist()]


def test_steps_write_their_carry_alone() -> None:
    def f(x: Any) -> Any:
        def step(c: Any, e: Any) -> Any:
            c += e
            return c, c

        c, items = meta.scan(step, x, meta.ones((2, 3)))
        d = meta.while_loop(lambda c: c.sum() < 20.0, lambda c: step(c, 1.0)[0], c, max_steps=4)
        return c.sum() + x.sum(), items, d

    for run in ways(f):
        total, items, d = run(meta.array([1.0, 2.0, 3.0]))
        assert (total.item(), items.tolist(), d.tolist()) == (18.0, [[2, 3, 4], [3, 4, 5]], [6, 7, 8])


def test_branches_write_tensors_of_their_own() -> None:
    def f(x: Any) -> Any:
        def branch(t: Any) -> Any:
            y = t * 1.0
            y[0] = t.sum()
            return y

        return meta.cond(x.sum() > 0.0, branch, lambda t: t * 0.0, x)

    def g(x: Any) -> Any:
        y = x * 1.0

        def branch() -> Any:
            y[0] = 1.0
            return y * 1.0

        return meta.cond(x.sum() > 0.0, branch, lambda: x)

    for run in ways(f):
        assert run(meta.array([1.0, 2.0])).tolist() == [3.0, 2.0]
    with pytest.raises(TraceError, match=r"\[cond\] 'a tensor of shape \(2,\)' is written in place inside"):
        meta.trace(g).ir(meta.array([1.0, 2.0]))


def test_a_step_through_a_cond() -> None:
    def run(compiled: bool) -> Any:
        w = leaf()

        def step(x: Any) -> Any:
            w.grad = None
            (w * x).sum().backward()
            with meta.no_grad():
                w.update(meta.cond(x.sum() > 0.0, lambda: w - 0.5 * w.grad, lambda: w))  # type: ignore[operator]
            return (w * w).sum()

        call = meta.vm.compile(meta.trace(step)) if compiled else step
        losses = [call(meta.ones((3,))) for _ in range(2)]
        losses[-1].backward()
        return [x.tolist() for x in (*losses, w, w.grad)]

    assert run(False) == run(True)


def test_results_of_derivatives_have_their_own_memory() -> None:
    def f(x: Any) -> Any:
        y, pullback = vjp(lambda a: a, x)
        dy = meta.ones((3,))
        (gradient,) = pullback(dy)
        first, second = meta.autograd.grad([y + x], [y, x], [dy])
        for z in (y, gradient, first):
            z += 1.0
        return x * 1.0, y, dy * 1.0, gradient, first, second

    x = leaf()
    results = [[y.tolist() for y in run(x)] for run in ways(f)]
    assert results[0] == results[1]
    assert results[0][0] == [1.0, 2.0, 3.0]


def test_straight_through_has_the_gradient_of_its_source() -> None:
    x, source = leaf(), leaf()
    y = meta.straight_through(x * x, source * 3.0)
    (y * y).sum().backward()
    assert (y.tolist(), x.grad, source.grad.tolist()) == ([1.0, 4.0, 9.0], None, [6.0, 24.0, 54.0])
    values, tangents = jvp(lambda s: meta.straight_through(x.detach(), s * s), (source.detach(),), (meta.ones((3,)),))
    assert (values.tolist(), tangents.tolist()) == ([1.0, 2.0, 3.0], [2.0, 4.0, 6.0])


@pytest.mark.parametrize("index", range(25))
def test_random_functions_agree_with_torch(index: int) -> None:
    outcome, findings = judge(random_function(0, index), compiled=index < 3)
    assert findings == []
    assert outcome in ("right", "refused", "large")
