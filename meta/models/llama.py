"""Llama (H. Touvron et al., "LLaMA", 2023) and the decoders that differ from it in a few choices: Mistral, Qwen2, Qwen3
and Gemma. `VARIANTS` has the differences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from meta._generated.methods import Tensor
from meta.model.model import Model
from meta.models.blocks import (
    AttentionContext,
    GatedMLP,
    OffsetRMSNorm,
    Projection,
    TokenTable,
    by_heads,
    joined_heads,
    rope_frequencies,
    rotated,
)
from meta.models.language_model import LanguageModel
from meta.records import record


@record
class LlamaConfig:
    """The sizes and choices of a decoder.

    qkv_bias, out_bias, mlp_bias: whether these projections have biases.
    qk_norm: whether queries and keys are normalised by heads.
    norm_offset: added to the weights of norms.  embed_scale: multiplies embeddings.
    windows: of each layer, None to see the whole text.  tied: whether the head is the table of embeddings."""

    vocab_size: int
    width: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    max_length: int
    activation: str
    eps: float
    rope: Mapping[str, Any]
    windows: tuple[int | None, ...]
    tied: bool
    qkv_bias: bool
    out_bias: bool
    mlp_bias: bool
    qk_norm: bool
    norm_offset: float
    embed_scale: float


_QWEN_WINDOWS: Mapping[str, Any] = {"use_sliding_window": False, "sliding_window": 4096, "max_window_layers": 28}
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "llama": {},
    "mistral": {"sliding_window": 4096},
    "qwen2": {"qkv_bias": True, **_QWEN_WINDOWS},
    "qwen3": {"qk_norm": True, "head_dim": 128, **_QWEN_WINDOWS},
    "gemma": {"norm_offset": 1.0, "scaled": True, "tie_word_embeddings": True, "head_dim": 256},
}
"""model_type -> the entries of config.json that it has by default, and choices that no entry has."""


def llama_config(entries: Mapping[str, Any]) -> LlamaConfig:
    """The configuration that a config.json describes."""
    c: dict[str, Any] = {
        "num_key_value_heads": None, "head_dim": None, "max_position_embeddings": 2048, "rms_norm_eps": 1e-6,
        "hidden_act": "silu", "attention_bias": False, "mlp_bias": False, "tie_word_embeddings": False,
        "rope_theta": 10000.0, **VARIANTS[entries["model_type"]], **entries,
    }  # fmt: skip
    width, heads, layers = c["hidden_size"], c["num_attention_heads"], c["num_hidden_layers"]
    rope: dict[str, Any] = c.get("rope_parameters") or c.get("rope_scaling") or {}
    return LlamaConfig(
        vocab_size=c["vocab_size"], width=width, hidden=c["intermediate_size"], layers=layers, heads=heads,
        kv_heads=c["num_key_value_heads"] or heads, head_dim=c["head_dim"] or width // heads,
        max_length=c["max_position_embeddings"], activation=c.get("hidden_activation") or c["hidden_act"],
        eps=c["rms_norm_eps"],
        rope={"original_max_position_embeddings": c["max_position_embeddings"], "rope_theta": c["rope_theta"], **rope},
        windows=tuple(_window(c, layer) for layer in range(layers)), tied=c["tie_word_embeddings"],
        qkv_bias=c.get("qkv_bias", c["attention_bias"]), out_bias=c["attention_bias"], mlp_bias=c["mlp_bias"],
        qk_norm=c.get("qk_norm", False), norm_offset=c.get("norm_offset", 0.0),
        embed_scale=width**0.5 if c.get("scaled") else 1.0,
    )  # fmt: skip


def _window(c: Mapping[str, Any], layer: int) -> int | None:
    """The window of a layer: named by its type, or of all layers from max_window_layers on where windows are used."""
    if c.get("layer_types"):
        slides = c["layer_types"][layer] == "sliding_attention"
    else:
        slides = c.get("use_sliding_window", True) and layer >= c.get("max_window_layers", 0)
    return c.get("sliding_window") if slides else None


class LlamaAttention(Model):
    """Attention in groups of heads, with rotary positions."""

    def build(self, c: LlamaConfig, layer: int) -> None:
        self.layer, self.window, self.head_dim = layer, c.windows[layer], c.head_dim
        self.q_proj = Projection(c.width, c.heads * c.head_dim, c.qkv_bias)
        self.k_proj = Projection(c.width, c.kv_heads * c.head_dim, c.qkv_bias)
        self.v_proj = Projection(c.width, c.kv_heads * c.head_dim, c.qkv_bias)
        self.o_proj = Projection(c.heads * c.head_dim, c.width, c.out_bias)
        self.q_norm = OffsetRMSNorm(c.head_dim, c.eps) if c.qk_norm else None
        self.k_norm = OffsetRMSNorm(c.head_dim, c.eps) if c.qk_norm else None

    def forward(self, x: Tensor, context: AttentionContext, turns: tuple[Tensor, Tensor]) -> Tensor:
        q, k, v = (by_heads(project(x), self.head_dim) for project in (self.q_proj, self.k_proj, self.v_proj))
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k = rotated(q, *turns), rotated(k, *turns)
        return self.o_proj(joined_heads(context.attention(self.layer, q, k, v, self.window)))


class LlamaLayer(Model):
    """Attention and a gated MLP, each behind a norm and beside a residual."""

    def build(self, c: LlamaConfig, layer: int) -> None:
        self.input_layernorm = OffsetRMSNorm(c.width, c.eps, c.norm_offset)
        self.self_attn = LlamaAttention(c, layer)
        self.post_attention_layernorm = OffsetRMSNorm(c.width, c.eps, c.norm_offset)
        self.mlp = GatedMLP(c.width, c.hidden, c.activation, c.mlp_bias)

    def forward(self, x: Tensor, context: AttentionContext, turns: tuple[Tensor, Tensor]) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), context, turns)
        return x + self.mlp(self.post_attention_layernorm(x))


class Llama(LanguageModel):
    """A decoder of the Llama family: (rows, length) ids -> (rows, length, vocab_size) scores of the next token.

    config: the entries of config.json, with model_type one of `VARIANTS`. Weights are zeros, norms' ones."""

    _torch_names: ClassVar[Mapping[str, str]] = {n: f"model.{n}" for n in ("embed_tokens", "layers", "norm")}

    def build(self, config: Mapping[str, Any]) -> None:
        self.config, c = dict(config), llama_config(config)
        self.embed_tokens = TokenTable(c.vocab_size, c.width)
        self.layers = [LlamaLayer(c, layer) for layer in range(c.layers)]
        self.norm = OffsetRMSNorm(c.width, c.eps, c.norm_offset)
        self.lm_head = Projection(c.width, c.vocab_size)
        if c.tied:
            self.lm_head.w = self.embed_tokens.w
        self.embed_scale, self.frequencies = c.embed_scale, rope_frequencies(c.head_dim, c.rope)
        self.vocab_size, self.max_length = c.vocab_size, c.max_length
        self.cache_shape = (c.layers, c.kv_heads, c.head_dim)

    def hidden(self, ids: Tensor, context: AttentionContext) -> Tensor:
        x = self.embed_tokens(ids)
        if self.embed_scale != 1.0:
            x = x * self.embed_scale
        turns = context.turns(self.frequencies)
        for layer in self.layers:
            x = layer(x, context, turns)
        return self.norm(x)
