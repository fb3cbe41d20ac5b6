"""Linear layers and embeddings."""

from __future__ import annotations

from typing import Literal

import meta
from meta import random
from meta._generated.methods import Tensor
from meta.errors import ArgumentError
from meta.functional.embedding import rows_of
from meta.model.model import Model
from meta.model.names import Alias
from meta.nn.init import fan_in_bound


class Linear(Model):
    """y = x @ w^T + b; x: (..., in_features), w: (out_features, in_features), b: (out_features,).

    w and b are initialised uniformly in +-1/sqrt(in_features)."""

    _input_size = ("in_features", -1)
    weight, bias = Alias("w"), Alias("b")

    def build(self, in_features: int, out_features: int, bias: bool = True) -> None:
        bound = fan_in_bound(in_features)
        self.w = random.uniform((out_features, in_features), -bound, bound)
        self.b = random.uniform((out_features,), -bound, bound) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        return self.with_weight(x, self.w)

    def with_weight(self, x: Tensor, w: Tensor) -> Tensor:
        """The result for another weight than the layer's."""
        return meta.dense(x, w, self.b)


class Embedding(Model):
    """Looks up rows of w, a (num_embeddings, embedding_dim) table, initialised from the standard normal distribution.

    padding_idx: a row that starts as zeros and has no gradient; negative ones count from the end.
    max_norm: rows are first scaled down in place to this norm_type-norm.
    scale_grad_by_freq: divide the gradient of each row by the number of its indices. Raises ArgumentError for a row
    that the table does not have."""

    weight = Alias("w")

    def build(
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None, max_norm: float | None = None,
        norm_type: float = 2.0, scale_grad_by_freq: bool = False,
    ) -> None:  # fmt: skip
        self.w = random.normal((num_embeddings, embedding_dim))
        self.max_norm, self.norm_type, self.scale_grad_by_freq = max_norm, norm_type, scale_grad_by_freq
        self.padding_idx = None if padding_idx is None else _row(padding_idx, num_embeddings)
        if self.padding_idx is not None:
            self.w[self.padding_idx] = 0.0

    def forward(self, indices: Tensor) -> Tensor:
        if self.max_norm is not None:
            _limit(self.w, indices, self.max_norm, self.norm_type)
        return rows_of(self.w, indices, self.padding_idx, self.scale_grad_by_freq)


class EmbeddingBag(Model):
    """Sums, means or maxima of the rows of w, a (num_embeddings, embedding_dim) table, in bags; see meta.embedding_bag.

    mode: "sum", "mean" or "max".  include_last_offset: whether offsets end with the number of indices.
    padding_idx: a row that does not count, which starts as zeros.
    max_norm, norm_type, scale_grad_by_freq: as of Embedding. Raises ArgumentError for a row that the table does
    not have."""

    weight = Alias("w")
    mode: Literal["sum", "mean", "max"]

    def build(
        self, num_embeddings: int, embedding_dim: int, mode: Literal["sum", "mean", "max"] = "mean",
        include_last_offset: bool = False, padding_idx: int | None = None, max_norm: float | None = None,
        norm_type: float = 2.0, scale_grad_by_freq: bool = False,
    ) -> None:  # fmt: skip
        self.w = random.normal((num_embeddings, embedding_dim))
        self.max_norm, self.norm_type, self.scale_grad_by_freq = max_norm, norm_type, scale_grad_by_freq
        self.mode, self.include_last_offset = mode, include_last_offset
        self.padding_idx = None if padding_idx is None else _row(padding_idx, num_embeddings)
        if self.padding_idx is not None:
            self.w[self.padding_idx] = 0.0

    def forward(
        self, indices: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None
    ) -> Tensor:
        if self.max_norm is not None:
            _limit(self.w, indices, self.max_norm, self.norm_type)
        options = (self.mode, per_sample_weights, self.include_last_offset, self.padding_idx, self.scale_grad_by_freq)
        return meta.embedding_bag(self.w, indices, offsets, *options)


class Bilinear(Model):
    """The sum over i and j of x1[..., i] * w[o, i, j] * x2[..., j], plus b. w, (out_features, in1_features,
    in2_features), and b are initialised uniformly in +-1/sqrt(in1_features)."""

    weight, bias = Alias("w"), Alias("b")

    def build(self, in1_features: int, in2_features: int, out_features: int, bias: bool = True) -> None:
        bound = fan_in_bound(in1_features)
        self.w = random.uniform((out_features, in1_features, in2_features), -bound, bound)
        self.b = random.uniform((out_features,), -bound, bound) if bias else None

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return meta.bilinear(x1, x2, self.w, self.b)


def _limit(w: Tensor, indices: Tensor, max_norm: float, norm_type: float) -> None:
    """Scale rows of w down in place."""
    with meta.no_grad():
        w.update(meta.embedding_renorm(w, indices, max_norm, norm_type))


def _row(index: int, count: int) -> int:
    if not -count <= index < count:
        raise ArgumentError("Embedding", f"padding_idx is {index}", f"{-count} to {count - 1}, a row of the table")
    return index % count
