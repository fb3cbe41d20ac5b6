"""`meta.torch.provide`: operators of meta in a registry that chooses between providers, as vLLM's does."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.library import infer_schema

import meta
from meta.errors import NotSupportedError, RegistryError


def native(
    x: torch.Tensor, weight: torch.Tensor | None, epsilon: float, variance_size: int | None = None
) -> torch.Tensor:
    """The meaning of the operator."""
    return torch.nn.functional.rms_norm(x, x.shape[-1:], weight, epsilon)


class Registry:
    """Providers by priority; the first that supports a call runs it."""

    def __init__(self) -> None:
        self.implementations: dict[str, tuple[Callable[..., Any], Callable[..., bool]]] = {}
        self.priority: list[str] = []
        self.ran: list[str] = []

    def register_impl(self, provider: str, *, supports_args: Callable[..., bool]) -> Callable[[Any], Any]:
        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            assert infer_schema(function, mutates_args=[]) == infer_schema(native, mutates_args=[])
            self.implementations[provider] = function, supports_args
            return function

        return register

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        for name in self.priority:
            function, supports = self.implementations[name]
            if supports(*args, **kwargs):
                self.ran.append(name)
                return function(*args, **kwargs)
        self.ran.append("native")
        return native(*args, **kwargs)


ARGUMENTS = {"weight": "scale", "epsilon": "eps"}


@pytest.fixture
def hub() -> Iterator[Any]:
    """A dialect for rows of 8 float32 numbers, whose results are 7."""
    with meta.register_dialect("hub", plevel=30) as dialect:

        @dialect.implement("rms_norm", accepts=lambda call: None if call.tensors()[0].shape[-1] == 8 else "not 8")
        def rms_norm(x, scale, axis, eps, *, out):
            out[...] = 7

        yield dialect


def test_a_registry_chooses_between_three_kernels(hub: Any) -> None:
    registry = Registry()
    providers = {
        name: meta.torch.provide("rms_norm", native, arguments=ARGUMENTS, dialect=name)
        for name in ("reference", "hub", "tvm")
    }
    for name, provider in providers.items():
        registry.register_impl(name, supports_args=provider.supports)(provider.function)
    registry.priority = sorted(providers, key=lambda name: -providers[name].priority)
    assert registry.priority == ["hub", "tvm", "reference"]
    x, w = torch.randn(4, 8), torch.rand(8)
    assert registry(x, w, 1e-5).eq(7).all()
    torch.testing.assert_close(registry(x[:, :5], None, epsilon=1e-5), native(x[:, :5], None, 1e-5))
    torch.testing.assert_close(registry(x, w, 1e-5, 4), native(x, w, 1e-5))
    assert registry.ran == ["hub", "tvm", "native"]
    assert "hub (plevel 30): not 8" in str(providers["hub"].explain(x[:, :5], None, 1e-5))


def test_meta_chooses_and_differentiates(hub: Any) -> None:
    provider = meta.torch.provide(meta.rms_norm, native, arguments=ARGUMENTS)
    assert inspect.signature(provider.function) == inspect.signature(native)
    assert provider.explain(torch.ones(2, 8), None, 1e-5).chosen == "hub"
    assert provider.explain(torch.ones(2, 5), None, 1e-5).chosen == "tvm"
    x = torch.randn(2, 5, requires_grad=True)
    (ours,) = torch.autograd.grad(provider.function(x, None, 1e-5).pow(3).sum(), x)
    (theirs,) = torch.autograd.grad(native(x, None, 1e-5).pow(3).sum(), x)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_what_is_not_supported() -> None:
    provider = meta.torch.provide("rms_norm", native, arguments=ARGUMENTS, dialect="tvm")
    x = torch.ones(2, 4)
    assert provider.supports(x, None, 1e-5)
    assert provider.supports(x, None, 1e-5, variance_size=None)
    assert provider.supports(torch.empty(2, 4, device="meta"), None, 1e-5)
    assert not provider.supports(x, None, 1e-5, variance_size=2)
    assert not provider.supports(x, torch.ones(3), 1e-5)
    assert not provider.supports(x.int(), None, 1e-5)
    with pytest.raises(RegistryError, match=r"\[rms_norm\] it has no argument for 'variance_size'"):
        provider.function(x, None, 1e-5, 2)
    assert repr(provider) == "<Provider of rms_norm by tvm>"


@pytest.mark.parametrize(
    ("operator", "options", "error", "problem"),
    [
        ("rms_norm", {"arguments": {"wieght": "scale"}}, RegistryError, "names 'wieght'.*did you mean 'weight'"),
        ("rms_norm", {"arguments": {"weight": "scael"}}, RegistryError, "names 'scael'.*did you mean 'scale'"),
        ("rms_norm", {"dialect": "hbu"}, RegistryError, "no dialect is called 'hbu'"),
        ("dense", {}, RegistryError, "native has no parameter for 'w' of dense"),
        ("adam", {}, NotSupportedError, "torch cannot call it"),
    ],
)
def test_refuses_bad_arguments(operator: str, options: Any, error: type[Exception], problem: str) -> None:
    with pytest.raises(error, match=problem):
        meta.torch.provide(operator, native, **options)
