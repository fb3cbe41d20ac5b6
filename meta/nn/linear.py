"""Linear layers and embeddings."""

from __future__ import annotations

import math
from typing import Any

import meta
from meta import random
from meta.errors import ArgumentError
from meta.model.model import Model
from meta.model.names import Alias


class Linear(Model):
    """y = x @ w^T + b; x: (..., in_features), w: (out_features, in_features), b: (out_features,).

    w and b are initialised uniformly in +-1/sqrt(in_features)."""

    weight, bias = Alias("w"), Alias("b")

    def build(self, in_features: int, out_features: int, bias: bool = True) -> None:
        bound = 1 / math.sqrt(in_features) if in_features else 0.0
        self.w = random.uniform((out_features, in_features), -bound, bound)
        self.b = random.uniform((out_features,), -bound, bound) if bias else None

    def forward(self, x: Any) -> Any:
        return meta.dense(x, self.w, self.b)


class Embedding(Model):
    """Looks up rows of w, a (num_embeddings, embedding_dim) table, initialised from the standard normal distribution.

    padding_idx: a row that starts as zeros and has no gradient; negative ones count from the end. Raises ArgumentError
    for a row that the table does not have."""

    weight = Alias("w")

    def build(self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None) -> None:
        self.w = random.normal((num_embeddings, embedding_dim))
        self.padding_idx = None if padding_idx is None else _row(padding_idx, num_embeddings)
        if self.padding_idx is not None:
            self.w[self.padding_idx] = 0.0

    def forward(self, indices: Any) -> Any:
        rows = meta.embedding(self.w, indices)
        if self.padding_idx is None:
            return rows
        padding = meta.expand_dims(meta.equal(indices, self.padding_idx), -1)
        return meta.where(padding, rows.stop_gradient(), rows)


def _row(index: int, count: int) -> int:
    if not -count <= index < count:
        raise ArgumentError("Embedding", f"padding_idx is {index}", f"{-count} to {count - 1}, a row of the table")
    return index % count
