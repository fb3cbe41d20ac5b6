"""Conditionals and loops: eager, traced, on the interpreter and on the VM, with gradients, against NumPy and torch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import meta
from meta import nn
from meta.dim import sym
from meta.interpreter.run import run as interpret
from meta.ir.type import tensor_type
from meta.ir.verifier import verify
from meta.passes.standard import standard

STEPS, BATCH, INPUTS, HIDDEN = 6, 2, 3, 4


def _normal(*shape: int, seed: int = 0, scale: float = 0.5) -> meta.NDArray:
    return meta.array((np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float32))


def _values(result: Any) -> list[np.ndarray[Any, Any]]:
    return [x.detach().numpy() for x in result]


def _agree(function: Callable[..., Any], *args: Any) -> list[np.ndarray[Any, Any]]:
    """The results of a function that returns a tuple of tensors, the same eagerly, on the interpreter before and after
    the passes, and on the VM."""
    eager = _values(function(*args))
    record = meta.trace(function).record(*args)
    state = [x for _, x in record.state]
    with meta.no_grad():
        for module in (record.module, standard()(record.module)):
            verify(module)
            for a, b in zip(_values(interpret(module, *args, *state)), eager, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    for a, b in zip(_values(meta.vm.compile(meta.trace(function))(*args)), eager, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    return eager


class _Weights:
    def __init__(self) -> None:
        self.w = _normal(INPUTS, 4 * HIDDEN, seed=1)
        self.u = _normal(HIDDEN, 4 * HIDDEN, seed=2)
        self.b = _normal(4 * HIDDEN, seed=3)
        self.all = (self.w, self.u, self.b)
        for x in self.all:
            x.requires_grad = True

    def cell(self, state: Any, x: Any) -> Any:
        h, c = state
        i, f, g, o = meta.split(x @ self.w + h @ self.u + self.b, 4, axis=1)
        c = meta.sigmoid(f) * c + meta.sigmoid(i) * meta.tanh(g)
        h = meta.sigmoid(o) * meta.tanh(c)
        return (h, c), h


@pytest.mark.parametrize("reverse", [False, True])
def test_an_lstm_by_scan_has_the_values_and_gradients_of_torch(reverse: bool) -> None:
    torch = pytest.importorskip("torch")
    weights, xs = _Weights(), _normal(STEPS, BATCH, INPUTS, seed=4)
    zeros = meta.zeros((BATCH, HIDDEN))

    def step(xs: Any) -> Any:
        for p in weights.all:
            p.grad = None
        (_, c), hs = meta.scan(weights.cell, (zeros, zeros), xs, reverse=reverse)
        loss = (hs * hs).sum() + c.sum()
        loss.backward()
        return loss, hs, *(p.grad for p in weights.all)

    loss, hs, dw, du, db = _agree(step, xs)
    lstm = torch.nn.LSTM(INPUTS, HIDDEN)
    with torch.no_grad():
        for name, value in (("weight_ih_l0", weights.w), ("weight_hh_l0", weights.u), ("bias_ih_l0", weights.b)):
            getattr(lstm, name).copy_(torch.tensor(value.detach().numpy().T))
        lstm.bias_hh_l0.zero_()
    source = torch.tensor(xs.numpy())
    out, (_, last) = lstm(source.flip(0) if reverse else source)
    out = out.flip(0) if reverse else out
    total = (out * out).sum() + last.sum()
    total.backward()
    np.testing.assert_allclose(loss, total.detach().numpy(), rtol=1e-5)
    np.testing.assert_allclose(hs, out.detach().numpy(), rtol=1e-5, atol=1e-6)
    for ours, theirs in ((dw, lstm.weight_ih_l0), (du, lstm.weight_hh_l0)):
        np.testing.assert_allclose(ours, theirs.grad.numpy().T, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(db, lstm.bias_ih_l0.grad.numpy(), rtol=1e-4, atol=1e-5)


def test_gradients_reach_the_first_carry_and_the_elements_and_second_order_gradients_exist() -> None:
    w = _normal(HIDDEN, HIDDEN, seed=5)

    def second(h: Any, xs: Any, w: Any) -> Any:
        h.requires_grad = xs.requires_grad = w.requires_grad = True
        last, sums = meta.scan(lambda c, x: ((y := meta.tanh(c @ w) * x), y.sum()), h, xs)
        loss = (last * last).sum() + (sums * sums).sum()
        first = meta.autograd.grad(loss, (h, xs, w), create_graph=True)
        norm = sum((g * g).sum() for g in first)
        return (*first, *meta.autograd.grad(norm, (h, xs, w)))

    args = (_normal(BATCH, HIDDEN, seed=6), _normal(3, BATCH, HIDDEN, seed=7), w)
    results = _agree(second, *args)

    def norm(h: np.ndarray[Any, Any]) -> float:
        x = [meta.array(h.astype(np.float64)), *(meta.array(a.detach().numpy().astype(np.float64)) for a in args[1:])]
        return float(sum((g.detach().numpy() ** 2).sum() for g in second(*x)[:3]))

    point, direction = (
        args[0].detach().numpy().astype(np.float64),
        np.random.default_rng(8).standard_normal((BATCH, HIDDEN)),
    )
    slope = (norm(point + 1e-5 * direction) - norm(point - 1e-5 * direction)) / 2e-5
    np.testing.assert_allclose((results[3] * direction).sum(), slope, rtol=1e-3)


def test_a_gradient_outside_of_the_compiled_call_goes_through_the_loop() -> None:
    weights, xs = _Weights(), _normal(STEPS, BATCH, INPUTS, seed=4)
    zeros = meta.zeros((BATCH, HIDDEN))

    def forward(xs: Any) -> Any:
        return meta.scan(weights.cell, (zeros, zeros), xs)[1].sum()

    forward(xs).backward()
    expected = [p.grad.numpy().copy() for p in weights.all]
    for p in weights.all:
        p.grad = None
    meta.vm.compile(meta.trace(forward))(xs).backward()
    for p, e in zip(weights.all, expected, strict=True):
        np.testing.assert_allclose(p.grad.numpy(), e, rtol=1e-5, atol=1e-6)


def test_one_program_serves_loops_of_any_length() -> None:
    n = sym("n")

    @meta.trace
    def total(xs: Any) -> Any:
        xs.requires_grad = True
        last, sums = meta.scan(lambda c, x: (c * 0.5 + x, c.sum()), meta.zeros((2,)), xs)
        loss = (last * last).sum() + sums.sum()
        return loss, meta.autograd.grad(loss, xs)[0]

    executor = meta.vm.compile(total.record(tensor_type((n, 2), "float32")).module)
    for length in (1, 4, 0):
        xs = _normal(length, 2, seed=length)
        loss, dx = executor(xs)
        expected = total(xs.detach()) if length else (meta.zeros(()), meta.zeros((0, 2)))
        np.testing.assert_allclose(loss.numpy(), expected[0].detach().numpy(), rtol=1e-5)
        np.testing.assert_allclose(dx.numpy(), expected[1].detach().numpy(), rtol=1e-5)


def test_scan_without_elements_counts_steps_and_carries_integers_and_flags() -> None:
    def step(state: Any, _: Any) -> Any:
        count, flag, x = state["count"], state["flag"], state["x"]
        return {"count": count + 1, "flag": ~flag, "x": meta.where(flag, x * 2.0, x)}, (count, {"x": x})

    def run(x: Any) -> Any:
        last, (counts, items) = meta.scan(step, {"count": 0, "flag": True, "x": x}, length=4)
        return last["count"], last["flag"], last["x"], counts, items["x"]

    count, flag, x, counts, items = _agree(run, meta.array([1.0, 3.0]))
    assert (count, flag, x.tolist(), counts.tolist()) == (4, True, [4.0, 12.0], [0, 1, 2, 3])
    assert items[:, 0].tolist() == [1.0, 2.0, 2.0, 4.0]


@pytest.mark.parametrize("number", [np.float32(1.5), np.int8(2), 1j, np.complex64(1j)])
def test_loops_carry_every_number(number: Any) -> None:
    def function(x: Any) -> Any:
        carry, items = meta.scan(lambda c, y: (c * 1, c * y), number, x)
        return carry, items, *meta.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * 1), (np.int64(1), number))

    _agree(function, _normal(3))


def test_scan_of_no_steps_returns_the_carry_and_empty_stacks() -> None:
    def run(xs: Any) -> Any:
        return meta.scan(lambda c, x: (c + x.sum(), x * 2.0), 1.5, xs)

    carry, items = _agree(run, meta.zeros((0, 3)))
    assert carry == 1.5
    assert items.shape == (0, 3)


def test_scans_nest() -> None:
    def run(xs: Any) -> Any:
        xs.requires_grad = True
        inner = lambda c, x: (c * 0.5 + x, ())  # noqa: E731
        last, _ = meta.scan(lambda c, row: (c + meta.scan(inner, 0.0, row)[0], ()), 0.0, xs)
        return last, meta.autograd.grad(last, xs)[0]

    last, dx = _agree(run, _normal(2, 3, seed=9))
    np.testing.assert_allclose(dx, np.tile([0.25, 0.5, 1.0], (2, 1)))
    assert np.isfinite(last)


def test_mixed_precision_casts_inside_of_the_body_and_weights_before_it() -> None:
    weights, xs = _Weights(), _normal(STEPS, BATCH, INPUTS, seed=4)
    zeros = meta.zeros((BATCH, HIDDEN))

    @meta.trace
    def forward(xs: Any) -> Any:
        return meta.scan(weights.cell, (zeros, zeros), xs)[1].sum()

    executor = meta.vm.compile(forward, passes=meta.passes.auto_cast("bfloat16"))
    with meta.no_grad():
        np.testing.assert_allclose(executor(xs).numpy(), forward(xs).numpy(), rtol=0.05)
    main, step = executor.ir(xs).split("def scan")
    assert main.count("cast(%weights.") == 2 or main.count("cast(") >= 2
    assert "cast(%w" not in step
    with meta.amp.autocast("bfloat16"):
        inside = forward(xs)
    np.testing.assert_allclose(inside.detach().numpy(), forward(xs).detach().numpy(), rtol=0.05)


# --- conditionals and loops that end by a condition ------------------------------------------------------------------


def test_cond_runs_one_branch_and_its_gradient() -> None:
    def run(x: Any) -> Any:
        x.requires_grad = True
        y = meta.cond(x.sum() > 0.0, lambda a: meta.exp(a), lambda a: a * 3.0, x)
        return y, meta.autograd.grad(y.sum(), x)[0]

    positive = _agree(run, meta.array([1.0, 2.0]))
    np.testing.assert_allclose(positive[1], np.exp([1.0, 2.0]), rtol=1e-6)
    np.testing.assert_allclose(_agree(run, meta.array([-1.0, -2.0]))[1], [3.0, 3.0])
    assert meta.cond(True, lambda: 1, lambda: 2) == 1


SAME: dict[str, Callable[[Any], Any]] = {  # functions whose result has the values of w
    "cond": lambda w: meta.cond(w.sum() > 0.0, lambda: w, lambda: w * 2.0),
    "cond, another name": lambda w: meta.cond(w.sum() > 0.0, lambda: {"a": w.detach()}, lambda: {"a": w * 2.0})["a"],
    "while_loop of no steps": lambda w: meta.while_loop(lambda c: c.sum() < 0.0, lambda c: c + 1.0, w),
    "while_loop": lambda w: meta.while_loop(lambda c: c.sum() < 9.0, lambda _: w, w * 0.5, max_steps=2),
    "scan of no steps": lambda w: meta.scan(lambda c, _: (c, ()), w, length=0)[0],
    "scan": lambda w: meta.scan(lambda c, _: (w, ()), w * 2.0, length=2)[0],
}


@pytest.mark.parametrize("name", SAME)
def test_results_share_no_memory_with_what_branches_and_bodies_read(name: str) -> None:
    def write(w: Any) -> Any:
        y = SAME[name](w)
        y += 1.0
        return y, w * 1.0

    np.testing.assert_array_equal(_agree(write, meta.array([1.0, 2.0])), [[2.0, 3.0], [1.0, 2.0]])


@pytest.mark.parametrize("name", [n for n in SAME if "name" not in n])
def test_results_have_the_gradients_of_where_they_are_called(name: str) -> None:
    def gradient(w: Any, in_graph: bool) -> Any:
        w.requires_grad = True
        with meta.enable_grad() if in_graph else meta.no_grad():
            y = SAME[name](w)
        return (meta.autograd.grad((y * w).sum(), w)[0],)

    for flag, expected in ((False, [1.0, 2.0]), (True, [2.0, 4.0]))[: 1 if "no steps" in name else 2]:
        np.testing.assert_array_equal(_agree(partial(gradient, in_graph=flag), meta.array([1.0, 2.0])), [expected])


def test_results_that_a_branch_or_body_made_are_not_copied() -> None:
    made: list[int] = []

    def double(x: Any, _: Any = None) -> Any:
        y = x * 2.0
        made.append(id(y))
        return y

    x = meta.ones((2,))
    assert id(meta.cond(x.sum() > 0.0, lambda: (double(x), x), lambda: (x, x))[0]) == made[-1]
    assert id(meta.while_loop(lambda c: c.sum() < 9.0, double, x)) == made[-1]
    assert id(meta.scan(lambda c, _: (double(c), ()), x, length=2)[0]) == made[-1]


def _collatz(n: Any, **bound: Any) -> Any:
    def body(state: Any) -> Any:
        n, steps = state
        return meta.where(n % 2 == 0, n // 2, 3 * n + 1), steps + 1

    return meta.while_loop(lambda s: s[0] > 1, body, (n, 0), **bound)


def test_while_loops_end_by_their_condition() -> None:
    assert _agree(_collatz, meta.array(6))[1] == 8
    assert _agree(_collatz, meta.array(1))[1] == 0
    assert _agree(lambda n: _collatz(n, max_steps=3), meta.array(6))[1] == 3


def test_bounded_while_loops_have_gradients() -> None:
    def run(x: Any) -> Any:
        x.requires_grad = True
        y = meta.while_loop(lambda y: y.sum() < 100.0, lambda y: y * y, x, max_steps=10)
        return y, meta.autograd.grad(y.sum(), x)[0]

    y, dx = _agree(run, meta.array([2.0, 3.0]))
    np.testing.assert_allclose(y, [16.0, 81.0] if 16 + 81 >= 100 else [256.0, 6561.0])
    np.testing.assert_allclose(dx, 8 * np.array([2.0, 3.0]) ** 7)


def test_layers_run_inside_of_bodies() -> None:
    layer = nn.Linear(3, 3)

    def run(xs: Any) -> Any:
        return meta.scan(lambda c, x: (meta.tanh(layer(c) + x), ()), meta.zeros((1, 3)), xs)[:1]

    _agree(run, _normal(4, 1, 3))


def test_loops_that_differ_in_types_alone() -> None:
    def sums(x: Any) -> Any:
        return meta.scan(lambda carry, row: (carry + row, carry * row), x[0] * 0, x)

    programs = [meta.vm.compile(meta.trace(sums)) for _ in range(2)]
    arrays = [meta.array([[1.0, 2.0], [3.0, 4.0]], dtype=dtype) for dtype in ("float32", "float64")]
    for program, x in zip(programs, arrays, strict=True):
        program.program(x)
    for program, x in zip(programs, arrays, strict=True):
        for actual, expected in zip(program(x), sums(x), strict=True):
            assert actual.tolist() == expected.tolist()


@pytest.mark.parametrize("rows", [3, 5])
def test_the_order_of_sizes_decides(rows: int) -> None:
    """Eagerly it is a bool; a program of open sizes has both ways."""

    def run(x: Any) -> Any:
        return meta.cond(x.shape[0] > 4, lambda x: x + 1.0, lambda x: x * x, x)

    x = _normal(rows, 2)
    program = meta.vm.compile(run, dynamic={"x": {0: "n"}})
    program(_normal(8 - rows, 2))
    np.testing.assert_array_equal(program(x).numpy(), run(x).numpy())
