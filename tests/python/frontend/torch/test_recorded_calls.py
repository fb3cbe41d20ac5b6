"""Recorded calls of torch.compile, with a recorder that calls functions in place of CUDA graphs: random sequences of
passes, updates and results that are kept, each against eager torch."""

from __future__ import annotations

import copy
import ctypes
import gc
import random
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

from meta.frontend.torch import compile_backend
from meta.frontend.torch.dynamo import call as calls
from meta.frontend.torch.dynamo.recorded import MEMORIES, RecordedCalls


class Recorder:
    """Records calls as functions."""

    refusal = ""

    def __init__(self) -> None:
        self.recorded = self.launches = self.runs = 0
        self.graphs: set[Callable[[], Any]] = set()
        self._is_done = False

    def run(self, work: Callable[[], Any], stream: int) -> Any:
        self.runs += 1
        return work()

    def record(self, work: Callable[[], Any], stream: int) -> tuple[Callable[[], Any], Any]:
        self.recorded += 1
        self._is_done = True  # recording runs the work here, which the first launch then leaves out
        inputs, targets = work.args  # type: ignore[attr-defined]
        graph = partial(work.func, [_unowned(x) for x in inputs], targets)  # type: ignore[attr-defined]
        self.graphs.add(graph)
        return graph, work()

    def launch(self, graph: Callable[[], Any], stream: int) -> None:
        assert graph in self.graphs
        self.launches += 1
        if not self._is_done:
            graph()
        self._is_done = False

    def free(self, graph: Callable[[], Any]) -> None:
        self.graphs.remove(graph)


def _unowned(x: torch.Tensor) -> torch.Tensor:
    """The memory of a tensor, which it does not keep alive, as CUDA graphs know addresses alone."""
    memory = (ctypes.c_char * (x.numel() * x.itemsize)).from_address(x.data_ptr())
    return torch.frombuffer(memory, dtype=x.dtype).reshape(x.shape)


@pytest.fixture
def recorders(monkeypatch: pytest.MonkeyPatch) -> list[Recorder]:
    """The recorders of the programs that a test compiles, in order."""
    made: list[Recorder] = []
    torch._dynamo.reset()

    def make(_: object) -> Recorder:
        made.append(Recorder())
        return made[-1]

    monkeypatch.setattr(calls, "recorder_of", make)
    monkeypatch.setattr(calls, "has_graphs", lambda device: True)
    monkeypatch.setattr(calls, "_takes_memory", lambda module: False)
    monkeypatch.setattr(RecordedCalls, "_current_stream", lambda self: 0)
    return made


class Network(nn.Module):
    """Layers with statistics, a result that is saved as well, one that is a view, and weights read transposed."""

    def __init__(self, *, norm: bool) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 3)
        self.norm = nn.BatchNorm1d(8) if norm else nn.LayerNorm(8)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        hidden = torch.tanh(self.norm(self.first(x)))
        y = self.second(hidden)
        return y.sigmoid().mean(), hidden, y.t()


class Actions:
    """A network, and what a script may do with it. All random numbers come from one seed."""

    def __init__(self, seed: int, compiled: bool) -> None:
        torch.manual_seed(seed)
        self.random = random.Random(seed)
        self.model = Network(norm=seed % 2 == 0)
        self.run: Any = torch.compile(self.model, backend=compile_backend) if compiled else self.model
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1, momentum=0.9)
        self.kept: list[torch.Tensor] = []
        self.pending: list[torch.Tensor] = []
        self.old: list[torch.Tensor] = []

    def forward(self) -> None:
        loss, hidden, y = self.run(torch.randn(4, 6))
        which = self.random.random()
        total = loss if which < 0.5 else loss + hidden.square().mean() if which < 0.8 else loss * y.sum()
        self.pending = [*self.pending[-5:], total]
        if self.random.random() < 0.5:
            self.kept += [loss.detach(), hidden.detach(), y.detach()]

    def backward(self) -> None:
        if self.pending:
            loss = self.pending.pop(self.random.randrange(len(self.pending)))
            again = self.random.random() < 0.3
            loss.backward(retain_graph=again)
            if again:
                self.pending.append(loss)

    def step(self) -> None:
        self.pending.clear()  # the graphs read parameters that change
        self.optimizer.step()

    def zero(self) -> None:
        if self.random.random() < 0.3:
            self.kept += [p.grad for p in self.model.parameters() if p.grad is not None]
        self.optimizer.zero_grad(set_to_none=self.random.random() < 0.7)

    def evaluate(self) -> None:
        with torch.no_grad():
            self.kept.append(self.run(torch.randn(4, 6))[2])

    def move(self) -> None:
        self.pending.clear()
        self.old += [p.data for p in self.model.parameters()]
        for p in self.model.parameters():
            p.data = p.data.clone()

    def play(self, count: int) -> list[torch.Tensor]:
        for _ in range(count):
            names = ["forward", "backward", "step", "zero", "evaluate", "move"]
            getattr(self, self.random.choices(names, [6, 5, 2, 2, 1, 0.3])[0])()
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        return [x.detach().clone() for x in (*self.kept, *gradients, *self.model.parameters(), *self.model.buffers())]


