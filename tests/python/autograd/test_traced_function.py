"""autograd.Function inside traced and compiled functions: the user's gradients, as in eager calls."""

from __future__ import annotations

import numpy as np
import pytest

import meta
from meta import tracing
from meta.autograd import Function
from meta.errors import GradientError, KernelError, TraceError
from meta.interpreter.run import run
from meta.ir.verifier import verify
from tests.python.recorded import array, assert_equal, execute


class Cube(Function):
    """x ** 3, with a gradient that is not that of x ** 3."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_arrays
        return x * x * 5.0 * dy


class Exp(Function):
    """exp, whose gradient saves the result."""

    @staticmethod
    def forward(ctx, x):
        y = meta.exp(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        return ctx.saved_arrays[0] * dy * 2.0


class Halfway(Function):
    """tanh(x), whose gradient saves an intermediate value and sets tensors as attributes."""

    @staticmethod
    def forward(ctx, x):
        inner = meta.tanh(x)
        ctx.save_for_backward(None, inner)
        ctx.more = {"x": x, "list": [inner, 3.0]}
        return inner * 1.0

    @staticmethod
    def backward(ctx, dy):
        _, inner = ctx.saved_arrays
        return (1.0 - inner * ctx.more["list"][0]) * ctx.more["list"][1] * dy * ctx.more["x"]


class SumAndProduct(Function):
    """Two results, a number and an integer tensor without a gradient."""

    @staticmethod
    def forward(ctx, a, scale, index, b):
        ctx.save_for_backward(a, b)
        ctx.scale = scale
        return a + b, a * b * scale + meta.cast(index, "float32")

    @staticmethod
    def backward(ctx, ds, dp):
        a, b = ctx.saved_arrays
        return ds + dp * b * ctx.scale, None, None, ds * 7.0 + dp * a * ctx.scale


class Marked(Function):
    """The argument itself, and a result that no gradient flows from."""

    @staticmethod
    def forward(ctx, x):
        y = x * 3.0
        ctx.mark_non_differentiable(y)
        return x, y

    @staticmethod
    def backward(ctx, dx, dy):
        assert dy is None
        return -dx


class Nested(Function):
    """Another Function in `forward` and in `backward`."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return Cube.apply(x)

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_arrays
        return Cube.apply(x) * dy


class Scaled(Function):
    """x, with a gradient scaled by a number that `forward` does not use."""

    @staticmethod
    def forward(ctx, x, scale):
        ctx.scale = scale
        return x

    @staticmethod
    def backward(ctx, dy):
        return dy * ctx.scale, None


def pair(x):
    a, b = SumAndProduct.apply(x, 2.0, meta.array([1, 2, 3]), x * 0.5)
    return a * 2.0 + b


def marked(x):
    a, b = Marked.apply(x)
    assert b.requires_grad is False
    return a * b


CASES = {
    "saved argument": Cube.apply,
    "saved result": Exp.apply,
    "saved intermediate and attributes": Halfway.apply,
    "several results": pair,
    "unused result": lambda x: SumAndProduct.apply(x, 2.0, meta.array([1, 2, 3]), x)[0],
    "marked result": marked,
    "nested": Nested.apply,
    "equal calls with other numbers": lambda x: Scaled.apply(x, 2.0) * Scaled.apply(x, 5.0),
    "under no_grad": lambda x: x * meta.no_grad(Cube.apply)(x),
}


@pytest.mark.parametrize("f", CASES.values(), ids=CASES)
def test_gradients_of_both_orders_are_the_eager_ones(f):
    """Interpreted programs with `backward` inside, programs differentiated by a pass, the tape of interpreted ones."""
    w = array(3, seed=3, grad=True)
    dy = array(3, seed=1)

    def both(x):
        w.grad = None
        y = f(x * w) * w
        (first,) = meta.autograd.grad([y], [w], [dy], create_graph=True)
        (first * first).sum().backward()
        return y, first, w.grad

    x = array(3, seed=2)
    expected = both(x)
    record = tracing.record(both, (x,), {})
    verify(record.module)
    assert_equal(execute(record, x), expected)

    plain = tracing.record(lambda w: f(x * w) * w, (w,), {}).module
    state = [x] if len(plain.main.params) > 1 else []
    twice = meta.passes.auto_diff(["w"])(meta.passes.auto_diff(["w"])(plain))
    verify(twice)
    zeros = meta.zeros((3,))
    ones = expected[1].detach() * 2.0
    _, first, second = run(twice, w.detach(), *state, dy, zeros, ones)
    assert_equal((first, second), (expected[1].detach(), expected[2]), rtol=1e-5)
    leaf = array(3, seed=3, grad=True)
    run(plain, leaf, *state)[0].backward(dy)
    assert_equal(leaf.grad, expected[1].detach())


