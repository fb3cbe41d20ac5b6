"""Gradients of compiled calls: those that the tape records, and those that `backward` inside a program leaves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import meta
from meta import nn, optim
from meta.errors import GradientError


class MLP(meta.Model):
    """Two layers, the first one applied twice, with a dropout that keeps its mask."""

    def build(self) -> None:
        self.inner = nn.Linear(6, 6)
        self.last = nn.Linear(6, 3)
        self.unused = nn.Linear(2, 2)

    def forward(self, x: Any) -> Any:
        return self.last(meta.tanh(self.inner(meta.tanh(self.inner(x)))))


def data() -> tuple[meta.NDArray, meta.NDArray]:
    x = np.random.default_rng(0).standard_normal((5, 6)).astype("float32")
    return meta.array(x), meta.array([0, 1, 2, 1, 0])


def take_gradients(*arrays: meta.NDArray) -> list[Any]:
    """Their `.grad` as NumPy arrays; drops them."""
    out = [None if x.grad is None else x.grad.numpy().copy() for x in arrays]
    for x in arrays:
        x.grad = None
    return out


def assert_equal(ours: list[Any], theirs: list[Any]) -> None:
    """Equal up to rounding, of the largest element: those of normalisations are differences of larger numbers."""
    assert [g is None for g in ours] == [g is None for g in theirs]
    for a, b in zip(ours, theirs, strict=True):
        if a is not None:
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=2e-6 * max(float(np.abs(b).max(initial=0.5)), 0.5))


def check_like_eager(function: Callable[..., Any], inputs: list[Any], arrays: list[Any], calls: int = 2) -> None:
    """The results of repeated calls, summed, give the same `.grad` eagerly and compiled."""
    compiled = meta.vm.compile(meta.trace(function))
    gradients: list[list[Any]] = []
    for run in (function, compiled):
        for _ in range(calls):
            results = run(*inputs)
            results = results if isinstance(results, tuple) else (results,)
            floating = [r for r in results if r.requires_grad]
            meta.autograd.backward(floating, [meta.ones_like(r) * 0.5 for r in floating])
        gradients.append(take_gradients(*arrays))
    assert_equal(gradients[1], gradients[0])
    assert any(g is not None for g in gradients[0])


def test_a_model_with_a_shared_layer() -> None:
    model = MLP()
    x, target = data()
    check_like_eager(lambda x, t: meta.cross_entropy(model(x), t), [x, target], [*model.parameters(), x])
    x.requires_grad = True
    check_like_eager(lambda x, t: meta.cross_entropy(model(x), t), [x, target], [*model.parameters(), x])


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "several results": lambda x, y: (meta.exp(x) * y, meta.sum(x, 0), y - x),
    "a result that depends on one input": lambda x, y: (meta.tanh(x), meta.tanh(y)),
    "a result without gradient": lambda x, y: (meta.argmax(x, 1), x * y, (x * y).detach(), x > y),
    "the gradient is the incoming one": lambda x, y: x + y,
    "one value twice": lambda x, y: (x * y,) * 2,
    "an input as a result": lambda x, y: (x, x * y),
    "a tuple inside": lambda x, y: meta.split(x * y, 2, 0)[0] * 2.0,
    "a list": lambda x, y: meta.concatenate([x, y * x, x], 1),
    "a view": lambda x, y: meta.reshape(x * y, (-1,)),
    "statistics": lambda x, y: meta.layer_norm(x * y, y[0], x[1]),
    "a constant": lambda x, y: x * meta.array([2.0, 3.0, 4.0]) + y,
    "no_grad inside": lambda x, y: x * _without_gradient(y),
}


def _without_gradient(y: Any) -> Any:
    with meta.no_grad():
        return meta.exp(y)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str) -> None:
    generator = np.random.default_rng(1)
    inputs = [meta.array(generator.standard_normal((4, 3)), dtype="float32", requires_grad=True) for _ in range(2)]
    check_like_eager(FUNCTIONS[name], inputs, inputs)


def test_one_of_two_inputs_requires_gradients() -> None:
    x, y = meta.array([1.0, 2.0], requires_grad=True), meta.array([3.0, 4.0])
    for function in (FUNCTIONS["several results"], FUNCTIONS["a result that depends on one input"]):
        check_like_eager(lambda x, y, function=function: function(x, y), [x, y], [x, y])


def test_one_array_as_input_and_state() -> None:
    w = meta.array([1.0, 2.0], requires_grad=True)
    check_like_eager(lambda x, y: x * w * y, [w, w], [w])


def test_results_in_nests_and_calls_by_name() -> None:
    compiled = meta.vm.compile(meta.trace(lambda x, scale=2.0: {"y": x * scale, "rest": [x.detach(), "name"]}))
    x = meta.array([1.0, 2.0], requires_grad=True)
    actual = compiled(x=x, scale=3.0)
    assert actual["rest"][1] == "name"
    assert not actual["rest"][0].requires_grad
    actual["y"].sum().backward()
    assert take_gradients(x)[0].tolist() == [3.0, 3.0]


def test_gradients_flow_through_eager_and_compiled_parts() -> None:
    square = meta.vm.compile(meta.trace(lambda x: x * x))
    x = meta.array([1.0, 2.0], requires_grad=True)
    (square(square(x * 2.0) + 1.0).sum() * 3.0).backward()
    v = x.detach().numpy() * 2
    np.testing.assert_allclose(take_gradients(x)[0], 3 * 2 * (v * v + 1) * 2 * v * 2, rtol=1e-6)


def test_random_numbers_equal_the_numbers_of_the_forward_pass() -> None:
    compiled = meta.vm.compile(meta.trace(lambda x: meta.dropout(x, meta.random.next_key(), 0.5)[0] * x))
    x = meta.array(np.linspace(1.0, 2.0, 64), dtype="float32", requires_grad=True)
    for _ in range(2):
        y = compiled(x)
        y.sum().backward()
        np.testing.assert_allclose(take_gradients(x)[0], 2 * y.detach().numpy() / x.detach().numpy(), rtol=1e-5)


def test_state_that_the_program_writes() -> None:
    model = nn.BatchNorm2d(2)
    twin = nn.BatchNorm2d(2)
    compiled = meta.vm.compile(model)
    x = meta.array(np.random.default_rng(0).standard_normal((3, 2, 4, 4)), dtype="float32")
    for run in (compiled, twin):
        for _ in range(2):
            meta.sum(run(x) * x).backward()
    assert_equal(take_gradients(*model.parameters()), take_gradients(*twin.parameters()))
    np.testing.assert_allclose(model.running_mean.numpy(), twin.running_mean.numpy(), rtol=1e-5)


def test_trains_with_the_optimizer_outside() -> None:
    x, target = data()
    losses: list[list[float]] = []
    initial: dict[str, Any] = {}
    for compiled in (False, True):
        model = MLP()
        model.load_state_dict(initial or {n: v.detach().numpy().copy() for n, v in model.state_dict().items()})
        initial = initial or {n: v.detach().numpy().copy() for n, v in model.state_dict().items()}
        optimizer = optim.SGD(model, 0.1, 0.9)
        function = meta.trace(lambda x, t, model=model: meta.cross_entropy(model(x), t))
        run: Any = meta.vm.compile(function) if compiled else function
        losses.append([])
        for _ in range(6):
            loss = run(x, target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses[-1].append(float(loss))
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)
    assert losses[1][-1] < losses[1][0]


def test_records_nothing_without_need() -> None:
    model = MLP()
    executor = meta.vm.compile(model)
    x, _ = data()
    with meta.no_grad():
        assert not executor(x).requires_grad
    assert executor(x).requires_grad
    model.infer_mode()
    assert not executor(x).requires_grad
    x.requires_grad = True
    executor(x).sum().backward()
    assert x.grad is not None
    assert all(p.grad is None for p in model.parameters())


def test_parameters_frozen_after_compilation_get_no_gradients() -> None:
    model = MLP()
    executor = meta.vm.compile(model)
    x, _ = data()
    executor(x).sum().backward()
    model.zero_grad()
    model.inner.w.requires_grad = False
    executor(x).sum().backward()
    assert model.inner.w.grad is None
    assert model.inner.b.grad is not None


def test_refuses_what_it_cannot_do() -> None:
    compiled = meta.vm.compile(meta.trace(lambda x: meta.exp(x) * x))
    x = meta.array([1.0, 2.0], requires_grad=True)
    with pytest.raises(GradientError, match=r"\[vm\] the gradient of a compiled call is differentiated; .* eagerly"):
        meta.autograd.grad(compiled(x).sum(), [x], create_graph=True)
    y = compiled(x).sum()
    y.backward()
    with pytest.raises(GradientError, match="freed by an earlier backward"):
        y.backward()
    z = compiled(x).sum()
    z.backward(retain_graph=True)
    z.backward()
    late = compiled(x).sum()
    with meta.no_grad():
        x.update(meta.array([3.0, 4.0]))
    with pytest.raises(GradientError, match="was modified in place"):
        late.backward()


def test_an_update_leaves_the_gradient_of_the_old_value() -> None:
    """As a write under `no_grad`: an update has no gradient."""
    compiled = meta.vm.compile(meta.trace(lambda x: (meta.sgd(x * 1.0, x, meta.zeros_like(x), 0.5)[0], x > 0.0)))
    x = meta.array([1.0], requires_grad=True)
    result, positive = compiled(x)
    assert result.detach().tolist() == [0.5]
    assert result.requires_grad
    assert not positive.requires_grad
    result.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [1.0]


# --- backward inside -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clears", [False, True])
def test_backward_inside_leaves_gradients(clears: bool) -> None:
    """Added to those from before, or in their place where the function drops these first."""
    x, target = data()
    x.requires_grad = True
    model = MLP()

    def step(x: Any, target: Any) -> Any:
        if clears:
            model.zero_grad()
        loss = meta.cross_entropy(model(x), target)
        loss.backward()
        return loss.detach()

    arrays = [*model.parameters(), x]
    gradients: list[list[Any]] = []
    for run in (step, meta.vm.compile(meta.trace(step))):
        for p in arrays:
            p.grad = meta.ones_like(p).detach()
        for _ in range(3):
            run(x, target)
        gradients.append(take_gradients(*arrays))
    assert_equal(gradients[1], gradients[0])


def test_compiled_gradients_for_an_optimizer_outside() -> None:
    x, target = data()
    values: list[list[Any]] = []
    initial: dict[str, Any] = {}
    for compiled in (False, True):
        model = MLP()
        initial = initial or {n: v.detach().numpy().copy() for n, v in model.state_dict().items()}
        model.load_state_dict(initial)
        optimizer = optim.SGD(model, 0.1, 0.9)

        def step(x: Any, t: Any, model: MLP = model) -> Any:
            loss = meta.cross_entropy(model(x), t)
            loss.backward()
            return loss

        run: Any = meta.vm.compile(meta.trace(step)) if compiled else step
        for _ in range(3):
            optimizer.zero_grad()
            run(x, target)
            optimizer.step()
        values.append([v.detach().numpy() for v in model.parameters()])
    assert_equal(values[1], values[0])


def test_gradients_have_memory_of_their_own() -> None:
    a, b = (meta.array([1.0, 2.0], requires_grad=True) for _ in range(2))

    def step(dy: Any) -> Any:
        y = a + b
        y.backward(dy)
        return y.detach()

    dy = meta.array([1.0, 1.0])
    meta.vm.compile(meta.trace(step))(dy)
    outside = meta.vm.compile(meta.trace(lambda: a + b))()
    for first, second in ((a, b), (b, a)):
        assert first.grad is not None
        assert second.grad is not None
        before = second.grad.numpy().copy()
        first.grad[:] = 7.0
        np.testing.assert_array_equal(second.grad.numpy(), before)
        assert dy.tolist() == [1.0, 1.0]
    take_gradients(a, b)
    outside.backward(dy)
    assert a.grad is not None
    a.grad[:] = 7.0
    assert b.grad is not None
    assert b.grad.tolist() == dy.tolist() == [1.0, 1.0]


def test_freezing_changes_a_program_with_backward_inside() -> None:
    model = nn.Linear(3, 2)
    step = optim.sgd.with_sgd(0.5)(model, loss=lambda y, t: meta.mse_loss(y, t))
    compiled = meta.vm.compile(step)
    x, t = meta.ones((4, 3)), meta.zeros((4, 2))
    compiled(x, t)
    assert all(p.grad is None for p in model.parameters())
    model.w.requires_grad = False
    before = [p.detach().numpy().copy() for p in model.parameters()]
    compiled(x, t)
    changed = [bool((p.detach().numpy() != b).any()) for p, b in zip(model.parameters(), before, strict=True)]
    assert changed == [False, True]
    model.w.requires_grad = True
    compiled(x, t)
    assert (model.w.detach().numpy() != before[0]).any()
