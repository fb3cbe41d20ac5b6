"""T5 (C. Raffel et al., "Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer", 2020): an
encoder and a decoder, with a bias for the distance of two tokens in place of positions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

import meta
from meta import vm
from meta._generated.methods import Tensor
from meta.errors import ArgumentError, value_text
from meta.model.model import Model
from meta.models.blocks import ACTIVATIONS, OffsetRMSNorm, PositionTable, Projection, TokenTable, by_heads, joined_heads
from meta.models.lora import AdaptableModel
from meta.modes import no_grad
from meta.records import record
from meta.schema.annotations import explained


@record
class T5Config:
    """The sizes of a T5.  buckets, farthest: of distances; farther tokens share the last bucket."""

    vocab_size: int
    width: int
    hidden: int
    layers: int
    decoder_layers: int
    heads: int
    head_dim: int
    buckets: int
    farthest: int
    activation: str
    gated: bool
    eps: float
    tied: bool


def t5_config(entries: Mapping[str, Any]) -> T5Config:
    """The configuration that a config.json describes."""
    c: dict[str, Any] = {
        "num_decoder_layers": None, "relative_attention_num_buckets": 32, "relative_attention_max_distance": 128,
        "feed_forward_proj": "relu", "layer_norm_epsilon": 1e-6, "tie_word_embeddings": True, **entries,
    }  # fmt: skip
    gate, _, activation = c["feed_forward_proj"].rpartition("gated-")
    activation = "gelu_new" if gate or c["feed_forward_proj"] == "gated-gelu" else activation
    return T5Config(
        vocab_size=c["vocab_size"], width=c["d_model"], hidden=c["d_ff"], layers=c["num_layers"],
        decoder_layers=c["num_decoder_layers"] or c["num_layers"], heads=c["num_heads"], head_dim=c["d_kv"],
        buckets=c["relative_attention_num_buckets"], farthest=c["relative_attention_max_distance"],
        activation=activation, gated=c["feed_forward_proj"].startswith("gated-"), eps=c["layer_norm_epsilon"],
        tied=c["tie_word_embeddings"],
    )  # fmt: skip


def bucket_table(buckets: int, farthest: int) -> npt.NDArray[np.int64]:
    """The bucket of each distance from 0 to `farthest`: one each up to half of them, then by logarithms."""
    exact = buckets // 2
    distances = np.arange(farthest + 1, dtype=np.float32)
    shares: Any = np.log(np.maximum(distances, 1) / exact) / np.log(farthest / exact) * (buckets - exact)
    far = np.minimum(exact + np.trunc(shares), buckets - 1)
    return np.where(distances < exact, distances, far).astype(np.int64)


class T5Attention(Model):
    """Attention without a scale, with a bias that the first layer of a stack has for all of them."""

    def build(self, c: T5Config, has_bias: bool) -> None:
        self.head_dim, inner = c.head_dim, c.heads * c.head_dim
        self.q, self.k, self.v = (Projection(c.width, inner) for _ in range(3))
        self.o = Projection(inner, c.width)
        self.relative_attention_bias = PositionTable(c.buckets, c.heads) if has_bias else None

    def forward(self, x: Tensor, source: Tensor, bias: Tensor | None) -> Tensor:
        q = by_heads(self.q(x), self.head_dim)
        k, v = by_heads(self.k(source), self.head_dim), by_heads(self.v(source), self.head_dim)
        scores = meta.matmul(q, k, transpose_b=True).cast("float32")
        weights = meta.softmax(scores if bias is None else scores + bias).cast(v.dtype)
        return self.o(joined_heads(meta.matmul(weights, v)))


class T5MLP(Model):
    """wo(activation(wi(x))), or with a gate wo(activation(wi_0(x)) * wi_1(x))."""

    def build(self, c: T5Config) -> None:
        if c.gated:
            self.wi_0, self.wi_1 = Projection(c.width, c.hidden), Projection(c.width, c.hidden)
        else:
            self.wi = Projection(c.width, c.hidden)
        self.wo, self.gated, self.activation = Projection(c.hidden, c.width), c.gated, ACTIVATIONS[c.activation]

    def forward(self, x: Tensor) -> Tensor:
        return self.wo(self.activation(self.wi_0(x)) * self.wi_1(x) if self.gated else self.activation(self.wi(x)))


class T5Layer(Model):
    """Attention to the own text, in a decoder also to the encoder's, and an MLP, each behind a norm."""

    _torch_names: ClassVar[Mapping[str, str]] = {
        "own": "layer.0.SelfAttention", "own_norm": "layer.0.layer_norm",
        "mlp": "layer.1.DenseReluDense", "norm": "layer.1.layer_norm",
    }  # fmt: skip

    def build(self, c: T5Config, is_decoder: bool, is_first: bool) -> None:
        self.own, self.own_norm = T5Attention(c, is_first), OffsetRMSNorm(c.width, c.eps)
        self.other = T5Attention(c, False) if is_decoder else None
        self.other_norm = OffsetRMSNorm(c.width, c.eps) if is_decoder else None
        self.mlp, self.norm = T5MLP(c), OffsetRMSNorm(c.width, c.eps)

    def forward(self, x: Tensor, bias: Tensor, source: Tensor | None) -> Tensor:
        normal = self.own_norm(x)
        x = x + self.own(normal, normal, bias)
        if self.other is not None and self.other_norm is not None:
            x = x + self.other(self.other_norm(x), source, None)
        return x + self.mlp(self.norm(x))


