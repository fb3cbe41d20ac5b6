"""LeNet-5 (Y. LeCun et al., "Gradient-Based Learning Applied to Document Recognition", 1998) on handwritten digits,
enlarged to 28x28: `python -m examples.lenet`."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import meta
from examples import common


def layers(nn: Any) -> list[Any]:
    """The layers, of meta.nn or torch.nn."""
    return [
        nn.Conv2d(1, 6, 5, padding=2), nn.Tanh(), nn.AvgPool2d(2), nn.Conv2d(6, 16, 5), nn.Tanh(), nn.AvgPool2d(2),
        nn.Flatten(), nn.Linear(400, 120), nn.Tanh(), nn.Linear(120, 84), nn.Tanh(), nn.Linear(84, 10),
    ]  # fmt: skip


def data() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    images, labels = common.digits()
    large = np.repeat(np.repeat(images, 3, 2), 3, 3)
    return np.pad(large, ((0, 0), (0, 0), (2, 2), (2, 2))), labels


EXAMPLE = common.Example(
    __doc__, lambda o: meta.nn.Sequential(*layers(meta.nn)), lambda o: torch.nn.Sequential(*layers(torch.nn)),
    lambda o: data(), common.classify, common.torch_classify, rate=0.05,
)  # fmt: skip
main = EXAMPLE.main


if __name__ == "__main__":
    main()
