"""ResNet-18 on 32x32 images, or ResNet-50 with `--depth 50` (K. He et al., "Deep Residual Learning for Image
Recognition", 2015), on generated images: `python -m examples.resnet`."""

from __future__ import annotations

import argparse
from typing import Any

import torch

import meta
from examples import common


def conv(nn: Any, inputs: int, outputs: int, window: int, stride: int = 1) -> list[Any]:
    """A convolution without bias, and batch norm."""
    layer = nn.Conv2d(inputs, outputs, window, stride=stride, padding=window // 2, bias=False)
    return [layer, nn.BatchNorm2d(outputs)]


def path(nn: Any, inputs: int, width: int, stride: int, deep: bool) -> Any:
    """The layers beside the shortcut: two 3x3 convolutions, or 1x1, 3x3 and 1x1 ones.

    The last scale starts as 0, so that a block starts as its shortcut (P. Goyal et al., "Accurate, Large Minibatch
    SGD", 2017). With scales of 1, rounding errors of float32 grow so much in depth that no two libraries agree."""
    if deep:
        layers = [*conv(nn, inputs, width, 1), nn.ReLU(), *conv(nn, width, width, 3, stride), nn.ReLU()]
        layers += conv(nn, width, 4 * width, 1)
    else:
        layers = [*conv(nn, inputs, width, 3, stride), nn.ReLU(), *conv(nn, width, width, 3)]
    nn.init.zeros_(layers[-1].weight)
    return nn.Sequential(*layers)


def shortcut(nn: Any, inputs: int, outputs: int, stride: int) -> Any:
    return nn.Sequential(*(conv(nn, inputs, outputs, 1, stride) if stride > 1 or inputs != outputs else []))


class Block(meta.Model):
    def build(self, inputs: int, width: int, stride: int, deep: bool) -> None:
        self.path = path(meta.nn, inputs, width, stride, deep)
        self.shortcut = shortcut(meta.nn, inputs, width * (4 if deep else 1), stride)

    def forward(self, x):
        return meta.relu(self.path(x) + self.shortcut(x))


class TorchBlock(torch.nn.Module):
    def __init__(self, inputs: int, width: int, stride: int, deep: bool) -> None:
        super().__init__()
        self.path = path(torch.nn, inputs, width, stride, deep)
        self.shortcut = shortcut(torch.nn, inputs, width * (4 if deep else 1), stride)

    def forward(self, x):
        return torch.relu(self.path(x) + self.shortcut(x))


def resnet(nn: Any, block: Any, options: argparse.Namespace) -> Any:
    """The network, of meta.nn or torch.nn."""
    deep = options.depth == 50
    inputs, blocks = options.width, []
    for stage, repeats in enumerate((3, 4, 6, 3) if deep else (2, 2, 2, 2)):
        width = options.width << stage
        for i in range(repeats):
            blocks.append(block(inputs, width, 2 if stage and not i else 1, deep))
            inputs = width * (4 if deep else 1)
    stem = [*conv(nn, 3, options.width, 3), nn.ReLU()]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 10))


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--depth", type=int, choices=[18, 50], default=18)
    parser.add_argument("--width", type=int, default=64, help="channels of the first stage (default: 64)")
    parser.add_argument("--size", type=int, default=32, help="height and width of the images (default: 32)")
    parser.add_argument("--samples", type=int, default=2048, help="images to generate (default: 2048)")


EXAMPLE = common.Example(
    __doc__, lambda o: resnet(meta.nn, Block, o), lambda o: resnet(torch.nn, TorchBlock, o),
    lambda o: common.colours(10, o.size, o.samples), common.classify, common.torch_classify, rate=0.005,
    configure=configure,
)  # fmt: skip
main = EXAMPLE.main


if __name__ == "__main__":
    main()