class T5DecoderLayer(T5Layer):
    """The same, with the names of a layer that also attends to the encoder."""

    _torch_names: ClassVar[Mapping[str, str]] = {
        **T5Layer._torch_names, "other": "layer.1.EncDecAttention", "other_norm": "layer.1.layer_norm",
        "mlp": "layer.2.DenseReluDense", "norm": "layer.2.layer_norm",
    }  # fmt: skip


class T5Stack(Model):
    """An encoder, or a decoder, whose tokens see earlier ones and the encoder's features."""

    _torch_names: ClassVar[Mapping[str, str]] = {"layers": "block", "norm": "final_layer_norm"}

    def build(self, c: T5Config, layers: int, is_decoder: bool) -> None:
        self.layers = [(T5DecoderLayer if is_decoder else T5Layer)(c, is_decoder, i == 0) for i in range(layers)]
        self.norm, self.is_decoder, self.farthest = OffsetRMSNorm(c.width, c.eps), is_decoder, c.farthest
        self.half = 0 if is_decoder else c.buckets // 2
        self.buckets = bucket_table(c.buckets if is_decoder else self.half, c.farthest)

    def forward(self, x: Tensor, source: Tensor | None = None) -> Tensor:
        bias = self._bias(x)
        for layer in self.layers:
            x = layer(x, bias, source)
        return self.norm(x)

    def _bias(self, x: Tensor) -> Tensor:
        """What is added to the scores of each head, (1, heads, length, length)."""
        steps = meta.arange(0, x.shape[1], dtype="int64", device=x.device)
        after = meta.expand_dims(steps, 0) - meta.expand_dims(steps, 1)
        table = meta.array(self.buckets, device=x.device)
        place = meta.take(table, meta.minimum(meta.abs(after), self.farthest), 0)
        place = meta.where(after > 0, place + self.half, place)  # a decoder sees no later token
        by_bucket = self.layers[0].own.relative_attention_bias
        assert by_bucket is not None
        heads: Tensor = by_bucket(place)
        bias = meta.expand_dims(heads.cast("float32").transpose((2, 0, 1)), 0)
        return meta.where(after <= 0, bias, -1e30) if self.is_decoder else bias


class T5(AdaptableModel):
    """(rows, length) ids, and ids of the answer so far -> (rows, length of the answer, vocab_size) scores.

    config: the entries of config.json. Weights are zeros, norms' ones."""

    lora_targets: ClassVar[Sequence[str]] = ("q", "v")
    lora_task: ClassVar[str | None] = "SEQ_2_SEQ_LM"

    def build(self, config: Mapping[str, Any]) -> None:
        self.config, c = dict(config), t5_config(config)
        self.shared = TokenTable(c.vocab_size, c.width)
        self.encoder, self.decoder = T5Stack(c, c.layers, False), T5Stack(c, c.decoder_layers, True)
        self.lm_head = Projection(c.width, c.vocab_size)
        if c.tied:
            self.lm_head.w = self.shared.w
        # T5 1.1 does not scale features; transformers' newer config.json says so, in older ones its head is not tied.
        self.scale = c.width**-0.5 if self.config.get("scale_decoder_outputs", c.tied) else 1.0
        self.vocab_size, self.first = c.vocab_size, self.config.get("decoder_start_token_id", 0)

    def encode(self, ids: Tensor) -> Tensor:
        """The features of a text, which the decoder reads."""
        return self.encoder(self.shared(ids))

    def decode(self, answer: Tensor, source: Tensor) -> Tensor:
        """The scores behind each token of the answer."""
        return self.lm_head(self.decoder(self.shared(answer), source) * self.scale)

    def forward(self, ids: Tensor, answer: Tensor) -> Tensor:
        return self.decode(answer, self.encode(ids))

    @explained
    def generate(
        self, ids: Sequence[int], max_tokens: int, stop: int | Collection[int] = (), *, compiled: bool = True
    ) -> list[int]:
        """The most likely answer to a text, token by token: the encoder runs once, the decoder on the whole answer for
        each token, in one program for all lengths.

        stop: tokens that end the answer; they are its last token. Raises ArgumentError for an empty text, tokens that
        the model does not have, and max_tokens below 1."""
        wrong = next((t for t in ids if not 0 <= t < self.vocab_size), None)
        if not len(ids) or wrong is not None or max_tokens < 1:
            problem = f"ids has {len(ids)} tokens" + ("" if wrong is None else f", one of them {wrong}")
            problem += f", max_tokens is {value_text(max_tokens)}"
            raise ArgumentError("generate", problem, f"tokens of 0 to {self.vocab_size - 1}, and at least 1 of each")
        device, ends = self.lm_head.w.device, {stop} if isinstance(stop, int) else set(stop)
        encode: Any = self.encode
        following: Any = self._following
        if compiled:
            encode = vm.compile(self.encode, device, dynamic={"ids": {1: "length"}})
            following = vm.compile(self._following, device, dynamic={"answer": {1: "count"}, "source": {1: "length"}})
        answer = [int(self.first)]
        with no_grad():
            source = encode(meta.array([list(ids)], "int64", device))
            while len(answer) <= max_tokens and (len(answer) == 1 or answer[-1] not in ends):
                answer.append(int(following(meta.array([answer], "int64", device), source).numpy()[0]))
        return answer[1:]

    def _following(self, answer: Tensor, source: Tensor) -> Tensor:
        """The most likely token behind an answer, (rows,)."""
        return meta.argmax(self.decode(answer, source)[:, -1], -1)