@pytest.mark.parametrize("seed", range(8))
def test_random_sequences_equal_eager_torch(recorders: list[Recorder], seed: int) -> None:
    expected, actual = (Actions(seed, compiled).play(80) for compiled in (False, True))
    assert len(expected) == len(actual)
    for e, a in zip(expected, actual, strict=True):
        torch.testing.assert_close(a, e, rtol=1e-4, atol=1e-5)
    assert sum(r.launches for r in recorders) > 20


def train(count: int, passes: int = 1) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    run: Any = torch.compile(model, backend=compile_backend)
    for _ in range(count):
        losses = [run(torch.randn(4, 6)).square().mean() for _ in range(passes)]
        torch.stack(losses).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def test_training_steps_are_recorded_once(recorders: list[Recorder]) -> None:
    train(12)
    assert [r.recorded for r in recorders] == [1, 1]
    assert all(r.launches >= 8 for r in recorders)


@pytest.mark.parametrize("passes", [2, 3])
def test_several_passes_before_a_backward_pass_have_memory_each(recorders: list[Recorder], passes: int) -> None:
    train(12, passes)
    assert recorders[0].recorded == passes
    assert recorders[0].launches >= 8 * passes


def test_more_passes_than_memories_run_kernel_by_kernel(recorders: list[Recorder]) -> None:
    train(8, MEMORIES + 2)
    assert recorders[0].recorded == MEMORIES
    assert recorders[0].runs >= 2 * 6


def test_what_was_saved_and_is_held_is_not_overwritten(recorders: list[Recorder]) -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh())
    run: Any = torch.compile(model, backend=compile_backend)
    held: list[tuple[torch.Tensor, torch.Tensor]] = []
    for _ in range(8):
        y = run(torch.randn(4, 6))
        saved = y.grad_fn.saved_tensors
        held += [(x, x.clone()) for x in saved]
        y.sum().backward()
        del y, saved
        gc.collect()
    assert all(torch.equal(x, before) for x, before in held)


def test_results_may_be_written_with_gradients(recorders: list[Recorder]) -> None:
    """No result is a view for autograd, which would refuse that, in calls that are recorded and others."""
    weight = torch.ones(6, 4, requires_grad=True)
    run: Any = torch.compile(lambda x: (x @ weight).reshape(2, 2, 4), backend=compile_backend)
    for _ in range(6):
        y = run(torch.ones(4, 6))
        y.mul_(2.0)
        torch.testing.assert_close(y.detach(), torch.full((2, 2, 4), 12.0))
        (gradient,) = torch.autograd.grad(y.sum(), weight)
        torch.testing.assert_close(gradient, torch.full((6, 4), 8.0))


def test_calls_that_cannot_be_recorded_remember_no_addresses(
    recorders: list[Recorder], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Recorder, "refusal", "a kernel refuses")
    made: list[RecordedCalls] = []
    arrange = RecordedCalls._arrange
    monkeypatch.setattr(RecordedCalls, "_arrange", lambda self: (made.append(self), arrange(self)))
    model = nn.Linear(6, 8)
    run: Any = torch.compile(model, backend=compile_backend)
    old = []
    for _ in range(12):
        old.append(model.weight.data)
        model.weight.data = model.weight.data.clone()
        run(torch.randn(4, 6))
    assert len(made[0].seen) <= 2


