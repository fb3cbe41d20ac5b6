"""Compiled programs against torch eager."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

import meta
from benchmarks.timing import Row, ratio

Tensors = Any


def rows() -> Iterator[Row]:
    """A chain of small unfused operators, the MLP training step, and kernels of one schedule each."""
    yield _small_chain()
    yield _mlp()
    yield _large("vm elementwise chain (4 ops) 1024x1024", lambda x: meta.tanh(meta.relu(x * 0.5 + 1.0)),
                 lambda t: torch.tanh(torch.relu(t * 0.5 + 1.0)), 0.5)  # fmt: skip
    yield _large("vm softmax 1024x1024", meta.softmax, lambda t: torch.softmax(t, -1), 0.8)
    yield _large("vm sums of columns 1024x1024", lambda x: meta.sum(x, 0), lambda t: t.sum(0), 1.0)
    yield _large("vm sums of rows 256x4096", lambda x: meta.sum(x, 1), lambda t: t.sum(1), 1.0, (256, 4096))
    yield _large("vm transpose 1024x1024", meta.transpose, lambda t: t.T.contiguous(), 1.0)
    yield _large("vm broadcast add 64x64x28x28", lambda x: x + meta.strided_slice(x, (0, 0, 0, 0), (64, 64, 1, 1)),
                 lambda t: t + t[:, :, :1, :1], 1.0, (64, 64, 28, 28))  # fmt: skip


def _compiled(function: Callable[..., Any], *inputs: Any, **options: Any) -> Callable[[], Any]:
    executor = meta.vm.compile(meta.trace(function), device="cpu", **options)
    executor(*inputs)
    return lambda: executor(*inputs)


def _small_chain(length: int = 100) -> Row:
    host = np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)
    x, t = meta.array(host), torch.tensor(host)

    def ours(x: Tensors) -> Tensors:
        for _ in range(length // 2):
            x = meta.negative(meta.relu(x))
        return x

    def theirs() -> Tensors:
        y = t
        for _ in range(length // 2):
            y = torch.neg(torch.relu(y))
        return y

    return ratio("vm, per op in a chain of 100 small unfused ops", _compiled(ours, x, fuse=False), theirs, 0.15,
                 per=length)  # fmt: skip


def _large(
    name: str, ours: Callable[[Any], Any], theirs: Callable[[Any], Any], limit: float,
    shape: tuple[int, ...] = (1024, 1024),
) -> Row:  # fmt: skip
    host = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    x, t = meta.array(host), torch.tensor(host)

    def traced(x: Tensors) -> Tensors:
        return ours(x)

    return ratio(name, _compiled(traced, x), lambda: theirs(t), limit)


class MLP(meta.Model):
    """784-256-256-10 with ReLU."""

    def build(self) -> None:
        self.layers = [meta.nn.Linear(784, 256), meta.nn.Linear(256, 256), meta.nn.Linear(256, 10)]

    def forward(self, x: Tensors) -> Tensors:
        for layer in self.layers[:-1]:
            x = meta.relu(layer(x))
        return self.layers[-1](x)


def _mlp() -> Row:
    generator = np.random.default_rng(0)
    x = generator.standard_normal((64, 784)).astype(np.float32)
    target = generator.integers(0, 10, 64)
    model = MLP()
    twin = torch.nn.Sequential(torch.nn.Linear(784, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256), torch.nn.ReLU(),
                               torch.nn.Linear(256, 10))  # fmt: skip
    optimizer = torch.optim.SGD(twin.parameters(), lr=0.01, momentum=0.9)
    trainer = meta.optim.sgd.with_sgd(learning_rate=0.01, momentum=0.9)(model, loss=meta.cross_entropy)
    executor = meta.vm.compile(trainer, device="cpu")
    mx, mt, tx, tt = meta.array(x), meta.array(target), torch.tensor(x), torch.tensor(target)

    def theirs() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(twin(tx), tt).backward()
        optimizer.step()

    return ratio("vm MLP 64x784-256-256-10 training step", lambda: executor(mx, mt), theirs, 0.9, seconds=4.0)
