"""Optimizers that are formulas of operators: torch's trajectories over 20 steps, eagerly and compiled, for each option;
Lion against its paper in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import meta
from meta import optim
from meta.errors import ArgumentError
from tests.python.optim.training import NAMES, Network, assert_equal_weights, batches, run_steps, torch_trajectory

STEPS = 20
BATCH = tuple(map(meta.array, batches(1)[0]))

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "nadam": ("NAdam", {}),
    "nadam-options": ("NAdam", {"betas": (0.8, 0.9), "eps": 1e-3, "weight_decay": 0.1, "momentum_decay": 0.1}),
    "nadam-decoupled": ("NAdam", {"weight_decay": 0.1, "decoupled_weight_decay": True}),
    "radam": ("RAdam", {}),
    "radam-options": ("RAdam", {"betas": (0.8, 0.9), "eps": 1e-3, "weight_decay": 0.1}),
    "radam-short": ("RAdam", {"betas": (0.8, 0.5)}),
    "radam-decoupled": ("RAdam", {"weight_decay": 0.1, "decoupled_weight_decay": True}),
    "adafactor": ("Adafactor", {}),
    "adafactor-options": ("Adafactor", {"beta2_decay": -0.5, "eps": (1e-4, 1e-2), "d": 1.3, "weight_decay": 0.1}),
}


def check_trajectory(make: Any, expected: list[np.ndarray], rtol: float = 1e-9) -> None:
    """Eagerly and compiled, with one program for all steps."""
    for compiled in (False, True):
        model = Network()
        step: Any = optim.TrainStep(model, make(model), meta.cross_entropy)
        run = meta.vm.compile(step) if compiled else step
        first = run.program(*BATCH) if compiled else None
        run_steps(run, STEPS)
        assert_equal_weights(model, expected, rtol=rtol)
        assert not compiled or run.program(*BATCH) is first


@pytest.mark.parametrize("name", CASES)
def test_trajectories_equal_torch(name: str) -> None:
    kind, options = CASES[name]
    expected = torch_trajectory(lambda model: getattr(torch.optim, kind)(model.parameters(), lr=0.02, **options), STEPS)
    rtol = 1e-6 if kind == "NAdam" else 1e-9  # torch keeps NAdam's product of momenta in float32
    check_trajectory(lambda model: getattr(optim, kind)(model, lr=0.02, **options), expected, rtol)


@pytest.mark.parametrize("kind", ["NAdam", "RAdam", "Adafactor"])
def test_float32_stays_close_to_torch(kind: str) -> None:
    expected = torch_trajectory(lambda model: getattr(torch.optim, kind)(model.parameters(), lr=0.02), STEPS, "float32")
    model = Network("float32")
    run_steps(optim.TrainStep(model, getattr(optim, kind)(model, 0.02), meta.cross_entropy), STEPS, "float32")
    assert_equal_weights(model, expected, rtol=1e-4, atol=1e-5)


def product_with(parameter: Any) -> Any:
    """A loss whose gradient with respect to the parameter is its argument."""
    return lambda g: (parameter * g).sum()


def test_lion_follows_its_paper() -> None:
    """Algorithm 2 of X. Chen et al., 2023, in float64 on given gradients."""
    rng = np.random.default_rng(0)
    gradients = rng.normal(size=(STEPS, 3, 2))
    start = rng.normal(size=(3, 2))
    rate, beta1, beta2, decay = 0.02, 0.8, 0.95, 0.3
    x, m = start.copy(), np.zeros_like(start)
    for g in gradients:
        update = np.sign(beta1 * m + (1 - beta1) * g)
        x = x - rate * (update + decay * x)
        m = beta2 * m + (1 - beta2) * g
    for compiled in (False, True):
        parameter = meta.array(start, requires_grad=True)
        optimizer = optim.Lion([parameter], lr=rate, betas=(beta1, beta2), weight_decay=decay)
        step: Any = optim.TrainStep(product_with(parameter), optimizer)
        run = meta.vm.compile(step) if compiled else step
        for g in gradients:
            run(meta.array(g))
        np.testing.assert_allclose(parameter.detach().numpy(), x, rtol=1e-12)


MUON: dict[str, dict[str, Any]] = {
    "default": {},
    "without nesterov": {"nesterov": False, "momentum": 0.7},
    "as AdamW": {"adjust_lr_fn": "match_rms_adamw", "weight_decay": 0.0},
    "coefficients": {"ns_coefficients": (2.0, -1.5, 0.5), "ns_steps": 3, "eps": 1e-3},
}


class Both:
    """Muon for matrices and SGD for vectors, as one optimizer of a loop."""

    def __init__(self, matrices: Any, vectors: Any) -> None:
        self.parts = (matrices, vectors)

    def zero_grad(self) -> None:
        for part in self.parts:
            part.zero_grad()

    def step(self) -> None:
        for part in self.parts:
            part.step()


def muon_trajectory(options: Any) -> list[np.ndarray]:
    def make(model: Any) -> Any:
        matrices = [x for x in model.parameters() if x.ndim == 2]
        vectors = [x for x in model.parameters() if x.ndim < 2]
        return Both(torch.optim.Muon(matrices, lr=0.02, **options), torch.optim.SGD(vectors, 0.1))

    return torch_trajectory(make, STEPS)


def muon_weights(compiled: bool, **options: Any) -> Network:
    model = Network()
    matrices = [(n, x) for n, x in model.named_parameters() if x.ndim == 2]
    vectors = [(n, x) for n, x in model.named_parameters() if x.ndim < 2]
    both = Both(optim.Muon(matrices, lr=0.02, **options), optim.SGD(vectors, 0.1))

    def step(x: Any, target: Any) -> Any:
        both.zero_grad()
        loss = meta.cross_entropy(model(x), target)
        loss.backward()
        both.step()
        return loss

    run_steps(meta.vm.compile(step) if compiled else step, STEPS)
    return model


@pytest.mark.parametrize("name", MUON)
def test_muon_equals_torch(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The formula exactly, with torch's iteration in float64 as well; as it is, within the rounding of bfloat16."""
    in_bfloat16 = muon_trajectory(MUON[name])
    with monkeypatch.context() as patch:
        patch.setattr(torch.Tensor, "bfloat16", torch.Tensor.clone)
        expected = muon_trajectory(MUON[name])
    for compiled in (False, True):
        assert_equal_weights(muon_weights(compiled, **MUON[name], precision="float64"), expected, rtol=1e-9)
        assert_equal_weights(muon_weights(compiled, **MUON[name]), in_bfloat16, rtol=0.05, atol=0.02)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda x: optim.Muon([x]), r"\[Muon\] 'parameter0' has shape \(2,\); expected matrices; train it with AdamW"),
        (lambda x: optim.Muon([x], adjust_lr_fn="x"), r"\[Muon\] adjust_lr_fn is 'x'; expected None, original, match_"),
        (lambda x: optim.Muon([x], ns_coefficients=(1.0,)), r"\[Muon\] ns_coefficients is \(1.0,\); expected three"),
        (lambda x: optim.Muon([x], ns_steps=0), r"\[Muon\] ns_steps is 0; expected an int, 1 or more"),
        (lambda x: optim.Adafactor([x], beta2_decay=0.8), r"beta2_decay is 0.8; expected a finite number, 0 or less"),
        (lambda x: optim.Adafactor([x], eps=1e-3), r"\[Adafactor\] eps is 0.001; expected the pair eps1, eps2"),
        (lambda x: optim.Lion([x], betas=(0.9, 1.0)), r"beta2 is 1.0; expected a number from 0 to below 1"),
        (
            lambda x: optim.NAdam([x], maximize=True),
            r"unknown argument 'maximize'; .*leave it out, and negate the loss",
        ),
    ],
)
def test_rejects_what_does_not_fit(make: Any, text: str) -> None:
    with pytest.raises(ArgumentError, match=text):
        make(meta.array([1.0, 2.0], requires_grad=True))


