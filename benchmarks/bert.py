"""A post-norm transformer encoder that predicts every token (J. Devlin, M. Chang, K. Lee and K. Toutanova, "BERT:
Pre-training of Deep Bidirectional Transformers for Language Understanding", 2018), in meta and in torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

import meta


@dataclass(frozen=True, slots=True)
class Sizes:
    """vocabulary, features, heads, features of the feed-forward layers, number of layers, tokens of a row, probability
    of dropout after each block (none in attention)."""

    vocabulary: int
    features: int
    heads: int
    hidden: int
    layers: int
    tokens: int
    dropout: float


MINI = Sizes(vocabulary=1000, features=256, heads=4, hidden=1024, layers=4, tokens=64, dropout=0.0)
BASE = Sizes(vocabulary=30522, features=768, heads=12, hidden=3072, layers=12, tokens=128, dropout=0.1)


def _identity(x: Any) -> Any:
    return x


class Layer(meta.Model):
    """Self-attention and two dense layers, each with a residual connection and layer norm after it."""

    def build(self, sizes: Sizes) -> None:
        d = sizes.features
        self.heads = sizes.heads
        self.qkv, self.out = meta.nn.Linear(d, 3 * d), meta.nn.Linear(d, d)
        self.wide, self.narrow = meta.nn.Linear(d, sizes.hidden), meta.nn.Linear(sizes.hidden, d)
        self.norm1, self.norm2 = meta.nn.LayerNorm(d), meta.nn.LayerNorm(d)
        self.drop1, self.drop2 = (meta.nn.Dropout(sizes.dropout) if sizes.dropout else _identity for _ in range(2))

    def forward(self, x: Any) -> Any:
        batch, tokens, features = x.shape
        qkv = self.qkv(x).reshape((batch, tokens, 3, self.heads, features // self.heads))
        q, k, v = (part.squeeze(0) for part in meta.split(qkv.transpose((2, 0, 3, 1, 4)), 3, 0))
        attended = meta.scaled_dot_product_attention(q, k, v).transpose((0, 2, 1, 3))
        x = self.norm1(x + self.drop1(self.out(attended.reshape((batch, tokens, features)))))
        return self.norm2(x + self.drop2(self.narrow(meta.gelu(self.wide(x)))))


class Bert(meta.Model):
    """(batch, tokens) indices -> (batch * tokens, vocabulary) scores."""

    def build(self, sizes: Sizes) -> None:
        self.vocabulary = sizes.vocabulary
        self.embedding = meta.nn.Embedding(sizes.vocabulary, sizes.features)
        self.positions = meta.random.normal((1, sizes.tokens, sizes.features)) * 0.02
        self.layers = [Layer(sizes) for _ in range(sizes.layers)]
        self.out = meta.nn.Linear(sizes.features, sizes.vocabulary)

    def forward(self, indices: Any) -> Any:
        x = self.embedding(indices) + self.positions
        for layer in self.layers:
            x = layer(x)
        return self.out(x).reshape((-1, self.vocabulary))


class _TorchLayer(torch.nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        d = sizes.features
        self.heads, self.dropout = sizes.heads, sizes.dropout
        self.qkv, self.out = torch.nn.Linear(d, 3 * d), torch.nn.Linear(d, d)
        self.wide, self.narrow = torch.nn.Linear(d, sizes.hidden), torch.nn.Linear(sizes.hidden, d)
        self.norm1, self.norm2 = torch.nn.LayerNorm(d), torch.nn.LayerNorm(d)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        functional = torch.nn.functional
        batch, tokens, features = x.shape
        qkv = self.qkv(x).view(batch, tokens, 3, self.heads, features // self.heads)
        attended = functional.scaled_dot_product_attention(*qkv.permute(2, 0, 3, 1, 4))
        attended = self.out(attended.transpose(1, 2).reshape(batch, tokens, features))
        x = self.norm1(x + functional.dropout(attended, self.dropout))
        h = self.narrow(functional.gelu(self.wide(x)))
        return self.norm2(x + functional.dropout(h, self.dropout))


class TorchBert(torch.nn.Module):
    """Bert in torch."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(sizes.vocabulary, sizes.features)
        self.positions = torch.nn.Parameter(torch.randn(1, sizes.tokens, sizes.features) * 0.02)
        self.layers = torch.nn.Sequential(*(_TorchLayer(sizes) for _ in range(sizes.layers)))
        self.out = torch.nn.Linear(sizes.features, sizes.vocabulary)

    def forward(self, indices: torch.Tensor) -> torch.Tensor:
        return self.out(self.layers(self.embedding(indices) + self.positions)).flatten(0, 1)
