"""A multilayer perceptron on handwritten digits: `python -m examples.mlp`."""

from __future__ import annotations

from collections.abc import Sequence

import torch

import meta
from examples import common


class MLP(meta.Model):
    def build(self, hidden: int) -> None:
        nn = meta.nn
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, 10))

    def forward(self, x):
        return self.layers(x)


class TorchMLP(torch.nn.Module):
    def __init__(self, hidden: int) -> None:
        super().__init__()
        nn = torch.nn
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, 10))

    def forward(self, x):
        return self.layers(x)


EXAMPLE = common.Example(
    __doc__, lambda o: MLP(o.hidden), lambda o: TorchMLP(o.hidden), lambda o: common.digits(), common.classify,
    common.torch_classify, rate=0.1,
    configure=lambda parser: parser.add_argument("--hidden", type=int, default=128, help="hidden features") and None,
)  # fmt: skip


def main(argv: Sequence[str] | None = None) -> list[float]:
    model, losses = common.run(EXAMPLE, argv)
    images, labels = common.digits()
    model.to("cpu").infer_mode()
    right = (model(meta.array(images)).numpy().argmax(1) == labels).mean()
    print(f"{100 * right:.1f} % of the digits are classified correctly")
    return losses


if __name__ == "__main__":
    main()
