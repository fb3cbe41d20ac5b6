"""GPT-2 (A. Radford et al., "Language Models are Unsupervised Multitask Learners", 2019)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import meta
from meta._generated.methods import Tensor
from meta.model.model import Model
from meta.models.blocks import (
    ACTIVATIONS,
    AttentionContext,
    PositionTable,
    Projection,
    TokenTable,
    TransposedProjection,
    by_heads,
    joined_heads,
)
from meta.models.language_model import LanguageModel
from meta.nn import LayerNorm
from meta.records import record


@record
class GPT2Config:
    """The sizes of a GPT-2."""

    vocab_size: int
    width: int
    hidden: int
    layers: int
    heads: int
    max_length: int
    activation: str
    eps: float
    tied: bool


def gpt2_config(entries: Mapping[str, Any]) -> GPT2Config:
    """The configuration that a config.json describes."""
    c: dict[str, Any] = {"n_inner": None, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, **entries}
    return GPT2Config(
        vocab_size=c["vocab_size"], width=c["n_embd"], hidden=c["n_inner"] or 4 * c["n_embd"], layers=c["n_layer"],
        heads=c["n_head"], max_length=c["n_positions"], activation=c["activation_function"],
        eps=c["layer_norm_epsilon"], tied=c.get("tie_word_embeddings", True),
    )  # fmt: skip


class GPT2Attention(Model):
    def build(self, c: GPT2Config, layer: int) -> None:
        self.layer, self.head_dim = layer, c.width // c.heads
        self.c_attn, self.c_proj = TransposedProjection(c.width, 3 * c.width), TransposedProjection(c.width, c.width)

    def forward(self, x: Tensor, context: AttentionContext) -> Tensor:
        q, k, v = (by_heads(part, self.head_dim) for part in meta.split(self.c_attn(x), 3, -1))
        return self.c_proj(joined_heads(context.attention(self.layer, q, k, v)))


class GPT2MLP(Model):
    def build(self, c: GPT2Config) -> None:
        self.c_fc, self.c_proj = TransposedProjection(c.width, c.hidden), TransposedProjection(c.hidden, c.width)
        self.activation = ACTIVATIONS[c.activation]

    def forward(self, x: Tensor) -> Tensor:
        return self.c_proj(self.activation(self.c_fc(x)))


class GPT2Layer(Model):
    """Attention and an MLP, each behind a norm and beside a residual."""

    def build(self, c: GPT2Config, layer: int) -> None:
        self.ln_1, self.attn = LayerNorm(c.width, c.eps), GPT2Attention(c, layer)
        self.ln_2, self.mlp = LayerNorm(c.width, c.eps), GPT2MLP(c)

    def forward(self, x: Tensor, context: AttentionContext) -> Tensor:
        x = x + self.attn(self.ln_1(x), context)
        return x + self.mlp(self.ln_2(x))


class GPT2(LanguageModel):
    """(rows, length) ids -> (rows, length, vocab_size) scores of the next token.

    config: the entries of config.json. Weights are zeros, norms' ones."""

    lora_targets: ClassVar[Sequence[str]] = ("c_attn",)
    _torch_names: ClassVar[Mapping[str, str]] = {n: f"transformer.{n}" for n in ("wte", "wpe", "h", "ln_f")}

    def build(self, config: Mapping[str, Any]) -> None:
        self.config, c = dict(config), gpt2_config(config)
        self.wte, self.wpe = TokenTable(c.vocab_size, c.width), PositionTable(c.max_length, c.width)
        self.h = [GPT2Layer(c, layer) for layer in range(c.layers)]
        self.ln_f = LayerNorm(c.width, c.eps)
        self.lm_head = Projection(c.width, c.vocab_size)
        if c.tied:
            self.lm_head.w = self.wte.w
        self.vocab_size, self.max_length = c.vocab_size, c.max_length
        self.cache_shape = (c.layers, c.heads, c.width // c.heads)

    def hidden(self, ids: Tensor, context: AttentionContext) -> Tensor:
        x = self.wte(ids) + self.wpe(context.positions)
        for layer in self.h:
            x = layer(x, context)
        return self.ln_f(x)
