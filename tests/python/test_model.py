"""Models: parameters in lists, invalidation of compiled programs, state, construction, errors of compile."""

from __future__ import annotations

import abc
import copy
import pickle
from typing import Any

import numpy as np
import pytest

import meta
from meta import nn
from meta.errors import ArgumentError, GradientError, TraceError
from meta.testing import check


class Chain(meta.Model):
    """A model with layers in a list and arrays in a dict."""

    def build(self, count: int) -> None:
        self.layers = [nn.Linear(3, 3) for _ in range(count)]
        self.scales = {"first": meta.ones((3,)), "rest": (meta.ones((3,)), [meta.ones((1,))])}

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return x * self.scales["first"] + self.scales["rest"][0]


def data() -> meta.NDArray:
    return meta.array(np.random.default_rng(0).standard_normal((2, 3)), dtype="float32")


def test_arrays_in_lists_and_dicts_are_parameters() -> None:
    model = Chain(1)
    names = ["scales.first", "scales.rest.0", "scales.rest.1.0"]
    assert [name for name, _ in model.named_parameters() if "scales" in name] == names
    assert all(x.requires_grad for x in model.parameters())
    assert not any(x.requires_grad for x in model.infer_mode().parameters())
    model.train_mode()
    other = Chain(1)
    other.load_state_dict({name: x.detach().numpy() for name, x in model.state_dict().items()})
    check(other(data()), model(data()))
    model.to(dtype="float64")
    assert {x.dtype for x in model.parameters()} == {"float64"}
    assert isinstance(model.scales["rest"], tuple)


def test_buffers_in_lists_are_not_parameters() -> None:
    model = Chain(0)
    model.buffer("seen", [meta.zeros((1,))])  # type: ignore[arg-type]
    assert "seen.0" in model.state_dict()
    assert "seen.0" not in dict(model.named_parameters())
    assert not model.train_mode().seen[0].requires_grad  # type: ignore[attr-defined]


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_of_models_do_not_share_values(copied: Any) -> None:
    model = Chain(2)
    other = copied(model)
    check(other(data()), model(data()))
    other.layers[0].w.detach()[:] = 0.0
    assert np.abs(model.layers[0].w.detach().numpy()).max() > 0
    assert [x.requires_grad for x in other.parameters()] == [x.requires_grad for x in model.parameters()]


CHANGES = {
    "append": lambda m: m.layers.append(nn.Linear(3, 3)),
    "replace": lambda m: m.layers.__setitem__(0, nn.Linear(3, 3)),
    "reverse": lambda m: m.layers.reverse(),
    "remove": lambda m: m.layers.pop(),
    "dict": lambda m: m.scales.__setitem__("first", meta.full((3,), 5.0)),
    "nested": lambda m: setattr(m.layers[0], "w", meta.ones((3, 3))),
}


@pytest.mark.parametrize(("change", "traced"), [*((name, False) for name in CHANGES), ("append", True)])
def test_recompiles_after_a_changed_list(change: str, traced: bool) -> None:
    model = Chain(2)
    executor = meta.vm.compile(meta.trace(lambda x: model(x) * 1.0) if traced else model)
    x = data()
    before = executor(x).detach()
    check(before, model(x))
    CHANGES[change](model)
    assert np.abs(model(x).detach().numpy() - before.numpy()).max() > 1e-3
    check(executor(x), model(x))


def test_compiles_an_unchanged_model_once() -> None:
    model = Chain(2)
    executor = meta.vm.compile(model)
    programs = [executor.program(data()) for _ in range(3)]
    assert programs[0] is programs[2]


def test_custom_constructors() -> None:
    class Own(meta.Model):
        def __init__(self) -> None:
            self.w = meta.ones((2,))

    model = Own()
    assert list(model.state_dict()) == ["w"]
    assert model.train_mode().w.requires_grad


class TorchStyle(meta.Model):
    """A model whose constructor creates the parameters itself."""

    def __init__(self, calls_super: bool = True) -> None:
        if calls_super:
            super().__init__()
        self.w = meta.ones((3,))
        self.layers = [nn.Linear(3, 3)]
        self.layers.append(nn.Linear(3, 3))
        self.scales = {"a": meta.ones((3,))}
        self.scales["b"] = meta.ones((3,))
        self.head = nn.Linear(3, 1)
        self.frozen = meta.ones((3,))
        self.frozen.requires_grad = False
        self.buffer("steps", meta.zeros(()))

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return self.head(x * self.w * self.scales["a"] * self.scales["b"] * self.frozen + self.steps)  # type: ignore[attr-defined]


class AbstractBase(abc.ABC):
    @abc.abstractmethod
    def name(self) -> str: ...


class Derived(TorchStyle, AbstractBase):
    """Adds arrays in its constructor to the parameters of its base class."""

    def __init__(self) -> None:
        super().__init__()
        self.extra = meta.ones((1,))

    def name(self) -> str:
        return "derived"

    def forward(self, x: Any) -> Any:
        return super().forward(x) * self.extra


@pytest.mark.parametrize("make", [TorchStyle, lambda: TorchStyle(calls_super=False), Derived])
def test_arrays_created_in_a_constructor_are_trained(make: Any) -> None:
    model = make()
    assert {n for n, x in model.named_parameters() if not x.requires_grad} == {"frozen"}
    meta.sum(model(data())).backward()
    assert {n for n, x in model.named_parameters() if x.grad is None} == {"frozen"}
    assert "steps" not in dict(model.named_parameters())