def test_arguments_that_are_written_change(recorders: list[Recorder]) -> None:
    def update(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(y)
        return x * 2

    run: Any = torch.compile(update, backend=compile_backend)
    for i in range(8):
        x, y = torch.full((4, 6), float(i)), torch.ones(4, 6)
        result = run(x, y)
        torch.testing.assert_close(x, torch.full((4, 6), i + 1.0))
        torch.testing.assert_close(result, torch.full((4, 6), 2 * i + 2.0))
    assert recorders[0].launches


def test_parameters_that_move_are_copied(recorders: list[Recorder]) -> None:
    model = nn.Linear(6, 8)
    run: Any = torch.compile(model, backend=compile_backend)
    old = []
    for i in range(14):
        if i > 5:
            old.append(model.weight.data)
            model.weight.data = model.weight.data + 1.0
        x = torch.randn(4, 6)
        torch.testing.assert_close(run(x), nn.functional.linear(x, model.weight, model.bias))
    assert recorders[0].recorded <= 3
    assert recorders[0].launches >= 6


def test_misaligned_parameters_are_copied(recorders: list[Recorder]) -> None:
    weight = torch.randn(49)[1:].reshape(8, 6)
    weight = weight if weight.data_ptr() % 64 else torch.randn(50)[2:].reshape(8, 6)
    model = nn.Linear(6, 8, bias=False)
    model.weight.data = weight
    run: Any = torch.compile(model, backend=compile_backend)
    for _ in range(6):
        x = torch.randn(4, 6)
        torch.testing.assert_close(run(x), x @ weight.t())
        weight += 1.0
    assert recorders[0].launches >= 3


def test_what_is_read_in_place(recorders: list[Recorder], monkeypatch: pytest.MonkeyPatch) -> None:
    """Parameters and buffers, and in the backward program what the forward program keeps."""
    shapes: list[list[list[int]]] = []

    def roles_of(module: Any, kind: str, converted: Any, passed: Any) -> Any:
        roles = plain(module, kind, converted, passed)
        shapes.append(sorted(list(converted.record.main.params[i].type.shape) for i in roles.in_place))
        return roles

    plain = calls.roles_of
    monkeypatch.setattr(calls, "roles_of", roles_of)
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))
    model.register_buffer("scale", torch.ones(2))
    fast: Any = torch.compile(lambda x: model(x) * model.scale, backend=compile_backend)
    fast(torch.randn(5, 4, requires_grad=True)).sum().backward()
    assert shapes[0] == [[2], [2], [2, 3], [3], [3, 4]]
    assert shapes[1] == [[2], [2, 3], [3, 4], [5, 3]]


def test_what_a_forward_pass_saves_is_copied_if_it_is_not_recorded(
    recorders: list[Recorder], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its memory is elsewhere in every call, as of a pass with dropout."""
    known: list[set[str]] = []
    plain = calls.roles_of

    def roles_of(module: Any, kind: str, converted: Any, passed: Any) -> Any:
        known.append(set(passed.kept))
        return plain(module, kind, converted, passed)

    monkeypatch.setattr(calls, "roles_of", roles_of)
    weight = torch.ones(6, 4, requires_grad=True)
    run: Any = torch.compile(lambda x: nn.functional.dropout(torch.tanh(x @ weight), 0.5), backend=compile_backend)
    run(torch.ones(4, 6)).sum().backward()
    assert known == [set(), set()]


class Attention(nn.Module):
    """Queries, keys and values, which the backward pass reads, are parts of one product, as are columns of another."""

    def __init__(self) -> None:
        super().__init__()
        self.project, self.out = nn.Linear(8, 24), nn.Linear(8, 9)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.project(x).reshape(2, 5, 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
        weights = torch.softmax(q @ k.transpose(-1, -2), -1)
        y = self.out((weights @ v).transpose(1, 2).reshape(2, 5, 8))
        return torch.sigmoid(y[..., :8]).square().sum()


@pytest.mark.parametrize("hooked", [False, True])
def test_parts_of_a_tensor_are_saved_as_the_tensor(
    recorders: list[Recorder], monkeypatch: pytest.MonkeyPatch, hooked: bool
) -> None:
    """Also where hooks give the backward pass other tensors than the forward pass saved."""
    found: list[set[str]] = []

    def with_parts(converted: Any, saved: Any) -> Any:
        result = plain(converted, saved)
        found.append(set(result[1]))
        return result

    plain = calls.with_parts
    monkeypatch.setattr(calls, "with_parts", with_parts)
    torch.manual_seed(0)
    model = Attention()
    eager = copy.deepcopy(model)
    fast: Any = torch.compile(model, backend=compile_backend)
    hooks = torch.autograd.graph.saved_tensors_hooks(lambda x: x.clone(), lambda x: x)
    for _ in range(6):
        x = torch.randn(2, 5, 8)
        with hooks if hooked else nullcontext():
            fast(x).backward()
        eager(x).backward()
        for mine, theirs in zip(model.parameters(), eager.parameters(), strict=True):
            torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-4, atol=1e-5)
    assert len(found[0]) >= 3
    assert recorders[0].launches >= 3
