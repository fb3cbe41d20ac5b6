"""A small GPT (A. Radford et al., "Improving Language Understanding by Generative Pre-Training", 2018) that learns the
reference of meta's own operators letter by letter and then writes: `python -m examples.gpt`."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

import meta
from examples import common
from meta.op.registry import all_ops


def text() -> str:
    """The documentation of meta's operators and their arguments, as one line."""
    described = (
        " ".join([f"{op.name}: {op.doc}", *(f"{arg.name}: {arg.doc}" for arg in op.schema.args if arg.doc)])
        for op in all_ops()
    )
    return re.sub(r"[^ -~]+", " ", "\n".join(described).replace("\n", " "))


class GPT(meta.Model):
    """(n, length) letters -> (n, length, letters) scores of the next one."""

    def build(self, letters: int, features: int, layers: int, length: int) -> None:
        common.add_transformer(self, meta.nn, letters, features, 4, layers, length, norm_first=True)
        self.norm = meta.nn.LayerNorm(features)
        self.position_ids = meta.arange(length)

    def forward(self, x):
        h = self.embed(x) + self.positions(self.position_ids)
        for layer in self.layers:
            h = layer(h, is_causal=True)
        return self.out(self.norm(h))


class TorchGPT(torch.nn.Module):
    def __init__(self, letters: int, features: int, layers: int, length: int) -> None:
        super().__init__()
        common.add_transformer(self, torch.nn, letters, features, 4, layers, length, norm_first=True)
        self.norm = torch.nn.LayerNorm(features)
        self.register_buffer("position_ids", torch.arange(length))
        self.mask = torch.nn.Transformer.generate_square_subsequent_mask(length)

    def forward(self, x):
        h = self.embed(x) + self.positions(self.position_ids)
        for layer in self.layers:
            h = layer(h, self.mask.to(h.device), is_causal=True)
        return self.out(self.norm(h))


CORPUS = text()
LETTERS = sorted(set(CORPUS))


def data(options: argparse.Namespace) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Random pieces of the text, and the same pieces one letter later."""
    numbers = np.searchsorted(LETTERS, list(CORPUS))
    starts = np.random.default_rng(options.seed).integers(0, len(numbers) - options.length - 1, 8192)
    pieces = numbers[starts[:, None] + np.arange(options.length + 1)]
    return pieces[:, :-1].copy(), pieces[:, 1:].copy()


def loss(model, x, following):
    return meta.cross_entropy(model(x).reshape((-1, len(LETTERS))), following.reshape((-1,)))


def torch_loss(model, x, following):
    return torch.nn.functional.cross_entropy(model(x).flatten(0, 1), following.flatten())


def write(model: meta.Model, options: argparse.Namespace) -> str:
    """A sample that continues `--start` letter by letter, drawn at `--temperature`."""
    model.infer_mode()
    run = model if options.eager else meta.vm.compile(model, device=options.device)
    generator = np.random.default_rng(options.seed)
    written = [LETTERS.index(letter) for letter in options.start]
    for _ in range(options.letters):
        window = written[-options.length :]
        padded = np.array([window + [0] * (options.length - len(window))])
        scores = run(meta.array(padded, device=options.device)).numpy()[0, len(window) - 1].astype(np.float64)
        weights = np.exp((scores - scores.max()) / options.temperature)
        written.append(int(generator.choice(len(LETTERS), p=weights / weights.sum())))
    return "".join(LETTERS[i] for i in written)


def known_words(sample: str) -> float:
    """The share of the words in a sample that the text has; the last one may be cut off."""
    vocabulary = set(re.findall(r"[A-Za-z]+", CORPUS))
    words = re.findall(r"[A-Za-z]+", sample)[:-1]
    return sum(word in vocabulary for word in words) / max(len(words), 1)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(steps=600, plot="gpt.svg")
    parser.add_argument("--features", type=int, default=128)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--length", type=int, default=64, help="letters of a piece (default: 64)")
    parser.add_argument("--start", default="The ", help="what the sample begins with")
    parser.add_argument("--letters", type=int, default=300, help="letters of the sample (default: 300)")
    parser.add_argument("--temperature", type=float, default=0.5)


EXAMPLE = common.Example(
    __doc__, lambda o: GPT(len(LETTERS), o.features, o.layers, o.length),
    lambda o: TorchGPT(len(LETTERS), o.features, o.layers, o.length), data, loss, torch_loss, rate=0.002,
    optimizer="AdamW", settings={}, configure=configure,
)  # fmt: skip


def main(argv: Sequence[str] | None = None) -> list[float]:
    model, losses = common.run(EXAMPLE, argv)
    options = common.parsed(EXAMPLE, argv)
    sample = write(model, options)
    print(sample)
    print(f"{100 * known_words(sample):.0f} % of its words are in the text")
    return losses


if __name__ == "__main__":
    main()
