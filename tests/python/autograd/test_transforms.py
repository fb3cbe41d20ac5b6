"""jvp, vjp, jacobian, hessian, hvp and vmap against torch.func in float64: eager, compiled, nested."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch
from torch import func

import meta
from meta.autograd import hessian, hvp, jacobian, jvp, vjp, vmap
from meta.autograd.batch import BatchLevel
from meta.errors import NotSupportedError

with warnings.catch_warnings():  # torch compiles parts of forward mode by torch.jit, which it calls deprecated
    warnings.simplefilter("ignore")
    import_module("torch._decomp.decompositions_for_jvp")

RNG = np.random.default_rng(0)
X, W, B, V = (RNG.normal(size=shape) for shape in ((4, 3), (3, 5), (5,), (4, 3)))


def same(ours: Any, theirs: Any) -> None:
    if isinstance(ours, (tuple, list)):
        assert len(ours) == len(theirs)
        for a, b in zip(ours, theirs, strict=True):
            same(a, b)
        return
    np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), rtol=1e-9, atol=1e-12)


def both(*arrays: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The same values as arrays of meta and tensors of torch."""
    return tuple(map(meta.array, arrays)), tuple(map(torch.tensor, arrays))


def layer(m: Any) -> Callable[..., Any]:
    return lambda x, w, b: (m.tanh(x @ w + b) ** 2).sum()


def rows(m: Any) -> Callable[..., Any]:
    return lambda x: m.softmax(m.sin(x), -1) * x


def energy(m: Any) -> Callable[..., Any]:
    return lambda x: (m.exp(x) * m.sin(x)).sum() ** 2


def gradient(f: Callable[..., Any]) -> Callable[..., Any]:
    def run(x: Any) -> Any:
        y, pullback = vjp(f, x)
        return pullback(meta.ones_like(y))[0]

    return run


# --- one transformation ----------------------------------------------------------------------------------------------


def test_jvp() -> None:
    (xs, ts), moves = both(X, W, B), tuple(RNG.normal(size=a.shape) for a in (X, W, B))
    same(jvp(layer(meta), xs, both(*moves)[0]), func.jvp(layer(torch), ts, both(*moves)[1]))


def test_jvp_of_constants_nests_and_integers() -> None:
    x, indices = meta.array([1.0, 3.0, 2.0]), meta.array([2, 0])

    def f(batch: Any) -> Any:
        return {
            "taken": meta.take(batch["x"], batch["indices"], 0),
            "largest": meta.argmax(batch["x"]),
            "one": [x * 0.0],
        }

    values, tangents = jvp(f, {"x": x, "indices": indices}, {"x": meta.array([1.0, 2.0, 4.0]), "indices": None})
    assert values["taken"].tolist() == [2.0, 1.0]
    assert tangents["taken"].tolist() == [4.0, 1.0]
    assert (tangents["largest"].dtype, tangents["largest"].item()) == (values["largest"].dtype, 0)
    assert tangents["one"][0].tolist() == [0.0, 0.0, 0.0]


def test_a_missing_tangent_is_zeros() -> None:
    _, tangent = jvp(lambda x, y: x * y, (meta.array([2.0]), meta.array([3.0])), (None, meta.array([1.0])))
    assert tangent.tolist() == [2.0]


def test_vjp() -> None:
    xs, ts = both(X, W, B)
    y, pullback = vjp(layer(meta), *xs)
    expected, back = func.vjp(layer(torch), *ts)
    same((y, pullback(meta.ones_like(y))), (expected, back(torch.ones_like(expected))))
    same(pullback(meta.ones_like(y)), back(torch.ones_like(expected)))  # a second time


