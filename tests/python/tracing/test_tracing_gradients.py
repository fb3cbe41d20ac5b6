"""Gradients inside traced functions agree with the eager call."""

from __future__ import annotations

import pytest

import meta
from meta import tracing
from meta.errors import ArgumentError, GradientError, TraceError, TypeInferenceError
from meta.ir.analysis import op_counts
from tests.python.recorded import array, assert_equal, check_ir, execute


def check_gradients(loss_of, *leaves):
    """Check that `backward` gives equal gradients of all leaves eagerly and traced, and keeps `.grad` outside."""

    def f(x):
        for leaf in leaves:
            leaf.grad = None
        result = loss_of(x)
        return result, [leaf.grad for leaf in leaves]

    x = array(2, 3, seed=42)
    for leaf in leaves:
        leaf.grad = None
    record = tracing.record(f, (x,), {})
    assert [leaf.grad for leaf in leaves] == [None] * len(leaves)
    check_ir(record.module)
    assert_equal(execute(record, x), f(x), rtol=1e-5)
    return record


def test_backward_fills_grad_for_the_rest_of_the_trace():
    w, b = array(3, 4, grad=True), array(4, seed=1, grad=True)

    def loss_of(x):
        loss = (meta.softmax(meta.relu(x @ w + b) * 2.0) ** 2.0).sum()
        loss.backward()
        return loss.detach()

    check_gradients(loss_of, w, b)


def test_a_trace_keeps_eager_gradients():
    w = array(3, grad=True)
    (w * 2.0).sum().backward()
    before = w.grad
    tracing.record(lambda x: (w * x).sum().backward(), (array(3),), {})
    assert w.grad is before


def test_gradients_accumulate_over_backward_passes():
    w = array(3, grad=True)

    def loss_of(x):
        (x * w).sum().backward()
        loss = (w * w).sum()
        loss.backward(retain_graph=True)
        loss.backward()

    check_gradients(loss_of, w)


def test_rejects_a_second_backward_on_a_freed_graph():
    w = array(3, grad=True)

    def f(x):
        loss = (x * w).sum()
        loss.backward()
        loss.backward()

    with pytest.raises(GradientError, match=r"\[\w+\] the graph was freed by an earlier backward; .*retain_graph=True"):
        tracing.record(f, (array(3),), {})
    with pytest.raises(GradientError, match="the graph was freed"):
        f(array(3))


def test_no_grad_stops_gradients():
    w = array(3, 3, grad=True)

    def loss_of(x):
        with meta.no_grad():
            target = x @ w
            twice = target * 2.0
        loss = ((x @ w - target) ** 2.0 + twice * (x @ w)).sum()
        loss.backward()
        return loss.detach(), twice

    record = check_gradients(loss_of, w)
    assert op_counts(record.main)["stop_gradient"] == 3  # target and twice once each, and the loss


def test_rejects_backward_without_a_graph():
    w = array(3, grad=True)
    frozen = array(3)

    def under_no_grad(x):
        with meta.no_grad():
            loss = (x * w).sum()
        loss.backward()

    for f in (under_no_grad, lambda x: (x * frozen).sum().backward(), lambda x: (x * w).sum().detach().backward()):
        with pytest.raises(GradientError, match=r"\[backward\] the tensor does not require grad and was not computed"):
            tracing.record(f, (array(3),), {})


def test_backward_checks_dy():
    w = array(3, grad=True)
    with pytest.raises(GradientError, match=r"\[backward\] the tensor has shape \(3,\) and no gradient was given"):
        tracing.record(lambda x: (x * w).backward(), (array(3),), {})
    with pytest.raises(TypeInferenceError, match=r"\[backward\] dy is Tensor\[\(2,\), "):
        tracing.record(lambda x: (x * w).backward(meta.ones((2,))), (array(3),), {})
    with pytest.raises(ArgumentError, match=r"\[backward\] dy is int"):
        tracing.record(lambda x: (x * w).backward(1), (array(3),), {})


