"""Checks that a ResNet-18 and a GPT learn on several processes as on one with the whole batch."""

from __future__ import annotations

from typing import Any

import numpy as np

import meta
from meta import distributed, nn, optim
from tests.python.distributed.checks_training import MODELS, _compare
from tests.python.distributed.training import BATCH, OPTIMIZERS, RANK, RANKS

WIDTHS = (4, 6, 8, 10)


class Block(meta.Model):
    def build(self, inputs: int, outputs: int) -> None:
        stride = 1 if inputs == outputs else 2
        self.conv1, self.norm1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False), nn.BatchNorm2d(outputs)
        self.conv2, self.norm2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs)
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False) if stride == 2 else None

    def forward(self, x: Any) -> Any:
        y = self.norm2(self.conv2(meta.relu(self.norm1(self.conv1(x)))))
        return meta.relu(y + (x if self.shortcut is None else self.shortcut(x)))


class ResNet18(meta.Model):
    """Its layers on images of 8x8, with few channels."""

    def build(self) -> None:
        self.conv, self.norm = nn.Conv2d(2, WIDTHS[0], 3, padding=1, bias=False), nn.BatchNorm2d(WIDTHS[0])
        sizes = [(max(0, i - 1 + j), i) for i in range(4) for j in range(2)]
        self.blocks = nn.Sequential(*(Block(WIDTHS[min(a, b)], WIDTHS[b]) for a, b in sizes))
        self.head = nn.Linear(WIDTHS[-1], 3)

    def forward(self, x: Any) -> Any:
        return self.head(self.blocks(meta.relu(self.norm(self.conv(x)))).mean((2, 3)))


class GPT(meta.Model):
    def build(self) -> None:
        self.embedding, self.positions = nn.Embedding(11, 8), nn.Embedding(5, 8)
        self.layers = nn.Sequential(*(Causal() for _ in range(2)))
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 11)

    def forward(self, x: Any) -> Any:
        h = self.layers(self.embedding(x) + self.positions(meta.arange(5)))
        return self.head(self.norm(h)).reshape(-1, 11)


class Causal(meta.Model):
    def build(self) -> None:
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, norm_first=True)

    def forward(self, x: Any) -> Any:
        return self.layer(x, is_causal=True)


def pictures(generator: Any, dtype: str) -> tuple[Any, Any]:
    return generator.standard_normal((BATCH, 2, 8, 8)).astype(dtype), generator.integers(0, 3, BATCH)


def _letters(generator: Any, dtype: str) -> tuple[Any, Any]:
    return generator.integers(0, 11, (BATCH, 5)), generator.integers(0, 11, BATCH * 5)


MODELS["resnet18"] = ResNet18, pictures
MODELS["gpt"] = GPT, _letters
OPTIMIZERS["slow sgd"] = optim.with_optimizer(optim.SGD, 0.002, momentum=0.9)
WRAPS = [distributed.data_parallel(bucket_bytes=1), *(distributed.zero(stage, bucket_bytes=1) for stage in (1, 2, 3))]
"""Every tensor travels alone: kernels that join and split dozens of tensors take long to compile."""


def _synchronised(wrap: Any) -> Any:
    def wrapped(step: Any) -> Any:
        distributed.sync_batch_norm(step.model)
        return wrap(step)

    return wrapped


def check_two_transformers() -> None:
    for wrap in WRAPS:
        _compare(wrap, [("gpt", "slow sgd", dtype, False) for dtype in ("float64", "float32")])
        _compare(wrap, [("transformer", "slow sgd", "float64", False)])


def check_two_resnet18_with_statistics_of_all_ranks() -> None:
    for wrap in WRAPS:
        _compare(_synchronised(wrap), [("resnet18", "slow sgd", "float64", False)])
    _compare(_synchronised(WRAPS[0]), [("resnet18", "slow sgd", "float32", False)])


def check_four_data_parallel_and_zero() -> None:
    mesh = distributed.DeviceMesh({"outer": 2, "inner": -1}, device="cpu")

    def wrap(step: Any) -> Any:
        inner = distributed.zero(3, mesh["inner"], bucket_bytes=1)
        return distributed.data_parallel(mesh["outer"], bucket_bytes=1)(inner(step))

    _compare(wrap, [(model, "slow sgd", "float64", False) for model in ("gpt", "transformer")])
    _compare(wrap, [("gpt", "slow sgd", "float32", False)])
    _compare(_synchronised(wrap), [("resnet18", "slow sgd", "float64", False)])


def check_two_resnet18_with_local_statistics() -> None:
    """One process computes the mean of the losses of the parts, each with its own statistics."""

    def losses(wrap: Any) -> list[float]:
        meta.random.seed(0)
        model = ResNet18().to(dtype="float64")
        parts = 1 if wrap else RANKS

        def forward(x: Any, y: Any) -> Any:
            pairs = zip(meta.split(x, parts, 0), meta.split(y, parts, 0), strict=True)
            return sum((meta.cross_entropy(model(a), b) for a, b in pairs), meta.zeros((), "float64")) / parts

        step = optim.TrainStep(forward, optim.SGD(model, 0.01, 0.9))
        step = wrap(step) if wrap else step
        generator, out = np.random.default_rng(1), list[float]()
        for _ in range(4):
            x, y = pictures(generator, "float64")
            if wrap:
                x, y = np.split(x, RANKS)[RANK], np.split(y, RANKS)[RANK]
            loss = step(meta.array(x), meta.array(y))
            out.append((distributed.all_reduce(loss, "mean") if wrap else loss).item())
        return out

    expected = losses(None)
    for wrap in WRAPS[:3]:  # stage 3 takes a Model
        np.testing.assert_allclose(losses(wrap), expected, 1e-9)