def test_vjp_of_several_results_and_unused_arguments() -> None:
    (x, y), n = (meta.array([2.0, 3.0]), meta.array([1.0, 1.0])), meta.array([1, 2])
    (a, b), pullback = vjp(lambda x, y, n: (x * x, x + n), x, y, n)
    assert pullback((None, meta.ones_like(b)))[0].tolist() == [1.0, 1.0]
    dx, dy, dn = pullback([meta.ones_like(a), None])
    assert (dx.tolist(), dy.tolist(), dn) == ([4.0, 6.0], [0.0, 0.0], None)


@pytest.mark.parametrize("mode", ["reverse", "forward"])
def test_jacobian(mode: Any) -> None:
    (x,), (t,) = both(X)
    same(jacobian(rows(meta), x, mode=mode), func.jacrev(rows(torch))(t))
    xs, ts = both(X[0], W[:, 0])
    ours = jacobian(lambda a, b: (a * b, meta.sin(a)), xs, mode=mode)
    same(ours, func.jacrev(lambda a, b: (a * b, torch.sin(a)), argnums=(0, 1))(*ts))


def test_hessian_and_hvp() -> None:
    (x, v), (t, u) = both(X, V)
    same(hessian(energy(meta), x), func.hessian(energy(torch))(t))
    same(hvp(energy(meta), x, v), torch.autograd.functional.hvp(energy(torch), t, u))
    xs, ts = both(X, W, B)
    same(hessian(layer(meta), xs), func.hessian(layer(torch), argnums=(0, 1, 2))(*ts))


def test_vmap() -> None:
    (x, w), (t, u) = both(np.stack([X, V, X - V]), W)
    same(vmap(rows(meta))(x), func.vmap(rows(torch))(t))
    same(vmap(meta.matmul, (0, None))(x, w), func.vmap(torch.matmul, (0, None))(t, u))
    same(vmap(meta.matmul, (None, 1), 1)(x[0], w), func.vmap(torch.matmul, (None, 1), 1)(t[0], u))
    axes: Any = ({"x": 2, "w": None},)
    same(vmap(lambda b: b["x"] @ b["w"], axes, -1)({"x": x.transpose((1, 2, 0)), "w": w}),
         func.vmap(lambda b: b["x"] @ b["w"], axes, -1)({"x": t.permute(1, 2, 0), "w": u}))  # fmt: skip
    same(vmap(vmap(meta.matmul, (0, None)), (None, 1))(x[0], w),
         func.vmap(func.vmap(torch.dot, (0, None)), (None, 1))(t[0], u))  # fmt: skip


def test_vmap_of_no_elements_and_of_constants() -> None:
    assert vmap(lambda x: meta.sort(x))(meta.zeros((0, 3))).shape == (0, 3)
    assert vmap(lambda x, y: y, (0, None))(meta.zeros((2, 3)), meta.ones((1,))).tolist() == [[1.0], [1.0]]


def test_vmap_of_random_operators() -> None:
    x = meta.zeros((3, 2))

    def noisy(x: Any) -> Any:
        return x + meta.random.normal((2,))

    with pytest.raises(
        NotSupportedError, match=r"\[normal\] it draws random numbers inside of vmap.*randomness='same'"
    ):
        vmap(noisy)(x)
    numbers = vmap(noisy, randomness="same")(x).numpy()
    assert (numbers == numbers[0]).all()
    numbers = vmap(noisy, randomness="different")(x).numpy()
    assert len(np.unique(numbers)) == 6
    key = meta.random.next_key()
    masks = vmap(lambda x: meta.dropout(x, key)[1], randomness="same")(meta.ones((4, 64))).numpy()
    assert (masks == masks[0]).all()
    masks = vmap(lambda x: meta.dropout(x, key)[1], randomness="different")(meta.ones((4, 64))).numpy()
    assert (masks != masks[0]).any()


COMPLEX: list[Callable[[Any, Any], Any]] = [
    lambda m, z: m.exp(z) * z, lambda m, z: m.abs(z), lambda m, z: m.real(z) * m.imag(z), lambda m, z: z @ z,
    lambda m, z: m.conj(z) * z * 2.0, lambda m, z: m.real(m.exp(m.real(z) * z)),
]  # fmt: skip


