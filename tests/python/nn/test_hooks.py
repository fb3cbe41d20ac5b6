"""Forward hooks and pre-hooks, eagerly and in programs; names of sub-models and buffers."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import meta
from meta import nn


def data() -> meta.NDArray:
    return meta.array([[1.0, -2.0]])


class Scaled(meta.Model):
    def build(self) -> None:
        self.inner = nn.Identity()

    def forward(self, x: Any, scale: float = 1.0) -> Any:
        return self.inner(x) * scale


def runs(model: meta.Model) -> list[Any]:
    """The ways to call a model."""
    return [model, meta.vm.compile(model), meta.vm.compile(meta.trace(lambda x: model(x)))]


@pytest.mark.parametrize("way", range(3), ids=["eager", "compiled", "traced"])
def test_hooks_change_arguments_and_results(way: int) -> None:
    model = Scaled()
    run = runs(model)[way]
    assert run(data()).tolist() == [[1.0, -2.0]]
    handles = [
        model.register_forward_pre_hook(lambda _, args: (args[0] + 1.0, 2.0)),
        model.register_forward_hook(lambda _, __, y: y * 10.0),
        model.inner.register_forward_hook(lambda _, args, y: y + args[0]),
        model.register_forward_hook(lambda *_: None),
    ]
    assert run(data()).tolist() == [[80.0, -40.0]]
    for handle in handles:
        handle.remove()
        handle.remove()
    assert run(data()).tolist() == [[1.0, -2.0]]


def test_gradients_flow_through_hooks() -> None:
    model = Scaled()
    model.register_forward_hook(lambda _, __, y: y * 3.0)
    x = data()
    x.requires_grad = True
    model(x).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [[3.0, 3.0]]


def test_order_and_keyword_arguments() -> None:
    model = Scaled()
    calls: list[Any] = []
    model.register_forward_pre_hook(lambda _, args: calls.append(("second", len(args))))
    model.register_forward_pre_hook(
        lambda _, args, kwargs: (args, {"scale": kwargs["scale"] * 2}), prepend=True, with_kwargs=True
    )
    model.register_forward_hook(lambda _, __, kwargs, y: calls.append((kwargs, y.tolist())), with_kwargs=True)
    model(data(), scale=2.0)
    assert calls == [("second", 1), ({"scale": 4.0}, [[4.0, -8.0]])]


def test_a_hook_ends_with_its_block_and_copies_keep_theirs() -> None:
    model = Scaled()
    with model.register_forward_hook(lambda _, __, y: y + 1.0):
        assert model(data()).tolist() == [[2.0, -1.0]]
        other = copy.deepcopy(model)
    assert model(data()).tolist() == [[1.0, -2.0]]
    assert other(data()).tolist() == [[2.0, -1.0]]


def test_hooks_also_run_in_inference_mode() -> None:
    model = nn.Dropout(0.5)
    model.register_forward_hook(lambda _, __, y: y * 2.0)
    assert model.infer_mode()(data()).tolist() == [[2.0, -4.0]]
    assert meta.vm.compile(model)(data()).tolist() == [[2.0, -4.0]]


def test_names_of_sub_models_and_buffers() -> None:
    norm = nn.BatchNorm1d(2)
    model = nn.Sequential(norm, nn.Sequential(nn.Linear(2, 2), norm))
    assert [name for name, _ in model.named_children()] == ["layers.0", "layers.1"]
    names = ["", "layers.0", "layers.1", "layers.1.layers.0"]
    assert [name for name, _ in model.named_models()] == names, "a shared model has its first name"
    assert [name for name, _ in model.named_modules()] == names
    assert [name for name, _ in model.named_buffers()] == ["layers.0.running_mean", "layers.0.running_var"]
    assert np.shares_memory(norm.weight.detach().numpy(), norm.w.detach().numpy())
    norm.weight = meta.full((2,), 3.0)
    assert norm.w.tolist() == [3.0, 3.0]