def test_state_is_saved_and_restored() -> None:
    """Adafactor's slots differ by the axes of parameters; NAdam has a number for each."""
    for kind, slots in (("Adafactor", {"row", "column", "square_mean"}), ("NAdam", {"m", "v", "mu_product"})):
        model = Network()
        optimizer: Any = getattr(optim, kind)(model, 0.02)
        step = optim.TrainStep(model, optimizer, meta.cross_entropy)
        run_steps(step, 3)
        state = {n: x.numpy().copy() for n, x in step.state_dict().items()}
        assert {n.rpartition(".")[2] for n in optimizer.state_dict()} == {*slots, "learning_rate", "step"}
        run_steps(step, 3)
        expected = [x.detach().numpy().copy() for x in model.parameters()]
        again = Network()
        other = optim.TrainStep(again, getattr(optim, kind)(again, 0.02), meta.cross_entropy)
        other.load_state_dict(state)
        run_steps(other, 3)
        assert_equal_weights(again, expected, rtol=0, atol=0)


def test_an_optimizer_of_a_user_is_a_formula() -> None:
    """Momentum in bfloat16 with float32 master weights, as SGD computes it."""

    class Momentum(optim.FormulaOptimizer):
        def slot_names(self, group: Any) -> tuple[str, ...]:
            return ("velocity",)

        def formula(self, x: Any, g: Any, state: Any, n: Any) -> Any:
            v = n.momentum * state["velocity"] + g
            return x - n.learning_rate * v, {"velocity": v}

    results: list[dict[str, np.ndarray]] = []
    for make in (Momentum, optim.SGD):
        model = Network("float32").to(dtype="bfloat16")
        optimizer = make(model, lr=0.1, momentum=0.9, master_weights=True)
        loss = lambda y, target: meta.cross_entropy(y.cast("float32"), target)  # noqa: E731
        run = meta.vm.compile(optim.TrainStep(model, optimizer, loss))
        for x, target in batches(5, "float32"):
            run(meta.array(x).cast("bfloat16"), target)
        results.append({n: optimizer.slots["master"][n].numpy() for n in NAMES})
    for name in NAMES:
        np.testing.assert_allclose(results[0][name], results[1][name], rtol=1e-5, atol=1e-6)
