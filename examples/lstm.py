"""A classifier of sequences with an LSTM (S. Hochreiter and J. Schmidhuber, "Long Short-Term Memory", 1997), whose cell
is written with operators: `python -m examples.lstm`."""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import torch

import meta
from examples import common


class Classifier(meta.Model):
    def build(self, hidden: int) -> None:
        self.hidden = hidden
        self.input = meta.nn.Linear(2, 4 * hidden)
        self.state = meta.nn.Linear(hidden, 4 * hidden)
        self.out = meta.nn.Linear(hidden, 3)

    def forward(self, x):
        batch, length, _ = x.shape
        h = c = meta.zeros((batch, self.hidden), device=x.device)
        projected = self.input(x)
        for i in range(length):
            gates = projected[:, i] + self.state(h)
            write, forget, candidate, read = meta.split(gates, 4, 1)
            c = meta.sigmoid(forget) * c + meta.sigmoid(write) * meta.tanh(candidate)
            h = meta.sigmoid(read) * meta.tanh(c)
        return self.out(h)


class TorchClassifier(torch.nn.Module):
    """The cell is torch's own; `state_dict` renames its arrays."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.lstm = torch.nn.LSTM(2, hidden, batch_first=True)
        self.out = torch.nn.Linear(hidden, 3)

    def forward(self, x):
        return self.out(self.lstm(x)[0][:, -1])

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        names = {"lstm.weight_ih_l0": "input.weight", "lstm.bias_ih_l0": "input.bias",
                 "lstm.weight_hh_l0": "state.weight", "lstm.bias_hh_l0": "state.bias"}  # fmt: skip
        return {names.get(name, name): value for name, value in super().state_dict(*args, **kwargs).items()}


def data(options: argparse.Namespace) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Noisy paths in the plane: circles to the left, circles to the right, lines."""
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 3, 1024)
    turn = np.array([0.5, -0.5, 0.0])[labels][:, None] * np.arange(options.length)
    heading = turn + generator.uniform(0, 2 * np.pi, (1024, 1))
    steps = np.stack([np.cos(heading), np.sin(heading)], 2) + 0.3 * generator.standard_normal((*turn.shape, 2))
    return steps.astype(np.float32), labels.astype(np.int64)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--hidden", type=int, default=32, help="features of the state (default: 32)")
    parser.add_argument("--length", type=int, default=12, help="steps of a sequence (default: 12)")


EXAMPLE = common.Example(
    __doc__, lambda o: Classifier(o.hidden), lambda o: TorchClassifier(o.hidden), data, common.classify,
    common.torch_classify, rate=0.1, configure=configure,
)  # fmt: skip
main = EXAMPLE.main


if __name__ == "__main__":
    main()
