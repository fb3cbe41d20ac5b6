"""BERT (J. Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding", 2018):
the encoder, without a pooler or other heads."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import meta
from meta._generated.methods import Tensor
from meta.errors import ArgumentError
from meta.model.model import Model
from meta.models.blocks import ACTIVATIONS, PositionTable, Projection, TokenTable, by_heads, joined_heads
from meta.models.lora import AdaptableModel
from meta.nn import LayerNorm
from meta.records import record


@record
class BertConfig:
    """The sizes of a BERT.  kinds: of segments."""

    vocab_size: int
    width: int
    hidden: int
    layers: int
    heads: int
    max_length: int
    kinds: int
    activation: str
    eps: float


def bert_config(entries: Mapping[str, Any]) -> BertConfig:
    """The configuration that a config.json describes."""
    c: dict[str, Any] = {"type_vocab_size": 2, "hidden_act": "gelu", "layer_norm_eps": 1e-12, **entries}
    return BertConfig(
        vocab_size=c["vocab_size"], width=c["hidden_size"], hidden=c["intermediate_size"],
        layers=c["num_hidden_layers"], heads=c["num_attention_heads"], max_length=c["max_position_embeddings"],
        kinds=c["type_vocab_size"], activation=c["hidden_act"], eps=c["layer_norm_eps"],
    )  # fmt: skip


class BertEmbeddings(Model):
    """The normalised sum of the rows for tokens, positions and segments."""

    _torch_names: ClassVar[Mapping[str, str]] = {
        "tokens": "word_embeddings", "positions": "position_embeddings", "segments": "token_type_embeddings",
        "norm": "LayerNorm",
    }  # fmt: skip

    def build(self, c: BertConfig) -> None:
        self.tokens, self.positions = TokenTable(c.vocab_size, c.width), PositionTable(c.max_length, c.width)
        self.segments, self.norm = PositionTable(c.kinds, c.width), LayerNorm(c.width, c.eps)

    def forward(self, ids: Tensor, segments: Tensor | None) -> Tensor:
        places = meta.arange(0, ids.shape[1], dtype="int64", device=ids.device)
        kinds = meta.zeros((1, 1), "int64", ids.device) if segments is None else segments
        return self.norm(self.tokens(ids) + self.positions(places) + self.segments(kinds))


class BertLayer(Model):
    """Attention and an MLP, each with a residual and a norm behind it."""

    _torch_names: ClassVar[Mapping[str, str]] = {
        "query": "attention.self.query", "key": "attention.self.key", "value": "attention.self.value",
        "out": "attention.output.dense", "attention_norm": "attention.output.LayerNorm",
        "wide": "intermediate.dense", "narrow": "output.dense", "norm": "output.LayerNorm",
    }  # fmt: skip

    def build(self, c: BertConfig) -> None:
        self.head_dim = c.width // c.heads
        self.query, self.key, self.value, self.out = (Projection(c.width, c.width, True) for _ in range(4))
        self.wide, self.narrow = Projection(c.width, c.hidden, True), Projection(c.hidden, c.width, True)
        self.attention_norm, self.norm = LayerNorm(c.width, c.eps), LayerNorm(c.width, c.eps)
        self.activation = ACTIVATIONS[c.activation]

    def forward(self, x: Tensor, seen: Tensor | None) -> Tensor:
        q, k, v = (by_heads(project(x), self.head_dim) for project in (self.query, self.key, self.value))
        scores = meta.matmul(q, k, transpose_b=True).cast("float32") * (1 / math.sqrt(self.head_dim))
        weights = meta.softmax(scores if seen is None else meta.where(seen, scores, -1e30)).cast(v.dtype)
        x = self.attention_norm(x + self.out(joined_heads(meta.matmul(weights, v))))
        return self.norm(x + self.narrow(self.activation(self.wide(x))))


class Bert(AdaptableModel):
    """An encoder: (rows, length) ids -> (rows, length, width) features of the last layer.

    config: the entries of config.json. Weights are zeros, norms' ones."""

    _torch_names: ClassVar[Mapping[str, str]] = {"embeddings": "bert.embeddings", "layers": "bert.encoder.layer"}
    lora_targets: ClassVar[Sequence[str]] = ("query", "value")

    def build(self, config: Mapping[str, Any]) -> None:
        self.config, c = dict(config), bert_config(config)
        self.embeddings = BertEmbeddings(c)
        self.layers = [BertLayer(c) for _ in range(c.layers)]
        self.max_length = c.max_length

    def forward(self, ids: Tensor, mask: Tensor | None = None, segments: Tensor | None = None) -> Tensor:
        """The features of each token.

        ids: int64.  mask: (rows, length), 0 for padding, which no token sees; None for texts of one length.
        segments: (rows, length), the segment of each token; None for the first. Raises ArgumentError for texts longer
        than the table of positions."""
        length = ids.shape[1]
        if isinstance(length, int) and length > self.max_length:
            problem = f"a text of {length} tokens"
            raise ArgumentError("Bert", problem, f"at most {self.max_length}, the model's longest text")
        x = self.embeddings(ids, segments)
        seen = None if mask is None else meta.expand_dims(meta.expand_dims(mask != 0, 1), 1)
        for layer in self.layers:
            x = layer(x, seen)
        return x