@pytest.mark.parametrize("freeze_in_infer_mode", [False, True])
@pytest.mark.parametrize("copied", [lambda m: m, copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_modes_keep_parameters_frozen(copied: Any, freeze_in_infer_mode: bool) -> None:
    model = Chain(2)
    if freeze_in_infer_mode:
        model.infer_mode()
    model.layers[0].w.requires_grad = False
    model.scales["first"].requires_grad = False
    model = copied(model.infer_mode())
    assert not any(x.requires_grad for x in model.parameters())
    model.to(dtype="float64").train_mode()
    frozen = {name for name, x in model.named_parameters() if not x.requires_grad}
    assert frozen == {"layers.0.w", "scales.first"}
    model.layers[0].w.requires_grad = True
    assert model.infer_mode().train_mode().layers[0].w.requires_grad


@pytest.mark.parametrize("dtype", [None, "float32", "float64"])
def test_moved_arrays_keep_their_identity(dtype: str | None) -> None:
    model = Chain(1)
    model.buffer("seen", [meta.zeros((1,)), meta.zeros((1,)).cast("int64")])  # type: ignore[arg-type]
    meta.sum(model(data())).backward()
    before = dict(model.named_state())
    gradients = {name: x.grad for name, x in model.named_parameters()}
    values = {name: g.numpy().copy() for name, g in gradients.items() if g is not None}
    model.to("cpu", dtype)
    after = dict(model.named_state())
    assert [(name, id(x)) for name, x in after.items()] == [(name, id(x)) for name, x in before.items()]
    expected = dtype or "float32"
    assert all(x.requires_grad and x.dtype == expected for x in model.parameters())
    assert after["seen.1"].dtype == "int64"
    for name, value in values.items():
        gradient: Any = after[name].grad
        assert gradient is gradients[name]
        assert gradient.dtype == expected
        np.testing.assert_array_equal(gradient.numpy(), value)
    # A part refers to the memory that it comes from.
    x = model.layers[0].w
    assert x[0].tolist() == x.detach().numpy()[0].tolist()


def test_backward_through_values_that_moved_is_refused() -> None:
    model = Chain(1)
    loss = meta.sum(model(data()))
    model.to(dtype="float64")
    with pytest.raises(GradientError, match="was modified in place"):
        loss.backward()


def test_compiled_models_follow_a_move() -> None:
    model = Chain(1)
    executor = meta.vm.compile(model)
    before, program = executor(data()), executor.program(data())
    model.to(dtype="float32")
    assert executor.program(data()) is program, "a move that changes nothing compiles nothing"
    model.to(dtype="float64")
    check(executor(data().cast("float64")), before.cast("float64"), rtol=1e-6)


def test_a_model_does_not_move_while_tracing() -> None:
    model = Chain(1)
    with pytest.raises(TraceError, match="the model is moved while tracing"):
        meta.trace(lambda x: model.to(dtype="float64")(x)).ir(data())


def test_rejects_states_that_are_not_mappings() -> None:
    with pytest.raises(ArgumentError, match="the state is list; expected a mapping of names to arrays"):
        Chain(1).load_state_dict([1])  # type: ignore[arg-type]


def test_functions_and_methods_compile_without_being_traced_first() -> None:
    x = meta.ones((3,))
    assert meta.vm.compile(lambda a: a * 2)(x).numpy().tolist() == [2, 2, 2]
    model = Chain(1)
    compiled = meta.vm.compile(model.forward)(data())
    np.testing.assert_allclose(compiled.detach().numpy(), model(data()).detach().numpy(), rtol=1e-6)


@pytest.mark.parametrize(
    ("what", "text"),
    [
        (int.bit_length, "method_descriptor cannot be compiled; expected a Model, a function, a training step or an"),
        (Chain, "the class Chain cannot be compiled; .* compile an instance of it"),
        (None, "NoneType cannot be compiled"),
        ("def main() -> () { () }", "str cannot be compiled"),
    ],
)
def test_rejects_objects_that_cannot_be_compiled(what: Any, text: str) -> None:
    with pytest.raises(ArgumentError, match=text):
        meta.vm.compile(what)


def test_rejects_symbols_formatted_as_numbers() -> None:
    assert meta.trace(lambda x: x * len(f"{x}")).ir(data())
    with pytest.raises(TraceError, match="is needed while tracing"):
        meta.trace(lambda x: f"{x.sum():.2f}").ir(data())


@pytest.mark.parametrize("kind", ["attribute", "list", "dict", "layer", "appended", "replaced", "parameter"])
def test_modules_of_torch_are_refused(kind):
    """They would be called, but neither trained, moved nor saved."""
    torch = pytest.importorskip("torch")
    module, model = torch.nn.Linear(2, 2), meta.nn.Sequential(meta.nn.Linear(2, 2))
    assignments = {
        "attribute": lambda: setattr(model, "x", module),
        "list": lambda: setattr(model, "x", [module]),
        "dict": lambda: setattr(model, "x", {"a": [module]}),
        "layer": lambda: meta.nn.Sequential(model, module),
        "appended": lambda: model.append(module),
        "replaced": lambda: model.__setitem__(0, module),
        "parameter": lambda: setattr(model, "x", module.weight),
    }
    with pytest.raises(ArgumentError, match=r"is torch's (Linear|Parameter), .*; expected layers and arrays of meta; "):
        assignments[kind]()
    assert "x" not in vars(model)
    assert len(model) == 1
