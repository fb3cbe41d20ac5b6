"""Training steps of BERT-base, ResNet-50 and a GPT as large as GPT-2, for `python -m meta plan
benchmarks.plans:bert_base`."""

from __future__ import annotations

from typing import Any

import meta
from benchmarks.bert import BASE, Bert
from meta import nn, optim
from meta.distributed import shard
from meta.ir.type import TensorType, tensor_type

Planned = tuple[optim.TrainStep, TensorType, TensorType]
"""A step, and the types of the arguments of a rank's call."""
ROWS = 4
GPT_TOKENS, GPT_FEATURES, GPT_VOCABULARY = 256, 768, 50304


class GPT(meta.Model):
    """(rows, tokens) -> (rows * tokens, vocabulary) scores of the next token (A. Radford et al., "Language Models are
    Unsupervised Multitask Learners", 2019; the vocabulary is a multiple of 64)."""

    def build(self) -> None:
        self.embedding = nn.Embedding(GPT_VOCABULARY, GPT_FEATURES)
        self.positions = nn.Embedding(GPT_TOKENS, GPT_FEATURES)
        self.layers = [
            nn.TransformerEncoderLayer(
                GPT_FEATURES, 12, 4 * GPT_FEATURES, dropout=0.0, batch_first=True, norm_first=True
            )
            for _ in range(12)
        ]
        self.norm = nn.LayerNorm(GPT_FEATURES)
        self.head = nn.Linear(GPT_FEATURES, GPT_VOCABULARY, bias=False)

    def forward(self, x: Any) -> Any:
        h = self.embedding(x) + self.positions(meta.arange(GPT_TOKENS))
        for layer in self.layers:
            h = layer(h, is_causal=True)
        return self.head(self.norm(h)).reshape(-1, GPT_VOCABULARY)


BERT_PARTS = {
    "embedding.w": shard(0), "layers.*.qkv.*": shard(0, blocks=3), "layers.*.out.w": shard(1),
    "layers.*.wide.*": shard(0), "layers.*.narrow.w": shard(1), "out.*": shard(0),
}  # fmt: skip
GPT_PARTS = {
    "embedding.w": shard(0), "layers.*.attention.project.*": shard(0, blocks=3),
    "layers.*.attention.out.w": shard(1), "layers.*.first.*": shard(0), "layers.*.last.w": shard(1), "head.w": shard(0),
}  # fmt: skip


def bert_base() -> Planned:
    return _step(Bert(BASE), BASE.tokens)


def gpt() -> Planned:
    return _step(GPT(), GPT_TOKENS)


def resnet50() -> Planned:
    from benchmarks.training_steps import NETWORKS

    images = tensor_type((ROWS, 3, 224, 224), "float32")
    return _adamw(NETWORKS["resnet50"].ours()), images, tensor_type((ROWS,), "int64")


def _step(model: meta.Model, tokens: int) -> Planned:
    return _adamw(model), tensor_type((ROWS, tokens), "int64"), tensor_type((ROWS * tokens,), "int64")


def _adamw(model: meta.Model) -> optim.TrainStep:
    return optim.TrainStep(model, optim.AdamW(model, 0.0001), loss=meta.cross_entropy)
