"""The networks whose curves are compared: each with a batch and a plan of tensor_parallel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import meta
from meta import nn
from meta.distributed import shard
from tests.python.distributed.training import BATCH, MLP, vectors

VOCABULARY, LENGTH, FEATURES = 12, 3, 8
WIDTHS = (4, 8)


class Encoder(meta.Model):
    """Layers with residuals, normalised after each, and attention to all positions, as in BERT; the scores are products
    with the table of the embedding."""

    def build(self, dropout: float = 0.0, layers: int = 2, is_causal: bool = False, norm_first: bool = False) -> None:
        self.embedding = nn.Embedding(VOCABULARY, FEATURES)
        self.positions = nn.Embedding(LENGTH, FEATURES)
        self.layers = [
            nn.TransformerEncoderLayer(FEATURES, 4, 16, dropout=dropout, batch_first=True, norm_first=norm_first)
            for _ in range(layers)
        ]
        self.is_causal = is_causal

    def hidden(self, x: Any) -> Any:
        h = self.embedding(x) + self.positions(meta.arange(LENGTH))
        for layer in self.layers:
            h = layer(h, is_causal=self.is_causal)
        return h

    def forward(self, x: Any) -> Any:
        return meta.dense(self.hidden(x), self.embedding.w).reshape(-1, VOCABULARY)


class GPT(Encoder):
    """Layers with normalised inputs and causal attention, and a linear layer for the scores of the next token."""

    def build(self, dropout: float = 0.0, layers: int = 2) -> None:
        super().build(dropout, layers, is_causal=True, norm_first=True)
        self.head = nn.Linear(FEATURES, VOCABULARY)

    def forward(self, x: Any) -> Any:
        return self.head(self.hidden(x)).reshape(-1, VOCABULARY)


class Block(meta.Model):
    def build(self, inputs: int, outputs: int, stride: int) -> None:
        self.conv1, self.norm1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False), nn.BatchNorm2d(outputs)
        self.conv2, self.norm2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs)
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False) if stride == 2 else None

    def forward(self, x: Any) -> Any:
        y = self.norm2(self.conv2(meta.relu(self.norm1(self.conv1(x)))))
        return meta.relu(y + (x if self.shortcut is None else self.shortcut(x)))


class ResNet(meta.Model):
    """Two stages of ResNet-18, which have all of its layers, on images of 12x12, with few channels."""

    def build(self) -> None:
        self.conv, self.norm = nn.Conv2d(2, WIDTHS[0], 3, padding=1, bias=False), nn.BatchNorm2d(WIDTHS[0])
        blocks = [
            Block(WIDTHS[max(0, i - 1 + j)], WIDTHS[i], 2 if i and not j else 1)
            for i in range(len(WIDTHS))
            for j in range(2)
        ]
        self.blocks, self.head = nn.Sequential(*blocks), nn.Linear(WIDTHS[-1], 3)

    def forward(self, x: Any) -> Any:
        return self.head(self.blocks(meta.relu(self.norm(self.conv(x)))).mean((2, 3)))


def pictures(generator: Any, dtype: str) -> tuple[Any, Any]:
    return generator.standard_normal((BATCH, 2, 12, 12)).astype(dtype), generator.integers(0, 3, BATCH)


def tokens(generator: Any, dtype: str) -> tuple[Any, Any]:
    return generator.integers(0, VOCABULARY, (BATCH, LENGTH)), generator.integers(0, VOCABULARY, BATCH * LENGTH)


class Network(NamedTuple):
    """batch: inputs and targets, of a random generator and a dtype.  plan: of tensor_parallel.
    optimizer: of `training.OPTIMIZERS`."""

    model: Callable[..., Any]
    batch: Callable[[Any, str], tuple[Any, Any]]
    plan: Mapping[str, Any]
    optimizer: str = "sgd"


LAYERS = {
    "layers.*.attention.project.*": shard(0, blocks=3), "layers.*.attention.out.w": shard(1),
    "layers.*.first.*": shard(0), "layers.*.last.w": shard(-1),
}  # fmt: skip
NETWORKS = {
    "mlp": Network(lambda: MLP(5, 8, 3), vectors, {"layers.layers.0.*": shard(0), "layers.layers.2.w": shard(1)}),
    "resnet": Network(ResNet, pictures, {"blocks.layers.*.conv1.w": shard(0), "head.w": shard(1)}, "slow sgd"),
    "bert": Network(Encoder, tokens, LAYERS | {"embedding.w": shard(0)}),
    "gpt": Network(GPT, tokens, LAYERS | {"embedding.w": shard(0), "head.*": shard(0)}),
}
