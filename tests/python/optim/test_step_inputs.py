"""What a training step takes, returns and saves besides its loss: torch's tensors, the norm of gradients, its state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import meta
from meta import nn, optim
from meta.errors import ArgumentError, GradientError
from tests.python.optim.training import Network, batches


class WithDropout(meta.Model):
    def build(self) -> None:
        self.first, self.last = nn.Linear(3, 8), nn.Linear(8, 2)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x: Any) -> Any:
        return self.last(self.dropout(meta.relu(self.first(x))))


def step_of(model: meta.Model, **options: Any) -> optim.TrainStep:
    return optim.TrainStep(model, optim.AdamW(model, lr=0.05), meta.cross_entropy, **options)


def random_batches(count: int) -> list[tuple[np.ndarray, np.ndarray]]:
    return batches(count, "float32")


@pytest.mark.parametrize("compiled", [False, True])
def test_steps_take_torch_tensors(compiled: bool) -> None:
    losses: list[list[float]] = []
    for convert in (meta.array, torch.from_numpy, np.asarray):
        step: Any = step_of(Network("float32"))
        run = meta.vm.compile(step) if compiled else step
        losses.append([run(convert(x), convert(y)).item() for x, y in random_batches(4)])
    assert losses[0] == losses[1] == losses[2]


def test_torch_tensors_are_inputs_without_a_copy() -> None:
    """Not constants of the program, and at the same address."""
    run = meta.vm.compile(lambda pair: (pair[0] + pair[1], pair[0]))
    x = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    for _ in range(2):
        x += 1
        total, same = run([x, {"a": x}["a"]])
        np.testing.assert_array_equal(total.numpy(), 2 * x.numpy())
    assert same.numpy().ctypes.data == x.data_ptr()
    assert len(run._programs) == 1

    def overwrite(x: Any) -> None:
        x += 1.0

    with pytest.raises(ArgumentError, match=r"'x' is an array of another library, which the program overwrites"):
        meta.vm.compile(overwrite)(x)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(
    "options",
    [{}, {"clip_norm": 0.1}, {"clip_value": 0.01}, {"clip_norm": 0.1, "clip_value": 0.01}, {"scaler": 64.0}],
    ids=str,
)
def test_the_norm_of_gradients_equals_torch(options: Any, compiled: bool) -> None:
    model = Network()
    if "scaler" in options:
        options = {"scaler": meta.amp.GradScaler(options["scaler"])}
    step: Any = step_of(model, grad_norm=True, **options)
    run = meta.vm.compile(step) if compiled else step
    for x, target in batches(3):
        twin = [torch.tensor(p.detach().numpy(), requires_grad=True) for p in model.parameters()]
        w, b, v, c = twin
        logits = torch.tanh(torch.tensor(x) @ w.T + b) @ v.T + c
        expected = torch.nn.functional.cross_entropy(logits, torch.tensor(target))
        expected.backward()
        loss, norm = run(x, target)
        assert loss.item() == pytest.approx(expected.item(), rel=1e-9)
        gradients = [p.grad for p in twin if p.grad is not None]
        assert norm.item() == pytest.approx(torch.nn.utils.get_total_norm(gradients).item(), rel=1e-9)


def test_the_norm_of_accumulated_gradients() -> None:
    """At the last call it is the norm of a step with both batches; it is the same eagerly and compiled."""
    pairs = batches(2)
    norms: list[list[float]] = []
    for compiled in (False, True):
        step: Any = step_of(Network(), grad_norm=True, accumulate=2)
        run = meta.vm.compile(step) if compiled else step
        norms.append([run(x, y)[1].item() for x, y in pairs])
    assert norms[0] == pytest.approx(norms[1], rel=1e-9)
    whole = step_of(Network(), grad_norm=True)(*(np.concatenate(arrays) for arrays in zip(*pairs, strict=True)))
    assert norms[0][1] == pytest.approx(whole[1].item(), rel=1e-9)
    assert optim.grad_norm([meta.array([3.0])]).item() == 0


def test_a_compiled_step_is_saved_with_everything(tmp_path: Path) -> None:
    """Dropout, a schedule that Python computes and a scaler: training goes on with the same bits."""

    def build() -> Any:
        model = WithDropout()
        optimizer = optim.AdamW(model, lr=0.05)
        schedule = optim.LambdaLR(optimizer, lambda count: 1.0 if count < 3 else 0.5 / count)
        step = optim.TrainStep(
            model, optimizer, meta.cross_entropy, schedule=schedule, scaler=meta.amp.GradScaler(4.0), accumulate=2
        )
        return meta.vm.compile(step)

    meta.random.seed(3)
    run = build()
    for x, y in random_batches(7):
        run(x, y)
    path = tmp_path / "step.safetensors"
    meta.save(path, run)
    expected = [run(x, y).item() for x, y in random_batches(6)]
    meta.random.seed(99)
    for other in (build(), run):
        assert meta.load(path, other) is other
        assert [other(x, y).item() for x, y in random_batches(6)] == expected
    names = set(meta.load(path))
    assert {"model.first.w", "optimizer.first.w.m", "schedule.count", "step.calls", "random.state"} <= names
    nest = tmp_path / "nest.safetensors"
    meta.save(nest, {"step": run, "epoch": 3})
    assert meta.load(nest, {"step": build(), "epoch": 0})["epoch"] == 3
    with pytest.raises(ArgumentError, match=r"\[save\] the value is .*Executor; .*save the model and the optimizer"):
        meta.save(path, meta.vm.compile(lambda x: x + 1))


def test_state_dict_has_arrays_without_gradients(tmp_path: Path) -> None:
    model = Network("float32")
    state = model.state_dict()
    assert not any(x.requires_grad for x in state.values())
    assert all(isinstance(x.numpy(), np.ndarray) for x in state.values())
    state["first.b"].update(meta.ones(4))
    assert model.first.b.detach().numpy().tolist() == [1.0] * 4, "the memory is the model's"
    assert not any(x.requires_grad for x in step_of(model).state_dict().values())
    path = tmp_path / "twice.safetensors"
    meta.save(path, {"a": model, "b": model.first})
    assert path.stat().st_size < 2 * sum(x.nbytes for x in state.values()) + 1000
    assert len({id(x) for part in meta.load(path).values() for x in part.values()}) == 4, "each array is stored once"


@pytest.mark.parametrize("compiled", [False, True])
def test_a_step_in_infer_mode_says_so(compiled: bool) -> None:
    model = Network("float32")
    step: Any = step_of(model)
    run = meta.vm.compile(step) if compiled else step
    batch = random_batches(1)[0]
    model.infer_mode()
    with pytest.raises(GradientError, match=r"\[TrainStep\] the model is in infer mode.*call model.train_mode\(\)"):
        run(*batch)
    model.train_mode()
    assert run(*batch).item() > 0
    for x in model.parameters():
        x.requires_grad = False
    with pytest.raises(GradientError, match=r"\[backward\] the tensor does not require grad"):
        run(*batch)
