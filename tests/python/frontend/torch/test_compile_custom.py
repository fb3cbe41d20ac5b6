"""Operators that the ATen table lacks: custom ones with a twin in meta or without, and whole graphs by torch."""

from __future__ import annotations

import pytest
import torch
from torch import library
from torch.nn import functional as F

import meta
from meta.errors import ArgumentError, RegistryError
from meta.frontend.torch import compile_backend, explain, twin

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
calls: list[str] = []


@library.custom_op("metatest::swiglu", mutates_args=())
def swiglu(x: torch.Tensor, gate: torch.Tensor, beta: float = 1.0) -> torch.Tensor:
    calls.append("forward")
    return F.silu(gate * beta) * x


@swiglu.register_fake
def _(x, gate, beta=1.0):
    return torch.empty_like(x)


@library.custom_op("metatest::swiglu_backward", mutates_args=())
def swiglu_backward(
    dy: torch.Tensor, x: torch.Tensor, gate: torch.Tensor, beta: float
) -> tuple[torch.Tensor, torch.Tensor]:
    calls.append("backward")
    s = torch.sigmoid(gate * beta)
    return dy * F.silu(gate * beta), dy * x * s * (1 + gate * beta * (1 - s)) * beta


@swiglu_backward.register_fake
def _(dy, x, gate, beta):
    return torch.empty_like(x), torch.empty_like(gate)


def _setup(ctx, inputs, output):
    x, gate, ctx.beta = inputs
    ctx.save_for_backward(x, gate)


swiglu.register_autograd(
    lambda ctx, dy: (*swiglu_backward(dy, *ctx.saved_tensors, ctx.beta), None), setup_context=_setup
)


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()
    calls.clear()


def model(x, gate):
    return (swiglu(x, gate, 2.0) + 1).square().sum()


def gradients(function):
    torch.manual_seed(0)
    inputs = [torch.randn(3, 4, requires_grad=True) for _ in range(2)]
    loss = function(*inputs)
    loss.backward()
    return loss, *(x.grad for x in inputs)


def test_without_a_twin_the_kernel_of_the_operator_runs():
    expected = gradients(model)
    calls.clear()
    for result, reference in zip(gradients(torch.compile(model, backend=compile_backend)), expected, strict=True):
        torch.testing.assert_close(result, reference)
    assert calls == ["forward", "backward"]
    report = explain(model, torch.randn(3, 4), torch.randn(3, 4, requires_grad=True))
    assert report.fallbacks == {"metatest::swiglu": 1, "metatest::swiglu_backward": 1}
    assert "no twin is registered (meta.frontend.torch.twin)" in str(report)


@pytest.fixture
def _twins(monkeypatch):
    monkeypatch.setattr("meta.frontend.torch.twins._twins", {})

    @twin("metatest::swiglu")
    def forward(x, gate, beta=1.0):
        return meta.silu(gate * beta) * x

    @twin("metatest::swiglu_backward.default")
    def backward(dy, x, gate, beta):
        s = meta.sigmoid(gate * beta)
        return dy * meta.silu(gate * beta), dy * x * s * (1 + gate * beta * (1 - s)) * beta


@pytest.mark.usefixtures("_twins")
def test_a_twin_takes_part_in_the_program():
    expected = gradients(model)
    calls.clear()
    for result, reference in zip(gradients(torch.compile(model, backend=compile_backend)), expected, strict=True):
        torch.testing.assert_close(result, reference)
    assert calls == []
    assert explain(model, torch.randn(3, 4), torch.randn(3, 4, requires_grad=True)).fallbacks == {}


@pytest.mark.usefixtures("_twins")
def test_a_twin_of_another_type_is_not_used():
    @twin("metatest::swiglu")
    def wrong(x, gate, beta=1.0):
        return (x * gate).sum()

    report = explain(model, torch.randn(3, 4), torch.randn(3, 4))
    assert report.fallbacks == {"metatest::swiglu": 1}
    assert "meta returns" in str(report)


def test_without_fallback_everything_is_refused_at_once():
    def f(x):
        return swiglu(x, swiglu_backward(x, x, x, 1.0)[0], 2.0)

    call = torch.compile(f, backend=compile_backend, options={"fallback": False})
    text = r"\[torch.compile\] the inference graph needs torch: meta does not run metatest::swiglu, .*swiglu_backward"
    with pytest.raises(Exception, match=text):
        call(torch.randn(2, 2))


def test_graphs_with_dtypes_that_meta_lacks_run_by_torch():
    def f(x):
        return x.to(torch.float8_e5m2).float() + 1, x + 1

    x = torch.randn(4)
    for result, expected in zip(torch.compile(f, backend=compile_backend)(x), f(x), strict=True):
        torch.testing.assert_close(result, expected)
    (graph,) = explain(f, x).graphs
    assert "float8_e5m2" in graph.by_torch


def test_control_flow_of_torch():
    """An operator with graphs among its arguments."""

    def f(flag, x):
        return torch.cond(flag, lambda x: x.sin() + 1, lambda x: x.cos(), (x,)) * 2

    call = torch.compile(f, backend=compile_backend)
    x = torch.randn(3)
    for flag in (torch.tensor(True), torch.tensor(False)):
        torch.testing.assert_close(call(flag, x), f(flag, x))


def test_names_of_twins_are_checked():
    for name in ("swiglu", "::x", "a::", 3, "a::b.c d"):
        with pytest.raises(ArgumentError, match=r'\[twin\] the operator is .*; expected "namespace::operator"'):
            twin(name, print)
    with pytest.raises(RegistryError, match=r"\[twin\] 'aten::relu' is an operator of PyTorch; expected operators of"):
        twin("aten::relu", print)
    with pytest.raises(ArgumentError, match=r"\[twin\] the twin of 'a::b' is 3; expected a function"):
        twin("a::b", 3)