@pytest.mark.parametrize("index", range(len(COMPLEX)))
def test_complex(index: int) -> None:
    f = COMPLEX[index]
    (z, v), (t, u) = both(*(RNG.normal(size=(2, 2)) + 1j * RNG.normal(size=(2, 2)) for _ in range(2)))
    expected = func.jvp(lambda z: f(torch, z).resolve_conj(), (t,), (u,))
    same(jvp(lambda z: f(meta, z), z, v), expected)
    y, pullback = vjp(lambda z: f(meta, z), z)
    _, back = func.vjp(lambda z: f(torch, z), t)
    same(pullback(y)[0], back(expected[0])[0].resolve_conj())


# --- nested ----------------------------------------------------------------------------------------------------------


def test_nested() -> None:
    (x, v), (t, u) = both(X, V)
    second = jvp(lambda x: jvp(rows(meta), x, v)[1], x, v)
    same(second, func.jvp(lambda x: func.jvp(rows(torch), (x,), (u,))[1], (t,), (u,)))
    same(vmap(gradient(energy(meta)))(x), func.vmap(func.grad(energy(torch)))(t))
    same(gradient(lambda x: vmap(energy(meta))(x).sum())(x),
         func.grad(lambda x: func.vmap(energy(torch))(x).sum())(t))  # fmt: skip
    same(
        gradient(lambda x: jvp(energy(meta), x, v)[1])(x),
        func.grad(lambda x: func.jvp(energy(torch), (x,), (u,))[1])(t),
    )
    third = jacobian(lambda x: hessian(energy(meta), x), x[0])
    same(third, func.jacrev(func.hessian(energy(torch)))(t[0]))


def _network(m: Any, conv: Any, cross_entropy: Any) -> Callable[..., Any]:
    def loss(w: Any, v: Any, x: Any, target: Any) -> Any:
        y = m.tanh(conv(x[None], w)).reshape((1, -1)) @ v
        return cross_entropy(y, target[None])

    return loss


def test_gradients_of_single_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    """They run once for the batch: no operator is called for each example."""
    monkeypatch.setattr(BatchLevel, "_one_by_one", None)
    values = [RNG.normal(size=shape) for shape in ((2, 3, 2, 2), (8, 5), (4, 3, 3, 3))]
    (w, v, x), (tw, tv, tx) = both(*values)
    classes = np.array([0, 3, 4, 1])
    ours = _network(meta, meta.conv2d, meta.cross_entropy)
    theirs = _network(torch, torch.conv2d, torch.nn.functional.cross_entropy)

    def gradients(x: Any, target: Any) -> Any:
        y, pullback = vjp(lambda w, v: ours(w, v, x, target), w, v)
        return pullback(meta.ones_like(y))

    same(vmap(gradients)(x, meta.array(classes)),
         func.vmap(func.grad(theirs, (0, 1)), (None, None, 0, 0))(tw, tv, tx, torch.tensor(classes)))  # fmt: skip


def test_gradients_of_the_tape_go_through_transformations() -> None:
    (x, v), (t, u) = both(X, V)
    x.requires_grad = True
    t.requires_grad_()
    jvp(rows(meta), x, v)[1].sum().backward()
    func.jvp(rows(torch), (t,), (u,))[1].sum().backward()
    same(x.grad, t.grad)
    with meta.no_grad():
        assert not gradient(energy(meta))(x).requires_grad


def test_values_and_writes_inside() -> None:
    def f(x: Any) -> Any:
        y = x * 2.0
        y[0] = y[1] * x[0]
        y += x
        return y * 3.0 if y.sum().item() > 0 else y

    def g(x: Any) -> Any:
        y = x * 2.0
        y = torch.stack([y[1] * x[0], *y[1:]]) + x
        return y * 3.0

    (x, v), (t, u) = both(np.array([1.0, 2.0, 3.0]), np.array([0.5, -1.0, 2.0]))
    same(jvp(f, x, v), func.jvp(g, (t,), (u,)))
    same(jacobian(f, x), func.jacrev(g)(t))
    assert x.tolist() == [1.0, 2.0, 3.0]


