"""Self-attention and the transformer encoder layer (Vaswani et al. 2017), built from matrix products and softmax."""

from __future__ import annotations

import math
from typing import Any

import meta
from meta.errors import ArgumentError
from meta.model.model import Model
from meta.nn.dropout import Dropout
from meta.nn.linear import Linear
from meta.nn.norm import LayerNorm


class MultiHeadAttention(Model):
    """Self-attention over (batch, length, features). `heads` divides `features`.

    mask: added to the scores before softmax, broadcasts to (batch, heads, length, length); None for no mask.
    Raises ArgumentError unless `heads` divides `features`."""

    def build(self, features: int, heads: int, dropout: float = 0.0) -> None:
        if heads < 1 or features % heads:
            whole = [n for n in range(1, features + 1) if features % n == 0]
            near = min(whole, key=lambda n: abs(n - heads), default=1)
            problem = f"heads is {heads}, features is {features}"
            raise ArgumentError("MultiHeadAttention", problem, "heads that divide features", f"use heads={near}")
        self.heads = heads
        self.project = Linear(features, 3 * features)
        self.out = Linear(features, features)
        self.dropout = Dropout(dropout) if dropout else None

    def forward(self, x: Any, mask: Any = None) -> Any:
        batch, length, features = x.shape
        size = features // self.heads
        qkv = self.project(x).reshape((batch, length, 3, self.heads, size)).transpose((2, 0, 3, 1, 4))
        q, k, v = (part.squeeze(0) for part in meta.split(qkv, 3, 0))
        scores = meta.matmul(q, k, transpose_b=True) * (1 / math.sqrt(size))
        weights = meta.softmax(scores if mask is None else scores + mask)
        weights = weights if self.dropout is None else self.dropout(weights)
        attended = (weights @ v).transpose((0, 2, 1, 3)).reshape((batch, length, features))
        return self.out(attended)


class TransformerEncoderLayer(Model):
    """Attention, then a two-layer GELU network. Layer norm precedes each, and a residual connection goes around it."""

    def build(self, features: int, heads: int, hidden: int, dropout: float = 0.0) -> None:
        self.attention = MultiHeadAttention(features, heads, dropout)
        self.norm1 = LayerNorm(features)
        self.norm2 = LayerNorm(features)
        self.first = Linear(features, hidden)
        self.last = Linear(hidden, features)
        self.dropout = Dropout(dropout) if dropout else None

    def forward(self, x: Any, mask: Any = None) -> Any:
        x = x + self._drop(self.attention(self.norm1(x), mask))
        return x + self._drop(self.last(meta.gelu(self.first(self.norm2(x)))))

    def _drop(self, x: Any) -> Any:
        return x if self.dropout is None else self.dropout(x)
