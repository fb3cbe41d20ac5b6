"""BERT (J. Devlin et al., "BERT", 2018), a transformer encoder that predicts masked tokens: a small one, or with
`--base` 12 layers of 768 features: `python -m examples.bert`."""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import torch

import meta
from examples import common

MASK = 0
"""The token that replaces those to be predicted."""


def sizes(options: argparse.Namespace) -> tuple[int, int, int, int]:
    """The numbers of features, heads, layers and tokens of the vocabulary."""
    return (768, 12, 12, 30522) if options.base else (options.features, 4, options.layers, 64)


class Bert(meta.Model):
    def build(self, features: int, heads: int, layers: int, vocabulary: int, tokens: int) -> None:
        common.add_transformer(self, meta.nn, vocabulary, features, heads, layers, tokens, norm_first=False)
        self.position_ids = meta.arange(tokens)

    def forward(self, tokens):
        x = self.embed(tokens) + self.positions(self.position_ids)
        for layer in self.layers:
            x = layer(x)
        return self.out(x)


class TorchBert(torch.nn.Module):
    def __init__(self, features: int, heads: int, layers: int, vocabulary: int, tokens: int) -> None:
        super().__init__()
        common.add_transformer(self, torch.nn, vocabulary, features, heads, layers, tokens, norm_first=False)
        self.register_buffer("position_ids", torch.arange(tokens))

    def forward(self, tokens):
        x = self.embed(tokens) + self.positions(self.position_ids)
        for layer in self.layers:
            x = layer(x)
        return self.out(x)


def data(options: argparse.Namespace) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Rows of numbers in equal steps, with some tokens masked; and the same rows without masks."""
    generator = np.random.default_rng(0)
    start, step = generator.integers(1, 63, (2, 1024, 1))
    rows = 1 + (start + step * np.arange(options.tokens)) % 63
    return np.where(generator.random(rows.shape) < 0.15, MASK, rows), rows


def loss(model, tokens, expected):
    scores = model(tokens)
    return meta.cross_entropy(scores.reshape((-1, scores.shape[-1])), expected.reshape((-1,)))


def torch_loss(model, tokens, expected):
    return torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), expected.flatten())


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--base", action="store_true", help="the sizes of BERT-base")
    parser.add_argument("--features", type=int, default=128)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=32, help="tokens of a row (default: 32)")


EXAMPLE = common.Example(
    __doc__, lambda o: Bert(*sizes(o), o.tokens), lambda o: TorchBert(*sizes(o), o.tokens), data, loss, torch_loss,
    rate=0.01, configure=configure,
)  # fmt: skip
main = EXAMPLE.main


if __name__ == "__main__":
    main()