def test_frozen_parameters_get_no_gradient():
    w, frozen = array(3, grad=True), array(3)

    def f(x):
        (x * w * frozen).sum().backward()
        return frozen.grad, w.grad

    assert tracing.record(f, (array(3),), {}).result.children[0].kind == "static"


def test_second_order_needs_create_graph():
    w = array(3, 2, grad=True)

    def penalty(x, create):
        loss = (meta.tanh(x @ w)).sum()
        loss.backward(create_graph=create)
        total = (w.grad * w.grad).sum() + (w * w).sum()
        w.grad = None
        total.backward()
        return total.detach()

    check_gradients(lambda x: penalty(x, True), w)
    check_gradients(lambda x: penalty(x, False), w)


def test_autograd_grad_works_on_symbols():
    w = array(3, 2, grad=True)

    def f(x):
        hidden = meta.tanh(x @ w)
        loss = (hidden * hidden).sum()
        dh, dw = meta.autograd.grad(loss, [hidden, w], create_graph=True)
        (ddw,) = meta.autograd.grad((dw * dw).sum(), [w])
        return dh, dw, ddw

    x = array(2, 3)
    record = tracing.record(f, (x,), {})
    check_ir(record.module)
    assert_equal(execute(record, x), f(x), rtol=1e-5)
    with pytest.raises(GradientError, match=r"\[grad\] input 0 was not used"):
        tracing.record(lambda x: meta.autograd.grad((x * 2.0).sum(), [w]), (x,), {})
    assert tracing.record(lambda x: meta.autograd.grad((x * 2.0).sum(), [w], allow_unused=True), (x,), {})


def test_two_steps_in_one_program():
    def make():
        return array(3, 2, grad=True), meta.zeros((3, 2))

    def steps(w, v, x):
        losses = []
        for _ in range(2):
            w.grad = None
            loss = (meta.tanh(x @ w) ** 2.0).sum()
            loss.backward()
            with meta.no_grad():
                meta.sgd(w, w.grad, v, 0.1, 0.9, 0.0)
            losses.append(loss.detach())
        return losses

    w, v = make()
    x = array(4, 3)
    record = tracing.record(lambda x: steps(w, v, x), (x,), {})
    check_ir(record.module)
    result = execute(record, x)
    w2, v2 = make()
    assert_equal(result, steps(w2, v2, x), rtol=1e-5)
    assert_equal([w.detach(), v], [w2.detach(), v2], rtol=1e-5)


def test_inputs_can_require_gradients():
    def f(x):
        (x * x).sum().backward()
        return x.grad

    x = array(3, grad=True)
    record = tracing.record(f, (x,), {})
    assert_equal(execute(record, x), x.detach() * 2.0)


def test_symbols_can_become_leaves():
    def f(x):
        x = x.detach()
        x.requires_grad = True
        (x * x).sum().backward()
        return x.grad

    record = tracing.record(f, (array(3),), {})
    assert_equal(execute(record, array(3)), f(array(3)))


def test_requires_grad_agrees_with_arrays():
    w = array(3, grad=True)
    seen = []

    def f(x):
        y = x * w
        with meta.no_grad():
            z = x * w
        seen.append([t.requires_grad for t in (x, y, z, y.detach(), y > 0)])
        return y

    f(array(3))
    tracing.record(f, (array(3),), {})
    assert seen[0] == seen[1] == [False, True, False, False, False]


def test_runs_hooks_on_arrays_and_rejects_hooks_on_symbols():
    w = array(3, grad=True)
    remove = w.register_hook(lambda g: g * 3.0)
    try:
        check_gradients(lambda x: (x.sum() * w).sum().backward(), w)
    finally:
        remove()
    with pytest.raises(TraceError, match=r"\[register_hook\] a hook is put on <Symbol"):
        tracing.record(lambda x: (x * w).register_hook(print), (array(3),), {})