def test_compiled_programs_have_the_eager_gradients():
    w = array(3, seed=3, grad=True)

    def everything(x):
        return sum((f(x * w) for f in CASES.values()), start=w)

    def step(x):
        w.grad = None
        loss = everything(x).sum()
        loss.backward()
        return loss, w.grad

    x = array(3, seed=2)
    expected = step(x)
    assert_equal(meta.vm.compile(meta.trace(step))(x), expected, rtol=1e-5)
    w.grad = None
    meta.vm.compile(meta.trace(everything))(x).sum().backward()
    assert_equal(w.grad, expected[1], rtol=1e-5)


def test_backward_knows_which_gradients_are_wanted():
    seen = []

    class Probe(SumAndProduct):
        @staticmethod
        def backward(ctx, ds, dp):
            seen.append(ctx.needs_input_grad)
            return SumAndProduct.backward(ctx, ds, dp)

    a, b = array(3, grad=True), array(3, seed=1)
    tracing.record(lambda: Probe.apply(a, 2.0, meta.array([1]), b)[0].sum().backward(), (), {})
    assert seen == [(True, False, False, False)]


def test_graphs_are_freed():
    def twice(x):
        y = Cube.apply(x)
        y.backward(x)
        y.backward(x)

    with pytest.raises(GradientError, match=r"\[Cube\] the graph was freed by an earlier backward"):
        tracing.record(twice, (array(3, grad=True),), {})


def returning(gradient):
    class Wrong(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2.0

        @staticmethod
        def backward(ctx, dy):
            return gradient(dy)

    return Wrong


@pytest.mark.parametrize(
    ("gradient", "text"),
    [
        (lambda dy: (dy, dy), r"\[Wrong\] backward returned 2 gradients; expected one for each of the 1 arguments"),
        (lambda dy: dy.sum(), r'gradient of argument 0 is Tensor\[\(\), "float32"\]; expected .*; sum or reshape'),
        (lambda dy: dy.cast("float16"), r"float16.*; cast it"),
        (lambda dy: 1.0, "gradient of argument 0 is of class float"),
        (lambda dy: dy if dy.sum() > 0 else -dy, r"value of <Symbol .*needed while tracing.*\n.*in Wrong\.backward"),
        (lambda dy: [][0], r"\[Wrong\] its backward raised IndexError: .*test_traced_function.py:\d+"),
    ],
)
def test_wrong_gradients(gradient, text):
    f = returning(gradient).apply
    x = array(3, grad=True)
    with pytest.raises((GradientError, TraceError), match="(?s)" + text):
        tracing.record(lambda x: f(x).sum().backward(), (x,), {})
    y = meta.vm.compile(meta.trace(f))(x)  # the error comes with the backward pass
    with pytest.raises((GradientError, TraceError), match="(?s)" + text):
        y.sum().backward()


def test_a_gradient_may_be_an_array():
    constant = array(3, seed=5)
    f = returning(lambda dy: constant).apply
    x = array(3, grad=True)
    meta.vm.compile(meta.trace(f))(x).sum().backward()
    assert_equal(x.grad, constant)


def test_forward_that_reads_values():
    class Host(Function):
        @staticmethod
        def forward(ctx, x):
            return meta.array(np.sort(x.numpy()))

    class Broken(Function):
        @staticmethod
        def forward(ctx, x):
            return x.nothing

    with pytest.raises(TraceError, match=r"(?s)value of <Symbol .*needed while tracing.*\n.*in Host\.forward"):
        tracing.record(Host.apply, (array(3),), {})
    with pytest.raises(KernelError, match=r"\[Broken\] its forward raised MissingAttribute"):
        tracing.record(Broken.apply, (array(3),), {})


def test_mixed_precision_as_a_pass():
    w = array(3, 3, seed=3, grad=True)

    class Product(Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return x @ w

        @staticmethod
        def backward(ctx, dy):
            x, w = ctx.saved_arrays
            dy = dy.cast(x.dtype)
            return dy @ w.T, x.T @ dy

    x = array(3, 3, seed=2)
    Product.apply(x, w).sum().backward()
    expected, w.grad = w.grad, None
    low = meta.vm.compile(meta.trace(lambda x: Product.apply(x, w)), passes=meta.passes.auto_cast("bfloat16"))
    low(x).sum().backward()
    assert_equal(w.grad, expected, rtol=0.02)