class Cube(meta.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        (x,) = ctx.saved_arrays
        return x * x * dy * 3.0


class CubeWithTangent(Cube):
    @staticmethod
    def jvp(ctx: Any, tangent: Any) -> Any:
        (x,) = ctx.saved_arrays
        return x * x * tangent * 3.0


@pytest.mark.parametrize("function", [Cube, CubeWithTangent])
def test_user_functions(function: Any) -> None:
    (x, v), (t, u) = both(X, V)

    def f(x: Any) -> Any:
        return (function.apply(meta.sin(x)) * x).sum()

    def g(x: Any) -> Any:
        return (torch.sin(x) ** 3 * x).sum()

    same(jvp(f, x, v), func.jvp(g, (t,), (u,)))
    same(hessian(f, x), func.hessian(g)(t))
    same(vmap(f)(x), func.vmap(g)(t))


# --- in traced functions ---------------------------------------------------------------------------------------------


def test_compiled() -> None:
    @meta.trace
    def step(x: Any, v: Any) -> Any:
        _, pullback = vjp(rows(meta), x)
        return jvp(rows(meta), x, v), pullback(v), hessian(energy(meta), x), vmap(gradient(energy(meta)))(x)

    (x, v), (t, u) = both(X, V)
    ours = meta.vm.compile(step)(x, v)
    same(ours[0], func.jvp(rows(torch), (t,), (u,)))
    same(ours[1], func.vjp(rows(torch), t)[1](u))
    same(ours[2], func.hessian(energy(torch))(t))
    same(ours[3], func.vmap(func.grad(energy(torch)))(t))


def _repeated(x: Any) -> Any:
    """A conditional, a scan and a bounded loop."""
    y = meta.cond(x.sum() * 0.0 < 1.0, lambda x: meta.sin(x) * 2.0, meta.cos, x)
    carry, items = meta.scan(lambda c, e: (meta.tanh(c * 0.5 + e), c * e), y[0], y)
    last, _ = meta.while_loop(
        lambda c: c[1] < 2, lambda c: (c[0] * carry, c[1] + 1), (carry, meta.array(0)), max_steps=3
    )
    return (last * items).sum()


def _expected(x: Any) -> Any:
    y = torch.sin(x) * 2.0
    carry, items = y[0], []
    for e in y:
        items.append(carry * e)
        carry = torch.tanh(carry * 0.5 + e)
    return (carry**3 * torch.stack(items)).sum()


def test_control_flow_in_programs() -> None:
    (x, v), (t, u) = both(X, V)

    @meta.trace
    def step(x: Any, v: Any) -> Any:
        return jvp(_repeated, x, v), gradient(_repeated)(x), jvp(lambda x: jvp(_repeated, x, v)[1], x, v)[1]

    ours = meta.vm.compile(step)(x, v)
    same(ours[0], func.jvp(_expected, (t,), (u,)))
    same(ours[1], func.grad(_expected)(t))
    same(ours[2], func.jvp(lambda x: func.jvp(_expected, (x,), (u,))[1], (t,), (u,))[1])
    same(hessian(_repeated, x), func.hessian(_expected)(t))


def test_batches_of_loops_in_programs() -> None:
    def sums(x: Any) -> Any:
        return meta.scan(lambda c, e: (c * 0.5 + e, c * e), meta.zeros((), "float64"), x)

    (x,), _ = both(X)
    ours = meta.vm.compile(meta.trace(vmap(sums)))(x)
    for i in range(4):
        same([ours[0][i], ours[1][i]], list(sums(x[i])))
