"""A network in Relay's text format, fine-tuned on handwritten digits: `python -m examples.relay`. `--program` and
`--params` name your own; it takes (batch, 64) and returns (batch, 10)."""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import torch

import meta
from examples import common

PROGRAM = """#[version = "0.0.5"]
def @main(%data: Tensor[(BATCH, 64), float32], %w1: Tensor[(32, 64), float32], %b1: Tensor[(32), float32],
          %w2: Tensor[(10, 32), float32], %b2: Tensor[(10), float32]) -> Tensor[(BATCH, 10), float32] {
  %0 = nn.dense(%data, %w1, units=32);
  %1 = nn.bias_add(%0, %b1, axis=-1);
  %2 = nn.relu(%1);
  %3 = nn.dense(%2, %w2, units=10);
  nn.bias_add(%3, %b2, axis=-1)
}
"""


def parameters() -> dict[str, np.ndarray[Any, Any]]:
    """Values of the network above, as of one that was trained elsewhere."""
    generator = np.random.default_rng(0)
    shapes = {"w1": (32, 64), "b1": (32,), "w2": (10, 32), "b2": (10,)}
    return {name: (generator.standard_normal(s) / np.sqrt(s[-1])).astype(np.float32) for name, s in shapes.items()}


def model(options: argparse.Namespace) -> Any:
    if options.program is not None:
        return meta.frontend.relay.load(options.program, options.params)
    return meta.frontend.relay.load(PROGRAM.replace("BATCH", str(options.batch)), parameters())


class Twin(torch.nn.Module):
    """The network above in torch, with the names of Relay."""

    def __init__(self) -> None:
        super().__init__()
        for name, value in parameters().items():
            self.register_parameter(name, torch.nn.Parameter(torch.from_numpy(value)))

    def forward(self, x):
        linear = torch.nn.functional.linear
        return linear(torch.relu(linear(x, self.w1, self.b1)), self.w2, self.b2)


def data() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    images, labels = common.digits()
    return images.reshape(len(images), 64), labels


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--program", help="a file with a program in Relay, in text or JSON")
    parser.add_argument("--params", help="its parameters: .params or .npz")


EXAMPLE = common.Example(
    __doc__, model, lambda o: Twin(), lambda o: data(), common.classify, common.torch_classify, rate=0.1,
    configure=configure,
)  # fmt: skip
main = EXAMPLE.main


if __name__ == "__main__":
    main()
